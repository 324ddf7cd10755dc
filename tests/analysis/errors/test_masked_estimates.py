"""What is known of estimates under a mask: each row alone, with the keys that it sees.

The methods here need no other query and fit nothing to other keys, so that a row with the keys
that it sees is a problem of its own, without a mask.
"""

import dataclasses
import math

import naive
import numpy as np
import pytest
from scipy.special import ndtr
from small import hiding

from analysis.experiments import moments as pairs
from analysis.experiments.profile import quartiles
from analysis.inputs import Head, Heads, gaussian, statistics as describing
from analysis.inputs.statistics import weight_statistics
from analysis.moments import expected_error, features_needed, monte_carlo, normalised_moments
from analysis.moments.squared_errors import squared_error
from analysis.ranks import rank
from analysis.sweeps.crossovers import oracles
from approx import Mask, parse
from approx.estimate import exact
from approx.sample_moments import MonteCarlo

EPS = np.finfo(float).eps
N, L, D = 5, 7, 3
SEEDS = (9, 1, 4, 0)  # of masks: causal, a window, ordered intervals, intervals in no order
ROWWISE = (
    "positive(m=6)", "hyperbolic(m=6)", "trigonometric(m=6)",
    "positive(m=6, projection='orthogonal')", "random_maclaurin(m=6)", "taylor(degree=2)",
    "top_k(k=2)", "scatterbrain(low_rank=positive(m=6), sparse=top_k(k=2))",
    "scatterbrain(low_rank=random_maclaurin(m=6), sparse=top_k(k=2))",
)  # fmt: skip
KNOWN = ("positive(m=6)", "trigonometric(m=6)", "top_k(k=2)", ROWWISE[-2])  # fourth moments, too


def inputs(seed, size=0.7):
    rng = np.random.default_rng(seed)
    return size * rng.standard_normal((N, D)), size * rng.standard_normal((L, D))


def rows(Q, K, mask):
    """Yield the problem of each row alone, with the keys that it sees."""
    for i in range(mask.n):
        yield Q[i : i + 1], K[mask.first[i] : mask.stop[i]]


def row_method(spec, keys):
    """Return the method for a row that sees these keys: no more of them are its largest."""
    return parse(spec.replace("k=2", f"k={min(2, len(keys))}"))


def whole(parts, mask, fill):
    """Return the matrix that rows, (1, keys) each, are parts of."""
    table = np.full(mask.shape, float(fill))
    for i, part in enumerate(parts):
        table[i, mask.first[i] : mask.stop[i]] = part[0]
    return table


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spec", ROWWISE)
def test_expected_error_is_that_of_the_rows_together(spec, seed):
    method, (Q, K), mask = parse(spec), inputs(seed), hiding(N, L, seed)
    square = truth = 0.0
    for q, k in rows(Q, K, mask):
        total = float(np.sum(np.exp(2 * q @ k.T)))
        square += total * expected_error(row_method(spec, k), q, k) ** 2
        truth += total
    # exponents of at most 20 and sums of 35 terms
    found = expected_error(method, Q, K, mask=mask)
    assert found == pytest.approx(math.sqrt(square / truth), rel=200 * EPS)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("moments", "spec"),
    [(squared_error, spec) for spec in KNOWN] + [(normalised_moments, spec) for spec in ROWWISE],
)
def test_moments_are_those_of_the_rows(moments, spec, seed):
    method, (Q, K), mask = parse(spec), inputs(seed), hiding(N, L, seed)
    alone = [moments(row_method(spec, k), q, k) for q, k in rows(Q, K, mask)]
    found = moments(method, Q, K, mask=mask)
    if found is None:
        assert moments is normalised_moments
        assert alone == [None] * N
        return
    # 1 − 4 E ρ³/E ρ⁴ + … cancels two digits or so here; of a ratio a differs by roundings of 1,
    # R by those of its entries, at most some 10 here
    fill, *close = (-np.inf, 1e-10, 1e-10) if moments is squared_error else (0.0, 1e-12, 1e-13)
    for name, values in found._asdict().items():
        parts = [getattr(one, name) for one in alone]
        expected = np.ravel(parts) if values.ndim == 1 else whole(parts, mask, fill)
        np.testing.assert_allclose(values, expected, *close)


