"""Advice: the winner is the method of least measured error, found again by brute force."""

import dataclasses
import itertools
import json
import math
import pickle
import re
import sys

import naive
import numpy as np
import pandas as pd
import pytest
from refusals import refuses

from analysis import inputs
from analysis.advice import diagnose as advising, measurement
from analysis.advice.diagnose import diagnose, dry_run
from analysis.advice.verdict import KEEP, TIED, USE, advice, gaps
from analysis.costs.break_even import _break_even
from analysis.costs.candidates import BOUND, FOUND, RUNNABLE, TRIVIAL, in_few_bits, rivals
from analysis.inputs import Head
from analysis.moments.expected_errors import expected_error
from analysis.runs.seeds import seed_sequence
from analysis.sentences import Sentence
from approx import Mask, parse
from approx.estimate import exact
from approx.method.prices import CURRENCIES
from approx.method.tags import INVARIANT
from approx.sparse.exact import Exact
from figures.command import options
from figures.show import diagnosis, winners_map
from figures.words.translation import speaking

SPECS = (TRIVIAL, "positive()", "nystrom()", "sliding_window()", "top_k()", "taylor(degree=1)")
BUDGET = 12.0


@pytest.fixture(scope="module")
def heads():
    return [*inputs.sample().first(64).heads(), inputs.gaussian(64, 4, rng=0)]


def measured(x, *specs, budget=BUDGET, **options):
    """Return the diagnosis of methods that specs name."""
    return diagnose(x, budget=budget, methods=[parse(spec) for spec in specs], **options)


@pytest.fixture(scope="module")
def table(heads):
    return measured(heads, *SPECS, trials=3, seed=1)


def brute_force(x, spec, trials, seed):
    """Return the median total variation and the price, from dense matrices."""
    method = parse(spec).within(BUDGET, n=x.n, l=x.l, d=x.d)
    if method is None:
        return None
    found = []
    children = np.random.default_rng(seed_sequence(seed, x.digest(), str(method))).spawn(trials)
    for child in children[:1] if method.deterministic else children:
        estimate = method.approximate(x.Q, x.K, rng=child)
        dense = estimate.block(slice(None), shift=estimate.row_log())
        found.append(naive.errors(dense, naive.kernel(x.Q, x.K))["attention_tv"])
    return float(np.median(found)), (estimate.rank * (x.n + x.l) + estimate.nnz) / x.n


def test_winners_are_those_of_brute_force(heads, table):
    for x in heads:
        part = table[table.input == x.name].set_index("spec")
        found = {}
        for spec in SPECS:
            if (errors := brute_force(x, spec, 3, 1)) is not None:
                filled = str(parse(spec).within(BUDGET, n=x.n, l=x.l, d=x.d))
                assert part.attention_tv[filled] == pytest.approx(errors[0], rel=1e-9)
                assert part.stored[filled] == errors[1]
                if not spec.startswith("top_k"):
                    found[filled] = errors
        assert set(part.index) == {*found, *part.index[~part.runnable]}
        assert part.index[part.winner].tolist() == [min(found, key=found.__getitem__)]


def test_what_does_not_fit_is_absent_and_oracles_never_win(table):
    assert "taylor(degree=1)" in set(table[table.input == "gaussian"].spec)  # five columns a side
    assert "taylor(degree=1)" not in set(table[table.input != "gaussian"].spec)
    assert set(table[~table.runnable].spec) == {"top_k(k=12)"}
    assert not table[~table.runnable].winner.any()
    best = table.loc[table.groupby("input").attention_tv.idxmin()]
    assert (~best.runnable).any()  # where the bound is: the rule matters here


def test_a_tie_goes_to_the_cheaper():
    row = {"runnable": True, "attention_tv": 0.5, "stored": 32.0}
    cheap = row | {"stored": 2.0}
    assert advising.winner([row, cheap, row | {"attention_tv": 0.6, "stored": 1.0}]) is cheap
    assert advising.winner([row | {"runnable": False}]) is None


