"""The tables of ``make lm``, from a made-up answer of `diagnose`."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from analysis.advice.diagnose import diagnose
from analysis.advice.target import needed
from analysis.costs import candidates
from analysis.costs.budget import price_of_keys
from analysis.inputs import Head
from analysis.models.capture import Capture
from analysis.ranks import state_rank
from approx import Mask, parse
from approx.estimate import exact
from approx.method.filling import resized
from approx.method.prices import CURRENCIES, Shape, price_at
from figures.words.markdown import insert
from figures.words.translation import LANGUAGES, speaking, twin
from studies.lm import (
    __main__ as command,
    asked,
    certificates,
    lengths as reads_by_length,
    needed as targets,
    pages,
    retrieval,
    sample,
    scaling,
    states,
    substitute,
)
from studies.lm.head_kinds import KINDS
from studies.lm.peers import comparison


def heads(tokens):
    """Return the first tokens of the four bundled heads of SmolLM2."""
    return [x.first(tokens) for x in inputs.sample("smollm2").heads()]


def cells(text):
    """Return the rows of a table in Markdown, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines[2:]]


def answer():
    """Return the tables of three heads and three methods, one of them with all logits."""
    tv = {"uniform()": (0.5, 0.6, 0.9), "top_k(k=2)": (0.0, 0.1, 0.2), "nystrom()": (0.4, 0.7, 0.1)}
    reads = {"uniform()": np.nan, "top_k(k=2)": 16.0, "nystrom()": 8.0}
    won = {"uniform()": (False, True, False), "nystrom()": (True, False, True)}
    return pd.DataFrame(
        {"layer": 3, "head": head, "n": 8, "spec": spec, "attention_tv": values[head],
         "runnable": spec in won, "winner": won.get(spec, (False,) * 3)[head],
         "standing": "" if spec in won else "bound", "kind": ("sink", "broad", "sink")[head],
         "warnings": [], "reads": reads[spec], "exact_reads": 64.0}
        for spec, values in tv.items() for head in range(3)
    )  # fmt: skip


def test_summary_and_markdown_have_medians_wins_and_their_kinds():
    rows = command.summary(answer()).set_index("spec")
    assert rows.index.tolist() == ["top_k(k=2)", "nystrom()", "uniform()"]
    assert rows.median_tv.tolist() == [0.1, 0.4, 0.6]
    assert rows.wins.fillna(-1).tolist() == [-1, 2, 1]
    assert rows.loc["nystrom()", list(KINDS)].tolist() == [2, 0, 0, 0, 0]
    assert rows.loc["uniform()", list(KINDS)].tolist() == [0, 0, 0, 1, 0]
    kinds = answer().drop_duplicates("head").kind
    text = command.markdown(command.summary(answer()), kinds, "Title")
    first, _, last = cells(text)
    assert (
        "| method | median tv | quartiles | reads | wins (3) | sink (2) | local (0) "
        "| retrieval (0) | broad (1) | mixed (0) |\n"
    ) in text
    assert first == ["top_k(k=2)", "0.100", "0.050–0.150", "25.0%", "bound", *[""] * 5]
    assert last[:6] == ["uniform()", "0.600", "0.550–0.750", "", "1", "0"]


def test_heads_of_some_layers_keep_their_numbers():
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 4, 70, 3)).astype(np.float16)
    captured = Capture(q, q[:, :2], q[:, :2], 0.5, True, np.arange(70), layers=(4, 9))
    found = sample.table(captured)
    assert list(zip(found.layer, found["head"])) == [(i, j) for i in (4, 9) for j in range(4)]
    weights = sample.weights(captured, 1, 3)
    logits = 0.5 * q[1, 3].astype(float) @ q[1, 1].astype(float).T
    expected = np.tril(np.exp(logits))
    expected /= expected.sum(axis=1, keepdims=True)
    # sums of 3 products of order 10, and of 70 terms
    np.testing.assert_allclose(weights, expected, rtol=1000 * np.finfo(float).eps, atol=1e-300)


def test_methods_at_equal_reads_are_the_largest_that_fit():
    head = heads(96)[0]
    shape = {"n": 96, "l": 96, "d": 64, "c": 64, "mask": head.mask}
    found = states.at_reads(20 * 128, head)
    # leaves of 32 do not fit, nor 16 near keys, a sink and two blocks by means
    assert len(found) == len(states.FAMILIES) - 3
    for method in found:
        price = method.price(**shape)
        if price is not None and method.sized_by is not None:  # uniform attention has no size
            assert price.reads <= 20 * 128
            larger = resized(method, getattr(method, method.sized_by.field) + 1)
            assert larger.price(**shape).reads > 20 * 128 or not states.keeps_leaf(larger)


