"""One loop over `concurrent.futures`, and where tasks run: here, in processes, on a Dask cluster.

If a worker is killed, the tasks that it was running are lost, and run again. A task that is lost
once more runs alone; if it is lost then, too, it is what kills its worker.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib.externals import loky  # type: ignore[import-untyped]
from joblib.externals.loky import process_executor  # type: ignore[import-untyped]
from joblib.externals.loky.backend import reduction, resource_tracker  # type: ignore[import-untyped]
from tqdm import tqdm

from analysis.runs import tasks as runs
from analysis.runs.store import Store
from analysis.runs.tasks import Failure, Runner, Task
from approx import checks
from approx.checks import Array
from approx.estimate import memory

MAPPED = 2**15  # arrays with more bytes are mapped from a file instead of sent
IDLE = 300  # seconds after which a process without a task ends
PATIENCE = 60  # seconds to wait for the first worker of a cluster, and before silence is reported
TOGETHER = 1  # losses after which a task still runs beside others

K = TypeVar("K", bound=Task)
R = TypeVar("R")
T = TypeVar("T")


class LostError(ConnectionError):
    """The workers that ran a task are lost, and it has no outcome."""


def stream(
    tasks: Iterable[K],
    shared: Sequence[Any] = (None,),
    *,
    jobs: int = 1,
    scheduler: Any = None,
    guard: bool = False,
    copied: bool = False,
    store: Store | None = None,
    retry_failed: bool = False,
    progress: bool = False,
    label: str = "tasks",
    total: int | None = None,
) -> Iterator[tuple[K, Any]]:
    """Yield (task, task.run(shared[task.place])) as tasks finish.

    Parameters
    ----------
    tasks : iterable of Task
        Tasks are taken from it as there is room for them. Classes of a script work, too.
    shared : sequence
        Objects with big arrays: a worker gets each once.
    jobs : int
        The number of processes, also of a local Dask cluster.
    scheduler : str or distributed.Client, optional
        The address of a Dask scheduler, such as ``tcp://host:8786``; or "local" for a cluster of
        ``jobs`` processes on this machine for the time of this call.
    guard : bool
        Whether to yield a `Failure`, instead of raising, for a task that raises or that kills its
        worker.
    copied : bool
        Whether each Dask worker gets the shared objects before the first task starts, because a
        busy worker cannot send its own, such as a model during a pass. By default workers fetch
        the objects from each other when tasks need them.
    store : Store, optional
        Outcomes and failures that it holds are yielded without a run; others are put there.
    retry_failed : bool
        Whether tasks whose failures it holds run again.
    progress, label : bool, str
        Whether to draw a bar on stderr, and its label.
    total : int, optional
        The number of tasks, if they have no length.
    """
    checks.integer("jobs", jobs, least=1)
    if total is None and isinstance(tasks, Sized):
        total = len(tasks)
    kept = store or None  # a store without a folder holds nothing
    known: list[tuple[K, Any]] = []
    keys: dict[int, str] = {}  # of what runs: a key may be a hash of big arrays

    def left() -> Iterator[K]:
        """Yield what the store does not hold just before it starts: others may write there."""
        for task in tasks:
            outcome = None
            if kept is not None:
                keys[id(task)] = key = task.key
                outcome = kept.get(key)
                if outcome is None and not retry_failed:
                    outcome = kept.failure(key)
            if outcome is None:
                yield task
            else:
                known.append((task, outcome))

    def computed() -> Iterator[tuple[K, Any]]:
        todo = left()
        if (first := next(todo, None)) is not None:
            memory.keep()
            with _engine(jobs, jobs if total is None else total, scheduler, copied) as engine:
                run = Runner(memory.explicit_limit(), guard)
                yield from _loop(engine, run, itertools.chain([first], todo), shared)

    with tqdm(total=total, desc=label, leave=False, disable=not progress) as bar:
        for task, outcome in computed():
            if kept is not None and isinstance(outcome, Failure):
                kept.fail(keys[id(task)], outcome, **task.about())
            elif kept is not None:
                kept.put(keys[id(task)], outcome)
            bar.update(1 + len(known))
            yield from (known.pop() for _ in range(len(known)))
            yield task, outcome
        bar.update(len(known))
        yield from known


def results(tasks: Iterable[Task], shared: Sequence[Any] = (None,), **how: Any) -> list[Any]:
    """Return the outcomes in the order of the tasks; the parameters are those of `stream`.

    A single task runs in this process.
    """
    if isinstance(tasks, Sized):
        how["total"] = len(tasks)
    if how.get("total") in (0, 1):
        how["jobs"] = min(how.get("jobs", 1), 1)
    places: dict[int, list[int]] = {}  # of a task that runs, by its id; it may be given twice

    def placed() -> Iterator[Task]:
        for place, task in enumerate(tasks):
            places.setdefault(id(task), []).append(place)
            yield task

    found = {places[id(task)].pop(): x for task, x in stream(placed(), shared, **how)}
    return [found[place] for place in sorted(found)]


@contextlib.contextmanager
def _engine(jobs: int, total: int, scheduler: Any, copied: bool) -> Iterator[_Engine]:
    with client(scheduler, min(jobs, total)) as connected:
        if connected is not None:
            yield _Cluster(connected, copied)
        else:  # one task, too, has a process of its own, which it may kill
            yield _Processes(min(jobs, total)) if jobs > 1 else _Serial()


def _loop(
    engine: _Engine, run: Runner, tasks: Iterable[K], shared: Sequence[Any]
) -> Iterator[tuple[K, Any]]:
    """Yield each task and its outcome; what is lost runs again."""
    fresh = ((task, 0) for task in tasks)
    again: list[tuple[K, int]] = []  # lost before, with the number of losses
    alone: list[tuple[K, int]] = []
    running: dict[Future[Any], tuple[K, int]] = {}

    def submit(task: K, losses: int) -> None:
        try:
            future = engine.submit(run, task, runs.version(*task.libraries))
        except engine.lost as error:  # the workers died before this task was there
            future = Future()
            future.set_exception(error)
        running[future] = task, losses

    killed = True
    try:
        engine.open(shared)
        while True:
            waiting = itertools.chain((again.pop(0) for _ in range(len(again))), fresh)
            for one in itertools.islice(waiting, max(0, engine.width - len(running))):
                submit(*one)
            if not running and alone:
                submit(*alone.pop(0))
            if not running:
                break
            done = wait(running, engine.patience, FIRST_COMPLETED).done
            if not done:
                print(engine.silence(len(running)), file=sys.stderr, flush=True)
            lost = False
            for future in done:
                task, losses = running.pop(future)
                try:
                    outcome = future.result()
                except engine.lost as error:
                    lost = True
                    if losses <= TOGETHER:
                        (again if losses < TOGETHER else alone).append((task, losses + 1))
                        continue
                    if isinstance(error, CancelledError):  # it has no message
                        error = LostError("every worker that held its input was lost")
                    if not run.guard:
                        raise error
                    outcome = Failure.from_error(error)
                yield task, outcome
            if lost:
                engine.open(shared)
        killed = False
    finally:
        for future in running:
            future.cancel()
        engine.stop(kill=killed)


class _Engine(ABC):
    """A place where tasks run.

    Attributes
    ----------
    width : int
        The number of tasks that it should have at once.
    patience : float or None
        The seconds after which silence is reported.
    lost : tuple of exception types
        The errors of a task whose worker is killed.
    """

    width: int = 1
    patience: float | None = None
    lost: tuple[type[BaseException], ...] = ()

    def open(self, shared: Sequence[Any]) -> None:
        """Take the shared objects, before the first task and after workers were killed."""
        self.shared = shared

    @abstractmethod
    def submit(self, run: Runner, task: Task, asked: str) -> Future[Any]:
        """Begin run(task, shared[task.place], asked)."""

    def silence(self, running: int) -> str:
        """Return a line about workers that do not answer."""
        return f"no worker has answered for {self.patience} s: {running} tasks left"

    def stop(self, *, kill: bool) -> None:
        """Release the shared objects; `kill`: end the workers, too."""
        self.shared = ()


class _Serial(_Engine):
    """The caller's thread, which runs a task when it is submitted."""

    def submit(self, run: Runner, task: Task, asked: str) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(run(task, self.shared[task.place], asked))
        except Exception as error:
            future.set_exception(error)
        return future