def test_uniform_attention_may_be_the_best():
    x = inputs.gaussian(32, 8, rng=0).at_temperature(1e6)
    specs = TRIVIAL, "positive(m=2)", "sliding_window(width=2)"
    found = advice(measured(x, *specs, budget=8.0, temperature=1e6))[0]
    said = "keep exact attention: nothing at this budget beats uniform in total variation"
    assert (found.winner, found.verdict, found.sentence) == (TRIVIAL, KEEP, said)
    alone = advice(measured(x, "top_k(k=2)", budget=8.0))[0]
    said = "keep exact attention: none of these methods can be run"
    assert (alone.winner, alone.sentence) == ("", said)


def test_warnings_say_what_is_wrong():
    rng = np.random.default_rng(0)
    q = 4 * rng.standard_normal((32, 8))
    long = Head("long", q, q, rng.standard_normal((32, 2)))  # |x|²/2 ≈ 22 > ln 10⁶
    said = " ".join(measured(long, "positive()", budget=8.0).warnings[0])
    assert "relative variance 10^" in said
    assert "adding eps = 1e-06 after the shift turns this head into uniform attention" in said
    short = Head("short", q / 10, q / 10, long.v)
    fine = measured(short, TRIVIAL, "positive()", budget=8.0)
    assert "eps" not in " ".join(fine.warnings[1])
    assert fine.warnings[0] == []
    signed = measured(long, "trigonometric()", budget=8.0)
    assert "rows have no positive sum: their output is 0" in " ".join(signed.warnings[0])
    assert measured(long, "top_k()").warnings[0][0].startswith("needs all logits")


def test_features_beyond_the_largest_float_are_inf():
    q = np.full((1, 1), math.sqrt(250.0))  # |q + k|² = 1000: an error of e^500/√m
    table = measured(Head("cold", q, q, q), "positive(m=4)", budget=8.0)
    assert 1e200 < table.expected_kernel_relative_frobenius[0] < math.inf
    assert table.features_needed[0] == math.inf
    assert "relative variance >10^308" in " ".join(table.warnings[0])


def test_sentences_keep_their_numbers_in_another_process():
    one = Sentence("{rows:.0f} of {n} rows", rows=2.0, n=32)
    again = pickle.loads(pickle.dumps(one))
    assert again == one == "2 of 32 rows"
    assert (again.message, again.values) == ("{rows:.0f} of {n} rows", {"rows": 2.0, "n": 32})
    assert Sentence("no {braces}").values == {}


def test_bad_arguments_and_a_budget_beyond_the_matrix():
    x = inputs.gaussian(8, 4, rng=0)
    refuses("trials must be <= 1024, got 1048576", measured, x, TRIVIAL, trials=2**20)
    refuses("no method fits 12 stored values per query row", measured, x, "taylor(degree=9)")
    refuses("accept must be <= 1, got 1.5", measured, x, TRIVIAL, accept=1.5)
    refuses("rows must be >= 2, got 1", measured, x, TRIVIAL, rows=1)
    refuses("inputs must not be empty", diagnose, [], budget=4)
    with pytest.raises(TypeError, match="methods must be a sequence of methods, got Uniform"):
        diagnose(x, budget=4, methods=parse(TRIVIAL))
    vast, whole = (measured(x, TRIVIAL, "top_k(k=3)", budget=b) for b in (1e308, 16))
    pd.testing.assert_frame_equal(*(one.drop(columns="budget") for one in (vast, whole)))


def test_text_json_and_map(table):
    text = diagnosis.text(table)
    assert "Nyström" in text
    assert "best found" in text
    assert all(f"\n{x.layer}.{x.head} " in text for x in table.itertuples() if x.layer >= 0)
    objects = json.loads(options.as_json(table.to_dict("records")))
    assert len(objects) == len(table)
    names = {"spec", "budget", "attention_tv", "runnable", "winner", "warnings"}
    assert names <= set(objects[0])
    assert objects[2]["expected_kernel_relative_frobenius"] is None  # Nyström: none known
    single = pd.DataFrame({"a": np.array([0.5, np.nan], np.float32)})
    assert options.json_value(single.to_dict("records")) == [{"a": 0.5}, {"a": None}]
    assert "nan" not in winners_map.caption(table)
    assert len(winners_map.draw(table).axes) == 2  # the map and its colours


