"""Targets: the smallest size is that of brute force over all sizes, and prices are as asked."""

import dataclasses
import itertools
import json
import math

import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st
from refusals import refuses

from analysis import inputs
from analysis.advice import target as asking
from analysis.advice.target import METRICS, by_method, cheapest, needed, smallest
from analysis.inputs import Head
from analysis.runs.seeds import seed_sequence
from approx import parse
from approx.method.prices import CURRENCIES
from figures.command.target import ERRORS

N = 24


def heads():
    """Return heads of two real models, causal and not."""
    return [x for name in ("smollm2", "minilm") for x in inputs.sample(name).first(N).heads()]


def tv(x, estimate):
    """Return the mean total variation, from dense matrices."""
    dense, kernel = estimate.block(slice(None), shift=estimate.row_log()), naive.kernel(x.Q, x.K)
    return naive.errors(dense, kernel, mask=x.mask)["attention_tv"]


def brute_force(x, spec, target):
    """Return the first of all sizes that reaches a target for less than every key that is seen."""
    everything = x.mask.visible().sum() / x.n
    for size in range(1, x.l):
        try:
            estimate = x.approximate(dataclasses.replace(parse(spec), k=size))
        except ValueError:  # not a size of this method
            continue
        stored = (estimate.rank * (x.n + x.l) + estimate.nnz) / x.n
        if stored < everything and tv(x, estimate) <= target:
            return size
    return None


def test_sizes_are_those_of_brute_force():
    every, targets, reached = heads()[1:6:4], (0.3, 0.02), []
    specs = ("top_k()", "columns(by='h2o', recent=4)", "projected_top_k(by='channels')")
    table = needed(every, targets, methods=[parse(spec) for spec in specs])
    table = table.set_index(["input", "target", "method"])
    for x, target, spec in itertools.product(every, targets, specs):
        least, row = brute_force(x, spec, target), table.loc[x.name, target, spec]
        assert row.reached == (least is not None), (x.name, spec, target)
        assert least is None or row["size"] == least, (x.name, spec, target)
        reached.append(row.reached)
    assert {*reached} == {True, False}


LISTS = st.lists(st.floats(0, 1), min_size=1, max_size=70)


@given(LISTS, st.floats(0, 1), st.booleans(), st.just(1) | st.integers(1, 80))
@example([0.13 - 0.001 * i for i in range(64)], 0.1, True, 1)  # many sizes near the target
def test_the_smallest_size_of_falling_errors_is_the_first(errors, target, falls, near):
    """Wherever the search begins."""
    falling = sorted(errors, reverse=True)
    asked = []

    def error(size):
        assert 1 <= size <= len(falling)
        asked.append(size)
        return falling[size - 1]

    first = next((i for i, e in enumerate(falling, 1) if e <= target), None)
    assert smallest(error, target, len(falling), falls=falls, near=near) == first
    steps = 2 * math.log2(len(falling)) + 2 + (0 if falls else asking.LOOKS)
    assert near > 1 or len(asked) <= steps


@given(LISTS, st.floats(0, 1))
@settings(max_examples=50)
def test_a_size_that_is_returned_reaches_the_target(errors, target):
    found = smallest(lambda size: errors[size - 1], target, len(errors))
    if found is not None:
        assert errors[found - 1] <= target


def test_a_dip_below_a_size_that_nearly_reached_the_target_is_found():
    errors = [0.9, 0.5, 0.3, 0.12, 0.14, 0.09, 0.14, 0.11, 0.1, *[0.05] * 10]
    assert smallest(lambda size: errors[size - 1], 0.1, len(errors)) == 6


def test_the_error_of_a_random_method_is_of_other_draws_than_its_size():
    x, trials = inputs.gaussian(16, 4, rng=0).at_temperature(4.0), 4
    method = parse("positive()")
    table = needed(x, 0.15, methods=[method], temperature=4.0, trials=trials, currency="reads")
    row = table[table.method == "positive()"].iloc[0]
    assert row.reached
    found = parse(row.spec)
    root = np.random.default_rng(seed_sequence(0, x.digest(), row.spec))
    errors = [tv(x, x.approximate(found, rng=child)) for child in root.spawn(2 * trials)]
    assert row.error == pytest.approx(np.mean(errors[trials:]), rel=1e-9)
    assert row.stderr == pytest.approx(np.std(errors[trials:], ddof=1) / 2, rel=1e-9)
    # 2.353 is the 95 % point of Student's t with 3 degrees of freedom
    assert row.sure == (row.error + 2.353 * row.stderr <= 0.15)


def test_confidence_is_that_of_the_queries_that_were_measured():
    x = next(iter(inputs.sample("smollm2").first(96).heads()))
    methods = [parse("sink_window(k=8)")]
    row = needed(x, 0.5, methods=methods, rows=24).iloc[0]
    assert row.measured == 24
    assert row.stderr > 0
    sure, unsure = (row.error + times * row.stderr for times in (2.0, 1.0))  # 1.645 decides
    for target, expected in ((sure, True), (unsure, False)):
        again = needed(x, target, methods=methods, rows=24)
        row = again[again.spec == "sink_window(k=8)"].iloc[0]
        assert row.reached
        assert row.sure == expected