class _Processes(_Engine):
    """Processes of this machine, which map big arrays from files.

    loky has one pool per process. If its workers are killed, another run in this process loses
    its tasks, too, and submits them again.
    """

    lost = (BrokenProcessPool, process_executor.ShutdownExecutorError)
    pool: Any = None

    def __init__(self, jobs: int) -> None:
        self.jobs, self.width = jobs, 2 * jobs
        self.files: dict[int, Path] = {}  # of big arrays, by the id of the array
        self.folder = Path(tempfile.mkdtemp(prefix="expqk-"))
        resource_tracker.register(str(self.folder), "folder")  # if this process is killed

    def open(self, shared: Sequence[Any]) -> None:
        self.shared = shared
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        with _interrupts_ignored():  # new processes inherit this: Ctrl-C is for this one alone
            self.pool = loky.get_reusable_executor(
                self.jobs, timeout=IDLE, initializer=_begin, initargs=(os.getpid(),), env=threads
            )
            self.pool.submit(int)

    def submit(self, run: Runner, task: Task, asked: str) -> Future[Any]:
        held: list[Array] = []  # files stay until their arrays are gone and no task needs them

        def mapped(array: Array) -> Any:
            """Reduce a big array to its file, which is written once, for workers to map."""
            if array.nbytes <= MAPPED or array.dtype.hasobject:
                return np.asarray(array).__reduce_ex__(5)
            held.append(array)
            if (number := id(array)) not in self.files:
                path = self.folder / f"{time.monotonic_ns()}.npy"
                np.save(path, array, allow_pickle=False)
                self.files[number] = path
                weakref.finalize(array, _forget, self.files, number)
            return np.load, (self.files[number], "r")

        reducers = dict.fromkeys((np.ndarray, np.memmap), mapped)
        sent = reduction.dumps((run, task, self.shared[task.place], asked), reducers)
        future: Future[Any] = self.pool.submit(_run, bytes(sent))
        future.add_done_callback(lambda _: held.clear())
        return future

    def stop(self, *, kill: bool) -> None:
        if kill and self.pool is not None:
            self.pool.shutdown(kill_workers=True)
        self.files.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        resource_tracker.unregister(str(self.folder), "folder")