@pytest.mark.parametrize("seed", SEEDS)
def test_features_needed_is_the_least_number_under_the_mask(seed):
    (Q, K), mask, method = inputs(seed), hiding(N, L, seed), parse("positive")
    m = int(features_needed(method, 0.25, Q, K, mask=mask))
    errors = [expected_error(parse(f"positive(m={c})"), Q, K, mask=mask) for c in (m - 1, m)]
    assert errors[1] <= 0.25 < errors[0]


@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("spec", [ROWWISE[0], *ROWWISE[2:5], *ROWWISE[-3:]])
def test_monte_carlo_is_that_of_the_rows(spec, space):
    """Draws do not depend on the keys: a row alone has the same ones from the same seed."""
    method = parse(spec)
    for seed in SEEDS:
        (Q, K), mask = inputs(seed), hiding(N, L, seed)
        options = {"draws": 9, "rng": 4, "space": space}
        found = monte_carlo(method, Q, K, mask=mask, **options)
        alone = [monte_carlo(row_method(spec, k), q, k, **options) for q, k in rows(Q, K, mask)]
        fill = {"mean": 1.0, "believable": True}
        for name in MonteCarlo._fields:
            if name != "p_value":
                expected = whole([getattr(one, name) for one in alone], mask, fill.get(name, 0.0))
                # z is a difference of some 1 % over an error of some 10 %
                close = {"rtol": 1e-9, "atol": 1e-9 if name == "z" else 1e-12}
                got = getattr(found, name)
                if name == "believable":  # a variance that is rounding alone is so by chance
                    expected = np.where(found.variance < 1e-25, got, expected)
                np.testing.assert_allclose(got, expected, **close)
        largest = float(np.abs(found.z).max())
        p = 2 * ndtr(-largest) * mask.entries
        assert found.p_value == pytest.approx(min(1.0, p), rel=1e-9)


@pytest.mark.parametrize("spec", ["positive(m=4)", "trigonometric(m=4)"])
def test_monte_carlo_takes_what_no_query_sees_for_nothing(spec):
    (Q, K), mask = inputs(0), Mask.causal(N, L)
    hidden = np.concatenate([K, 400 * np.ones((2, D))])  # exponents that nothing can represent
    more = Mask(mask.first, mask.stop, L + 2)
    few, many = (
        monte_carlo(parse(spec), Q, k, draws=9, rng=0, mask=m)
        for k, m in ((K, mask), (hidden, more))
    )
    np.testing.assert_allclose(many.mean[:, :L], few.mean, rtol=1e-11)
    np.testing.assert_allclose(many.variance[:, :L], few.variance, rtol=1e-9, atol=1e-20)
    assert (many.mean[:, L:] == 1).all()
    assert many.p_value == pytest.approx(few.p_value, rel=1e-6)


# What inputs are like


@pytest.mark.parametrize("numbers", [
    [3.0, -1.0, 2.0, -0.0, 5.0, 1e-300], [7.0] * 9, [1.0] * 5 + [2.0] * 5,
    [1.0] * 6 + [2.0] * 5,
    [-np.inf, -1e308, 0.0, np.nextafter(0, 1), 1.0, np.nextafter(1, 2), 1e308],
])  # fmt: skip
def test_the_median_of_many_numbers_is_that_of_all(monkeypatch, numbers):
    monkeypatch.setattr(exact, "STRIPE", 2)
    parts = [np.array(numbers[i : i + 3]) for i in range(0, len(numbers), 3)]
    found = describing._median(lambda: parts, len(numbers))
    assert found == np.median(numbers)


def test_weights_of_a_row_are_over_the_keys_that_it_sees():
    x = np.random.default_rng(0).standard_normal((2, 5))
    hidden = np.concatenate([x, np.full((2, 3), -np.inf)], axis=1)
    expected = weight_statistics(x)
    for name, values in weight_statistics(hidden).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-14)


