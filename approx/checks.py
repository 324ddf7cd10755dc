"""Checks of arguments of public functions: a message names the argument, the rule and the value."""

import difflib
import math
import operator
import reprlib
from collections.abc import Sequence
from types import UnionType
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Given = Array | None  # an array, where the caller has one
T = TypeVar("T")

MOST_INTEGER = 2**1000  # within the range of a float
MOST_NAMES = 11  # a message lists at most these; else it says where they are listed
MOST_LOGIT = 2.0**52  # 1/eps: rounding changes a larger logit by more than 1


def display(value: object) -> str:
    """Return any value as text for a message: one line of at most 80 characters.

    Examples
    --------
    >>> display(10**5000), display(np.ones((5, 5))), display("x" * 1000)
    ('an integer of 16610 bits', 'an array of shape (5, 5)', "'xxxxxxxxxxxx...xxxxxxxxxxxxx'")
    """
    if isinstance(value, int) and abs(value) > 2**128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, np.ndarray) and value.size != 1:
        return f"an array of shape {value.shape}"
    try:
        text = reprlib.repr(value)
    except Exception:  # a failing repr must not hide the error of the value
        text = f"a {type(value).__name__}"
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:77]}..."


def array(name: str, value: ArrayLike, *, ndim: int | None = None, finite: bool = True) -> Array:
    """Return a finite C-contiguous float32 or float64 array; ``value`` itself if it already is.

    float16 becomes float32; integers, bool and longdouble become float64, rounded to nearest.

    Raises
    ------
    TypeError
        The values are complex, objects or text, or the array is masked or sparse.
    ValueError
        The list is ragged, the number of dimensions is wrong, or there are NaN or inf. The message
        counts them and locates the first. With ``finite`` False, NaN and inf are accepted.
    """
    x = _numbers(name, value, ndim)
    if not finite:
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        total = x.sum()  # one pass, without an array of booleans; a finite sum has finite terms
    if not np.isfinite(total):
        _finite(name, x)
    return x


def _numbers(name: str, value: ArrayLike, ndim: int | None) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill it first")
    if scipy.sparse.issparse(value):
        raise TypeError(f"{name} is sparse: use .toarray()")
    try:
        raw = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must have rows of one length, got {display(value)}") from None
    if raw.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got {_kind(raw)}")
    dtype = np.float32 if raw.dtype.kind == "f" and raw.dtype.itemsize <= 4 else np.float64
    with np.errstate(over="ignore"):  # a longdouble beyond float64 is refused below
        x = np.ascontiguousarray(raw, dtype=dtype) if raw.ndim else raw
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {x.shape}")
    return x


def _finite(name: str, x: Array) -> None:
    if len(bad := np.argwhere(~np.isfinite(x))):
        first = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} must be finite, got {len(bad)} NaN or inf, the first at index {first}"
        )


def _kind(raw: Array) -> str:
    return "fields" if raw.dtype.names else f"dtype {raw.dtype}"


def queries_keys(Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
    """Return Q (n, d) and K (l, d) of one dtype: float32 if both are, else float64.

    Raises
    ------
    ValueError
        There are no rows or no columns; the widths differ; |q|², |k|² or q·k is beyond the range of
        the dtype; or |q| |k| ≥ 1/eps. Then the rounding error of a logit is of the order of 1, so
        that no digit of exp(q·k) is correct.
    """
    q, k = _numbers("Q", Q, 2), _numbers("K", K, 2)
    dtype = np.result_type(q, k)
    q, k = q.astype(dtype, copy=False), k.astype(dtype, copy=False)
    if _surely_fine(q, k):
        return q, k
    squares = [float(np.einsum("ij,ij->i", x, x).max(initial=0.0)) for x in (q, k)]
    for name, x, square in zip("QK", (q, k), squares):
        if not math.isfinite(square):  # NaN or inf; finite entries that overflow are refused below
            _finite(name, x)
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"Q and K must have the same width d, got {q.shape} and {k.shape}")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"Q and K must not be empty, got {q.shape} and {k.shape}")
    most = float(np.finfo(dtype).max) / 4
    if not max(squares) * q.shape[1] <= most:  # d·max|x|² ≥ |x|² ≥ max|x|²
        largest = max(float(np.abs(q).max()), float(np.abs(k).max()))
        if largest * largest * q.shape[1] > most:
            raise ValueError(
                f"|q|², |k|² and q·k must be representable in {dtype}, "
                f"got entries up to {largest:.3g}"
            )
    product = math.prod(map(math.sqrt, squares))
    if product >= (most := 1 / float(np.finfo(dtype).eps)):
        raise ValueError(
            f"|q| |k| must be < {most:.2g} in {dtype}, beyond which exp(q·k) has no digit, "
            f"got {product:.3g}"
        )
    return q, k


