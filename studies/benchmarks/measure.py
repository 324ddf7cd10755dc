"""Tools of every benchmark: turns, medians, limits, peak memory, peers.

A ratio compares sides that take turns in one process after a warm-up, with BLAS on one thread. The
*limit* is the time of the matrix products and exponentials that the task cannot avoid, in the same
tiles and in the same run.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil

from approx.kernels.elementary import exp_rows

TILE = 512
AT_LEAST, AT_MOST = ("ratio", "share"), ("seconds", "megabytes", "ulp")


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    work : str
    seconds : float, optional
        The median of our time.
    peer, peer_seconds
        The peer and its time; a peer that cannot be imported has no time.
    limit_seconds : float, optional
        The time of matrix products and exponentials alone.
    memory : int, optional
        The peak in bytes, above the memory before.
    ulp : float, optional
        The largest error, in units of the last place.
    must : mapping
        The targets: name of a number → (required, desired); each may be None.
    """

    work: str
    seconds: float | None = None
    peer: str = ""
    peer_seconds: float | None = None
    limit_seconds: float | None = None
    memory: int | None = None
    ulp: float | None = None
    must: Mapping[str, tuple[float | None, float | None]] = dataclasses.field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The peer's time divided by ours."""
        return _over(self.peer_seconds, self.seconds)

    @property
    def share(self) -> float | None:
        """The limit's time divided by ours."""
        return _over(self.limit_seconds, self.seconds)

    @property
    def megabytes(self) -> float | None:
        """Peak memory in MB."""
        return None if self.memory is None else self.memory / 1e6

    def reached(self, name: str) -> tuple[bool | None, bool | None]:
        """Whether a number reaches its required and its desired value; None if not known."""
        value, (must, aim) = getattr(self, name), self.must[name]

        def is_reached(bar: float | None) -> bool | None:
            if value is None or bar is None:
                return None
            return bool(value >= bar if name in AT_LEAST else value <= bar)

        return is_reached(must), is_reached(aim)


def _over(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def medians(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each side; sides take turns after a warm-up run of each."""
    for side in sides.values():
        side()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def traced(side: Callable[[], Any]) -> int:
    """Return the peak of bytes allocated by Python and NumPy, above the bytes before.

    The side runs in a new thread, so that memory which a thread keeps between runs counts.
    """
    with ThreadPoolExecutor(1) as executor:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            executor.submit(side).result()
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()


def resident(side: Callable[[], Any], every: float = 0.01) -> int:
    """Return the peak of resident bytes of this process and its children, above those before."""
    me, done, peak = psutil.Process(), threading.Event(), 0

    def now() -> int:
        total = me.memory_info().rss
        for child in me.children(recursive=True):
            try:
                total += child.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return int(total)

    def watch() -> None:
        nonlocal peak
        while not done.wait(every):
            peak = max(peak, now())

    before, watcher = now(), threading.Thread(target=watch)
    watcher.start()
    try:
        side()
    finally:
        done.set()
        watcher.join()
    return max(peak, now()) - before


def limit(
    *products: tuple[tuple[int, int, int], int], exponentials: int, dtype: Any
) -> Callable[[], None]:
    """Return a function that runs only matrix products and exponentials, tile by tile.

    Parameters
    ----------
    *products
        ((rows, inner, columns) of a tile, number of tiles).
    exponentials : int
        The count of exponentials, in tiles of 512 × 512.
    """
    rng = np.random.default_rng(0)
    operands = []
    for (rows, inner, columns), count in products:
        a = rng.standard_normal((rows, inner)).astype(dtype)
        b = rng.standard_normal((columns, inner)).astype(dtype)
        operands.append((a, b, np.empty((rows, columns), dtype), count))
    tile = np.zeros((TILE, TILE), dtype)
    shift = np.ones(TILE, dtype)  # repeated e^(x − 1) stays near 1

    def run() -> None:
        for a, b, out, count in operands:
            for _ in range(count):
                np.matmul(a, b.T, out=out)
        whole, rest = divmod(exponentials, tile.size)
        for _ in range(whole):
            exp_rows(tile, shift)
        if rest:
            exp_rows(tile.reshape(1, -1)[:, :rest], shift)

    return run


def agree(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Raise unless both sides agree, relative to the largest entry."""
    a, b = np.asarray(ours), np.asarray(theirs)
    error = float(np.abs(a - b).max()) / float(np.abs(b).max())
    if not error <= tolerance:
        raise AssertionError(f"{what}: the sides differ by {error:.2g}, allowed is {tolerance:.2g}")


def peer(module: str) -> Any:
    """Return a module, set to one thread; None if it cannot be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of a peer's own imports
        try:
            found = importlib.import_module(module)
        except ImportError:
            return None
    if module.split(".")[0] in ("torch", "performer_pytorch"):
        importlib.import_module("torch").set_num_threads(1)
    return found