def test_the_command(tmp_path, printed, refused):
    x = inputs.gaussian(24, 4, rng=0)
    file = tmp_path / "qk.npz"
    np.savez(file, q=x.q[None].repeat(2, 0), k=x.k[None].repeat(2, 0), v=x.v[None].repeat(2, 0))
    out = tmp_path / "out"
    methods = ["--method", TRIVIAL, "--method", "positive()", "--jobs", "1"]
    asked = ["diagnose", file, *methods, "--budget", "8", "--currency", "stored"]
    assert "Performer" in printed(*asked, "--heads", "0.1", "--out", out)
    assert {p.name for p in out.rglob("diagnosis.*")} == {
        "diagnosis.csv", "diagnosis.txt", "diagnosis.pdf", "diagnosis.svg", "diagnosis.png",
    }  # fmt: skip
    found = json.loads(printed(*asked, "--json", "--metric", "output"))
    assert [(row["layer"], row["head"]) for row in found] == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert {row["metric"] for row in found} == {"output_relative_error"}
    assert "每个查询行存储 8 个数" in printed(*asked, "--lang", "zh")
    said = printed("diagnose", file, *methods)
    assert "Budget 512 bytes read per new query" in said  # of 32 exact keys
    for word in ("If bandwidth is scarce", "keys and values of 4 bits", "exact attention"):
        assert word in " ".join(said.split())
    said = printed(*asked, "--dry-run")
    assert "2 methods on 2 heads" in said
    assert "positive(m=4)" in said
    assert "no layer 7, head 7" in refused("diagnose", file, "--heads", "7.7")
    np.savez(tmp_path / "b.npz", q=x.q, k=x.k)
    said = refused("diagnose", tmp_path / "b.npz", *methods, "--metric", "output")
    assert "needs values, and b has no v" in said


def test_the_gap_of_a_class_is_between_what_needs_all_logits_and_what_runs():
    found = diagnose(causal(), budget=16, trials=1, references=True)
    gaps_of = gaps(found).set_index("class")
    for name, part in found.groupby("class"):
        for which, tv in (("oracle", "oracle_attention_tv"), ("runnable", "best_attention_tv")):
            some = part[part[which]].attention_tv
            least = some.min() if len(some) else math.nan
            np.testing.assert_equal(gaps_of.loc[name, tv], least)
    assert gaps_of.loc["entries", "oracle"] == "top_k(k=17, per='head')"
    assert gaps_of.loc["entries", "standing"] == BOUND
    assert gaps_of.loc["low rank", "standing"] == gaps_of.loc["lines", "standing"] == FOUND
    assert gaps_of.loc["window", "standing"] == ""
    assert gaps_of.loc["entries", "best"].startswith("projected_top_k")
    both = gaps_of[(gaps_of.oracle != "") & (gaps_of.best != "")]
    assert set(both.index) >= {"entries", "columns", "pages", "low rank", "hierarchical"}
    np.testing.assert_allclose(both.gap, both.best_attention_tv - both.oracle_attention_tv)
    # entries of the best support: no other support of that size is nearer
    assert gaps_of.loc["entries", "gap"] >= 0
    assert gaps_of.loc["window", "oracle"] == ""


def test_no_budget_is_asked_for_what_none_buys():
    adaptive = "vattention(k=2, sparse=sink_window(k=4))"
    said = r"sampled\(.*\): the inputs decide how much it reads, so no budget buys it"
    none = "no method fits 12 stored values per query .*" + said
    refuses(none, measured, causal(), adaptive)
    table = measured(causal(), adaptive, TRIVIAL)
    assert re.match(said, table.left_out[0][0])
    sizes = r"cannot set its sizes\. Give the sizes, such as sampled\("
    refuses(sizes, measured, causal(), "vattention")


def test_methods_have_names_that_tell_them_apart():
    specs = [
        "pages(k=8, size=4)", "pages(k=8, size=2)", "top_k(k=8)",
        "scatterbrain(low_rank=positive(m=4), sparse=sliding_window(width=4))",
        "scatterbrain(low_rank=positive(m=4), sparse=sink_window(k=4))",
    ]  # fmt: skip
    table = measured(causal(), *specs, trials=1)
    text = diagnosis.text(table)
    _, methods, *_ = text.split("\n\n")
    quest = [f"pages by boxes (Quest), size={size}" for size in (4, 2)]
    assert list(diagnosis.names_of(specs).values())[:2] == quest
    for name in ("top-k of each row", "window)", "sink)"):
        assert len(re.findall(rf"\n{re.escape(name)}( |\n|$)", methods)) == 1, name
    assert methods.count("\nScatterbrain (Performer +  ") == 2
    two = table[table.spec.isin(specs[:2])].assign(
        warnings=[[Sentence("slow")] for _ in specs[:2]], runnable=True
    )
    said = " ".join(diagnosis.text(two).split())
    assert f"slow: {quest[0]} 1, {quest[1]} 1" in said


