"""One thread for BLAS and Numba, in whatever thread of the process."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba
import pytest
import threadpoolctl
from threadpoolctl import threadpool_info, threadpool_limits

from approx.kernels import threads
from approx.kernels.threads import one_thread


def blas():
    return max(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")


def test_one_thread_inside_and_what_was_there_outside():
    numba.set_num_threads(before := min(2, numba.config.NUMBA_NUM_THREADS))
    with threadpool_limits(2):
        outer = blas()
        with one_thread():
            assert (blas(), numba.get_num_threads()) == (1, 1)
            with one_thread():
                assert blas() == 1
            assert (blas(), numba.get_num_threads()) == (1, 1)
        assert (blas(), numba.get_num_threads()) == (outer, before)
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert (blas(), numba.get_num_threads()) == (outer, before)


def test_one_thread_lasts_until_the_last_has_left():
    with threadpool_limits(2):
        outer = blas()
        inside, leave = threading.Event(), threading.Event()

        def other():
            with one_thread():
                inside.set()
                leave.wait(10)
                return blas()

        with ThreadPoolExecutor(1) as pool:
            with one_thread():
                found = pool.submit(other)
                inside.wait(10)
            assert blas() == 1  # this one has left, the other has not
            leave.set()
            assert found.result() == 1
        assert blas() == outer


def test_a_library_that_is_loaded_late_has_one_thread_too(monkeypatch):
    looked = []
    real = threadpoolctl.ThreadpoolController

    def look():
        looked.append(1)
        return real()

    found = SimpleNamespace(**vars(threadpoolctl) | {"ThreadpoolController": look})
    monkeypatch.setattr(threads, "threadpoolctl", found)
    monkeypatch.setattr(threads, "_known", (0, None))
    for _ in range(3):
        with one_thread():
            assert blas() == 1
    assert len(looked) == 1
    monkeypatch.setitem(sys.modules, "loaded_late", threads)
    with one_thread():
        assert blas() == 1
    assert len(looked) == 2
