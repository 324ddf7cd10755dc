"""What makes an input hard, against loops over what a query sees."""

import math

import naive
import numpy as np
import pytest
from refusals import refuses
from small import hiding

from analysis.inputs import Head, statistics
from analysis.inputs.statistics import gaussian_entropy, gaussian_logits, weight_statistics
from approx.estimate import exact
from studies.lm.head_kinds import KINDS, kind, shares


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
    found = statistics.describe(x)
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


# Shares of attention: by a loop over entries, and the kinds that follow from them


def causal(n, rng):
    weights = np.tril(rng.random((n, n)) ** 4)
    return weights / weights.sum(axis=1, keepdims=True)


def test_shares_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    n, first = 50, 35
    weights, ids = causal(n, rng), rng.integers(0, 30, n)
    expected = {"sink": [], "recent": [], "far": [], "effective_keys": [], "induction": []}
    for i in range(first, n):
        row = weights[i]
        expected["sink"].append(row[0])
        expected["recent"].append(sum(row[j] for j in range(i + 1) if i - j < 31))
        expected["far"].append(sum(row[j] for j in range(1, i + 1) if i - j >= 31))
        expected["effective_keys"].append(math.exp(-sum(x * math.log(x) for x in row[: i + 1])))
        copies = [j for j in range(1, i + 1) if ids[j - 1] == ids[i]]
        if copies:
            expected["induction"].append(sum(row[j] for j in copies))
    assert 0 < len(expected["induction"]) < n - first  # with and without a repetition
    found = shares(weights, ids, first=first)
    for name, values in expected.items():
        # sums of at most 50 terms of order 1 in another order; exp multiplies by up to 50
        assert found[name] == pytest.approx(np.mean(values), abs=50 * 50 * np.finfo(float).eps)


def test_a_text_without_repetition_has_no_induction():
    assert shares(causal(70, np.random.default_rng(1)), np.arange(70))["induction"] == 0.0


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((0.6, 0.2, 0.2, 3), "sink"), ((0.1, 0.8, 0.1, 3), "local"),
     ((0.1, 0.1, 0.8, 32), "retrieval"), ((0.1, 0.1, 0.8, 33), "broad"),
     ((0.5, 0.1, 0.4, 33), "mixed")],
)  # fmt: skip
def test_kind_is_where_the_majority_goes(numbers, expected):
    assert expected in KINDS
    assert kind(dict(zip(("sink", "recent", "far", "effective_keys"), numbers))) == expected


def test_weights_and_tokens_that_do_not_fit_are_refused():
    square, ids = np.zeros((40, 40)), np.arange(40)
    refuses(r"weights must be \(n, n\)", shares, np.zeros((40, 41)), ids, first=35)
    refuses("token_ids n integers", shares, square, ids[:39], first=35)
    refuses("token_ids n integers", shares, square, np.zeros(40), first=35)
    refuses("n must be >= 33, got 8", shares, square[:8, :8], ids[:8], first=35)
    refuses("first must be <= 39, got 40", shares, square, ids, first=40)
