"""The shared exponential against `math.exp` in a Numba loop, and its error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np

from approx.kernels.elementary import exp_rows
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"size": 64, "passes": 1}
MUST = {
    "float64": {"ratio": (4.0, 5.0), "ulp": (2.0, 1.1)},
    "float32": {"ratio": (6.0, 8.0), "ulp": (2.0, 1.1)},
}


@numba.njit  # type: ignore[untyped-decorator]
def _scalar_exp_rows(values: Any, shift: Any) -> None:
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] = math.exp(values[i, j] - shift[i])


def run(repeats: int = 7, *, size: int = 2**14, passes: int = 64) -> Iterator[Row]:
    """Yield one row per precision: ``size`` numbers in the cache, ``passes`` times per turn."""
    for name in ("float64", "float32"):
        dtype = np.dtype(name)
        start = np.random.default_rng(0).uniform(-8, 8, (1, size)).astype(dtype)
        ours, theirs = start.copy(), start.copy()
        exp_rows(ours, np.zeros(1, dtype))
        _scalar_exp_rows(theirs, np.zeros(1, dtype))
        measure.agree(
            ours / theirs, np.ones_like(ours), 4 * float(np.finfo(dtype).eps), f"exp, {name}"
        )
        sides = {
            "ours": lambda values=ours * 0, f=exp_rows: _often(f, values, passes),
            "math": lambda values=ours * 0, f=_scalar_exp_rows: _often(f, values, passes),
        }
        seconds = measure.medians(sides, repeats)
        work = f"exp of {size} numbers {passes} times, {name}"
        yield Row(
            work,
            seconds["ours"],
            "math.exp in Numba",
            seconds["math"],
            ulp=worst(dtype, 64 * size),
            must=MUST[name],
        )


def _often(function: Any, values: Any, passes: int) -> None:
    shift = np.ones(1, values.dtype)  # repeated e^(x − 1) stays near 1
    for _ in range(passes):
        function(values, shift)


def worst(dtype: Any, count: int) -> float:
    """Return the largest error in units of the last place of the exact value.

    The exponentials are normal numbers; the exact values are in extended precision.
    """
    info = np.finfo(dtype)
    low, high = math.log(info.tiny), math.log(info.max)
    x = np.linspace(low + 1e-3, high - 1e-3, count).astype(dtype).reshape(1, -1)
    found = x.copy()
    exp_rows(found, np.zeros(1, dtype))
    true = np.exp(x.astype(np.longdouble))
    unit = np.spacing(true.astype(dtype)).astype(np.longdouble)
    return float(np.abs((found.astype(np.longdouble) - true) / unit).max())
