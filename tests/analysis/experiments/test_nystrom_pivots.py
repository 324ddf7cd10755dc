"""Trace errors of pivots against inverses, and the bound against all sequences of pivots."""

import itertools
import math

import numpy as np
import pytest

from analysis import inputs
from analysis.experiments import nystrom as study
from analysis.experiments.profile import Profile


@pytest.fixture(scope="module")
def keys():
    x = next(iter(inputs.sample().heads())).first(128).at_temperature(1.0)
    return x.K


def spectrum(A):
    w, U = np.linalg.eigh(A)
    return np.maximum(w[::-1], 0.0), U[:, ::-1]


def residual(A, places):
    """A − A[:, S] A[S, S]⁻¹ A[S, :]."""
    S = list(places)
    return A - A[:, S] @ np.linalg.solve(A[np.ix_(S, S)], A[S])


def test_greedy_pivots_are_the_largest_entries_left(keys):
    A = study.kernel(keys)
    errors = study.trace_errors(A, "greedy", spectrum(A), np.random.default_rng(0))
    places, rest = [], A
    for r in range(1, 17):
        places.append(int(np.argmax(rest.diagonal())))
        rest = residual(A, places)
        if r in study.RANKS:
            # what an inverse of condition 1e6 or so loses
            expected = rest.trace() / A.trace()
            assert errors[study.RANKS.index(r)] == pytest.approx(expected, rel=1e-6)


def test_a_pivot_that_repeats_a_key_takes_nothing():
    """Pivots in order, of keys 0, 0, 1, 1, 2, 2, 3, 3."""

    class InOrder:
        permutation = staticmethod(np.arange)

    A = study.kernel(np.repeat(np.arange(4.0), 2)[:, None])
    errors = study.trace_errors(A, "uniform", spectrum(A), InOrder())
    left = [residual(A, range(0, r, 2)).trace() / A.trace() for r in study.RANKS if r <= 8]
    assert errors == pytest.approx(left, abs=1e-12)  # of 1, an inverse of condition 1e3 or so
    assert errors == pytest.approx([0.9995, 0.9995, 0.9704, 0], abs=5e-5)


def test_one_random_pivot_leaves_what_the_bound_says(keys):
    """Exactly tr A − |A|²_F/tr A: |z| ≤ 5."""
    A = study.kernel(keys[:16] / 2)  # a diagonal of which every entry may be drawn
    w, U = spectrum(A)
    rng = np.random.default_rng(1)
    errors = np.array([study.trace_errors(A, "random", (w, U), rng)[0] for _ in range(300)])
    expected = 1 - np.square(A).sum() / A.trace() ** 2
    assert study.bound(w, [1])[0] == pytest.approx(expected, rel=1e-12)
    assert abs(errors.mean() - expected) < 5 * errors.std() / math.sqrt(len(errors))


def test_the_bound_is_above_the_mean_over_all_sequences():
    rng = np.random.default_rng(2)
    for trial in range(6):
        B = rng.standard_normal((5, 5)) * 3.0 ** -np.arange(5)
        A = B @ B.T if trial else np.eye(5)
        w, total, mean = spectrum(A)[0], A.trace(), 0.0
        for places in itertools.permutations(range(5), 3):
            chance, rest = 1.0, A
            for r, p in enumerate(places):
                chance *= rest[p, p] / rest.trace()
                rest = residual(A, places[: r + 1])
            mean += chance * rest.trace() / total
        bound = study.bound(w, [3])[0]
        assert mean <= bound * (1 + 1e-12)
        assert bound >= w[3:].sum() / total
        if not trial:  # of the identity: 2 of 5 are left, and Φ³(1) = (4/5)³
            assert (mean, bound) == (pytest.approx(0.4), pytest.approx(0.8**3))


def test_leverage_scores_are_those_of_the_inverse(keys):
    A = study.kernel(keys)
    w, U = spectrum(A)
    for rank in (1, 8, 64):
        gamma = w[rank:].sum() / rank
        expected = np.linalg.solve(A + gamma * np.eye(len(A)), A).diagonal()
        np.testing.assert_allclose(study.leverage(w, U, rank), expected, rtol=1e-6, atol=1e-9)


def test_no_pivots_are_better_than_the_best_rank():
    x = next(iter(inputs.sample().heads()))
    table = study.compute(Profile("small", (x,), (1.0, 8.0), 32.0, trials=2, draws=10))
    assert [*table] == [*study.COLUMNS]
    index, columns = ["temperature", "rank"], ["metric", "pivots"]
    wide = table.pivot_table(index=index, columns=columns, values="value")
    for pivots in study.PIVOTS:
        assert (wide["error", pivots] > wide["best", "any"] * (1 - 1e-9)).all()
    # 32 draws: the mean is below what bounds its expectation, but for five standard errors
    stderr = table[table.pivots == "random"].set_index(index).stderr.dropna()
    assert (wide["error", "random"] < wide["bound", "random"] + 5 * stderr).all()
    at = x.first(512).at_temperature(8.0)
    w = np.linalg.eigvalsh(np.exp(at.K @ at.K.T))
    best = wide.loc[(8.0, 1), ("best", "any")]
    assert best == pytest.approx(w[:-1].sum() / w.sum(), rel=1e-9)
