"""Run cells, with the same bits, in this process, in loky processes or on a Dask cluster.

An engine is an iterator of (cell, outcome) in the order in which cells finish. Each cell works on
one of a few ``shared`` objects with big arrays. Cells are sent one by one, shared objects once per
worker: loky's workers map the arrays from one file, Dask's workers have a copy.

If a worker is killed, only the cells that it was running are lost. loky then stops the whole pool,
so the remaining cells run in a new pool; Dask itself runs lost cells again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

import joblib
from joblib.externals.loky import process_executor  # type: ignore[import-untyped]
from tqdm import tqdm

from approx.estimate import memory
from approx.kernels.threads import one_thread

ATTEMPTS = 3  # pools lost in a row without a finished cell, before cells run alone
ALONE = 8  # cells that then run alone
MAPPED = 2**15  # arrays with more bytes are mapped from a file instead of sent
AHEAD = 2  # items of a run, such as layers, whose tasks a cluster has at the same time
PATIENCE = 60  # seconds to wait for a first worker, and before silence is reported


class LostError(ConnectionError):
    """Workers of a cluster are lost, and with them the objects that cells need."""


class Placed(Protocol):
    """A task on one of the shared objects."""

    @property
    def place(self) -> int:
        """The index of its shared object."""


C = TypeVar("C", bound=Placed)
S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Failure:
    """The error of a cell."""

    kind: str
    message: str
    trace: str

    @classmethod
    def from_error(cls, error: BaseException) -> Failure:
        """Return the failure for an exception, with the end of its traceback."""
        trace = traceback.format_exception(error, limit=-3)
        return cls(type(error).__name__, str(error), "".join(trace)[-4000:])


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A function that returns its exceptions as `Failure`."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return function(*arguments), or its `Failure`."""
        try:
            return self.function(*arguments)
        except Exception as error:
            return Failure.from_error(error)


def everything(cell: Any) -> bool:
    """Return True: every cell is wanted."""
    return True


def stream(
    function: Callable[[C, S], R],
    cells: Sequence[C],
    shared: Sequence[S],
    *,
    jobs: int = 1,
    scheduler: Any = None,
    guard: bool = False,
    wanted: Callable[[C], bool] = everything,
    copied: bool = False,
) -> Iterator[tuple[C, R | Failure]]:
    """Yield (cell, function(cell, shared[cell.place])) as cells finish.

    Parameters
    ----------
    function : callable
        Sent to the workers with the cells; functions and classes of a script work, too.
    cells, shared : sequence
    jobs : int
        The number of processes, also of a local Dask cluster.
    scheduler : str or distributed.Client, optional
        The address of a Dask scheduler, such as ``tcp://host:8786``; or "local" for a cluster of
        ``jobs`` processes on this machine for the time of this call.
    guard : bool
        Whether to yield a `Failure`, instead of raising, for a cell that raises or repeatedly kills
        its process.
    wanted : callable
        Called just before a cell starts (with Dask, before all are sent); False drops the cell.
    copied : bool
        Whether each Dask worker fetches the shared objects before the first cell starts,
        because a busy worker cannot send its own, such as a model during a pass. By default
        workers fetch the objects from each other when cells need them.
    """
    work = _Work(Guarded(function) if guard else function, cells, shared, wanted)
    if scheduler is not None:
        return _dask(work, jobs, scheduler, guard, copied)
    if jobs > 1:
        return _again(lambda some: _loky(work, some, jobs), cells, BrokenProcessPool, guard)
    return ((cells[i], work.function(*work.arguments(i))) for i in work.wanted(range(len(cells))))


@dataclasses.dataclass(frozen=True)
class _Work:
    function: Callable[..., Any]
    cells: Sequence[Any]
    shared: Sequence[Any]
    is_wanted: Callable[[Any], bool]

    def wanted(self, some: Iterable[int]) -> Iterator[int]:
        """Yield the indices of wanted cells; each is checked just before it is yielded."""
        return (i for i in some if self.is_wanted(self.cells[i]))

    def arguments(self, index: int) -> tuple[Any, Any]:
        """Return a cell and its shared object."""
        return self.cells[index], self.shared[self.cells[index].place]


