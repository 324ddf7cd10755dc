"""Numbers as sign and logarithm: their sums and powers neither overflow nor underflow."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from approx.checks import Array


class Signed(NamedTuple):
    """The number sign·e^log."""

    sign: Array
    log: Array


def signed(x: ArrayLike) -> Signed:
    """Return the sign and the logarithm of x."""
    values = np.asarray(x, np.float64)
    with np.errstate(divide="ignore"):
        return Signed(np.sign(values), np.log(np.abs(values)))


def scaled(x: Signed, log: ArrayLike) -> Signed:
    """Return x·e^log."""
    return Signed(x.sign, x.log + np.asarray(log))


def power(x: Signed, n: int) -> Signed:
    """Return x^n."""
    if n == 0:
        return Signed(np.ones_like(x.sign), np.zeros_like(x.log))
    return Signed(x.sign**n, n * x.log)


def total(*terms: Signed) -> Signed:
    """Return the sum of the terms."""
    sign, log = (np.stack(np.broadcast_arrays(*part)) for part in zip(*terms))
    with np.errstate(divide="ignore", invalid="ignore"):
        log, s = scipy.special.logsumexp(log, axis=0, b=sign, return_sign=True)
    return Signed(s, log)


def difference(x: Signed, y: Signed) -> Signed:
    """Return x − y."""
    return total(x, Signed(-y.sign, y.log))


def value(x: Signed) -> Array:
    """Return sign·e^log; ±inf if its absolute value is above 1.8e308."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.where(x.sign == 0, 0.0, x.sign * np.exp(x.log)))


def excess(base: Array, more: Array, n: int) -> Signed:
    """Return (base + more)^n − base^n, without cancellation if ``more`` is small."""
    apart = difference(power(signed(base + more), n), power(signed(base), n))
    ratio = np.divide(more, base, out=np.full(np.shape(more), np.inf), where=base != 0)
    small = n * np.abs(ratio) < 0.5
    near = signed(np.expm1(n * np.log1p(np.where(small, ratio, 0.0))))
    near = scaled(Signed(near.sign * power(signed(base), n).sign, near.log), n * signed(base).log)
    return Signed(np.where(small, near.sign, apart.sign), np.where(small, near.log, apart.log))


def tail(y: Signed, first: int, factorials: int) -> Signed:
    """Return Σ_{j ≥ first} y^j/(j!)^factorials, the tail of e^y or, with two, of I₀(2√y).

    For small |y| the terms are added. For large |y| the terms before ``first`` are subtracted from
    the whole series. Neither way suffers from cancellation.
    """

    def term(j: int) -> Signed:
        return scaled(power(y, j), -factorials * scipy.special.gammaln(j + 1.0))

    x = value(y)
    root = np.exp(y.log / 2)
    if factorials == 1:
        size, whole = np.abs(x), Signed(np.ones_like(x), x)
    else:
        falling = signed(scipy.special.j0(2 * root))
        size, log = root, np.log(scipy.special.i0e(2 * root)) + 2 * root
        rising = y.sign >= 0
        whole = Signed(np.where(rising, 1.0, falling.sign), np.where(rising, log, falling.log))
    if first == 0:
        return whole
    rest = total(whole, *(Signed(-t.sign, t.log) for t in map(term, range(first))))
    reach = 2 * first + 2
    few = size <= reach
    ratio = np.where(few, x, 0.0)
    one, series = np.ones_like(ratio), np.ones_like(ratio)
    for j in range(first + 1, 4 * reach + 40):  # terms fall like (e·reach/j)^j
        one = one * ratio / float(j) ** factorials
        series += one
    head, more = term(first), signed(series)
    return Signed(
        np.where(few, head.sign * more.sign, rest.sign),
        np.where(few, head.log + more.log, rest.log),
    )
