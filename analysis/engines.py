"""Where cells run: in this process, in loky processes, on a Dask cluster; the same bits everywhere.

An engine is an iterator of (cell, outcome) in the order in which cells finish. A cell travels
alone; what it works on, one of a few ``shared`` objects with big arrays, goes to each worker once:
loky's workers map its arrays from one file, Dask's hold a copy.

A worker that is killed takes with it only what it was doing. loky then gives up the whole pool, so
what is left starts again in a fresh one; Dask runs lost cells again by itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

import joblib

ATTEMPTS = 3  # whole pools lost before cells run one by one
MAPPED = 2**15  # bytes from which an array is mapped from a file instead of sent
PATIENCE = 60  # seconds to wait for a cluster's first worker


class Placed(Protocol):
    """A piece of work on one of the shared objects."""

    @property
    def place(self) -> int:
        """Index of its shared object."""


C = TypeVar("C", bound=Placed)
S = TypeVar("S")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Failure:
    """What went wrong in a cell."""

    kind: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that an exception is, with the end of its traceback."""
        trace = traceback.format_exception(error, limit=-3)
        return cls(type(error).__name__, str(error), "".join(trace)[-4000:])


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A function that returns its exception as a `Failure`."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return function(*arguments), or how it failed."""
        try:
            return self.function(*arguments)
        except Exception as error:
            return Failure.of(error)


def everything(cell: Any) -> bool:
    """Return True: no cell has become unnecessary."""
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
) -> Iterator[tuple[C, R | Failure]]:
    """Yield (cell, function(cell, shared[cell.place])) as cells finish.

    Parameters
    ----------
    function : callable
        Travels to the workers, as do cells: own classes and functions of a script work.
    cells, shared : sequence
    jobs : int
        Processes; also of a Dask cluster made here.
    scheduler : str or distributed.Client, optional
        The address of a Dask scheduler, such as ``tcp://host:8786``; or "local", a cluster of
        ``jobs`` processes on this machine for the time of this call.
    guard : bool
        Yield a `Failure` where a cell raises, or kills its process time and again; else raise.
    wanted : callable
        Asked just before a cell starts (Dask: before all are sent); False drops it.
    """
    if scheduler is not None:
        return _dask(function, cells, shared, jobs, scheduler, guard, wanted)
    if jobs > 1:
        return _loky(function, cells, shared, jobs, guard, wanted)
    return _serial(function, cells, shared, guard, wanted)


def _serial(
    function: Callable[[C, S], R],
    cells: Sequence[C],
    shared: Sequence[S],
    guard: bool,
    wanted: Callable[[C], bool],
) -> Iterator[tuple[C, R | Failure]]:
    run = Guarded(function) if guard else function
    for cell in cells:
        if wanted(cell):
            yield cell, run(cell, shared[cell.place])


def pool(jobs: int, return_as: str) -> Any:
    """Return a joblib pool of processes that run BLAS and Numba on one thread each."""
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        return joblib.Parallel(n_jobs=jobs, return_as=return_as, max_nbytes=MAPPED)


def _numbered(function: Callable[[C, S], R], index: int, cell: C, thing: S) -> tuple[int, R]:
    return index, function(cell, thing)


def _loky(
    function: Callable[[C, S], R],
    cells: Sequence[C],
    shared: Sequence[S],
    jobs: int,
    guard: bool,
    wanted: Callable[[C], bool],
) -> Iterator[tuple[C, R | Failure]]:
    run: Callable[[C, S], Any] = Guarded(function) if guard else function
    left = dict(enumerate(cells))

    def finished(some: list[int], processes: int) -> Iterator[tuple[C, R | Failure]]:
        tasks = (
            joblib.delayed(_numbered)(run, i, left[i], shared[left[i].place])
            for i in some
            if wanted(left[i])
        )
        for i, found in pool(processes, "generator_unordered")(tasks):
            yield left.pop(i), found

    for _ in range(ATTEMPTS):
        with contextlib.suppress(BrokenProcessPool):
            yield from finished(list(left), jobs)
            return
    for i in list(left):  # one of these kills its process: find it, and run the others
        try:
            yield from finished([i], 2)  # joblib runs one job in this very process
        except BrokenProcessPool as error:
            if not guard:
                raise
            yield left[i], Failure.of(error)


def _dask(
    function: Callable[[C, S], R],
    cells: Sequence[C],
    shared: Sequence[S],
    jobs: int,
    scheduler: Any,
    guard: bool,
    wanted: Callable[[C], bool],
) -> Iterator[tuple[C, R | Failure]]:
    run: Callable[[C, S], Any] = Guarded(function) if guard else function
    left = [cell for cell in cells if wanted(cell)]
    lost: list[C] = []

    def finished(connected: Any, some: list[C]) -> Iterator[tuple[C, R | Failure]]:
        from distributed import as_completed
        from distributed.client import CancelledError

        lost.clear()
        connected.wait_for_workers(1, timeout=PATIENCE)
        # Every worker holds a copy: while one of them lives, so do the inputs.
        held = {
            place: connected.scatter(shared[place], broadcast=True, hash=False)
            for place in {cell.place for cell in some}
        }
        futures = {connected.submit(run, c, held[c.place], pure=False): c for c in some}
        for future in as_completed(list(futures)):
            cell, found = futures.pop(future), None
            try:
                found = future.result()
            except CancelledError:  # with every copy of its input
                lost.append(cell)
                continue
            except Exception as error:  # raised, or killed every worker it ran on
                if not guard:
                    raise
                found = Failure.of(error)
            yield cell, found
            future.release()

    with client(scheduler, jobs) as connected:
        for _ in range(ATTEMPTS):
            yield from finished(connected, left)
            left = list(lost)
            if not left:
                return
        for cell in left:  # one of these kills its workers: find it, and run the others
            yield from finished(connected, [cell])
            if lost:
                error = ConnectionError("the cluster lost every worker that ran the cell")
                if not guard:
                    raise error
                yield cell, Failure.of(error)


@contextlib.contextmanager
def client(scheduler: Any, jobs: int = 1) -> Iterator[Any]:
    """Connect to a Dask scheduler by its address; "local" starts one with ``jobs`` processes.

    A scheduler runs what it is sent, from whoever reaches its port: the local one listens on the
    loopback only, without a dashboard.

    Raises
    ------
    ImportError
        Dask is not installed: says how to.
    OSError
        There is no scheduler.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ImportError("a Dask cluster needs: pip install 'expqk[cluster]'") from None
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