def test_the_quartiles_of_heads_do_not_look_at_what_is_not_seen():
    """Without the mask the second head would have the widest range."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 3, 4, 2))
    q[:, 0], k[:, 3] = 1.0, 0.0
    k[1, 3] = 1e6  # which only the last query sees
    q[1, 3] = 0.0
    ids = tuple((0, head, str(head)) for head in range(3))
    x = Heads("x", q, k, mask="causal", ids=ids)
    ranges = []
    for head in x.heads():
        seen = head.logits()[np.tril(np.ones((4, 4), bool))]
        ranges.append(seen.max() - seen.min())
    assert [head.head for head in quartiles(x)] == np.argsort(ranges)[[0, 1, 2]].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pair_of_a_quantile_is_seen(seed):
    (q, k), mask = inputs(seed), hiding(N, L, seed)
    x = Head("x", q, k, mask=mask)
    i, j = pairs.pair(x)
    assert mask.first[i] <= j < mask.stop[i]
    below = np.sum(x.logits() < (x.Q @ x.K.T)[i, j]) - np.sum(~mask.visible())
    assert below == int(pairs.QUANTILE * (mask.entries - 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_singular_values_are_those_of_what_is_seen(seed):
    (q, k), mask = inputs(seed), hiding(N, L, seed)
    x = Head("x", q, k, mask=mask)
    kernel = np.where(naive.seen(mask, N, L), naive.kernel(x.Q, x.K), 0.0)
    attention = kernel / kernel.sum(axis=1, keepdims=True)
    for space, matrix in (("kernel", kernel / kernel.max()), ("attention", attention)):
        expected = np.linalg.svd(matrix, compute_uv=False)
        found = rank.exact_singular_values(x, space)
        np.testing.assert_allclose(found, expected, atol=1e-14)
    estimate = x.approximate(parse("positive(m=2)"), rng=0)
    values = rank.singular_values(estimate)
    expected = np.linalg.svd(estimate.to_dense(), compute_uv=False)
    np.testing.assert_allclose(values / values[0], expected / expected[0], atol=1e-14)


def test_a_causal_mask_gives_a_constant_full_rank():
    x = gaussian(9, 2, rng=0)
    one = parse("one()")
    assert rank.summary(x.approximate(one))["numerical_rank"] == 1
    causal = dataclasses.replace(x, mask="causal")
    assert rank.summary(causal.approximate(one))["numerical_rank"] == 9


# Oracles


@pytest.mark.parametrize("seed", SEEDS)
def test_oracles_are_among_what_is_seen(seed):
    (q, k), mask = inputs(seed, 2.0), hiding(N, L, seed)
    x, budget = Head("x", q, k, mask=mask), 2.5
    table = oracles(x, [1.0], [budget])
    found = table[table.metric == "attention_relative_frobenius"].set_index("method").value
    A = np.where(mask.visible(), np.exp(x.Q @ x.K.T), 0.0)
    A /= A.sum(axis=1, keepdims=True)
    squares = np.sort(A[mask.visible()] ** 2)[::-1]
    kept = int(budget * N)
    least = math.sqrt(squares[kept:].sum() / squares.sum())
    # an error of 10⁻³ or more is a norm of differences with roundings of 1 each
    assert found["sparse"] == pytest.approx(least, rel=1e-12, abs=1e-15)
    rank = int(budget * N // (N + L))
    of_svd = np.linalg.norm(np.where(mask.visible(), _of_rank(A, rank) - A, 0.0))
    assert found["low-rank"] <= of_svd / np.linalg.norm(A) + 1e-12
    assert found["both"] <= min(found["sparse"], found["low-rank"]) + 1e-12


def _of_rank(A, rank):
    U, s, V = np.linalg.svd(A, full_matrices=False)
    return (U[:, :rank] * s[:rank]) @ V[:rank]


# A part of inputs


def test_the_first_queries_keep_the_keys_that_they_see():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 6, 3)), rng.standard_normal((1, 8, 3))
    ids = ((0, 0, "a"), (0, 1, "b"))
    masks = Mask.causal(6, 8), Mask.window(6, 8, 2)
    for mask in (*masks, "causal", masks, None):
        x = Heads("x", q, k, k, mask=mask, ids=ids)
        for n in (1, 4, 6, 9):
            part = x.first(n)
            l = n if mask is None else min(n, 6) + 2
            assert (part.n, part.l) == (min(n, 6), min(l, 8))
            assert part.k.base is not None
            for small, large in zip(part.heads(), x.heads()):
                np.testing.assert_array_equal(small.logits(), large.logits()[:n, : part.l])
                assert small.mask.looks_back == large.mask.looks_back
                np.testing.assert_array_equal(small.v, large.v[: part.l])


def test_a_query_that_decodes_keeps_all_keys():
    x = gaussian(6, 2, rng=0)
    last = dataclasses.replace(x, q=x.q[-1:], mask="causal")
    assert last.mask.is_full
    assert last.first(1).l == 6