def test_tables_of_states_are_medians_over_heads():
    some, window = heads(72)[1:3], parse("sink_window(k=20)")
    errors, methods = states.medians(some, 20)
    weights = [(exact.softmax(x.Q, x.K, x.mask), x.mask) for x in some]
    bounds = [state_rank.lower_bound(P, 8, mask=mask) for P, mask in weights]
    assert errors.loc["lower bound", 8] == np.median(bounds)
    assert errors.loc["m states, best found"].isna().tolist() == [False] * 4 + [True]
    named = methods.set_index("method").loc[f"`{window}`"]
    tv = [x.compare(x.approximate(window))["attention_tv"] for x in some]
    assert named.attention_tv == np.median(tv)
    assert named.reads == 20
    assert len(cells(pages.numbers(methods))) == len(methods)


def test_supports_are_compared_row_by_row_and_numbers_where_they_agree():
    theirs = np.array([[True, True, False], [True, False, False]])
    ours = np.array([[True, True, False], [False, True, False]])
    found = comparison.compare("keys", (theirs, [[4.0], [9.0]]), (ours, [[5.0], [0.0]]), "why")
    assert (found.rows, found.same, found.difference) == (2, 1, 0.25)
    assert found.common == 2 / 3
    numbers = comparison.compare("keys", (None, [2.0, -8.0]), (None, [2.0, -4.0]))
    assert (numbers.rows, numbers.difference) == (comparison.NOT_ASKED, 0.5)


def test_tables_of_certificates_are_medians_and_shares_of_rows(monkeypatch):
    spec, low = "sink_window(k=32)", "truncated_svd(rank=2, space='attention')"
    boxes = certificates.BOXES, certificates.CODES[4]
    monkeypatch.setattr(certificates, "METHODS", {spec: boxes, low: (certificates.NORMS,)})
    rows = certificates.measured(heads(96)[:1], first=64)
    assert (rows.value >= rows.truth * (1 - 1e-9) - 1e-12).all()
    table = certificates.summary(rows).set_index(["method", "knows", "bits"])
    assert len(table) == 3
    tv = rows[(rows.method == spec) & (rows.bits == 4) & (rows.metric == "attention_tv")]
    assert len(tv) == 32
    found = table.loc[f"`{spec}`", "boxes", "4"]
    assert found["bound"] == tv.value.median()
    assert found["true < 0.1"] == (tv.truth < 0.1).mean()
    assert found["bound/true"] == (tv.value / tv.truth).median()
    assert found["reads"] == pytest.approx(tv.share.mean(), rel=1e-12)


def test_guards_hold_and_the_cheapest_is_shown(monkeypatch):
    x = heads(160)[0]
    monkeypatch.setattr(certificates, "SUPPORTS", {"sink_window": "sink_window(k={})"})
    monkeypatch.setattr(certificates, "KEYS", (32, 64))
    guard = pd.DataFrame(certificates.guarded(x))
    assert not guard.above.any()
    assert (guard["most tv"] <= guard.allowed).all()
    best = certificates.spending(pd.concat([guard, guard]))
    assert best.reads.tolist() == guard.groupby("allowed").share.min().tolist()


def test_winners_of_each_currency_are_counted_and_the_advisors():
    names = ("top top top top top", "top sink top top sink",  # without sizes, by currency
             "top sink sink top sink", "top page top top page")  # fmt: skip
    made_up = pd.DataFrame(
        {"layer": 2, "head": head, "currency": currency, "asked": asked, "budget": 128.0}
        for head, methods in enumerate(names)
        for currency, asked in zip(CURRENCIES, methods.split())
    )
    said = command.by_currency(heads(300)[0], made_up)
    assert "It is not the same method in every currency on 3 of 4 heads." in said
    assert "stored and reads on 1, stored and multiply-adds on 3," in said
    rows = [" ".join(row) for row in cells(said)]
    assert rows == ["top 4 1 3 4 1", "sink 0 2 1 0 2", "page 0 1 0 0 1"]
    (x,) = some = heads(64)[2:3]
    table = command.compared(some, keys=12)
    for currency, part in table.groupby("currency", sort=False):
        budget = price_of_keys(12, x, str(currency))
        assert (part.budget == budget).all()
        for template, spec in zip(part.asked, part.winner):
            filled = parse(template).within(budget, currency=currency, **x.shape.given)
            assert str(filled) == spec
    found = diagnose(x, budget=12 * 128, currency="reads")
    first = table[(table["head"] == x.head) & (table.currency == "reads")]
    assert first.winner.tolist() == found.spec[found.winner].tolist()


