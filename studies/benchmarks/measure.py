"""The loop over benchmarks, and its tools: turns, medians, limits, peak memory, peers.

A ratio compares sides that take turns in one process after a warm-up, with BLAS on one thread. The
*limit* is the time of the matrix products and exponentials that the task cannot avoid, in the same
tiles and in the same run.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from approx.kernels.elementary import exp_rows

TILE = 512
ENOUGH = 10.0  # seconds after which a side is not run again
AT_LEAST = "ratio", "share"  # targets; seconds and megabytes are at most theirs


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Seconds are medians; a peer that cannot be imported has none, and the limit's are those of
    matrix products and exponentials alone. ``memory`` is the peak in bytes above the memory before.
    ``must`` has the targets: name of a number → (required, desired); each may be None.
    """

    work: str
    seconds: float | None = None
    peer: str = ""
    peer_seconds: float | None = None
    limit_seconds: float | None = None
    memory: int | None = None
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


class Line(NamedTuple):
    """A row before it is measured: its sides by their names.

    From our time and the peer's the times of the sides in ``less`` are subtracted.
    """

    work: str
    peer: str = ""
    must: Mapping[str, tuple[float | None, float | None]] = {}
    ours: str = "ours"
    theirs: str = "theirs"
    limit: str = "limit"
    less: tuple[str, str] = ("", "")


class Bench(NamedTuple):
    """Sides that take turns, and the rows that compare them."""

    sides: Mapping[str, Callable[[], Any]]
    lines: Sequence[Line]
    often: int = 1  # this many times as many turns

    def measured(self, repeats: int) -> Iterator[Row]:
        """Yield the rows, each with the peak memory of our side."""
        seconds = medians(self.sides, repeats * self.often)
        memory = {name: traced(self.sides[name]) for name in {line.ours for line in self.lines}}
        for line in self.lines:
            theirs = seconds.get(line.theirs) if line.peer else None
            yield Row(
                line.work,
                seconds[line.ours] - seconds.get(line.less[0], 0.0),
                line.peer,
                None if theirs is None else theirs - seconds.get(line.less[1], 0.0),
                seconds.get(line.limit),
                memory[line.ours],
                line.must,
            )


def medians(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each side; sides take turns after a warm-up run of each."""
    for side in sides.values():
        side()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            if sum(seconds[name]) < ENOUGH:
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


def limit(
    *products: tuple[tuple[int, int, int], int], exponentials: int, dtype: Any
) -> Callable[[], None]:
    """Return a function that runs only matrix products and exponentials, tile by tile.

    Products are ((rows, inner, columns) of a tile, number of tiles); exponentials are counted.
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
