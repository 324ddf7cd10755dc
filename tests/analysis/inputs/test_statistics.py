"""What makes an input hard, against loops over what a query sees."""

import math

import naive
import numpy as np
import pytest
from small import hiding

from analysis.inputs import Head, gaussian, generative
from analysis.inputs.statistics import (
    describe,
    dot_product_variance,
    gaussian_entropy,
    gaussian_logits,
    norm,
    row_entropy,
    sparsity,
    temperature_at,
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


@pytest.mark.parametrize("mask", [None, "causal", hiding(9, 9, 3)])
def test_row_entropy_is_that_of_describe(mask):
    x = gaussian(9, 4, rng=0)
    x = Head("x", x.q, x.k, mask=mask, sinks=1.0)
    assert row_entropy(x) == describe(x)["row_entropy"]


@pytest.mark.parametrize("entropy", [0.05, 0.5, 0.999])
def test_temperature_at_is_the_inverse_of_entropy(entropy):
    for x in (gaussian(20, 4, rng=0), generative(20, 4, 0.3, rng=0)):
        t = temperature_at(x, entropy)
        # log t to 10⁻¹², and dH/d log t is at most a variance of logits, here below 100
        assert row_entropy(x.at_temperature(t)) == pytest.approx(entropy, abs=1e-9)


def test_temperature_at_refuses():
    x = gaussian(4, 2, rng=0)
    for entropy in (1.0, 1.5):
        with pytest.raises(ValueError, match="entropy must be between 0 and 1"):
            temperature_at(x, entropy)
    with pytest.raises(ValueError, match="entropy must be finite and > 0"):
        temperature_at(x, 0.0)
    same = Head("same", np.zeros((2, 1)), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="no temperature of same between 1e-06 and 1e"):
        temperature_at(same, 0.5)


# Sparsity, and what softmax does to Gaussian logits


def test_sparsity_is_its_definition():
    x = np.random.default_rng(0).standard_normal((3, 7))
    for q, p in ((1, 2), (0.5, 3), (1, np.inf), (2, np.inf)):
        top = np.abs(x).max(axis=1) if p == np.inf else (np.abs(x) ** p).sum(axis=1) ** (1 / p)
        want = 7 ** (1 / p - 1 / q) * (np.abs(x) ** q).sum(axis=1) ** (1 / q) / top
        np.testing.assert_allclose(sparsity(x, q, p), want, rtol=1e-13)
        np.testing.assert_allclose(sparsity(1e200 * x, q, p), want, rtol=1e-12)
    with pytest.raises(ValueError, match="0 < q < p is needed"):
        sparsity(x, 2, 1)
    with pytest.raises(ValueError, match="not 0 in every row"):
        sparsity([[1.0, 2.0], [0.0, 0.0]])


def test_rescaling_by_norms_leaves_sparsity_as_it_is():
    """x' = x/l₀, x'' = x' l_∞(x)/l_∞(x') is x itself."""
    x = np.random.default_rng(1).random(50)
    scaled = x / norm(x, 0)
    np.testing.assert_allclose(scaled * norm(x, np.inf) / norm(scaled, np.inf), x, rtol=1e-15)


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


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_the_variance_of_a_dot_product_is_that_of_its_correlations(correlation):
    """Var(q·k) = tr(C²) for independent q, k of covariance C: 1, and ρ off the diagonal."""
    C = np.full((16, 16), correlation) + (1 - correlation) * np.eye(16)
    assert math.isclose(dot_product_variance(16, correlation), np.trace(C @ C), rel_tol=1e-14)
    with pytest.raises(ValueError, match="correlation must be between -1 and 1, got 2"):
        dot_product_variance(16, 2)


@pytest.mark.parametrize("use", [lambda x: norm(x, 2), sparsity, weight_statistics])
@pytest.mark.parametrize("value", ["x", 1.0, None, [], [[1.0, math.nan]], [math.inf, 0.0]])
def test_what_has_no_rows(use, value):
    with pytest.raises((TypeError, ValueError), match=r"^(x|logits) must (be finite|h)"):
        use(value)


def test_what_is_no_norm():
    for p in ("x", math.nan, None, [1.0], np.ones(2)):
        with pytest.raises((TypeError, ValueError), match=r"^p must be"):
            norm([1.0], p)
        with pytest.raises((TypeError, ValueError), match=r"^q must be"):
            sparsity([1.0], p)
