"""One thread for BLAS and Numba, in whatever thread of the process."""

import ctypes.util
import os
import subprocess
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


@pytest.mark.skipif(ctypes.util.find_library("gomp") is None, reason="there is no OpenMP")
def test_numba_leaves_the_limit_of_openmp_as_it_was():
    code = """
import ctypes, threadpoolctl
ctypes.CDLL("libgomp.so.1")  # Numba's threads and torch use it, too
threadpoolctl.threadpool_limits(1, user_api="openmp")
from approx.kernels.threads import one_thread
with one_thread():
    pass
print({x["num_threads"] for x in threadpoolctl.threadpool_info() if x["user_api"] == "openmp"})
"""
    environment = os.environ | {"NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": "omp"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "{1}\n"


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
