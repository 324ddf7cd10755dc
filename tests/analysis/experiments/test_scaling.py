"""Sizes against length: the law of Gaussian logits, exponents, and the stored table."""

import math

import naive
import numpy as np
import pandas as pd
import pytest
import scipy.integrate
from refusals import refuses

from analysis import inputs
from analysis.experiments import scaling
from approx import parse
from studies.lm.head_kinds import KINDS


@pytest.mark.parametrize(("sigma", "epsilon"), [(0.3, 0.5), (1.0, 0.1), (2.5, 0.02)])
def test_keys_above_the_threshold_of_the_share_hold_the_rest(sigma, epsilon):
    kept = float(scaling.share(sigma, epsilon))

    def density(z):
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    def above(cut, weight):
        return scipy.integrate.quad(lambda z: weight(z) * density(z), cut, sigma + 12)[0]

    low, high = -9.0, 9.0  # the threshold of that share, by halving
    for _ in range(60):
        cut = (low + high) / 2
        low, high = (cut, high) if above(cut, lambda z: 1.0) > kept else (low, cut)
    held = above(cut, lambda z: math.exp(sigma * z)) / math.exp(sigma**2 / 2)
    assert held == pytest.approx(1 - epsilon, rel=1e-6)  # quadrature is right to 1e-8


def test_many_gaussian_logits_keep_the_law_and_few_do_not():
    rng = np.random.default_rng(0)
    for sigma, most in ((1.0, 0.02), (2.0, 0.06)):
        # The relative variance of a row's sum is (e^{σ²} − 1)/4096: .02 and .11 of a deviation,
        # and the error of the mean over 64 rows is an eighth of that; the bias is as large.
        k = scaling.top_k(sigma * rng.standard_normal((64, 4096)), 0.1)
        assert k / 4096 == pytest.approx(float(scaling.share(sigma, 0.1)), rel=most)
    few = scaling.top_k(4.0 * rng.standard_normal((256, 256)), 0.1)
    assert few / 256 > 5 * scaling.share(4.0, 0.1)


def test_top_k_is_the_first_of_all_and_no_share_is_refused():
    logits = 2 * np.random.default_rng(1).standard_normal((5, 40))
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rest = [np.mean([sum(sorted(row)[: 40 - k]) for row in weights]) for k in range(41)]
    for epsilon in (0.4, 0.1, 0.01):
        first = next(k for k, tv in enumerate(rest) if tv <= epsilon)
        assert scaling.top_k(logits, epsilon) == first
    for sigma, epsilon in ((-1.0, 0.1), (1.0, 0.0), (math.nan, 0.1), (1.0, 1.0)):
        refuses("sigma must be finite and >= 0, epsilon between", scaling.share, sigma, epsilon)


def test_sizes_are_those_of_the_last_queries(monkeypatch):
    monkeypatch.setattr(scaling, "QUERIES", 16)
    monkeypatch.setattr(scaling, "MOST_KEYS", {"top_k()": 80, "sliding_window()": 40})
    x = next(iter(inputs.sample("smollm2").heads()))
    rows = scaling.sizes(x, "sink", 80)
    assert [row[6] for row in rows] == ["top_k()"]
    row = dict(zip(scaling.COLUMNS, rows[0]))
    part = x.first(80)
    weights = naive.kernel(part.Q, part.K)[-16:] * np.tri(16, 80, 64)
    weights /= weights.sum(axis=1, keepdims=True)
    rest = [np.mean([sum(sorted(p)[: 80 - k]) for p in weights]) for k in range(81)]
    assert row["value"] == next(k for k, tv in enumerate(rest) if tv <= scaling.TARGET)
    assert row["error"] == pytest.approx(rest[int(row["value"])], rel=1e-9)
    assert row["share"] == row["value"] / 80
    some = parse("top_k(k=1)").price(n=80, l=80, d=64, mask="causal")
    assert some.reads * row["value"] == row["share"] * 80 * 128


def test_exponents_are_means_of_slopes_over_heads():
    lengths = (256, 512, 1024)
    powers = {("sink", 0): 0.5, ("sink", 1): 0.7, ("broad", 2): 1.0}
    table = pd.DataFrame(
        {
            "input": "made", "kind": kind, "layer": 0, "head": head, "l": l, "method": "top_k()",
            "reached": (kind, head, l) != ("broad", 3, 512), "value": 3.0 * l**power,
        }
        for (kind, head), power in {**powers, ("broad", 3): 9.0}.items()
        for l in lengths
    )  # fmt: skip
    found = scaling.exponents(table).set_index("kind")
    assert found.heads.to_dict() == {"all": 3, "sink": 2, "broad": 1}
    assert found.exponent.to_dict() == pytest.approx({"all": 2.2 / 3, "sink": 0.6, "broad": 1.0})
    assert found.stderr["sink"] == pytest.approx(0.1)  # half of the difference of two
    assert math.isnan(found.stderr["broad"])


def test_the_stored_table_is_whole():
    table = scaling.stored()
    assert tuple(table.columns) == scaling.COLUMNS
    assert set(table.kind) == set(KINDS)
    assert len(table.drop_duplicates(["layer", "head"])) >= 12
    for (spec, l), part in table.groupby(["method", "l"]):
        assert l <= scaling.MOST_KEYS[spec]
        assert len(part) == len(table.drop_duplicates(["layer", "head"]))
    assert (table.error[table.reached] <= scaling.TARGET).all()
