"""The tail shape of a sample, Pareto k̂, for estimates without a closed form."""

import math

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array

RELIABLE = 0.7  # above it, a mean of a practical number of draws cannot be trusted
LITTLE = 10  # so few draws say nothing of a tail
LEAST_DRAWS = 25  # draws: five in the tail
GRID, QUARTILE_WEIGHT = 30, 3.0  # parameters of Zhang and Stephens' estimator
PRIOR, PRIOR_DRAWS = 0.5, 10.0  # the prior shape, and its weight in draws


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
