"""Errors in meaningful units: ulp, roundings of the problem, or eps."""

import functools
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np

DIGITS = 50  # of the exact value
STEP = mpmath.mpf(10) ** -20  # relative step of a derivative, accurate to 20 digits
PROMISE = re.compile(r"Accuracy: ([\d.]+(?:e[+-]?\d+)?) (ulp|eps·κ|eps)\b")


class Point(NamedTuple):
    """One returned number, the exact value, and ``reach``, Σ |x ∂f/∂x|, or what computes it.

    The reach is the first-order effect of relative errors of 1 in each input.
    """

    where: str
    value: Any
    truth: Any
    reach: Any = 0

    def known(self) -> "Point":
        return self._replace(reach=self.reach()) if callable(self.reach) else self


class Case(NamedTuple):
    """The points of a function, by its name, at a dtype; ``part`` names one number of several."""

    name: str
    part: str
    dtype: type
    points: Callable[[int, type], Iterable[Point]]


class Found(NamedTuple):
    """The largest error of a case: a row of the table."""

    name: str
    part: str
    dtype: str
    condition: float
    ulps: float
    error: float  # in the unit of the promise
    where: str
    promise: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.error <= self.promise


def promise(name: str) -> tuple[float, str]:
    """Return the bound that a docstring promises, and its unit."""
    text = re.sub(r"\s+", " ", inspect.getdoc(pkgutil.resolve_name(name)) or "")
    if not (found := PROMISE.search(text)):
        raise ValueError(f"{name} promises nothing: write 'Accuracy: 4 eps·κ', or ulp, or eps")
    return float(found[1]), found[2]


def spacing(truth: Any, dtype: type) -> Any:
    """Return the distance of neighbouring floats at the exact value, an mpf."""
    info = np.finfo(dtype)
    least = int(info.minexp)
    exponent = least if not truth else max(mpmath.frexp(truth)[1] - 1, least)
    return mpmath.ldexp(mpmath.mpf(1), exponent - info.nmant)


def error_of(point: Point, dtype: type, unit: str) -> float:
    """Return the error of a point in ulp, in eps, or in eps·κ with κ = 1 + Σ|x ∂f/∂x|/|f|."""
    if not math.isfinite(point.value):
        return 0.0 if not mpmath.isfinite(point.truth) else math.inf
    error = abs(mpmath.mpf(float(point.value)) - point.truth)
    if not error:
        return 0.0
    if unit == "ulp":
        return float(error / spacing(point.truth, dtype))
    eps = mpmath.mpf(float(np.finfo(dtype).eps))
    if unit == "eps":
        return float(error / eps)
    least = mpmath.mpf(float(np.finfo(dtype).tiny))  # below it, floats have fewer digits
    return float(error / (eps * max(abs(point.truth) + point.reach, least)))


def worst(case: Case, size: int, *, quick: bool = False) -> Found:
    """Return the largest error of a case; if ``quick``, with κ = 1 where it holds even then."""
    bound, unit = promise(case.name)
    top, at, ulps = -1.0, None, 0.0
    with mpmath.workdps(DIGITS):
        for point in case.points(size, case.dtype):
            error = error_of(point._replace(reach=0), case.dtype, unit)
            if error > bound or not quick:
                point = point.known()
                error = error_of(point, case.dtype, unit)
            ulps = max(ulps, error_of(point, case.dtype, "ulp"))
            if error > top:
                top, at = error, point
        if at is None:
            raise ValueError(f"no points of {case.name}")
        condition = math.nan
        if not quick:
            condition = float(1 + at.known().reach / abs(at.truth)) if at.truth else math.inf
    dtype = np.dtype(case.dtype).name
    return Found(case.name, case.part, dtype, condition, ulps, top, at.where, bound, unit)


def exact(x: Any) -> Any:
    """Return a float as mpf, or an array as lists of mpf; no digit changes."""
    if isinstance(x, (float, np.floating)):
        return mpmath.mpf(float(x))
    if isinstance(x, np.ndarray):
        return [exact(y) for y in x]
    return x


def _entries(x: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if isinstance(x, mpmath.mpf):
        yield place
    elif isinstance(x, list):
        for i, y in enumerate(x):
            yield from _entries(y, (*place, i))


def _moved(x: Any, place: tuple[int, ...]) -> Any:
    if not place:
        return x * (1 + STEP)
    return [_moved(y, place[1:]) if i == place[0] else y for i, y in enumerate(x)]


def _flat(x: Any) -> list[Any]:
    return [z for y in x for z in _flat(y)] if isinstance(x, (list, tuple)) else [x]


def points(
    function: Callable[..., Any],
    truth: Callable[..., Any],
    samples: Iterable[tuple[Any, ...]],
    *,
    given: Sequence[int] = (),
) -> Iterator[Point]:
    """Yield the points of a function of floats and arrays, with the derivatives of the truth.

    ``truth`` takes mpf for floats and lists of mpf for arrays. Arguments whose indices are
    ``given`` are parameters, whose rounding does not count.
    """
    for sample in samples:
        with np.errstate(all="ignore"):
            values = np.ravel(function(*sample))
        arguments = [exact(x) for x in sample]
        truths = _flat(truth(*arguments))
        reach = functools.cache(functools.partial(_reach, truth, arguments, truths, tuple(given)))
        label = ", ".join(map(_shown, sample))
        if len(values) != len(truths):
            raise ValueError(f"{len(values)} values, {len(truths)} truths at {label}")
        for i, (value, t) in enumerate(zip(values, truths)):
            yield Point(label, value, t, lambda i=i, reach=reach: reach()[i])


def _reach(truth: Any, arguments: list, truths: list, given: tuple[int, ...]) -> list[Any]:
    """Return Σ |x ∂f/∂x| for each exact number."""
    reach = [mpmath.mpf(0)] * len(truths)
    for i, x in enumerate(arguments):
        for place in () if i in given else _entries(x):
            moved = _flat(truth(*arguments[:i], _moved(x, place), *arguments[i + 1 :]))
            reach = [r + abs(y - t) / STEP for r, y, t in zip(reach, moved, truths)]
    return reach


def _shown(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{'×'.join(map(str, x.shape))} up to {np.abs(x).max():.2g}"
    return f"{x:.6g}" if isinstance(x, (float, np.floating)) else str(x)
