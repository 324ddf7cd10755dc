"""One thread for BLAS and Numba: the same bits on every machine and under every engine."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import threadpoolctl

from approx.kernels.jit import one_numba_thread

_lock = threading.Lock()
_inside = threading.local()
_running = 0
_outer: Any = None
_known: tuple[int, Any, Any] = 0, None, None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and Numba to one thread until the last thread has left this context.

    BLAS has one limit per process. If several threads are inside, as in a Dask worker, the first
    to leave must not lift the limit for the others. OpenMP and Numba have one limit per thread.
    """
    global _running, _outer
    if getattr(_inside, "already", False):
        yield
        return
    with contextlib.ExitStack() as mine:
        # Numba sets OpenMP's limit when it launches its threads, and may load a library.
        mine.enter_context(_libraries()[0].limit(limits=1))
        mine.enter_context(one_numba_thread())
        openmp, blas = _libraries()
        mine.enter_context(openmp.limit(limits=1))
        with _lock:
            _control()
            limits = blas.limit(limits=1)
            if _running == 0:
                _outer = limits
            _running += 1
        _inside.already = True
        try:
            yield
        finally:
            _inside.already = False
            with _lock:
                _running -= 1
                if _running == 0:
                    _control()
                    _outer.restore_original_limits()
                    _control()


def _libraries() -> tuple[Any, Any]:
    """Return the OpenMP and BLAS libraries; the search, after each new import, takes 1 ms."""
    global _known
    if _known[0] != (modules := len(sys.modules)):
        found = threadpoolctl.ThreadpoolController()
        _known = modules, *(found.select(user_api=api) for api in ("openmp", "blas"))
    return _known[1:]


def _control() -> None:
    """Let this thread set OpenBLAS's limit: threadpoolctl 3.8 silently ignores other threads."""
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