def _surely_fine(q: Array, k: Array) -> bool:
    """Whether the sums of all squares prove that rows are in range; they take half the time."""
    d = q.shape[1]
    if k.shape[1] != d or 0 in q.shape or 0 in k.shape:
        return False
    limits = np.finfo(q.dtype)
    sums = [2 * float(np.vdot(x, x)) for x in (q, k)]  # twice, to cover their rounding
    return max(sums) * d <= float(limits.max) / 4 and math.prod(sums) < float(limits.eps) ** -2


def values(V: ArrayLike, l: int, dtype: Any = None, *, name: str = "V", row: str = "key") -> Array:
    """Return V (l, c) as an array; a vector (l,) keeps its shape.

    Raises
    ------
    ValueError
        The number of rows of V is not l, or sums of its entries could leave the range of ``dtype``
        (by default, the dtype of V).
    """
    v = array(name, V)
    if v.ndim not in (1, 2) or v.shape[0] != l:
        raise ValueError(f"{name} must have one row per {row}, ({l}, c), got shape {v.shape}")
    dtype = dtype or v.dtype
    most = math.sqrt(np.finfo(dtype).max)
    if (top := float(max(v.max(initial=0.0), -v.min(initial=0.0)))) > most:
        raise ValueError(f"{name} must be at most {most:.3g} in {np.dtype(dtype)}, got {top:.3g}")
    return v


def out(given: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return the array to write to: the given one, if it is C-contiguous and fits, or a new one."""
    if given is None:
        return np.empty(shape, dtype)
    instance("out", given, np.ndarray, "an array")
    if given.shape != shape or given.dtype != dtype or not given.flags.c_contiguous:
        raise ValueError(
            f"out must be C-contiguous, {shape} of {np.dtype(dtype)}, "
            f"got {given.shape} of {given.dtype}"
        )
    return given


def index(name: str, value: Any, count: int) -> slice | Array:
    """Return a slice, or an array of indices in [0, count) that a compiled loop need not check.

    Raises
    ------
    TypeError
        ``value`` is not a slice, integers or booleans.
    ValueError
        An index is out of range, the array is not one-dimensional, or the number of booleans is not
        ``count``.
    """
    if isinstance(value, slice):
        try:
            value.indices(count)
        except TypeError:
            raise TypeError(f"{name} must be a slice of integers, got {display(value)}") from None
        return value
    try:
        places = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be one-dimensional, got {display(value)}") from None
    if places.dtype == bool and places.shape == (count,):
        return np.flatnonzero(places)
    if places.dtype.kind not in "iu" and places.size:
        raise TypeError(f"{name} must be a slice or integers, got {display(value)}")
    if places.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {places.shape}")
    places = places.astype(np.intp)
    if places.size and not -count <= places.min() <= places.max() < count:
        beyond = places.max() if places.max() >= count else places.min()
        raise ValueError(f"{name} must lie in [-{count}, {count}), got {beyond}")
    return np.where(places < 0, places + count, places)


def budget_and_shape(budget: float, n: int, l: int, d: int) -> tuple[float, int, int, int]:
    """Return a checked budget > 0 and checked sizes n, l, d ≥ 1."""
    value = positive("budget", budget)
    n, l, d = (integer(name, x, least=1) for name, x in zip("nld", (n, l, d)))
    return int(budget) if isinstance(budget, int | np.integer) else value, n, l, d


def integer(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Return an int in [least, most]; a bool and 3.0 are refused."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {display(value)}") from None
    if number < least:
        raise ValueError(f"{name} must be >= {least}, got {display(number)}")
    if number > (most := MOST_INTEGER if most is None else most):
        raise ValueError(f"{name} must be <= {display(most)}, got {display(number)}")
    return number


def number(name: str, value: Any, rule: str = "finite") -> float:
    """Return a finite float; a bool, text and a complex number are refused."""
    if isinstance(value, complex | np.complexfloating) or np.ndim(value):
        raise TypeError(f"{name} must be a number, got {display(value)}")
    try:
        real = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {display(value)}") from None
    except OverflowError:  # an integer beyond float64
        real = math.inf
    if not math.isfinite(real) or isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be {rule}, got {display(value)}")
    return real


def sink(value: Any) -> float:
    """Return the logit of an attention sink: finite, or −inf where there is none."""
    none = np.ndim(value) == 0 and value == -math.inf
    return -math.inf if none else number("sink", value, "finite, or -inf where there is none")


def positive(name: str, value: Any, *, most: float = math.inf) -> float:
    """Return a finite float > 0, at most ``most``."""
    real = number(name, value, "finite and > 0")
    if real <= 0:
        raise ValueError(f"{name} must be finite and > 0, got {display(value)}")
    if real > most:
        raise ValueError(f"{name} must be <= {most:.3g}, got {display(value)}")
    return real


def flag(name: str, value: Any) -> bool:
    """Return True or False; raise TypeError for anything else, such as the text "False"."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {display(value)}")
    return bool(value)