def test_what_people_deploy_is_measured_at_any_price_and_wins_only_within_the_budget():
    x = dataclasses.replace(causal(spread=1.0), group=3)
    asked = {"budget": 8 * 32.0, "currency": "bytes_read", "trials": 1}
    found = diagnose(x, **asked).set_index("method")
    h2o = "columns(by='h2o', recent=16)"
    dear = [*(str(method) for method in rivals() if not method.is_template), h2o]
    assert {str(method) for method in rivals()} <= set(found.index)
    assert not found.affordable[dear].any()
    assert not found.winner[dear].any()
    others = found.drop(index=dear)
    assert (others.bytes_read[others.affordable] <= 256).all()
    assert found[found.winner].attention_tv.item() == others.attention_tv[others.runnable].min()
    assert found.attention_tv["exact()"] < 1e-9
    # three heads read a window once, and each its own keys of H2O with a sum, at least 16 of them
    assert found.spec["sink_window()"] == "sink_window(k=8)"
    assert found.spec[h2o] == "columns(k=32, by='h2o', recent=16)"
    assert found.bytes[h2o] == 3 * 32 * 17 * 2
    for row in found[found.runnable].itertuples():
        less = found[found.runnable & (found.bytes_read <= row.bytes_read)]
        beaten = (less.attention_tv < row.attention_tv) | (
            (less.attention_tv == row.attention_tv) & (less.bytes_read < row.bytes_read)
        )
        assert row.undominated == (not beaten.any())
    assert set(diagnose(x, methods=[parse("sink_window()")], **asked).spec) == {"sink_window(k=8)"}


def causal(n=96, l=96, d=8, spread=2.0):
    x = inputs.gaussian(l, d, rng=3)
    near = x.k + np.roll(x.k, 1, axis=0)  # a query is like its own key and the one before
    return dataclasses.replace(x, q=spread * near[l - n :], mask="causal")


def test_what_reads_the_future_never_wins_under_a_causal_mask():
    x = causal()
    table = measured(x, "constant()", "shifted_positive(m=4)", "random(k=1)")
    assert table.autoregressive.tolist() == [False, False, True]
    assert table.runnable.tolist() == [False, False, True]
    assert table.attention_tv.idxmin() != table.winner.idxmax()  # it would have won
    assert "reads the future" in " ".join(table.warnings[1])
    snap = parse("snapkv(recent=2, window=4)")
    for method, needed in ((snap, True), (dataclasses.replace(snap, block=4), False)):
        found = diagnose(x, budget=BUDGET, methods=[method], trials=1)
        assert found.runnable.tolist() == [not needed]
        said = " ".join(diagnosis.text(found).split())
        assert ("a causal model can run it token by token only if block is given" in said) == needed
    found = measured(x, "coreset()", trials=1)
    assert "a causal model cannot run it token by token" in " ".join(found.warnings[0])
    full = dataclasses.replace(x, mask=None)
    assert measured(full, "shifted_positive(m=4)", trials=1).runnable.all()
    assert "not causal" in diagnosis.text(table)


def test_a_method_that_refuses_masks_is_left_out_by_name():
    x = causal()
    refusing = next(m for m in map(parse, RUNNABLE) if m.refusal is not None)
    table = diagnose(x, budget=BUDGET, methods=[refusing, parse(TRIVIAL)], trials=1)
    assert table.spec.tolist() == [TRIVIAL]
    (said,) = table.left_out[0]
    assert said == f"{refusing}: {refusing.refusal}"
    assert refusing.name in diagnosis.text(table)


