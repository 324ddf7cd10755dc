"""Bounds of a mean from a sample of numbers between 0 and 1, with a given probability.

A sample bounds the mean from above only if the largest possible number is known: one rare number
larger than all drawn ones could make up the whole mean. Here all numbers are between 0 and 1.

Let x be b drawn numbers, x̄ their mean, μ the true mean, and L = log(1/δ). Each inequality below
holds with probability at least 1 − δ. For a lower bound apply it to 1 − x.

- ``hoeffding``: μ ≤ x̄ + √(ρL/2b). With replacement ρ = 1, from a population of N numbers without
  replacement ρ = min(1 − (b − 1)/N, (1 − b/N)(1 + 1/b)).
- ``empirical_bernstein``: with replacement μ ≤ x̄ + √(2s²·log(2/δ)/b) + 7·log(2/δ)/(3(b − 1)), s²
  the unbiased variance of the sample. Without, μ ≤ x̄ + σ̂√(2ρ·log(5/δ)/b) + κ·log(5/δ)/b, where
  κ = 7/3 + 3/√2, σ̂² = (b − 1)s²/b, and ρ is as above.
- ``betting``: the least m with Σ_θ w_θ Π_t (1 + θ(m − x_t)/(1 − m)) ≥ 1/δ. θ = 1 has weight ½, and
  θ = ½, …, 2⁻⁷ share the other half. At m = μ no factor is negative and each has mean 1, so that
  the product exceeds 1/δ with probability at most δ. This holds without replacement too: the draws
  are then negatively associated and each factor decreases in its x_t, so that the mean of the
  product is at most the product of the means, 1.
- ``normal``: μ ≤ x̄ + z·(s/√b)·√(1 − b/N), z the 1 − δ quantile of N(0, 1). This is *not a proved
  bound*: the mean of a finite sample is not normal, and s is not the true standard deviation.

If all draws are 0, *no* valid bound with replacement is below 1 − δ^{1/b} ≈ L/b: with probability
δ, all draws miss a share of ones of that size. ``betting`` gives about log(2/δ)/b. So a sample
proves little as long as the largest possible number is b times the mean.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from approx import checks
from approx.checks import Array
from approx.estimate import exact

PROVED = ("hoeffding", "empirical_bernstein", "betting")
KINDS = (*PROVED, "normal")
BETS = 2.0 ** -np.arange(8)
LOG_PRIOR = np.log([0.5, *[0.5 / 7] * 7])
HALVINGS = 40  # bisection steps of the interval with the bound


def upper(
    x: ArrayLike,
    delta: float,
    *,
    kind: str = "empirical_bernstein",
    population: ArrayLike | None = None,
) -> Array:
    """Return an upper bound of the mean for each sample; it fails with probability at most δ.

    Parameters
    ----------
    x : (…, b)
        Samples of numbers between 0 and 1.
    delta : float
        0 < δ < 1.
    kind : {"empirical_bernstein", "hoeffding", "betting", "normal"}
    population : int or (…), optional
        N for draws without replacement: b different numbers of N, all sets of b equally likely. By
        default draws are independent.

    Returns
    -------
    (…)
        At most 1.

    Raises
    ------
    ValueError
        A number is outside [0, 1], N < b, or b < 2 for kind "normal", which needs a variance.

    Notes
    -----
    ``empirical_bernstein`` is 1 for b < 2. Cost: O(b) per sample; about 400·b logarithms for
    ``betting``.

    References
    ----------
    .. [1] W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58,
       1963.
    .. [2] A. Maurer, M. Pontil, "Empirical Bernstein bounds and sample variance penalization",
       COLT 2009, Theorem 4.
    .. [3] R. Bardenet, O.-A. Maillard, "Concentration inequalities for sampling without
       replacement", Bernoulli 21, 2015, Theorems 2.4 and 4.3, as other sources quote them.
    .. [4] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting",
       JRSS B 86, 2024: the idea; the bets here do not depend on the order of the draws.
    .. [5] K. Joag-Dev, F. Proschan, "Negative association of random variables, with applications",
       Annals of Statistics 11, 1983 (from memory).

    Examples
    --------
    The mean may be this large if 100 draws are all 0:

    >>> [round(float(upper(np.zeros(100), 0.05, kind=kind)), 3) for kind in KINDS]
    [0.122, 0.087, 0.036, 0.0]
    """
    sample, b, N = _checked(x, population)
    failure = level(delta)
    checks.one_of("kind", kind, KINDS)
    mean = sample.mean(axis=-1)
    if kind == "betting":
        high = _betting(sample, math.log(1 / failure))
    elif kind == "hoeffding":
        high = mean + np.sqrt(_left(b, N) * math.log(1 / failure) / (2 * b))
    elif kind == "empirical_bernstein":
        high = mean + _bernstein(sample, failure, N)
    else:
        if b < 2:
            raise ValueError('kind "normal" needs 2 draws for a deviation, got 1')
        error = sample.std(axis=-1, ddof=1) / math.sqrt(b)
        high = mean - ndtri(failure) * error * np.sqrt(1 - b / N)
    return np.asarray(np.where(b == N, mean, np.clip(high, 0.0, 1.0)))


def lower(
    x: ArrayLike,
    delta: float,
    *,
    kind: str = "empirical_bernstein",
    population: ArrayLike | None = None,
) -> Array:
    """Return a lower bound of the mean, 1 − upper(1 − x); it fails with probability at most δ.

    The parameters are those of `upper`. Both sides hold together with probability at least 1 − 2δ.
    """
    sample, _, _ = _checked(x, population)
    return np.asarray(1.0 - upper(1.0 - sample, delta, kind=kind, population=population))


def _checked(x: ArrayLike, population: ArrayLike | None) -> tuple[Array, int, Array]:
    sample = checks.array("x", x).astype(np.float64)
    if not sample.ndim or not sample.shape[-1]:
        raise ValueError(f"x must have samples of one number at least, got shape {sample.shape}")
    if sample.size and not (sample.min() >= 0 and sample.max() <= 1):
        raise ValueError(
            f"x must be between 0 and 1, got {sample.min():g} to {sample.max():g}: "
            "divide by the largest possible number"
        )
    b = sample.shape[-1]
    if population is None:
        return sample, b, np.asarray(np.inf)
    N = checks.array("population", population).astype(np.float64)
    if N.size and N.min() < b:
        raise ValueError(f"population must be >= the {b} that are drawn, got {N.min():g}")
    return sample, b, N


def level(delta: float) -> float:
    """Return δ, which must be a number between 0 and 1."""
    if not (failure := checks.positive("delta", delta)) < 1:
        raise ValueError(f"delta must be below 1, got {delta!r}")
    return failure


def _left(b: int, N: Array) -> Array:
    """Return ρ, the factor of the variance without replacement; 1 for N = inf."""
    return np.asarray(np.minimum(1 - (b - 1) / N, (1 - b / N) * (1 + 1 / b)))


def _bernstein(sample: Array, failure: float, N: Array) -> Array:
    b = sample.shape[-1]
    if b < 2:
        return np.ones(sample.shape[:-1])
    if np.isinf(N).all():
        L = math.log(2 / failure)
        spread = np.sqrt(2 * sample.var(axis=-1, ddof=1) * L / b)
        return np.asarray(spread + 7 * L / (3 * (b - 1)))
    L = math.log(5 / failure)
    kappa = 7 / 3 + 3 / math.sqrt(2)
    return np.asarray(np.sqrt(2 * _left(b, N) * sample.var(axis=-1) * L / b) + kappa * L / b)


def _betting(sample: Array, log_odds: float) -> Array:
    flat = sample.reshape(-1, sample.shape[-1])
    high = np.empty(len(flat))
    for rows in exact.stripes(len(flat), flat.shape[1] * len(BETS)):
        high[rows] = _least_refuted(flat[rows], log_odds)
    return high.reshape(sample.shape[:-1])


def _least_refuted(sample: Array, log_odds: float) -> Array:
    """Return the least m whose wealth reaches the odds, by bisection: the wealth rises with m."""
    low, high = np.zeros(len(sample)), np.ones(len(sample))
    for _ in range(HALVINGS):
        m = (low + high) / 2
        gain = (m[:, None] - sample) / (1.0 - m[:, None])
        with np.errstate(divide="ignore"):  # a bet of everything may lose everything
            wealth = np.log1p(np.maximum(BETS[:, None, None] * gain, -1.0)).sum(axis=2)
        refuted = np.logaddexp.reduce(wealth + LOG_PRIOR[:, None], axis=0) >= log_odds
        low, high = np.where(refuted, low, m), np.where(refuted, m, high)
    return high