def threads(function: Callable[[T], R], items: Sequence[T], jobs: int) -> list[R]:
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


def ahead(function: Callable[[T], R], items: Iterable[T], scheduler: Any) -> list[R]:
    """Return function(item) for each item, in order; on a cluster, `AHEAD` items at once.

    An item stands for several tasks. When its last ones run, other workers begin the next item.
    """
    if scheduler is None:
        return [function(item) for item in items]
    stop, executor = threading.Event(), ThreadPoolExecutor(AHEAD)

    def one(item: T) -> Any:
        try:
            return None if stop.is_set() else function(item)
        except BaseException:
            stop.set()
            raise

    try:
        futures = [executor.submit(one, item) for item in items]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
        return [future.result() for future in futures]
    finally:  # after an error or Ctrl-C, running items end with their cells or with the cluster
        stop.set()
        executor.shutdown(wait=False, cancel_futures=True)


def pool(jobs: int, return_as: str) -> Callable[[Iterable[Any]], Any]:
    """Return a runner of joblib's tasks in processes, each with BLAS and Numba on one thread.

    Ctrl-C reaches only this process, which then ends the others.
    """
    with joblib.parallel_config(
        backend="loky", inner_max_num_threads=1, initializer=_begin, initargs=(os.getpid(),)
    ):
        processes = joblib.Parallel(n_jobs=jobs, return_as=return_as, max_nbytes=MAPPED)

    def start(tasks: Iterable[Any]) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return processes(tasks)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return processes(tasks)  # new processes inherit that SIGINT is ignored
        finally:
            signal.signal(signal.SIGINT, before)

    return start


def _begin(parent: int) -> None:
    """Keep freed memory in this process, and end it when its parent is gone; loky would not.

    loky believes that a process leaks if it has 300 MB more than after its first call. Our
    processes do, since they compile kernels and keep the memory of arrays.
    """
    memory.keep()
    process_executor._MAX_MEMORY_LEAK_SIZE = math.inf
    tqdm.set_lock(threading.RLock())  # tqdm's semaphore would survive a kill

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _numbered(function: Callable[..., R], index: int, *arguments: Any) -> tuple[int, R]:
    return index, function(*arguments)


def _loky(work: _Work, some: list[int], jobs: int) -> Iterator[tuple[int, Any]]:
    tasks = (
        joblib.delayed(_numbered)(work.function, i, *work.arguments(i)) for i in work.wanted(some)
    )
    yield from pool(jobs, "generator_unordered")(tasks)


def _dask(
    work: _Work, jobs: int, scheduler: Any, guard: bool, copied: bool
) -> Iterator[tuple[Any, Any]]:
    with client(scheduler, jobs) as connected:
        from distributed import as_completed
        from distributed.client import CancelledError
        from distributed.comm import CommClosedError

        def attempt(some: list[int]) -> Iterator[tuple[int, Any]]:
            some = list(work.wanted(some))
            connected.wait_for_workers(1, timeout=PATIENCE)
            # Each object is one item: Dask would scatter the values of a dict one by one, under
            # their keys, which other tables have, too. What a dead worker held is sent again.
            try:
                held = {
                    place: connected.scatter([work.shared[place]], hash=False)[0]
                    for place in {work.cells[i].place for i in some}
                }
            except CommClosedError as error:
                raise LostError("a worker was lost while inputs were sent") from error
            copies = [
                connected.submit(
                    _fetched, one, workers=[worker], allow_other_workers=True, pure=False
                )
                for worker in (connected.nthreads() if copied else ())
                for one in held.values()
            ]
            for future in _told(as_completed(copies), connected, len(copies)):
                if future.cancelled():
                    raise LostError("a worker was lost while inputs were copied")
            futures = {}
            for i in some:
                cell = work.cells[i]
                futures[connected.submit(work.function, cell, held[cell.place], pure=False)] = i
            lost = 0
            for future in _told(as_completed(list(futures)), connected, len(futures)):
                i, outcome = futures.pop(future), None
                try:
                    outcome = future.result()
                except CancelledError:
                    lost += 1
                    continue
                except Exception as error:  # the cell raised, or killed every worker
                    if not guard:
                        raise
                    outcome = Failure.from_error(error)
                yield i, outcome
                future.release()
            if lost:
                raise LostError(f"every worker that held the input of {lost} cells was lost")

        yield from _again(attempt, work.cells, LostError, guard)