def test_verdicts():
    x = causal()
    specs = TRIVIAL, "sliding_window(width=8)"
    table = measured(x, *specs).set_index("spec")
    share = table.attention_tv[specs[1]] / table.attention_tv[TRIVIAL]
    for accept, verdict in ((share * 1.001, USE), (share * 0.999, KEEP)):
        again = measured(x, *specs, accept=accept)
        assert set(again.verdict) == {verdict}
        assert advice(again)[0].verdict == verdict
    one = advice(measured(x, *specs, "sliding_window(width=9)", accept=1.0))[0]
    assert 1 < one.margin < 1.05
    assert one.verdict == TIED
    assert one.sentence.endswith(f"a tie with {one.runner_up}")
    rich = measured(x, *specs, budget=48.5)  # (1 + … + 96)/96
    assert set(rich.verdict) == {KEEP}
    assert "the budget buys every entry" in advice(rich)[0].sentence
    less = measured(x, *specs, budget=48.4, accept=1.0)
    assert set(less.verdict) == {USE}
    assert f" ≤ total variation {advice(less)[0].attention_tv:.3f}, " in advice(less)[0].sentence


@pytest.mark.parametrize(("mask", "specs"), [
    ("causal", ["uniform()", "top_k(k=4)", "positive(m=4)",
                "scatterbrain(low_rank=positive(m=2), sparse=top_k(k=2))"]),
    # positions that 10 queries alone would not have
    (None, ["sliding_window(width=6)", "sink_window(k=6)", "strided(k=8)", "chunk(size=8)",
            "flash(size=8)", "cosformer(M=64)"]),
])  # fmt: skip
def test_a_sample_of_queries_is_measured_as_those_rows_are(mask, specs):
    x = dataclasses.replace(causal(n=40, l=64), mask=mask)
    methods = [parse(s) for s in specs]
    table = diagnose(x, budget=1e3, methods=methods, rows=10, trials=1).set_index("spec")
    assert set(table.measured) == {10}
    picked = (np.arange(10) * 40 + 20) // 10
    weights = np.exp(x.logits())
    weights /= weights.sum(axis=1, keepdims=True)
    for method in methods:
        spec = str(method)
        seed = seed_sequence(0, x.digest(), spec)
        (child,) = np.random.default_rng(seed).spawn(1)
        estimate = x.approximate(method, rng=child)
        dense = estimate.block(slice(None), shift=estimate.row_log())
        if estimate.space == "kernel":
            dense /= dense.sum(axis=1, keepdims=True)
        else:
            dense *= np.exp(estimate.row_log())[:, None]
        tv = 0.5 * np.abs(dense - weights).sum(axis=1)[picked]
        assert table.attention_tv[spec] == pytest.approx(tv.mean(), rel=1e-9)
        stderr = tv.std(ddof=1) / math.sqrt(10) * math.sqrt(1 - 10 / 40)
        assert table.attention_tv_stderr[spec] == pytest.approx(stderr, rel=1e-9)
        over, under = (((a @ x.V)[picked] ** 2).sum(axis=1) for a in (dense - weights, weights))
        ratio = over.sum() / under.sum()  # its square root is the error: the delta method
        spread = (over - ratio * under).std(ddof=1) / math.sqrt(10) * math.sqrt(1 - 10 / 40)
        stderr = spread / under.mean() / (2 * math.sqrt(ratio))
        assert table.output_relative_error_stderr[spec] == pytest.approx(stderr, rel=1e-6)
        known = expected_error(method, x.Q, x.K, mask=mask)  # of all queries
        want = math.nan if known is None or estimate.space != "kernel" else known
        assert table.expected_kernel_relative_frobenius[spec] == pytest.approx(
            want, rel=1e-9, nan_ok=True
        )


def test_methods_that_are_compared_together_have_the_bits_of_each_alone(monkeypatch):
    x = causal(n=40, l=64)
    specs = TRIVIAL, "positive(m=4)", "columns(k=6)", "top_k(k=6)", "random(k=6)"
    asked = {"budget": 1e3, "rows": 10, "trials": 3}
    together = measured(x, *specs, **asked)
    monkeypatch.setattr(measurement, "SHARE", 10**15)  # nothing fits: each has its own pass
    pd.testing.assert_frame_equal(measured(x, *specs, **asked), together, check_exact=True)


