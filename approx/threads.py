"""One thread for BLAS and Numba: the same bits on every machine and under every engine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from approx._jit import one_numba_thread

_lock = threading.Lock()
_inside = threading.local()
_running = 0
_outer: threadpool_limits | None = None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and Numba at one thread until the last of all threads in here has left.

    BLAS has one limit a process: of several threads at work (a Dask worker's), the first to finish
    must not take it from the others.
    """
    global _running, _outer
    if getattr(_inside, "already", False):
        yield
        return
    with _lock:
        limits = threadpool_limits(1)
        if _running == 0:
            _outer = limits
        _running += 1
    _inside.already = True
    try:
        with one_numba_thread():
            yield
    finally:
        _inside.already = False
        with _lock:
            _running -= 1
            if _running == 0 and _outer is not None:
                _outer.restore_original_limits()