def _fetched(_: Any) -> None:
    """Do nothing: to run this, a worker fetches the argument."""


def _told(done: Iterable[Any], connected: Any, count: int) -> Iterator[Any]:
    """Yield finished futures; write to stderr whenever none finished for `PATIENCE` seconds."""
    left, finished, answered = count, threading.Event(), threading.Event()

    def watch() -> None:
        while not finished.is_set():
            answered.clear()
            if answered.wait(PATIENCE) or finished.is_set():
                continue
            workers = len(connected.nthreads())
            said = f"no worker has answered for {PATIENCE} s: {workers} workers, {left} tasks left"
            print(said, file=sys.stderr, flush=True)

    threading.Thread(target=watch, daemon=True).start()
    try:
        for one in done:
            left -= 1
            answered.set()
            yield one
    finally:
        finished.set()
        answered.set()


def _again(
    attempt: Callable[[list[int]], Iterator[tuple[int, Any]]],
    cells: Sequence[C],
    broken: type[Exception],
    guard: bool,
) -> Iterator[tuple[C, Any]]:
    """Yield the outcomes of attempts; killed workers end an attempt, and another begins.

    If this happens repeatedly and no cell finishes, some cell kills its worker. Then the first
    cells run alone, to find it, and the others continue together.
    """
    left, breaks = dict.fromkeys(range(len(cells))), 0  # in order
    while left:
        before = len(left)
        try:
            for i, outcome in attempt(list(left)):
                del left[i]
                yield cells[i], outcome
            return
        except broken:
            breaks = breaks + 1 if len(left) == before else 1
        if breaks == ATTEMPTS:
            breaks = 0
            for i in list(left)[:ALONE]:
                try:
                    for _, outcome in attempt([i]):
                        del left[i]
                        yield cells[i], outcome
                except broken as error:
                    if not guard:
                        raise
                    del left[i]
                    yield cells[i], Failure.from_error(error)


@contextlib.contextmanager
def client(scheduler: Any, jobs: int = 1) -> Iterator[Any]:
    """Connect to a Dask scheduler by its address; "local" starts one with ``jobs`` processes.

    Yields None for None, which stands for this machine.

    A scheduler runs any code that reaches its port. So the local one listens only on the loopback
    interface, without a dashboard.

    Raises
    ------
    ImportError
        Dask is not installed; the message says how to install it.
    OSError
        There is no scheduler at the address.
    """
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ImportError("a Dask cluster needs: pip install -e '.[cluster]'") from None
    if isinstance(scheduler, Client):
        yield scheduler
    elif scheduler == "local":
        quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
        with (
            LocalCluster(
                n_workers=jobs, threads_per_worker=1, host="127.0.0.1", scheduler_kwargs=quiet
            ) as cluster,
            Client(cluster) as connected,
        ):
            yield connected
    else:
        with Client(scheduler, timeout=PATIENCE) as connected:
            yield connected


def parallel(
    function: Callable[[T], R],
    arguments: Sequence[T],
    *,
    jobs: int = 1,
    progress: bool = False,
    label: str = "cells",
) -> list[R]:
    """Return function(argument) for each, in order; in processes of one thread each if jobs > 1."""
    memory.keep()
    results: Iterable[R] = pool(max(1, min(jobs, len(arguments))), "generator")(
        joblib.delayed(function)(argument) for argument in arguments
    )
    return list(tqdm(results, total=len(arguments), disable=not progress, desc=label, leave=False))
