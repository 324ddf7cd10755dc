"""Largest error of polynomials and of rational functions for exp against degree."""

import math
import warnings

import numpy as np
import pandas as pd
from scipy.interpolate import AAA
from scipy.linalg import hankel

from analysis.experiments.profile import Profile
from analysis.sweeps.table import Row
from approx.checks import Array
from approx.polynomials.error_bounds import bessel_tail, sup_error

COLUMNS = ("interval", "bound", "method", "degree", "value")
B = 4.0
DEGREES = tuple(range(1, 17))  # of a polynomial
ORDERS = tuple(range(1, 13))  # of numerator and denominator
HALPHEN = 9.28902549192081891875544943595174506
SPAN = 9.0  # the half-line is 9 (t − 1)/(t + 1), |t| ≤ 1
POINTS = 4000
POLYNOMIALS = "taylor", "minimax"


def best_on_half_line(most: int) -> Array:
    """Return the least errors of rational functions of type (n, n) for e^x on (−∞, 0], n ≤ most.

    E_n ≈ 2 σ_n, with σ_n the singular values, from n = 0, of the Hankel matrix of c_{1+i+j}, where
    f(t) = exp(9 (t − 1)/(t + 1)) = Σ' 2 c_k T_k(t).

    Shape: (most + 1,). Errors: below 10⁻³ of E_n for n ≥ 1, and some eps absolute; 12 % of E₀ = ½.
    Status: an approximation, no bound.

    References
    ----------
    .. [1] L. N. Trefethen, J. A. C. Weideman, T. Schmelzer, "Talbot quadratures and rational
       approximations", BIT 46, 2006, section 4.

    Examples
    --------
    >>> [f"{error:.2e}" for error in best_on_half_line(3)[1:]]
    ['6.68e-02', '7.36e-03', '7.99e-04']
    """
    size, terms = 1024, 75 + most
    t = np.cos(2 * np.pi * np.arange(size) / size)
    with np.errstate(divide="ignore"):
        c = np.fft.fft(np.exp(SPAN * (t - 1) / (t + 1))).real / size
    sigma = np.linalg.svd(hankel(c[1 : terms + 1]), compute_uv=False)
    return 2 * sigma[: most + 1]


def halphen_line(n: int) -> float:
    """Return 2 · 9.28903^(−n − 1/2), which E_n on (−∞, 0] nears as n grows.

    Status: asymptotic equality, E_n over it has the limit 1.

    References
    ----------
    .. [1] A. I. Aptekarev, "Sharp constants for rational approximations of analytic functions",
       Sbornik Mathematics 193, 2002.
    """
    return float(2 * HALPHEN ** -(n + 0.5))


def pade(n: int, x: Array) -> Array:
    """Return the Padé approximant N(x)/N(−x) of type (n, n).

    N(x) = Σ_{k≤n} C(n, k) (2n − k)!/(2n)! x^k. Odd n have one real pole: 2 for n = 1, above 4.6
    for others.
    """
    weights = [
        math.comb(n, k) * math.factorial(2 * n - k) / math.factorial(2 * n) for k in range(n + 1)
    ]
    top = np.polynomial.polynomial.polyval(x, weights)
    return np.asarray(top / np.polynomial.polynomial.polyval(-x, weights))


def _adaptive(x: Array, n: int, between: Array) -> float:
    with warnings.catch_warnings():  # AAA warns that it stops at its degree, as it should here
        warnings.filterwarnings("ignore", "AAA failed to converge", RuntimeWarning)
        r = AAA(x, np.exp(x), max_terms=n + 1, rtol=0.0, clean_up=False)
    return float(np.abs(r(between) - np.exp(between)).max())


def _interval() -> list[Row]:
    """Return errors over e^B on [−B, B]."""
    rows: list[Row] = []

    def add(method: str, n: int, value: float) -> None:
        rows.append(("interval", B, method, n, value))

    for n in DEGREES:
        for name in POLYNOMIALS:
            add(name, n, sup_error(name, n, B, "scaled"))
        add("bessel_tail", n, bessel_tail(n, B, "scaled"))
    t = np.cos(np.pi * np.arange(POINTS + 1) / POINTS)
    for n in ORDERS:
        if n > 1:  # that of type (1, 1) has a pole at 2
            add("pade", n, float(np.abs(pade(n, B * t) - np.exp(B * t)).max()) / math.exp(B))
        add("aaa", n, _adaptive(B * t[::8], n, B * t) / math.exp(B))
    return rows


def _half_line() -> list[Row]:
    """Return errors on (−∞, 0]."""
    t = np.cos(np.pi * np.arange(POINTS) / POINTS)  # the half-line without −∞
    x = SPAN * (t - 1) / (t + 1)
    best = best_on_half_line(max(ORDERS))
    rows: list[Row] = []
    for n in ORDERS:
        inverse = np.polynomial.polynomial.polyval(
            -x, [1 / math.factorial(k) for k in range(n + 1)]
        )
        for method, value in {
            "inverse_taylor": float(np.abs(1 / inverse - np.exp(x)).max()),
            "aaa": _adaptive(x[::8], n, x),
            "best": float(best[n]),
            "halphen": halphen_line(n),
        }.items():
            rows.append(("half_line", math.inf, method, n, value))
    return rows


def _study(interval: str) -> list[Row]:
    return _interval() if interval == "interval" else _half_line()


def compute(profile: Profile) -> pd.DataFrame:
    """Return the errors of each method at each degree, on [−4, 4] and on (−∞, 0]."""
    return profile.study(_study, [("interval",), ("half_line",)], "errors", COLUMNS)
