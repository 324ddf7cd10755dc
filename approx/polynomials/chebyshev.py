"""Chebyshev series and interpolants of exp on an interval."""

import dataclasses
import math

import numpy as np
import scipy

from approx.checks import Array
from approx.method.fields import one_of
from approx.polynomials.method import IntervalMethod
from approx.polynomials.polynomial import Polynomial


@dataclasses.dataclass(frozen=True)
class Chebyshev(IntervalMethod):
    """Chebyshev polynomial of exp on [−B, B], deterministic and biased.

    I₀(B) + 2 Σ_{1 ≤ k ≤ n} I_k(B) T_k(x/B), or the interpolant at n + 1 Chebyshev points

    Parameters
    ----------
    degree : int, optional
        n ≥ 0; None: a budget fills it.
    bound : float, optional
        B > 0; None takes the largest |q·k| of the inputs. Beyond B the error grows like (2x/B)^n.
    kind : {"truncation", "interpolation"}

    Notes
    -----
    Error: at most 2 Σ_{k>n} I_k(B) on [−B, B] for the truncation, reached at x = B (exact); at most
    twice that for the interpolant, because each omitted T_k is aliased to a kept one (bound).
    Relative to e^x the error is worst at x = −B, by a factor of up to e^{2B}. Attention logits are
    mostly near 0, where Taylor is often better.
    Some a_j < 0 once B ≳ 4. The kernel of one set of points is then indefinite, and rows of
    attention may have sums ≤ 0, which are counted.
    Rank: min(n, l, C(d+degree, degree)) for generic Q, K.
    Cost: elementwise 2d + 4 degree operations per entry (Clenshaw).

    References
    ----------
    .. [1] M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions", 9.6.34: θ = arccos t.
    .. [2] L. N. Trefethen, "Approximation Theory and Approximation Practice", 2013, theorem 4.2
       (aliasing).

    Examples
    --------
    The polynomial of degree 0 is the mean over the angle, I₀(1):

    >>> Chebyshev(degree=0, bound=1.0).approximate([[1.0]], [[1.0]]).to_dense()
    array([[1.26606588]])
    """

    name = "chebyshev"
    label = "Chebyshev, degree {degree}"
    examples = (
        "chebyshev(degree=3)",
        "chebyshev(degree=2, kind='interpolation')",
        "chebyshev(degree=4, bound=0.5)",
    )

    degree: int | None = None
    bound: float | None = None
    kind: str = one_of("truncation", ("truncation", "interpolation"))

    def polynomial(self, bound: float) -> Polynomial:
        n = self.degree or 0
        if self.kind == "truncation":
            c = 2 * bessel(np.arange(n + 1), bound)
            scale = bound
        else:
            x = bound * np.cos(np.pi * (np.arange(n + 1) + 0.5) / (n + 1))
            scale = float(x.max())
            import scipy.fft  # only where it is used, as it would delay every command

            c = np.asarray(scipy.fft.dct(np.exp(x - scale), type=2)) / (n + 1)
        c[0] /= 2
        return Polynomial.from_coefficients(c, basis="chebyshev", bound=bound, log_scale=scale)


def bessel(k: Array, bound: float) -> Array:
    """Return I_k(B) e^−B, for B > 10⁸ by its limit e^{−k²/2B}/√(2πB), accurate to 10⁻⁹ there.

    Accuracy: 16 eps·κ, as docs/accuracy.md defines it.
    """
    if bound > 1e8:
        return np.asarray(np.exp(-(k**2) / (2 * bound)) / math.sqrt(2 * math.pi * bound))
    return np.asarray(scipy.special.ive(k, bound))


def log_bessel(k: Array, bound: float) -> Array:
    """Return log I_k(B) − B, by Debye's expansion in 1/k where `bessel` underflows.

    The expansion is Abramowitz and Stegun, 9.7.7, with three terms, accurate to 10⁻⁹ beyond k = 30.

    Accuracy: 500 eps·κ, as docs/accuracy.md defines it.
    """
    value = bessel(k, bound)
    far = ~(value >= 1e-290)  # also where SciPy returns NaN beyond its range
    v = k[far].astype(float)
    root = np.hypot(v, bound)
    p = v / root
    u = [
        (3 * p - 5 * p**3) / 24,
        (81 * p**2 - 462 * p**4 + 385 * p**6) / 1152,
        (30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / 414720,
    ]
    with np.errstate(divide="ignore", over="ignore"):  # log 0 = −inf
        log = np.log(value)
        log[far] = root - bound - v * np.arcsinh(v / bound) - np.log(2 * np.pi * root) / 2
    log[far] += np.log1p(u[0] / v + u[1] / v**2 + u[2] / v**3)
    return np.asarray(log)


def left_out(degree: int, bound: float) -> Array:
    """Return the k > degree that matter: I_k(B) falls like e^{−k²/2B}, faster for k > B."""
    return degree + 1 + np.arange(64 + 9 * math.ceil(math.sqrt(bound)))


def log_tail(degree: int, bound: float) -> float:
    """Return log(2 Σ_{k > degree} I_k(B)) − B, the log error of the truncation over e^B.

    For B > 10⁸ the sum is taken in the limit of `bessel`: erfc((degree + ½)/√(2B)).

    Accuracy: 500 eps·κ, as docs/accuracy.md defines it.
    """
    if bound > 1e8:
        return float(scipy.special.log_ndtr(-(degree + 0.5) / math.sqrt(bound))) + math.log(2)
    k = left_out(degree, bound)
    with np.errstate(under="ignore"):
        tail = 2 * math.fsum(scipy.special.ive(k, bound).tolist())
    if tail > 1e-280:
        return math.log(tail)
    return math.log(2) + float(scipy.special.logsumexp(log_bessel(k, bound)))
