"""What makes an input hard, against loops over what a query sees."""

import math

import naive
import numpy as np
import pytest
from small import hiding

from analysis.inputs import Head
from analysis.inputs.statistics import (
    describe,
    gaussian_entropy,
    gaussian_logits,
    weight_statistics,
)
from approx.estimate import exact


@pytest.mark.parametrize("mask", [None, "causal", hiding(5, 7, 3)])
@pytest.mark.parametrize(("scale", "stripe"), [(1.0, 21), (1.0, 1), (100.0, exact.STRIPE)])
@pytest.mark.parametrize("sinks", [None, 3.0])
def test_describe_is_its_definition(monkeypatch, mask, scale, stripe, sinks):
    monkeypatch.setattr(exact, "STRIPE", stripe)
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((5, 3)) * scale, rng.standard_normal((7, 3)) * scale
    x = Head("x", q, k, mask=mask, sinks=sinks).at_temperature(2.0)
    seen = naive.seen(mask, 5, 7)
    logits = [[float(a @ b) for j, b in enumerate(x.K) if seen[i, j]]
              for i, a in enumerate(x.Q)]  # fmt: skip
    sums = [float(np.sum((a + b) ** 2)) for i, a in enumerate(x.Q)
            for j, b in enumerate(x.K) if seen[i, j]]  # fmt: skip
    entropies = []
    for keys in logits:
        row = keys if sinks is None else [*keys, sinks / 2.0]
        if len(row) > 1:
            weights = [math.exp(v - max(row)) for v in row]
            shares = [w / sum(weights) for w in weights if w > 0]
            entropies.append(-sum(p * math.log(p) for p in shares) / math.log(len(row)))
    flat = [v for row in logits for v in row]
    found = describe(x)
    # sums of at most 35 terms: a few hundred roundings of the largest
    close = {"rel": 1e-12, "abs": 1e-12}
    assert found["logit_min"] == pytest.approx(min(flat), **close)
    assert found["logit_max"] == pytest.approx(max(flat), **close)
    assert found["logit_std"] == pytest.approx(np.std(flat), **close)
    assert found["row_entropy"] == pytest.approx(np.mean(entropies), **close)
    assert found["median_squared_sum"] == pytest.approx(np.median(sums), rel=1e-9)


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_sparsity_and_entropy_of_gaussian_logits_do_not_depend_on_length(beta):
    largest = []
    for n in (512, 8192):
        found = gaussian_logits(n, beta, rows=64, rng=np.random.default_rng(n))
        mean, error = found["sparsity"]
        # the finite-n bias of a ratio is of order e^{4β²}/n of the value
        assert abs(mean - np.exp(-(beta**2) / 2)) < 5 * error + np.exp(4 * beta**2) / n
        mean, error = found["entropy"]
        assert abs(mean - gaussian_entropy(n, beta)) < 5 * error + np.exp(4 * beta**2) / n
        largest.append(found["largest_weight"][0])
    assert largest[1] < largest[0] / 5


def test_the_prediction_ends_where_single_keys_win():
    assert np.isnan(gaussian_entropy(512, 4.0))
    found = gaussian_logits(512, 8.0, rows=64, rng=np.random.default_rng(0))
    assert found["largest_weight"][0] > 0.5


@pytest.mark.parametrize("value", ["x", 1.0, None, [], [[1.0, math.nan]], [math.inf, 0.0]])
def test_what_has_no_rows(value):
    with pytest.raises((TypeError, ValueError), match=r"^logits must (be finite|h)"):
        weight_statistics(value)
