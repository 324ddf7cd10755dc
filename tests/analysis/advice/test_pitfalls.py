"""Mistakes of public samplers are reproduced as they are."""

import itertools

import numpy as np
import pytest

from analysis.advice import pitfalls


@pytest.mark.parametrize(("keys", "draws"), [(1, 3), (3, 2), (4, 4)])
def test_the_mean_weight_of_assigned_draws_is_that_of_all_draws(keys, draws):
    every = itertools.product(range(keys), repeat=draws)
    means = [len(set(drawn)) / draws for drawn in every]  # weights keys/draws over keys
    assert pitfalls.assigned_mean(keys, draws) == pytest.approx(np.mean(means), rel=1e-14)


def test_a_repeated_draw_has_the_weight_of_one():
    drawn = np.random.default_rng(5).integers(10, size=7)
    assert len(set(drawn)) < 7
    weights = pitfalls.assigned(10, 7, rng=5)
    assert weights.tolist() == [10 / 7 if j in drawn else 0.0 for j in range(10)]


def test_shares_of_columns_are_of_values_and_a_constant():
    V = np.random.default_rng(0).standard_normal((6, 3))
    beside = np.column_stack([V, np.ones(6)])
    largest = np.linalg.eigvalsh(beside.T @ beside)[-1]  # |V|², by which the code divides |v|
    expected = [np.sqrt(v @ v) / largest + 1 / 6 for v in beside]
    found = pitfalls.kdeformer_shares(V)
    np.testing.assert_allclose(found, expected / np.sum(expected), rtol=1e-13)


@pytest.mark.parametrize("length", [1, 3, 4, 15, 16, 17, 63, 100, 1023, 1024])
def test_thinformer_reads_a_power_of_four(length):
    n = max(4**j for j in range(6) if 4**j <= length)
    stride = length // n
    assert pitfalls.thinformer_places(length).tolist() == list(range(0, n * stride, stride))


def test_sizes_are_whole_numbers_and_values_finite():
    for use in (
        lambda: pitfalls.assigned(0, 1, rng=0),
        lambda: pitfalls.assigned(1, 0, rng=0),
        lambda: pitfalls.assigned_mean(2, 0),
        lambda: pitfalls.thinformer_places(0),
        lambda: pitfalls.kdeformer_shares([[np.nan]]),
    ):
        with pytest.raises(ValueError, match=r"must be|finite|NaN"):
            use()
