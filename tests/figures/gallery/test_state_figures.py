"""The figures of causal heads: what state ranks and classes say."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest

from analysis import inputs
from analysis.advice.verdict import TIE
from analysis.experiments import certificates, frontier
from analysis.experiments.profile import Profile, profile
from analysis.ranks import state_rank
from approx import METHODS, parse
from approx.estimate import exact
from figures.gallery import FIGURES


@functools.cache
def heads():
    return [x.first(96) for x in inputs.sample("smollm2").heads()]


@functools.cache
def table(name):
    """Return the table of one full head and of causal ones, the first two where it asks for all."""
    some = next(inputs.sample().heads()).first(96), *heads()[:2]
    return FIGURES[name].compute(dataclasses.replace(profile("quick"), inputs=some))


def test_ranks_and_errors_are_those_of_the_heads():
    found = table("state_rank")
    head = heads()[1]
    P = exact.softmax(head.Q, head.K, head.mask)
    part = found[found.input == head.name].set_index(["metric", "position", "states"]).value
    s = np.linalg.svd(P, compute_uv=False)
    assert part["epsilon_rank", -1, -1] == (s > 0.01 * s[0]).sum()
    positions = part["epsilon_rank"].index.get_level_values("position")
    k = min(positions, key=lambda x: abs(x - positions.max() // 2))
    block = np.linalg.svd(P[k:, :k], compute_uv=False)
    assert part["epsilon_rank", k, -1] == (block > 0.01 * block[0]).sum()
    bound = state_rank.lower_bound(P, 4, partition="best")
    assert part["lower_bound", -1, 4] == pytest.approx(bound, rel=1e-9)
    assert part["eckart_young", -1, 4] == pytest.approx(np.linalg.norm(s[4:]) / np.linalg.norm(s))
    wide = found[found.states > 0].pivot_table("value", ["head", "states"], "metric")
    assert (wide.lower_bound < wide[["recurrence", "ungated", "eckart_young"]].min(axis=1)).all()


def test_no_bound_that_is_drawn_is_below_the_error_of_its_row():
    found = table("certificates")
    assert (found.value >= found.truth * (1 - 1e-12) - 1e-12).all()
    head = heads()[1].at_temperature(1.0)
    P = exact.softmax(head.Q, head.K, head.mask)
    spec = "sink_window(k=32)"
    rows = head.approximate(parse(spec)).to_dense()
    off = rows / rows.sum(axis=1, keepdims=True) - P
    some = found[(found.input == head.name) & (found.method == spec) & (found.bits == 4)]
    one = certificates.compared(head, spec, (certificates.CODES,))
    last = one[one.position == 95].set_index("metric")
    drawn = some[some.position == 95][["truth", "value"]].to_numpy()
    assert drawn.tolist() == [last.loc["attention_tv", ["truth", "value"]].tolist()]
    # as the measure has it, in float64
    wanted = [np.abs(off[95]).sum() / 2, np.linalg.norm(off[95] @ head.V)]
    assert last.truth[["attention_tv", "output_absolute_error"]].tolist() == pytest.approx(
        wanted, rel=1e-9
    )
    # 32 keys with values, boxes of five pages that are not all read, codes of 64 unread keys
    numbers = 32 * 128 + 5 * (128 + 65) + 64 * 64 * 4 / 16
    assert last.share.tolist() == [numbers / (96 * 128)] * 2


def test_the_frontier_has_the_whole_registry_at_its_prices():
    found = table("frontier")
    head = heads()[0].at_temperature(1.0)
    mine = found[found.input == head.name]
    methods = {spec: parse(spec) for spec in mine.method}
    unlike = {name for name, method in METHODS.items() if method().refusal is not None}
    named = {m.name for m in methods.values()}
    assert named == set(METHODS) - unlike - frontier.LEFT_OUT | {"guarded"}  # of one size
    assert not mine.duplicated(["asked", "method"]).any()
    rows = mine.set_index("method")
    held = np.minimum(np.arange(1, 97), 17).mean()  # at most 16, which 18 keys are not
    assert rows.loc["sink_window(k=17)", list(frontier.CURRENCIES)].tolist() == pytest.approx(
        [held, 17 * 128, held * 128, 2 * 17 * 128]  # d + c = 128; the next query sees 96
    )
    assert rows.loc["exact()", "reads"] == 96 * 128
    for spec in ("sink_window(k=17)", "quantised()", "columns(k=17, by='h2o', recent=16)"):
        tv = head.compare(head.approximate(parse(spec)))["attention_tv"]
        assert rows.loc[spec, "value"] == pytest.approx(tv, rel=1e-9)
    assert rows.loc["top_p()", ["reads", "multiply_adds", "bytes"]].isna().all()
    assert rows.loc["top_p()", "stored"] > 0
    guarded = rows[rows.index.str.startswith("guarded")]
    assert guarded.value.item() <= 0.1  # by its certificate
    spent = frontier.guarded_reads(head, methods[guarded.index[0]])
    assert guarded.reads.item() == pytest.approx(spent.share.mean() * 96 * 128, rel=1e-12)
    assert guarded[["multiply_adds", "bytes"]].isna().all(axis=None)


@pytest.mark.parametrize("currency", frontier.CURRENCIES)
def test_the_front_is_what_nothing_cheaper_beats(currency):
    points = frontier.medians(table("frontier"))
    at = points.set_index("asked")
    runs = points[points.runnable & (points[currency] < at[currency]["exact()"])]
    runs = runs[runs.attention_tv < at.attention_tv["uniform()"]]
    on = frontier.frontier(points, currency)
    assert set(on.index) <= set(runs.index)
    kept = list(zip(on[currency], on.attention_tv))
    assert len(kept) >= 2
    assert kept == sorted(kept, key=lambda point: (point[0], -point[1]))
    assert all(TIE * after[1] < before[1] for before, after in itertools.pairwise(kept))
    for price, tv in zip(runs[currency], runs.attention_tv):
        assert not any(price <= p and tv < e for p, e in kept)  # nothing cheaper is nearer
        assert any(p <= price and e <= TIE * tv for p, e in kept)  # or not by more than a tie


def test_the_frontier_of_a_small_head_has_what_suits_it():
    cold = inputs.gaussian(8, 2, rng=0)
    x = dataclasses.replace(cold, q=1e4 * cold.q, mask="causal")
    mine = Profile("quick", (x,), (1.0,), 32.0, trials=1, draws=50)
    found = FIGURES["frontier"].compute(mine)
    assert found.value.notna().all()
    assert "channels(r=8)" not in set(found.method)
    assert {"channels(r=1)", "exact()"} & set(found.method)
    assert "nan" not in FIGURES["frontier"].caption(found)
    FIGURES["frontier"].draw(found).draw_without_rendering()