def test_every_bound_is_below_what_is_measured_and_of_the_measured_queries():
    x = causal(n=40, l=64)
    specs = [TRIVIAL, "top_k(k=6)", "random(k=6)", "columns(k=6, by='h2o')", "positive(m=2)",
             "scatterbrain(low_rank=positive(m=2), sparse=top_k(k=2))"]  # fmt: skip
    for rows in (None, 10):
        table = measured(x, *specs, budget=1e3, rows=rows).set_index("spec")
        assert (table.bound.isna() == (table["class"] == "sparse + low rank")).all()
        assert (table.bound.dropna() <= table.attention_tv_least[table.bound.notna()]).all()
        picked = np.arange(40) if rows is None else (np.arange(10) * 40 + 20) // 10
        held = np.sort(exact.softmax(x.Q, x.K, x.mask)[picked].ravel())[::-1]
        lost = 1 - held[: 6 * len(picked)].sum() / len(picked)
        assert table.bound[specs[1]] == table.bound[specs[2]] == pytest.approx(lost, abs=1e-9)
    assert (table.certificate.notna() <= table.winner).all()
    alone = measured(x, specs[2], budget=1e3, rows=10)
    (drawn,) = alone.itertuples()
    assert drawn.bound <= drawn.attention_tv_least < drawn.attention_tv < drawn.certificate < 1
    one = advice(alone)[0]
    between = one.bound, one.attention_tv, one.certificate
    assert between == (drawn.bound, drawn.attention_tv, drawn.certificate)
    line = diagnosis.text(alone).splitlines()[2].split()
    bound, tv, guaranteed = (f"{x:.3f}" for x in between)
    assert line.index(tv) == line.index(bound) + 1
    assert guaranteed not in line  # above half of uniform attention's it says nothing
    found = gaps(table.reset_index()).set_index("class")
    least = table.groupby("class").bound.min()
    np.testing.assert_array_equal(found.bound, least[found.index])
    np.testing.assert_allclose(found.gain, found.best_attention_tv - found.bound)


def test_theory_and_operations_are_those_of_what_is_seen():
    x = causal(spread=1.0)
    pair = [parse("positive(m=4)"), parse("top_k(k=4)")]
    window = dataclasses.replace(x, mask=Mask.window(x.n, x.l, 10))
    pays = {}
    for name, head in (("full", dataclasses.replace(x, mask=None)), ("causal", x), ("10", window)):
        first, second = diagnose(head, budget=1e3, methods=pair, trials=1).itertuples()
        (method, _), q, k = pair, head.Q, head.K
        variance = method.moments(q, k).log_relative_variance
        seen = head.mask.visible()
        squares = np.where(seen, np.exp(2 * q @ k.T), 0)
        error = math.sqrt((np.exp(variance) * squares).sum() / squares.sum())
        assert first.expected_kernel_relative_frobenius == pytest.approx(error, rel=1e-9)
        assert first.features_needed == pytest.approx(4 * (error / 0.1) ** 2, rel=1e-9)
        pays[name] = first.pays_from, second.pays_from
    # (4d + 1)nm < 2n²d, n(n + 1)d or, of w keys each, 2nwd − w(w − 1)d; k keys from k + 1 on
    assert pays == {"full": (9, 5), "causal": (16, 5), "10": (26, 5)}
    known = _break_even.cache_info().misses
    diagnose(dataclasses.replace(x, name="another"), budget=1e3, methods=pair, trials=1)
    assert _break_even.cache_info().misses == known  # of another head of one shape


@pytest.mark.parametrize("mask", [None, "causal"])
def test_a_method_pays_from_the_least_length_with_fewer_multiply_adds(mask):
    """Every length is tried; what reads all keys at every length never pays."""
    x = dataclasses.replace(inputs.gaussian(8, 4, rng=0), mask=mask)
    specs = (
        "sliding_window(width=3)", "positive(m=2)", "pages(k=4, size=2)", "elu()",
        "scatterbrain(positive(m=2), sliding_window(width=3))", "projected_top_k(k=2, r=2)",
        "quantised(bits=2)", "top_k(k=2, per='head')",
    )  # fmt: skip
    table = measured(x, *specs, budget=1e3, trials=1)

    def work(method, n):
        return method.price(n=n, l=n, d=4, c=x.V.shape[1], mask=mask).multiply_adds

    for found, spec in zip(table.pays_from[:6], specs):
        less = (n for n in itertools.count(1) if work(parse(spec), n) < work(Exact(), n))
        assert found == next(less)
    assert table.pays_from[6] == math.inf
    assert math.isnan(table.pays_from[7])  # a head with few keys in one row reads more in another
    # one cost model: it pays at this length, or its price is no less than that of exact attention
    pays = table.pays_from <= x.l
    assert (pays == (table.multiply_adds < table.exact_multiply_adds)).all()


