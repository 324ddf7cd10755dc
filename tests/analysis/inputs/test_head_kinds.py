"""Shares of attention: by a loop over entries, and the kinds that follow from them."""

import math

import numpy as np
import pytest

from analysis.inputs.head_kinds import KINDS, kind, shares


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
    [
        ((0.6, 0.2, 0.2, 3), "sink"),
        ((0.1, 0.8, 0.1, 3), "local"),
        ((0.1, 0.1, 0.8, 32), "retrieval"),
        ((0.1, 0.1, 0.8, 33), "broad"),
        ((0.5, 0.1, 0.4, 33), "mixed"),
    ],
)
def test_kind_is_where_the_majority_goes(numbers, expected):
    assert expected in KINDS
    assert kind(dict(zip(("sink", "recent", "far", "effective_keys"), numbers))) == expected


@pytest.mark.parametrize(
    ("shape", "ids", "options", "message"),
    [
        ((40, 41), np.arange(40), {}, r"weights must be \(n, n\)"),
        ((40, 40), np.arange(39), {}, "token_ids n integers"),
        ((40, 40), np.zeros(40), {}, "token_ids n integers"),
        ((8, 8), np.arange(8), {}, "n must be >= 33, got 8"),
        ((40, 40), np.arange(40), {"first": 40}, "first must be <= 39, got 40"),
    ],
)
def test_weights_and_tokens_that_do_not_fit_are_refused(shape, ids, options, message):
    with pytest.raises(ValueError, match=message):
        shares(np.zeros(shape), ids, **{"first": 35} | options)
