"""Moments of a sample of draws, a test of the closed form, and Pareto k̂ where there is none."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from approx import checks
from approx.checks import Array
from approx.estimate.approximation import Approximation
from approx.method.moments import Moments
from approx.projections.summand import times

# A sample is reliable up to these limits: the squared relative standard errors of its mean and of
# its variance, and the distance of its variance from the closed form in standard errors.
MEAN, VARIANCE, DISTANCE = 0.01, 0.1, 3.0
RELIABLE = 0.7  # above it, a mean of a practical number of draws cannot be trusted
LITTLE = 10  # so few draws say nothing of a tail
LEAST_DRAWS = 25  # draws: five in the tail
GRID, QUARTILE_WEIGHT = 30, 3.0  # parameters of Zhang and Stephens' estimator
PRIOR, PRIOR_DRAWS = 0.5, 10.0  # the prior shape, and its weight in draws


class MonteCarlo(NamedTuple):
    """Sample moments of estimate/exact over independent draws, entry by entry, (n, l).

    An invisible pair has mean 1 and variance 0, as in `Method.moments`.

    Attributes
    ----------
    mean, variance
        The moments of estimate/exact. If the estimate is unbiased, the mean is 1 and the variance
        is the relative variance.
    mean_stderr
        From the closed-form variance if it is known, else from the sample.
    variance_stderr
        From the sample's fourth moment.
    z
        (mean − 1 − relative bias)/mean_stderr: standard normal if the closed form holds (or, if no
        closed form is known, if the estimate is unbiased); 0 without variance and difference.
    p_value : float
        The p-value of the largest |z|, corrected for the number of visible entries (Bonferroni).
    believable
        Whether the sample is reliable. The standard error of the mean, from the known variance or
        else the sample variance, must be at most 10 % of exact, or of the expectation if that is
        larger. The standard error of the sample variance must be at most 32 % (√0.1) of it. A
        sample cannot show a heavy tail that was never drawn. So if the closed form is known, the
        sample variance must also be within three of its standard errors of the closed form.
    """

    mean: Array
    variance: Array
    mean_stderr: Array
    variance_stderr: Array
    z: Array
    p_value: float
    believable: Array


def ratio(estimate: Approximation, truth: Array, space: str) -> Array:
    """Return estimate/exp(truth), after row normalisation in attention space."""
    if space == "kernel" and estimate.space == "attention":
        raise ValueError("the method estimates softmax rows: use space='attention'")
    shift = np.asarray(estimate.row_log(), np.float64)
    x = np.asarray(estimate.block(slice(None), shift=shift), np.float64)
    if space == "attention" and estimate.space == "kernel":
        total = x.sum(axis=1)
        x = np.divide(x, total[:, None], out=np.zeros_like(x), where=total[:, None] > 0)
        shift = np.zeros_like(shift)
    return times(x, shift[:, None] - truth)


def rounding(q: Array, k: Array) -> Array:
    """Return the relative error of exp(q·k) that rounding explains, of exponents and long sums."""
    lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
    return np.asarray(1024 * np.finfo(q.dtype).eps * (1.0 + lengths))


def statistics(
    mean: Array,
    variance: Array,
    variance_stderr: Array,
    known: Moments | None,
    draws: int,
    rounding: Array,
    entries: int,
) -> MonteCarlo:
    """Return moments of a sample, with standard errors, z and what is reliable.

    Parameters
    ----------
    mean, variance, variance_stderr : (n, l)
        Of estimate/exact over draws.
    known : Moments, optional
        The closed form; without it the mean is tested against 1.
    draws : int
    rounding : (n, l)
        The differences of the mean that rounding explains.
    entries : int
        The number of entries, for the p-value.
    """
    expected = 1.0 + (known.relative_bias if known else np.zeros_like(mean))
    with np.errstate(over="ignore"):
        spread = np.exp(known.log_relative_variance) if known else variance
    stderr = np.sqrt(spread / draws)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        difference = mean - expected
        alike = np.abs(difference) <= rounding * (1.0 + np.abs(expected))
        z = np.where(alike | (stderr == np.inf), 0.0, difference / stderr)
        z[np.isinf(mean) & np.isinf(expected)] = 0.0
        relative = np.where((variance > 0) & (spread > 0), variance_stderr / variance, 0.0)
        agrees = np.abs(variance - spread) <= DISTANCE * variance_stderr + rounding**2
        believable = spread <= MEAN * draws * np.maximum(expected, 1.0) ** 2
    largest = float(np.abs(z).max())
    p_value = min(1.0, 2.0 * float(ndtr(-largest)) * entries)
    believable &= agrees & (relative**2 <= VARIANCE)
    return MonteCarlo(mean, variance, stderr, variance_stderr, z, p_value, believable)


def pareto_k(draws: ArrayLike) -> float:
    """Return k̂, the shape of a generalised Pareto law fitted to the largest |draws|.

    The tail is the largest ⌈min(b/5, 3√b)⌉ of b draws, minus the next largest draw. A tail of shape
    k has finite moments below order 1/k: no variance for k ≥ ½, no mean for k ≥ 1. A law with all
    moments, like the lognormal, has finite samples that look like shape k̂. Above 0.7 the error of
    the mean falls so slowly that no practical number of draws is enough, and the standard error of
    the mean is meaningless. For few draws the limit is lower, see `reliable_k`.

    Parameters
    ----------
    draws : (b,)
        Independent single terms of a mean, not means; b ≥ 25. Their scale does not matter.

    Returns
    -------
    float
        −inf if the tail is constant.

    Raises
    ------
    ValueError
        There are fewer than 25 draws, or a draw is not finite.

    Notes
    -----
    Status: an estimate with a standard error of about (1 + k)/√(tail size), shrunk to ½ with a
    weight of ten draws. It cannot see a tail that was never drawn: k̂ ≤ 0.7 is no proof.
    Cost: O(b log b).

    References
    ----------
    .. [1] J. Zhang, M. Stephens, "A new and efficient estimation method for the generalized Pareto
       distribution", Technometrics 51, 2009.
    .. [2] A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry, "Pareto smoothed importance
       sampling", JMLR 25, 2024, sections 2.4 and 3.2, and appendix C for the prior.

    Examples
    --------
    >>> u = (np.arange(10_000) + 0.5) / 10_000
    >>> round(pareto_k(u**-0.9), 2), round(pareto_k(1 - u), 2)  # shape 0.9, and a uniform law: −1
    (0.88, -0.92)
    """
    x = np.sort(np.abs(checks.array("draws", draws, ndim=1).astype(np.float64)))
    checks.integer("the number of draws", len(x), least=LEAST_DRAWS)
    size = math.ceil(min(len(x) / 5, 3 * math.sqrt(len(x))))
    tail = x[-size:] - x[-size - 1]
    if tail[-1] <= 0:
        return -math.inf
    shape = _shape(tail / tail[-1])
    return (size * shape + PRIOR_DRAWS * PRIOR) / (size + PRIOR_DRAWS)


def reliable_k(draws: int) -> float:
    """Return the largest k̂ with which a mean of so many draws is reliable; −inf for 10 or fewer.

    It is min(0.7, 1 − 1/log₁₀ draws): 0.5 for 100 draws, 0.7 from 2155 on [1]_.

    References
    ----------
    .. [1] A. Vehtari et al., "Pareto smoothed importance sampling", JMLR 25, 2024, section 3.2.4.

    Examples
    --------
    >>> [reliable_k(draws) for draws in (10, 100, 10_000)]
    [-inf, 0.5, 0.7]
    """
    if checks.integer("draws", draws, least=1) <= LITTLE:
        return -math.inf
    return min(RELIABLE, 1 - 1 / math.log10(draws))


def _shape(y: Array) -> float:
    """Return Zhang and Stephens' estimate of the shape of y (size,), ascending, max y = 1."""
    count = GRID + math.isqrt(len(y))
    quartile = y[int(len(y) / 4 + 0.5) - 1] or y[y > 0][0]
    place = np.sqrt(count / (np.arange(count) + 0.5))
    theta = 1 + (1 - place) / (QUARTILE_WEIGHT * quartile)
    k = np.log1p(-theta[:, None] * y).mean(axis=1)
    log = len(y) * (np.log(-theta / k) - k - 1)
    weights = np.exp(log - log.max())
    best = float(theta @ weights / weights.sum())
    return float(np.log1p(-best * y).mean())
