"""Softmax in floating point: forward errors of its formulas."""

import functools
from decimal import Decimal, localcontext

import numpy as np
import pandas as pd

from analysis.experiments.profile import Profile
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx.checks import Array

COLUMNS = ("study", "dtype", "formula", "n", "largest", "value")
DTYPES = ("float16", "float32", "float64")
LENGTHS = tuple(2**i for i in range(4, 15))
SIZES = tuple(2.0**i for i in range(10))  # the largest logits
N = 1024  # logits of a row while their size varies
ROWS = {"float16": 16, "float32": 16, "float64": 4}
DIGITS = 25  # digits of the exact value for float64; for shorter formats float64 is exact enough
LENGTH_FORMULAS = ("recursive", "pairwise")
SIZE_FORMULAS = ("unshifted", "shifted", "online", "division_free")  # sums in pairs


def pairwise(x: Array) -> Array:
    """Return Σ_j x_ij by adding halves, each sum rounded; n is a power of 2. Shape: (rows, 1)."""
    while x.shape[1] > 1:
        x = x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]
    return x


def online(x: Array) -> tuple[Array, Array]:
    """Return the maximum a and Σ_j e^(x_j − a) in one pass, a and the sum (rows, 1).

    References
    ----------
    .. [1] M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    a, total = x[:, :1], np.ones_like(x[:, :1])
    for j in range(1, x.shape[1]):
        new = np.maximum(a, x[:, j : j + 1])
        total = total * np.exp(a - new) + np.exp(x[:, j : j + 1] - new)
        a = new
    return a, total


def weights(x: Array, formula: str) -> Array:
    """Return softmax of rows (rows, n), every operation rounded to the dtype of x.

    ``unshifted`` e^x_j/Σ e^x, ``shifted`` and ``recursive`` e^(x_j − a)/Σ e^(x − a) with a = max x
    and a sum in pairs or term by term, ``online`` with its sum from one pass, ``division_free``
    e^(x_j − (a + log Σ e^(x − a))).
    """
    if formula == "unshifted":
        e = np.exp(x)
        return np.asarray(e / pairwise(e))
    a = x.max(axis=1, keepdims=True)
    e = np.exp(x - a)
    if formula == "recursive":
        return np.asarray(e / np.cumsum(e, axis=1, dtype=x.dtype)[:, -1:])
    if formula == "online":
        return np.asarray(e / online(x)[1])
    total = pairwise(e)
    return np.asarray(np.exp(x - (a + np.log(total))) if formula == "division_free" else e / total)


@functools.lru_cache(maxsize=2**16)  # a row begins with the shorter rows, whose exact sums are kept
def _exp(y: float) -> Decimal:
    return Decimal(y).exp()


def truth(x: Array) -> tuple[Array, Array]:
    """Return softmax of rows as the sum of two float64: exact to 1e-16 of u in any format.

    Of float64 it comes from 25 digits. The weights of shorter formats come from float64, whose u
    is below 2⁻²⁹ of theirs; the second part is then 0.
    """
    if x.dtype != np.float64:
        g = weights(x.astype(np.float64), "shifted")
        return g, np.zeros_like(g)
    parts = np.empty((2, *x.shape))
    with localcontext(prec=DIGITS):
        for i, row in enumerate(x):
            e = [_exp(y) for y in row.tolist()]
            total = sum(e)
            for j, y in enumerate(e):
                share = y / total
                parts[0, i, j] = float(share)
                parts[1, i, j] = float(share - Decimal(parts[0, i, j]))
    return parts[0], parts[1]


def errors(x: Array, formulas: tuple[str, ...]) -> dict[str, Array]:
    """Return max_j |error of g_j| over max g and u, a number a row; inf where it overflows."""
    high, low = truth(x)
    u = float(np.finfo(x.dtype).eps) / 2
    found = {}
    for formula in formulas:
        with np.errstate(over="ignore", invalid="ignore"):
            g = weights(x, formula).astype(np.float64)
        error = np.abs(g - high - low).max(axis=1) / high.max(axis=1) / u
        found[formula] = np.where(np.isfinite(error), error, np.inf)
    return found


def _study(study: str, dtype: str, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed_sequence(seed, "float_softmax"))
    z = rng.standard_normal((ROWS[dtype], LENGTHS[-1]))
    if study == "length":
        places = [(z[:, :n].astype(dtype), n, -1.0) for n in LENGTHS]
    else:
        z = z[:, :N] / z[:, :N].max(axis=1, keepdims=True)
        places = [((size * z).astype(dtype), N, size) for size in SIZES]
    rows: list[Row] = []
    formulas = LENGTH_FORMULAS if study == "length" else SIZE_FORMULAS
    for x, n, size in places:
        for formula, error in errors(x, formulas).items():
            rows.append((study, dtype, formula, n, size, float(error.mean())))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors over the unit roundoff u against length, and against the largest logit.

    Logits are normal, of deviation 1 against length; no input of the profile is asked.
    """
    places = [*(("length", dtype) for dtype in DTYPES), ("size", "float32")]
    tasks = [(*place, profile.seed) for place in places]
    return profile.study(_study, tasks, "formats", COLUMNS)