def _run(sent: bytes) -> Any:
    run, *arguments = reduction.loads(sent)
    return run(*arguments)


def _forget(files: dict[int, Path], number: int) -> None:
    if (path := files.pop(number, None)) is not None:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(parent: int) -> None:
    """Keep freed memory in this process, and end it when its parent is gone; loky would not."""
    memory.keep()
    # loky ends a process that has 300 MB more than after its first task, as if it leaked. Ours
    # have, since they compile kernels and keep memory; and loky has no option for this.
    process_executor._MAX_MEMORY_LEAK_SIZE = math.inf
    tqdm.set_lock(threading.RLock())  # tqdm's semaphore would survive a kill

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Cluster(_Engine):
    """A Dask cluster. It has several tasks for each thread, and more as workers join.

    Each shared object is one item of a list: Dask would scatter the values of a dict one by one,
    under their keys, which other tables have, too.
    """

    def __init__(self, connected: Any, copied: bool) -> None:
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        self.lost = (CancelledError, KilledWorker, CommClosedError)
        self.patience = PATIENCE
        self.connected, self.copied = connected, copied
        self.pool = connected.get_executor(pure=False)

    @property
    def width(self) -> int:  # type: ignore[override]
        return 4 * max(1, sum(map(int, self.connected.nthreads().values())))

    def open(self, shared: Sequence[Any]) -> None:
        self.connected.wait_for_workers(1, timeout=PATIENCE)
        self.shared, self.held = shared, dict[int, Any]()  # what a dead worker held is sent again

    def submit(self, run: Runner, task: Task, asked: str) -> Future[Any]:
        if task.place not in self.held:
            (self.held[task.place],) = self.connected.scatter(
                [self.shared[task.place]], hash=False, broadcast=self.copied
            )
        future: Future[Any] = self.pool.submit(run, task, self.held[task.place], asked)
        return future

    def silence(self, running: int) -> str:
        return f"{super().silence(running)}, {len(self.connected.nthreads())} workers"

    def stop(self, *, kill: bool) -> None:
        self.pool.shutdown(wait=False)
        self.held = {}


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
        local = LocalCluster(
            n_workers=jobs, threads_per_worker=1, host="127.0.0.1", scheduler_kwargs=quiet,
            silence_logs=logging.CRITICAL,  # the errors of tasks are the caller's
        )  # fmt: skip
        with local as cluster, Client(cluster) as connected:
            connected.amm.stop()  # it drops copies that no task waits for at the moment
            yield connected
    else:
        with Client(scheduler, timeout=PATIENCE) as connected:
            yield connected