def test_an_oracle_of_a_large_matrix_is_left_out_by_name(monkeypatch):
    for module in (advising, measurement):
        monkeypatch.setattr(module, "MOST_ENTRIES", 1000)
    x = causal()
    table = measured(x, "truncated_svd(rank=2)", "top_k(k=4)", TRIVIAL)
    assert table.spec.tolist() == ["top_k(k=4)", TRIVIAL]
    assert table.left_out[0] == [
        "truncated_svd(rank=2): it decomposes the whole matrix, which has more than 1000 entries"
    ]


def test_the_text_fits_a_terminal(table, capsys, monkeypatch):
    from figures.words.terminal_columns import width

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    for language in ("en", "zh"):
        with speaking(language):
            text = diagnosis.text(table)
        lines = [line for line in text.splitlines() if "--method" not in line]
        assert max(map(width, lines)) <= 80
    plan = dry_run(inputs.gaussian(16, 4, rng=0), budget=4, methods=[parse(TRIVIAL)])
    assert plan.heads == 1
    assert plan.methods == [TRIVIAL]
    assert plan.seconds > 0


def test_no_budget_is_asked_for_where_every_size_costs_more_than_exact_attention():
    x = inputs.gaussian(8, 8, rng=0)
    said = r"taylor\(\): every size costs more than exact attention"
    for budget in (8, 100000):  # exact attention costs 8
        none = rf"no method fits {budget} stored .*: {said}"
        refuses(none, measured, x, "taylor", budget=budget)
        table = measured(x, "taylor", TRIVIAL, budget=budget)
        assert re.fullmatch(said, table.left_out[0][0])
    # a size that is given is not capped
    refuses("raise the budget", measured, x, "taylor(degree=2)", budget=8)
    table = measured(x, "taylor", TRIVIAL, budget=7)
    assert table.left_out[0] == ["taylor(): no size fits the budget"]


def test_methods_are_ranked_by_the_error_that_is_asked_for():
    """The values of the first keys are 20 times the others, which a window forgets."""
    x = inputs.gaussian(32, 8, rng=0)
    v = np.ones_like(x.q)
    v[:8] = 20.0
    x = dataclasses.replace(x, q=3 * x.q, v=v, mask="causal")
    specs = TRIVIAL, "sliding_window(width=8)", "sink_window(k=8)", "positive(m=4)", "top_k(k=4)"
    metric = "output_relative_error"
    by_tv = measured(x, *specs, trials=2)
    by = measured(x, *specs, trials=2, metric=metric)
    for name in ("attention_tv", metric, "reads", "expected_kernel_relative_frobenius"):
        np.testing.assert_array_equal(by[name], by_tv[name])  # the same draws
    runs = by[by.runnable]
    assert by.spec[by.winner].tolist() == [runs.spec[runs.output_relative_error.idxmin()]]
    assert by_tv.spec[by_tv.winner].tolist() == [specs[2]] != by.spec[by.winner].tolist()
    assert advice(by_tv)[0].other.spec == advice(by)[0].winner
    assert by.bound.isna().all()
    assert by.certificate.isna().all()
    assert by_tv.bound.notna().any()
    assert set(by.standing) == {"", "all logits"}
    uniform = float(by.output_relative_error[by.spec == TRIVIAL].iloc[0])
    share = float(runs.output_relative_error.min()) / uniform
    for accept, verdict in ((share * 1.001, TIED), (share * 0.999, KEEP)):
        found = measured(x, *specs, trials=2, metric=metric, accept=accept)
        assert set(found.verdict) == {verdict}
        assert advice(found)[0].uniform.output_relative_error == uniform
    losing = set(by.spec[(by[metric] >= uniform) & (by.spec != TRIVIAL) & by.runnable])
    said = "output error no better than uniform attention's"
    assert {r.spec for r in by.itertuples() if said in r.warnings and r.runnable} == losing
    text = "the error of the output needs values, and a has no v: "
    refuses(text, diagnose, Head("a", x.q, x.k), budget=12, metric=metric)
    text = "metric must be one of attention_tv, output_relative_err"
    refuses(text, diagnose, x, budget=12, metric="output")


