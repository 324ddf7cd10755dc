"""Moments of the squared error of one draw, in closed form.

A sample mean of ‖estimate − exact‖² is reliable only if the square has a moderate variance, which
needs fourth moments. A sample cannot show this, because the draws that make the variance large are
rare; the closed form shows it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from approx import Method
from approx.checks import Array
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import masks
from approx.estimate.masks import Mask, MaskLike
from approx.method.evaluation import checked_inputs
from approx.projections.summand import Summand
from approx.random_features.generalized_exponential import GeneralizedExponential
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from approx.sparse.support import SupportMethod

# A fourth moment below this share of E ρ⁴ has lost its digits; ALONE: if ρ is one exponential.
CANCELLED, CANCELLED_ALONE = 1e-9, 1e-14
FEATURES = (Positive, Hyperbolic, GeneralizedExponential, Trigonometric)


class SquaredError(NamedTuple):
    """Moments of e² = (estimate/exact − 1)², entry by entry, (n, l).

    Attributes
    ----------
    log_mean
        log E e²; −inf if the estimate is exact, or for an invisible key.
    log_relative_variance
        log(Var[e²]/(E e²)²) = x: with T draws, the relative standard error of the mean of e² is
        √(e^x/T).
    """

    log_mean: Array
    log_relative_variance: Array


def squared_error(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None
) -> SquaredError | None:
    """Return the moments of the squared error of every entry; None if they are not known.

    They are known for iid frequencies (positive, hyperbolic, FAVOR++, sin/cos), for supports with
    known inclusion probabilities p, and for Scatterbrain of the two. The error of Scatterbrain is
    the error of its features off the support: E e^{2r} is (1 − p) times their E e^{2r}.

    Accuracy: 1e10 eps·κ, where the limit is taken; 1e6 at |q + k|² > 1e-3, as docs/accuracy.md
    defines it.

    Parameters
    ----------
    method : Method
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        The visible keys of each query; None for all.

    Notes
    -----
    The mean of N terms ρ of variance v and fourth central moment μ has the fourth central moment
    (μ + 3(N − 1)v²)/N³. If rounding would lose μ (v below about 1e-7, or 1e-5 for pairs and tilts),
    the code uses the limit of μ/v² at v = 0.

    Examples
    --------
    At |q + k|² = 1 and m = 1, ρ is lognormal: E(ρ − 1)⁴ = e⁶ − 4e³ + 6e − 3.

    >>> error = squared_error(Positive(m=1), [[0.5]], [[0.5]])
    >>> fourth = (math.exp(error.log_relative_variance[0, 0]) + 1) * math.expm1(1) ** 2
    >>> print(round(fourth / (math.exp(6) - 4 * math.exp(3) + 6 * math.e - 3), 9))
    1.0
    """
    if isinstance(method, Scatterbrain):
        low = squared_error(method.low_rank, Q, K, mask=mask)
        p = method.sparse.probability(Q, K, mask=mask)
        return None if low is None or p is None else _off(p, *low)
    if isinstance(method, SupportMethod):
        p = method.probability(Q, K, mask=mask)
        if p is None:
            return None
        off = _off(p, np.zeros(p.shape), np.full(p.shape, -np.inf))
        return _seen(off, masks.as_mask(mask, *p.shape))
    if not isinstance(method, FEATURES) or method.projection != "iid":
        return None
    q, k = (np.asarray(x, np.float64) for x in checked_inputs(method, Q, K)[:2])
    known = method.moments(q, k, mask=mask)
    assert known is not None
    v = known.log_relative_variance
    return SquaredError(v, _relative_variance(method.entries(q, k), v, method.count))


def _seen(error: SquaredError, mask: Mask) -> SquaredError:
    for x in error:
        mask.hide(x, fill=-np.inf)
    return error


def _off(p: Array, log_mean: Array, log_relative_variance: Array) -> SquaredError:
    """Return the moments of e² times the indicator of an event of probability 1 − p."""
    with np.errstate(divide="ignore"):
        off = np.log1p(-p)
        both = np.logaddexp(log_relative_variance, np.log(p))
    certain = p >= 1.0
    return SquaredError(
        np.where(certain, -np.inf, log_mean + np.where(certain, 0.0, off)),
        np.where(certain, -np.inf, both - np.where(certain, 0.0, off)),
    )


def _relative_variance(rho: Summand, log_variance: Array, count: int) -> Array:
    """Return log(E e⁴/(E e²)² − 1), where e is the mean of count terms ρ − 1."""
    L2, L3, L4 = (_log_power(rho, p) for p in (2, 3, 4))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # E(ρ − 1)⁴/E ρ⁴ by E ρ^p − 1, which cancel less if all are small
        rest = -np.expm1(-L4) - 4 * _above_one(L3, L4) + 6 * _above_one(L2, L4)
        log_fourth = L4 + np.log(rest)
        per_term = log_fourth - 2 * (log_variance + math.log(count))
        least = CANCELLED if rho.paired or rho.A.any() else CANCELLED_ALONE
        per_term = np.where(rest > least, per_term, _small_kurtosis(rho))
        kurtosis = np.logaddexp(per_term, math.log(3 * (count - 1)) if count > 1 else -np.inf)
        log = np.maximum(kurtosis - math.log(count), 0.0)  # only rounding makes it less than 1
        excess = log + np.log(-np.expm1(-log))
    return np.where(log_variance > -np.inf, excess, -np.inf)


def _above_one(log: Array, log_unit: Array) -> Array:
    """Return (e^log − 1)/e^log_unit, log ≤ log_unit."""
    small = np.exp(-log_unit) * np.expm1(np.minimum(log, 1.0))
    return np.where(log < 1, small, np.exp(log - log_unit) - np.exp(-log_unit))


def _small_kurtosis(rho: Summand) -> float:
    """Return log E(ρ − 1)⁴/(E(ρ − 1)²)² as the variance goes to 0.

    ρ − 1 is then proportional to z ~ N(0, 1), which gives 3, or to z² − 1 if ρ is even in ω, which
    gives 15. With a tilt the limit is between the two, and the code uses 15.
    """
    return math.log(15.0 if rho.paired or rho.A.any() else 3.0)


def _log_power(rho: Summand, p: int) -> Array:
    """Return log E ρ^p over ω ~ N(0, I), or inf if this moment does not exist.

    E ρ^p = Π_c (1−4A_c)^{p/2} (1−4A_c p)^{−1/2} e^{−p u·u/2} · mean over t of
    e^{t² Σ s_c² u_c²/(2(1−4A_c p))}. Here t = p; if paired, t = p, p − 2, …, −p with binomial
    weights, because cosh^p x is a binomial mean of e^{tx}.
    """
    A, zero = rho.A, np.zeros_like(rho.A)
    width = 1 - 4 * A * p
    if (width <= 0).any():
        return np.full_like(rho.form(zero, zero), np.inf)
    constant = np.sum(p * np.log(1 - 4 * A) - np.log(width)) / 2
    terms = range(p + 1) if rho.paired else range(1)
    halved = p * math.log(2) if rho.paired else 0.0
    logs = [
        math.log(math.comb(p, j)) - halved
        + rho.form((p - 2 * j) ** 2 * (1 - 4 * A) / (2 * width) - p / 2, zero)
        for j in terms
    ]  # fmt: skip
    return np.asarray(constant + np.logaddexp.reduce(logs, axis=0))
