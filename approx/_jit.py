"""The Numba options of the project, in one place, with the reason for each.

cache=True
    A kernel compiles once per machine. Numba's cache does not notice an edit in *another*
    file, so a kernel calls only kernels of its own module and the shared ``exp``; the
    Makefile and conftest name NUMBA_CACHE_DIR by the hash of this file and ``_exp.py``.
nogil=True
    Threads may run kernels side by side.
error_model="numpy"
    Division by zero gives inf or NaN as in NumPy, without a branch a loop cannot vectorise.
fastmath={"contract", "nsz"}
    Fused multiply-add, and -0.0 may be 0.0. Never "nnan" or "ninf": NaN and inf keep their
    meaning. "reassoc" lets a sum be vectorised; only kernels made of plain sums may have it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from numba import get_num_threads, njit, set_num_threads

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
SAFE = {"contract", "nsz"}


def kernel(function: F) -> F:
    """Compile a loop over arrays, lazily, for the dtypes it is called with."""
    return cast(F, njit(**OPTIONS, fastmath=SAFE)(function))


def summing_kernel(function: F) -> F:
    """Compile a kernel whose sums may be reordered (and so vectorised)."""
    return cast(F, njit(**OPTIONS, fastmath=SAFE | {"reassoc"})(function))


@contextlib.contextmanager
def one_numba_thread() -> Iterator[None]:
    """Run parallel kernels, which only a user's own method may have, on one thread."""
    before = get_num_threads()
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)
