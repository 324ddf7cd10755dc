"""Errors in units of the last place against the argument, beside what the problem allows."""

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pandas as pd

from analysis.errors import metrics
from analysis.experiments.profile import Profile
from approx import Approximation
from approx.checks import Array, required
from approx.estimate import exact
from approx.kernels.elementary import exp_rows, log
from approx.polynomials import error_bounds
from approx.random_features.positive import Positive

COLUMNS = ("function", "dtype", "x", "condition", "value")
DIGITS = 50  # of the truth
KEYS = 8  # of a row
DEGREE = 8  # of the Taylor bound
Row = tuple[float, float, float]  # argument, error in ulp, condition of the problem


def ulps(value: Any, truth: Decimal) -> float:
    """Return |value − truth| over the distance of neighbouring floats there, in value's dtype."""
    unit = Decimal(float(np.spacing(np.asarray(float(abs(truth)), np.asarray(value).dtype))))
    return float(abs(Decimal(float(value)) - truth) / unit)


def exponentials(x: Array) -> Iterator[Row]:
    """Yield e^x, whose condition is |x|."""
    for y in np.concatenate([x, -x]):
        out = np.array([[y]])
        exp_rows(out, np.zeros(1, out.dtype))
        yield abs(float(y)), ulps(out[0, 0], Decimal(float(y)).exp()), abs(float(y))


def logarithms(x: Array) -> Iterator[Row]:
    """Yield log y at y = e^±x, whose condition is 1/|log y|."""
    for y in np.exp(np.concatenate([x, -x])):
        truth = Decimal(float(y)).ln()
        if truth:
            size = abs(float(truth))
            yield size, ulps(np.float64(log(y)), truth), 1 / size


def weights(x: list[Decimal]) -> list[Decimal]:
    """Return softmax."""
    e = [(y - max(x)).exp() for y in x]
    return [y / sum(e) for y in e]


def shares(x: Array) -> Iterator[Row]:
    """Yield a softmax weight of a row of logits up to x: its condition is |x_j| + Σ p|x|."""
    shape = np.random.default_rng(0).uniform(-1, 1, (len(x), KEYS))
    for size, row in zip(x, shape):
        k = (size * row).astype(x.dtype)[:, None]
        value = exact.attention(np.ones((1, 1), x.dtype), k, np.eye(KEYS, dtype=x.dtype))[0]
        logits = [Decimal(float(y)) for y in k[:, 0]]
        p = weights(logits)
        mean = sum(a * abs(b) for a, b in zip(p, logits))
        at = int(np.argmin(np.abs(row)))
        yield float(size), ulps(value[at], p[at]), float(abs(logits[at]) + mean)


def _rows(x: Array) -> Iterator[tuple[float, Array, Array, list[Decimal], list[Decimal]]]:
    """Yield logits and an estimate whose entries are off by a share x, and both in shares."""
    rng = np.random.default_rng(1)
    for size in x:
        k = rng.uniform(-3, 3, (KEYS, 1))
        e = np.exp(k[:, 0]) * (1 + size * rng.uniform(-1, 1, KEYS))
        q = [Decimal(y) for y in e.tolist()]
        yield (
            float(size),
            k,
            e,
            weights([Decimal(y) for y in k[:, 0].tolist()]),
            [y / sum(q) for y in q],
        )


def _compared(name: str, x: Array) -> Iterator[Row]:
    """Yield an error of attention; its condition is Σ |x ∂f/∂x|/f over logits and estimates."""
    for size, k, e, p, w in _rows(x):
        estimate = Approximation.from_factors(e[None, :], np.eye(KEYS))
        value = metrics.compare(estimate, [[1.0]], k)[name]
        logits = [Decimal(y) for y in k[:, 0].tolist()]
        if name == "attention_tv":
            truth = sum((abs(b - a) for a, b in zip(p, w)), Decimal(0)) / 2
            slopes = [(1 if b > a else -1) / Decimal(2) for a, b in zip(p, w)]
            middle = sum(a * s for a, s in zip(p, slopes)), sum(b * s for b, s in zip(w, slopes))
            moves = [abs(y * a * (s - middle[0])) for y, a, s in zip(logits, p, slopes)]
            moves += [abs(b * (s - middle[1])) for b, s in zip(w, slopes)]
        else:
            gaps = [(a / b).ln() for a, b in zip(p, w)]
            truth = sum((a * g for a, g in zip(p, gaps)), Decimal(0))
            moves = [abs(y * a * (g - truth)) for y, a, g in zip(logits, p, gaps)]
            moves += [abs(b - a) for a, b in zip(p, w)]
        yield size, ulps(np.float64(value), truth), float(sum(moves) / truth)


def variances(x: Array) -> Iterator[Row]:
    """Yield log((e^{|q + k|²} − 1)/m), where q = k = x/2 in one dimension."""
    for size in x:
        half = np.array([[size / 2]])
        known = required(Positive(m=KEYS).moments(half, half))
        u = 2 * Decimal(float(half[0, 0]))
        above = (u * u).exp() - 1
        truth = (above / KEYS).ln()
        slope = 2 * u * u * (above + 1) / above
        value = np.float64(known.log_relative_variance[0, 0])
        yield float(size), ulps(value, truth), float(abs(slope / truth))


def taylor_bounds(x: Array) -> Iterator[Row]:
    """Yield Lagrange's bound B^{n+1} e^B/(n + 1)!, whose condition is n + 1 + B."""
    for size in x:
        B, truth = Decimal(float(size)), Decimal(float(size)).exp()
        for j in range(1, DEGREE + 2):
            truth *= B / j
        value = np.float64(error_bounds.lagrange(DEGREE, float(size), "relative"))
        yield float(size), ulps(value, truth), DEGREE + 1 + float(size)


# function, what its argument is, and where it lies
PANELS: dict[str, tuple[Callable[[Array], Iterator[Row]], float, float]] = {
    "exp": (exponentials, 1e-3, 80.0),
    "log": (logarithms, 1e-12, 700.0),
    "softmax": (shares, 1e-3, 80.0),
    "tv": (lambda x: _compared("attention_tv", x), 1e-12, 0.5),
    "kl": (lambda x: _compared("attention_kl", x), 1e-12, 0.5),
    "variance": (variances, 1e-4, 10.0),
    "bound": (taylor_bounds, 1e-3, 100.0),
}
SINGLE = ("exp", "softmax")  # which are also computed in float32


def compute(profile: Profile) -> pd.DataFrame:
    """Return the condition of a problem and the error of its number in ulp, a row a point.

    It depends on no input of the profile. The truth has 50 digits, by `decimal`.
    """
    rows = list[tuple[str, str, float, float, float]]()
    with localcontext(prec=DIGITS):
        for name, (function, low, high) in PANELS.items():
            for dtype in ("float64", "float32") if name in SINGLE else ("float64",):
                x = np.geomspace(low, high, 80).astype(dtype)
                rows += [(name, dtype, at, kappa, error) for at, error, kappa in function(x)]
    return pd.DataFrame(rows, columns=[*COLUMNS])
