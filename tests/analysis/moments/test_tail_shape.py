"""Pareto k̂ against exact laws, maximum likelihood, and Zhang and Stephens' estimate in words."""

import math

import numpy as np
import pytest
import scipy.stats

from analysis.moments import pareto_k, tail_shape


def test_the_shape_is_that_of_the_posterior_mean_summed_one_by_one():
    """θ̂ = Σ_j θ_j L(θ_j)/Σ L, L(θ) = n (log(−θ/k) − k − 1), k = mean log(1 − θ y) [1], §3."""
    y = np.sort(np.random.default_rng(0).pareto(2.0, 50))
    y /= y[-1]
    m = 30 + int(math.sqrt(50))
    thetas, logs = [], []
    for j in range(1, m + 1):
        theta = 1 / y[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * y[12])  # ⌊50/4 + ½⌋ = 13th
        k = sum(math.log(1 - theta * a) for a in y) / 50
        thetas.append(theta)
        logs.append(50 * (math.log(-theta / k) - k - 1))
    shares = np.array([1 / sum(math.exp(b - a) for b in logs) for a in logs])
    theta = float(shares @ thetas)
    expected = sum(math.log(1 - theta * a) for a in y) / 50
    assert tail_shape._shape(y) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("k", [-0.5, 0.0, 0.3, 0.7, 1.5])
def test_a_generalised_pareto_law_has_its_shape(k):
    """A tail of one is one of the same shape; |z| ≤ 5 with the error (1 + k)/√tail of [1]."""
    draws, repeats = 10_000, 30
    rng = np.random.default_rng(3)
    size = math.ceil(min(draws / 5, 3 * math.sqrt(draws)))
    found = [
        pareto_k(scipy.stats.genpareto.rvs(k, size=draws, random_state=rng)) for _ in range(repeats)
    ]
    unshrunk = (np.mean(found) * (size + 10) - 10 * 0.5) / size
    stderr = (1 + k) / math.sqrt(size * repeats)
    assert abs(unshrunk - k) < 5 * stderr + 1 / size  # and a bias of the order 1/size


def test_the_shape_is_near_that_of_maximum_likelihood():
    """By `scipy.stats.genpareto.fit`, for which it was made a quick stand-in."""
    for s in (1.0, 2.0, 4.0):
        y = np.sort(np.exp(s * np.random.default_rng(1).standard_normal(4000)))
        tail = y[-190:] - y[-191]
        likely = scipy.stats.genpareto.fit(tail, floc=0)[0]
        # both have the error (1 + k)/√190 of one sample, and most of it in common
        assert abs(tail_shape._shape(tail / tail[-1]) - likely) < 0.5 * (1 + likely) / math.sqrt(
            190
        )


def test_the_tail_is_a_fifth_or_three_roots_and_shrunk_as_by_ten_draws_of_a_half():
    for draws, size in ((100, 20), (400, 60)):
        x = np.sort(np.random.default_rng(4).pareto(1.0, draws))
        tail = x[-size:] - x[-size - 1]
        shape = tail_shape._shape(tail / tail[-1])
        assert pareto_k(x) == pytest.approx((size * shape + 5) / (size + 10), rel=1e-12)


def test_scale_sign_and_order_do_not_matter():
    x = np.random.default_rng(2).standard_t(2, 500)
    k = pareto_k(x)
    assert pareto_k(-1e200 * x[::-1]) == pytest.approx(k, rel=1e-12)
    assert pareto_k(np.abs(x)) == k
    assert pareto_k(np.ones(100)) == -math.inf
    assert math.isfinite(pareto_k(np.repeat([1.0, 2.0], [490, 10])))  # most of the tail is 0


@pytest.mark.parametrize("bad", [np.ones(24), np.array([np.nan] * 30), np.ones((30, 2))])
def test_bad_samples_are_refused(bad):
    with pytest.raises(ValueError, match="draws"):
        pareto_k(bad)