@pytest.mark.parametrize("currency", CURRENCIES)
def test_the_cheapest_in_the_currency_comes_first(currency):
    x = heads()[0]
    methods = [parse(s) for s in ("projected_top_k(by='channels')", "sink_window()", "top_k()")]
    table = needed(x, 0.2, methods=methods, currency=currency)
    ceiling = getattr(parse("exact()").price(**x.shape.given), currency)
    found = table[table.reached]
    for row in found.itertuples():
        cost = getattr(parse(row.spec).price(**x.shape.given), currency)
        assert row.price == cost == getattr(row, currency)
        assert row.share == cost / ceiling
        assert row.spec == "exact()" or cost < ceiling
    assert found.price.is_monotonic_increasing
    best = cheapest(table).iloc[0]
    assert best.price == found[found.runnable].price.min()
    # a choice among all keys holds as much as exact attention
    assert best.oracle == ("" if currency == "bytes" else "top_k()")
    np.testing.assert_equal(best.oracle_share, found[found.oracle].share.min())
    rows = by_method(table).set_index("method")
    assert rows.cheapest.sum() == 1
    assert rows.cheapest[best.method] == 1


def test_exact_attention_is_the_ceiling():
    x = inputs.gaussian(N, 8, rng=0)
    methods = [parse(s) for s in ("sliding_window()", "uniform()", "taylor(degree=40)")]
    table = needed(x, 0.01, methods=methods).set_index("method")
    assert table.index[0] == "exact()"
    assert table.reached.tolist() == [True, False, False]
    row = table.loc["sliding_window()"]
    assert row.share < 1
    assert row.error == pytest.approx(tv(x, x.approximate(parse(row.spec))), rel=1e-9)
    assert table.left_out.iloc[0] == ["taylor(degree=40): no size costs less than exact attention"]
    assert table.reads["uniform()"] == 8 + 1  # the sum of the values, and their number
    assert cheapest(table.reset_index()).spec.tolist() == ["exact()"]


def test_several_targets_are_those_of_one_at_a_time():
    x = heads()[1]
    methods = [parse(s) for s in ("sink_window()", "hierarchical(basis='mean', leaf=2)")]
    both = needed(x, [0.1, 0.4], methods=methods)
    for target in (0.1, 0.4):
        one = needed(x, target, methods=methods).drop(columns="sizes")
        part = both[both.target == target].drop(columns="sizes")
        pd.testing.assert_frame_equal(part.reset_index(drop=True), one)


def test_a_method_without_a_size_on_so_few_keys_is_left_out():
    assert smallest(lambda number: [0.0][number - 1], 0.1, 0) is None
    methods = [parse("columns(by='h2o', recent=16)"), parse("top_k")]
    table = needed(inputs.gaussian(12, 2, rng=0), 0.1, methods=methods)
    assert len(table) == 2  # top_k and exact attention
    assert table.left_out[0] == [f"{methods[0]}: no size costs less than exact attention"]


def test_what_cannot_be_asked_is_refused():
    x = inputs.gaussian(8, 2, rng=0)
    refuses("target must be finite and > 0, got 0", needed, x, 0.0)
    refuses(r"a target tv must be < 1, .* got 2", needed, x, [0.1, 2.0])
    refuses("target must be a number or several, got none", needed, x, [])
    refuses("metric must be one of attention_tv, ", needed, x, 0.1, metric="tv")
    blind = Head("blind", x.q, x.k)
    refuses("needs values, and blind has no v", needed, blind, 0.1, metric="output_relative_error")
    rows = [parse("nystromformer()")]
    assert needed(x, 0.1, metric="kernel_relative_max", methods=rows).left_out[0] == [
        "nystromformer(): it does not estimate exp(q·k)"
    ]


def test_command_says_what_a_target_needs(tmp_path, printed):
    x = inputs.sample("smollm2").first(48)
    path = tmp_path / "qk.npz"
    np.savez(path, q=x.q[:2], k=x.k[:2], v=x.v[:2], causal=1)
    given = ["target", path, "--method", "sink_window", "--jobs", "1"]
    both = [*given, "--method", "top_k", "--currency", "reads", "--tv", "0.1"]
    rows = json.loads(printed(*both, "--json", "--out", tmp_path / "out"))
    assert {row["metric"] for row in rows} == {"attention_tv"}
    own = {"sink_window()", "top_k()", "exact()"}
    assert {row["method"] for row in rows} == own | {"columns(by='h2o', recent=16)"}
    assert (tmp_path / "out" / "data" / "needed.csv").exists()
    said = printed(*both, "--rows", "24")
    assert max(len(line) for line in said.splitlines() if "columns(" not in line) <= 80
    for part in ("head cheapest", "numbers read per new", '--method "sink_window(k=', "24 of 48"):
        assert part in " ".join(said.split())
    assert "目标" in printed(*both, "--lang", "zh")
    assert {metric for metric, _ in ERRORS.values()} == {*METRICS}
    for option, (metric, _) in ERRORS.items():
        assert f"Target {metric} ≤ 0.25" in printed(*given, "--heads=0.0", f"--{option}", "0.25")