def replaced_records():
    """Return what `studies.lm.substitute` writes, of a made-up model: KL falls with the bytes."""
    runs = [
        {
            "text": text, "setting": setting, "template": template, "method": method,
            "use": "runnable", "future_heads": 0, "oracle_heads": 0,
            "kl": kl, "kl_stderr": 0.01, "kl_median": 0.0, "kl_99": 0.5,
            "kl_largest": 2.0, "same_top_1": 0.5, "same_top_1_stderr": 0.02, "perplexity": 40.0,
            "exact_perplexity": 30.0, "first_position": 45, "bytes_read": read,
            "bytes_read_share": read / 32768, "bytes": read, "bytes_of_keys": 8192,
            "exact_bytes_read": 32768.0, "exact_bytes": 32768.0,
        }
        for text in ("t.txt", "u.txt")
        for setting in ("rows", "prompt")
        for template, method, kl, read in (
            ("exact()", "exact()", 0.0, 32768.0),
            ("sink_window()", "sink_window(k=32)", 0.25, 8192.0),
            ("columns(by='tova')", "columns(k=31, by='tova')", 0.125, 8000.0),
            (ONCE, "columns(k=32, by='snapkv')", 0.0625, 16384.0),
        )
        if template != ONCE or setting == "prompt"
    ]  # fmt: skip
    return {
        "date": "2026-11-23", "model": "Tiny-Instruct.Q4", "model_sha256": {"a.gguf": "12"},
        "text_sha256": {"t.txt": "34", "u.txt": "56"}, "tokens": 90, "heads": 6,
        "versions": {"numpy": "2"}, "cpu_seconds": 3, "runs": runs,
    }  # fmt: skip


(ONCE,) = substitute.ONCE


def test_tables_of_a_model_have_a_line_a_method_and_the_least_bytes_first():
    text = substitute.markdown(replaced_records())
    tables = text.split("\n## ")[1:]
    assert [one.splitlines()[0] for one in tables] == [
        f"{name}, setting {setting}"
        for name in ("t.txt", "u.txt")
        for setting in ("rows", "prompt")
    ]
    bold = [[line.split("`")[1] for line in one.splitlines() if "**`" in line] for one in tables]
    best = ["columns(k=31, by='tova')", "exact()"]
    assert bold == [best, [best[0], "columns(k=32, by='snapkv')", best[1]]] * 2
    assert "| 8,192 | 25% | 8,192 | 0.250 ± 0.01 | 0 | 0.500 | 2.00 | 50% ± 2% | 40.0 |" in text
    assert "If bandwidth is scarce: columns(k=31, by='tova')." in tables[0]
    for language in LANGUAGES:
        with speaking(language):
            rows = cells(substitute.block(replaced_records()))
        assert [row[1] for row in rows] == ["8,000", "8,192", "16,384", "32,768"]
        assert rows[0][2:] == ["8,000", "0.125", "0.125", "0.125", "0.125", "50%"]
        assert rows[2][3:7] == ["", "", "0.0625", "0.0625"]  # is not run in every row


def test_pages_show_the_numbers_that_were_measured():
    found = json.loads((substitute.HERE / "substitute.json").read_text("utf-8"))
    assert (substitute.HERE / "substitute.md").read_text("utf-8") == substitute.markdown(found)
    marks = substitute.BEGIN, substitute.END
    for language in LANGUAGES:
        with speaking(language):
            page = twin(substitute.PAGE).read_text("utf-8")
            assert insert(page, *marks, substitute.block(found)) == page
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in substitute.TEXTS
    }
    assert found["text_sha256"] == digests


def test_methods_of_the_study_fit_what_keys_cost_and_have_names():
    shape = Shape(512, 512, 64, 64, Mask.causal(512, 512), 3)
    budgets = [2 * keys * (64 + 64) for keys in substitute.KEYS]
    for template in map(parse, (*substitute.FILLED, *substitute.ONCE)):
        found = substitute.fitting(template, shape, budgets)
        read = [price_at(method, shape).bytes_read for method in found]
        assert max(read) <= budgets[-1]
        assert len(read) == 1 + (min(read) <= budgets[0])
    assert substitute.fitting(parse("exact()"), shape, budgets) == [parse("exact()")]
    every = *map(str, candidates.rivals()), *substitute.FILLED, *substitute.ONCE, *substitute.PLANS
    assert set(every) == set(substitute.NAMES)


# The tables of targets and lengths that ``make lm-study`` makes of whole models


