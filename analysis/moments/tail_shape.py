"""How heavy the tail of a sample is, for a reader without a closed form: Pareto k̂."""

import math

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array

RELIABLE = 0.7  # above it, a mean of a practical number of draws cannot be trusted
LEAST = 25  # draws: five in the tail
GRID, QUARTILE_WEIGHT = 30, 3.0  # of the estimator
PRIOR, PRIOR_DRAWS = 0.5, 10.0  # shape, and how many draws it counts for


def pareto_k(draws: ArrayLike) -> float:
    """Return k̂, the shape of a generalised Pareto law fitted to the largest |draws|.

    Of b draws the tail is the largest ⌈min(b/5, 3√b)⌉, less the next one. A tail of shape k has the
    moments below 1/k: from ½ on there is no variance, from 1 on no mean. A law with all moments,
    like the lognormal, has a finite sample like one of shape k̂. Above 0.7 the error of the mean
    falls so slowly that no practical number of draws helps, and its standard error says nothing.

    Parameters
    ----------
    draws : (b,)
        Independent, b ≥ 25: single terms of a mean, not means. Their scale does not matter.

    Returns
    -------
    float
        −inf where the tail is constant.

    Raises
    ------
    ValueError
        Fewer than 25 draws, or one that is not finite.

    Notes
    -----
    Status: an estimate with standard error (1 + k)/√(tail) or so, and shrunk to ½ as if by ten
    draws. What was never drawn it cannot see: k̂ ≤ 0.7 is no proof.
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
    checks.integer("the number of draws", len(x), least=LEAST)
    size = math.ceil(min(len(x) / 5, 3 * math.sqrt(len(x))))
    tail = x[-size:] - x[-size - 1]
    if tail[-1] <= 0:
        return -math.inf
    shape = _shape(tail / tail[-1])
    return (size * shape + PRIOR_DRAWS * PRIOR) / (size + PRIOR_DRAWS)


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
