"""Checks at the public edge: each names the argument, the rule and the value it got."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def array(name: str, value: ArrayLike, *, ndim: int | None = None) -> Array:
    """Return a C-contiguous native float32 or float64 array, finite, not copied if it is one.

    float16 becomes float32; integers, bool and longdouble become float64.

    Raises
    ------
    TypeError
        complex, object or text values; masked or sparse arrays.
    ValueError
        wrong number of dimensions; NaN or inf (with their number and first place).
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill it first")
    if scipy.sparse.issparse(value):
        raise TypeError(f"{name} is sparse: use .toarray()")
    raw = np.asarray(value)
    if raw.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {raw.dtype}")
    dtype = np.float32 if raw.dtype.kind == "f" and raw.dtype.itemsize <= 4 else np.float64
    with np.errstate(over="ignore"):  # a longdouble beyond float64 is refused below
        x = np.ascontiguousarray(raw, dtype=dtype) if raw.ndim else raw
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {x.shape}")
    finite = np.isfinite(x)
    if not finite.all():
        bad = np.argwhere(~finite)
        first = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} must be finite, got {len(bad)} NaN or inf, the first at index {first}"
        )
    return x


def queries_keys(Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
    """Return Q (n, d) and K (l, d) of one dtype: float32 if both are, else float64.

    Raises
    ------
    ValueError
        no rows or no columns; different widths; |q|², |k|² or q·k beyond the dtype's range.
    """
    q, k = array("Q", Q, ndim=2), array("K", K, ndim=2)
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"Q and K must have the same width d, got {q.shape} and {k.shape}")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"Q and K must not be empty, got {q.shape} and {k.shape}")
    dtype = np.result_type(q, k)
    largest = max(float(np.abs(q).max()), float(np.abs(k).max()))
    if largest * largest * q.shape[1] > float(np.finfo(dtype).max) / 4:
        raise ValueError(
            f"|q|², |k|² and q·k must be representable in {dtype}, got entries up to {largest:.3g}"
        )
    return q.astype(dtype, copy=False), k.astype(dtype, copy=False)


def values(V: ArrayLike, l: int, dtype: Any = None) -> Array:
    """Return V (l, c); a vector (l,) is kept as it is.

    Raises
    ------
    ValueError
        as many rows as keys are needed; entries whose sums could leave the range of ``dtype``
        (by default, that of V).
    """
    v = array("V", V)
    if v.ndim not in (1, 2) or v.shape[0] != l:
        raise ValueError(f"V must have one row a key, ({l}, c), got shape {v.shape}")
    dtype = dtype or v.dtype
    most = math.sqrt(np.finfo(dtype).max)
    if (top := float(np.abs(v).max(initial=0.0))) > most:
        raise ValueError(f"V must be at most {most:.3g} in {np.dtype(dtype)}, got {top:.3g}")
    return v


def integer(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Return an int in [least, most].

    Raises
    ------
    TypeError
        not an integer (bool and 3.0 are none).
    ValueError
        out of range.

    Examples
    --------
    >>> integer("m", 0, least=1)
    Traceback (most recent call last):
    ValueError: m must be >= 1, got 0
    """
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be >= {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be <= {most}, got {number}")
    return number


def number(name: str, value: Any, rule: str = "finite") -> float:
    """Return a finite float.

    Examples
    --------
    >>> number("a", "x")
    Traceback (most recent call last):
    ValueError: a must be finite, got 'x'
    """
    try:
        found = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(found) or isinstance(value, bool):
        raise ValueError(f"{name} must be {rule}, got {value!r}")
    return found


def positive(name: str, value: Any) -> float:
    """Return a finite float > 0.

    Examples
    --------
    >>> positive("temperature", -1)
    Traceback (most recent call last):
    ValueError: temperature must be finite and > 0, got -1
    """
    found = number(name, value, "finite and > 0")
    if found <= 0:
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    return found


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Return value if it is one of the known names, else say which they are."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return str(value)