def test_what_people_ask_for_fits_what_keys_cost_a_group():
    q, k, v = np.random.default_rng(0).standard_normal((3, 256, 64))
    x = Head("x", q, k, v, mask="causal", group=3)
    methods, most = asked.sized(x), 32 * 2 * (64 + 64)
    prices = {spec: method.price(**x.shape.given).bytes_read for spec, method in methods.items()}
    for spec, cost in prices.items():
        assert (cost <= most) == parse(spec).is_template
    assert prices["exact()"] == 256 * 2 * (64 + 64)


def test_what_a_target_needs_is_summarised_over_heads():
    methods = [parse(spec) for spec in ("sink_window()", "sliding_window()", "top_k()")]
    table = needed(heads(64), 0.1, currency="reads", methods=methods)
    kinds = pd.Series({(x.layer, x.head): kind for x, kind in
                       zip(heads(64), ("sink", "local", "broad", "sink"))})  # fmt: skip
    text = targets.markdown(table, kinds, "Title")
    some = table[table.reached & table.runnable].groupby(["layer", "head"]).share.min()
    assert f"costs a median of {some.median():.1%} of exact attention" in text
    assert "sink (2)" in text.splitlines()[2]
    rows = {name: row for name, *row in cells(text)}
    assert set(rows) == {"sink_window()", "sliding_window()", "top_k()", "exact()"}
    found = table[(table.method == "sink_window()") & table.reached]
    assert int(rows["sink_window()"][1]) == len(found)
    assert float(rows["sink_window()"][3]) == found["size"].median()
    assert rows["top_k()"][0] == "bound"


def test_heads_and_text_for_lengths(tmp_path):
    shares = pd.read_csv(sample.DATA / "smollm2.csv")
    some = scaling.chosen(shares)
    assert some.kind.value_counts().to_dict() == dict.fromkeys(KINDS, scaling.EACH)
    assert (some.effective_keys >= 2).all()
    module = tmp_path / "text.py"
    module.write_text('bible = Bible("""\nIn the [very] beginning\n""")')
    assert scaling.words(module) == "In the very beginning"


def test_reads_by_length_are_a_table(tmp_path):
    """The whole study, as ``make lm-study`` runs it, on files of two lengths."""
    files = []
    for l in (64, 128):
        arrays = {name: np.stack([getattr(x, name)[None] for x in heads(l)], 1) for name in "qkv"}
        files.append(tmp_path / f"last 16 of {l}.npz")
        np.savez(files[-1], **arrays | {"q": arrays["q"][:, :, -16:]}, causal=1)
    page = tmp_path / "lengths.md"
    reads_by_length.main([*map(str, files), "--jobs", "1", "--summary", str(page)])
    rows = cells(page.read_text("utf-8"))
    assert [int(row[0]) for row in rows] == [64, 128]
    for row in rows:
        assert sum(map(int, row[1:7])) == 4  # each head has one cheapest method


def test_a_page_of_facts_counts_the_questions_that_exact_attention_answers():
    price = {"exact": 9999.0, "top_k()": 60.0, "cheap": 64.0, "plan": np.nan}
    few, every = ["exact", "top_k()", "plan"], [*price]
    asked = [(512, 0.0, every), (512, 0.5, every), (512, 1.0, ["exact"]), (2048, 0.0, few)]
    rows = [
        ("needle", tokens, depth, 0, name, -1.0 - every.index(name),
         1 + (depth == 1 or name == "plan"), price[name], 64.0)
        for tokens, depth, names in asked
        for name in names
    ]  # fmt: skip
    columns = "kind", "tokens", "depth", "trial", "method", "log_probability", "rank"
    table = pd.DataFrame(rows, columns=[*columns, "price", "budget"])
    text = "\n\n".join(retrieval.markdown(table, "Tiny", ["chain at 512 tokens"]))
    found, tests = (part for part in text.split("\n\n") if part.startswith("|"))
    assert cells(found)[0] == ["512", "exact", "9,999", "2 of 3 (-1.0)"]
    assert ["512", "plan", "", "0 of 2 (-4.0)"] in cells(found)
    assert [row[:2] for row in cells(found)][-3:] == [["2048", name] for name in few]
    assert cells(tests) == [
        ["exact", "top_k()", "3", "3", "0", "0.25", "open"],
        ["exact", "cheap", "2", "2", "0", "0.5", "open"],
        ["exact", "plan", "3", "3", "0", "0.25", "open"],
        ["top_k()", "cheap", "2", "2", "0", "0.5", "open"],
    ]
    assert "over the 3 of 4 questions" in text
    assert "Not yet measured: chain at 512 tokens." in text