def causal(value: Any, n: int, l: int) -> bool:
    """Return whether query i sees only keys 0…i; raise ValueError if so and n ≠ l."""
    if flag("causal", value) and n != l:
        raise ValueError(f"causal needs as many keys as queries, got n={n}, l={l}")
    return bool(value)


def instance(name: str, value: Any, kind: type | UnionType, what: str) -> None:
    """Raise TypeError unless the value has the type ``kind``, which ``what`` describes in words."""
    if not isinstance(value, kind):
        hint = ": use approx.parse" if what == "a method" and isinstance(value, str) else ""
        raise TypeError(f"{name} must be {what}, got {display(value)}{hint}")


def required(value: T | None) -> T:
    """Return an optional value, such as moments or a support; raise ValueError if it is None."""
    if value is None:
        raise ValueError("there is none")
    return value


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Return the value if it is a known name; else raise a ValueError that lists the names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {display(value)}")
    return value


def counted(count: int, what: str) -> str:
    """Return a count with its noun, in the plural if needed."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def unknown(what: str, name: str, known: Sequence[str], listed: str = "", meant: str = "") -> str:
    """Return the message about an unknown name, with the nearest known names.

    Parameters
    ----------
    what, name : str
        The kind of thing that has such names, and the unknown name.
    known : sequence of str
        The known names. The message lists all, or the three nearest of more than `MOST_NAMES`.
    listed : str, optional
        For the second case: where all names are listed, and how many there are.
    meant : str, optional
        The known name that is meant, if it is known.

    Examples
    --------
    >>> unknown("figure", "eror", ["error", "rank"])
    "unknown figure 'eror', did you mean 'error'? Known: error, rank"
    >>> unknown("letter", "alhpa", ["alpha", "phi", *"abcdefghij"], "`letters` lists all 12")
    "unknown letter 'alhpa', did you mean 'alpha'? `letters` lists all 12"
    """
    many = len(known) > MOST_NAMES
    close = [meant] if meant else difflib.get_close_matches(name, known, 3 if many else 1)
    *others, last = map(repr, close or [""])
    either = f"{', '.join(others)} or {last}" if others else last
    hint = f", did you mean {either}?" if close else "."
    every = listed or f"There are {len(known)}"
    if not many:
        every = f"Known: {', '.join(known) or 'none'}"
    return f"unknown {what} {display(name)}{hint} {every}"