def test_what_saves_nothing_but_stored_values_is_not_advised():
    """24 keys of width 32: boxes of two keys are read, multiplied and kept, and 20 of 24 keys."""
    x = inputs.gaussian(24, 32, rng=0)
    found = measured(x, TRIVIAL, "pages(k=20, size=2)", budget=20, accept=1.0)
    dear = found[found.winner].iloc[0]
    assert dear.spec == "pages(k=20, size=2)"
    assert dear.budget < dear.exact_price == 24
    # as many numbers in boxes as keys have, and 20 keys with their values
    assert dear.reads == 24 * 32 + 20 * 64 > dear.exact_reads == 24 * 64
    assert dear.multiply_adds > dear.exact_multiply_adds
    assert dear.bytes == 2 * 24 * (64 + 32) > dear.exact_bytes == 2 * 24 * 64
    assert dear.verdict == KEEP
    assert "saves nothing but stored values" in advice(found)[0].sentence
    # a state of 8 features keeps less, so that it is advised, with a warning
    found = measured(x, TRIVIAL, "coreset(rank=8, tau='queries')", budget=20, accept=1.0)
    best = found[found.winner].iloc[0]
    assert best.verdict == USE
    many = best.multiply_adds / best.exact_multiply_adds
    assert many > 2
    assert best.reads < best.exact_reads
    warning = f"costs {many:.3g} times exact attention's multiply-adds"
    assert warning in best.warnings
    assert advice(found)[0].sentence.endswith(warning) or warning in advice(found)[0].sentence


@pytest.mark.parametrize("currency", CURRENCIES)
def test_budgets_of_every_currency_are_kept(currency):
    x = causal(n=48, l=48)
    exact = getattr(parse("exact()").price(**x.shape.given), currency)
    specs = TRIVIAL, "sink_window()", "top_k()", "nystrom()", "truncated_svd(space='attention')"
    asked = {"currency": currency, "trials": 1}
    share = 0.51234
    found = measured(x, *specs, budget=share * exact, **asked)
    assert len(found) >= 4
    assert (found[currency].dropna() <= share * exact * (1 + 1e-12)).all()
    assert (found.exact_price == exact).all()
    assert set(found.currency) == {currency}
    refuses("no method fits", measured, x, "sink_window()", budget=1e-9, currency=currency)
    # what exact attention costs is enough, however much is offered
    huge = measured(x, *specs, budget=1e15, **asked)
    assert (huge[currency].dropna() <= exact).all()
    assert set(huge.verdict) == {KEEP}
    assert set(huge.budget) == {1e15}


def test_what_needs_the_queries_of_all_tokens_is_left_out_by_name():
    whole = dataclasses.replace(inputs.gaussian(40, 4, rng=0), mask="causal")
    last = dataclasses.replace(whole, q=whole.q[-8:], mask=Mask.causal(8, 40))
    for x, lacks in ((whole, False), (last, True)):
        table = measured(x, TRIVIAL, "columns(by='h2o')", "columns(by='key_norm')", budget=8.0)
        said = [str(one) for one in table.left_out.iloc[0]]
        assert table["class"].tolist().count("columns") == 2 - lacks
        assert said == [
            "columns(by='h2o'): it needs the queries of all tokens, and there are the last 8 of 40"
        ] * lacks  # fmt: skip


def test_a_vector_that_all_keys_share_does_not_change_the_advice():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 256, 64))
    budget = {"budget": 24000, "currency": "bytes_read", "rows": 64, "trials": 1}
    methods = [m for m in in_few_bits("bytes_read") if "eden" in str(m)]
    tvs = []
    for b in (0, 20, 100, 300):
        x = Head("shared", q, 1.5 * k + b / 8, v, mask="causal")  # |b| = 0, 20, 100, 300
        table = diagnose(x, methods=methods, **budget)
        best = table[table.winner].iloc[0]
        assert b < 20 or parse(best.spec).tags >= INVARIANT
        tvs.append(best.attention_tv)
    # the mean over 64 rows of one draw of 2 bits; without the groups .12, .25, .60, .63
    assert max(tvs) < 1.25 * tvs[0] < 0.2
