"""The expected error of an estimate in closed form, and the number of features that reaches one."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from approx import Method, checks
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.masks import MaskLike
from approx.method.filling import least_size, resized
from approx.projections import named

RESOLUTION = 1e-11  # relative resolution of very large numbers of features


def expected_error(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None
) -> float | None:
    """Return √(E‖estimate − exact‖²_F)/‖exact‖_F in closed form; None if no closed form is known.

    E‖·‖² = Σ exp(2 q·k)·(bias² + variance), with bias and variance relative to exp(q·k). This is
    exact and needs no covariance. It may be inf.

    Accuracy: 1000 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    method : Method
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        The visible keys of each query; None for all. Both norms are over visible entries.

    Examples
    --------
    >>> from approx import parse
    >>> round(expected_error(parse("positive(m=100)"), [[0.5]], [[0.5]]), 6)
    0.131083
    """
    checks.instance("method", method, Method, "a method")
    return Expectation(Q, K, mask).error(method)


class Expectation:
    """Expected errors of methods at the same Q, K and mask; the logits are computed once."""

    def __init__(self, Q: ArrayLike, K: ArrayLike, mask: MaskLike = None) -> None:
        self.Q, self.K, self.mask = Q, K, mask
        self._truth: tuple[Array, float] | None = None

    def error(self, method: Method) -> float | None:
        """Return `expected_error` of a method."""
        known = method.moments(self.Q, self.K, mask=self.mask)
        if known is None:
            return None
        if self._truth is None:  # after the method has checked Q and K
            twice = 2 * np.asarray(exact.logits(self.Q, self.K), np.float64)
            masks.as_mask(self.mask, *twice.shape).hide(twice, fill=-np.inf)
            self._truth = twice, float(logsumexp(twice))
        twice, total = self._truth
        log_square = known.log_relative_variance
        with np.errstate(divide="ignore", over="ignore"):
            if known.relative_bias.any():
                bias = 2 * np.log(np.abs(known.relative_bias))
                log_square = np.logaddexp(bias, log_square)
            return float(np.exp((logsumexp(twice + log_square) - total) / 2))


def features_needed(
    method: Method,
    error: float,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    mask: MaskLike = None,
) -> float:
    """Return the least m for which the expected relative Frobenius error is at most ``error``.

    Parameters
    ----------
    method : Method
        An unbiased method of size m, or a method with such a part (``centered``, ``scatterbrain``);
        m is then the size of the part. The method's own m, if it has one, is ignored.
    error : float
        √(E‖estimate − exact‖²_F)/‖exact‖_F, > 0.
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        The visible keys of each query; None for all.

    Returns
    -------
    float
        A whole number, rounded above 2^53; inf above 2^1000 (1e301), the largest m of a method.

    Raises
    ------
    ValueError
        The method has no size m, or its variance is not known in closed form.

    Notes
    -----
    Bisection on the closed form: first over whole blocks of coupled frequencies, where the error
    falls like the inverse root of their number; then within the last block, where the error may
    rise before it falls but crosses ``error`` only once. The result is exact below 10¹¹, and has 11
    correct digits beyond. For cosh or cosines of `simplex` directions, whose covariance depends on
    their number, the result is sufficient but up to two blocks above the least m. Iid frequencies
    need four evaluations of O(n·l·d).

    Examples
    --------
    One pair, |q + k|² = 1: (e − 1)/m ≤ 0.01.

    >>> from approx import parse
    >>> features_needed(parse("positive"), 0.1, [[0.5]], [[0.5]])
    172.0
    """
    checks.instance("method", method, Method, "a method")
    error = checks.positive("error", error)
    Q, K = checks.queries_keys(Q, K)
    part = _features(method)
    if part is None:
        raise ValueError(f"{method} has no size m")
    d, step = Q.shape[1], 1 if part.sized_by is None else part.sized_by.step
    projection = getattr(part, "projection", None)
    block = 1 if projection is None else named(projection).block(d) or 1
    expectation = Expectation(Q, K, mask)

    def reached(count: int) -> float:
        known = expectation.error(_resized(method, count * step))
        if known is None:
            raise ValueError(
                f"no variance of {method} is known in closed form, so the features that it needs "
                "are not known: give an m, and measure the error by moments.monte_carlo"
            )
        return known

    def fits(count: int) -> bool:
        return reached(count) <= error

    fewest = -(-least_size(part, d) // step)
    whole = -(-fewest // block) * block
    if fits(fewest):
        return float(fewest * step)
    first = reached(whole)
    guess = whole / block * (first / error) * (first / error)  # may be inf; exact if unbiased
    if guess * block * step == math.inf:
        return math.inf
    low, high = (fewest - 1) // block, max(whole // block, math.ceil(guess * (1 - 1e-12)))
    stride = max(1, int(high * RESOLUTION))
    while high * block * step <= checks.MOST_INTEGER and not fits(high * block):
        low, high, stride = high, high + stride, 2 * stride
    if high * block * step > checks.MOST_INTEGER:
        return math.inf
    low, high = _bisected(lambda blocks: fits(blocks * block), low, high)
    low, high = _bisected(fits, max(low * block, fewest - 1), high * block)
    return float(high * step)


def _bisected(fits: Callable[[int], bool], low: int, high: int) -> tuple[int, int]:
    """Return low < high, equal to 11 digits or 1 apart; high fits. The first try is near high."""
    middle = high - max(1, int(high * RESOLUTION))
    while high - low > max(1, int(high * RESOLUTION)):
        low, high = (low, middle) if fits(middle) else (middle, high)
        middle = (low + high) // 2
    return low, high


def _features(method: Method) -> Method | None:
    """Return the method if it has a size m, else the first of its parts that has one."""
    if method.sized_by is not None and method.sized_by.field == "m":
        return method
    sized = (_features(part) for part in method.parts.values())
    return next((part for part in sized if part is not None), None)


def _resized(method: Method, m: int) -> Method:
    """Return the method with another m of its features."""
    if _features(method) is method:
        return resized(method, m)
    name, part = next((name, x) for name, x in method.parts.items() if _features(x) is not None)
    return dataclasses.replace(method, **{name: _resized(part, m)})  # type: ignore[type-var]
