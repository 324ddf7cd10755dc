"""Threads of this process for the parts of one product: big arrays are in memory once."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from approx.kernels.threads import one_thread

R = TypeVar("R")
T = TypeVar("T")


def in_threads(function: Callable[[T], R], items: Sequence[T], jobs: int) -> list[R]:
    """Return function(item) for each item, in order, from threads, each with BLAS on one thread.

    Items should have equal work, in products and kernels, which release the interpreter's lock. Big
    arrays are in memory once. After an error or Ctrl-C, only running items finish.
    """
    stop = threading.Event()

    def share(part: Sequence[T]) -> list[R]:
        try:
            with one_thread():
                return [function(item) for item in part if not stop.is_set()]
        except BaseException:
            stop.set()
            raise

    jobs = min(jobs, len(items))
    if jobs <= 1:  # this thread keeps its arrays for the next call
        return share(items)
    with ThreadPoolExecutor(jobs) as executor:
        try:
            shares = list(executor.map(share, [items[i::jobs] for i in range(jobs)]))
        finally:
            stop.set()
    return [shares[i % jobs][i // jobs] for i in range(len(items))]
