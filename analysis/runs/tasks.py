"""A task: what decides its outcome, and how every worker runs it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from approx.estimate import memory
from approx.kernels.threads import one_thread

DECISIVE = {".py", ".csv", ".npz", ".txt"}  # files of a package that decide its numbers
LIBRARIES = "numpy", "scipy", "numba", "pandas"  # whose versions decide last digits


class Task(ABC):
    """A piece of a run; subclasses are frozen dataclasses.

    Attributes
    ----------
    place : int
        The index of the shared object that `run` gets.
    libraries : sequence of str
        Further packages whose versions decide the outcome.
    single_thread : bool
        Whether BLAS and Numba have one thread during `run`.
    """

    place = 0
    libraries: ClassVar[Sequence[str]] = ()
    single_thread: ClassVar[bool] = True

    @abstractmethod
    def run(self, shared: Any) -> Any:
        """Return the outcome."""

    def about(self) -> dict[str, Any]:
        """Return everything that decides the outcome by name: by default, all fields."""
        return {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """The hash of `about`, which names the outcome in a store."""
        return key(type(self).__qualname__, *self.about().values())


@dataclasses.dataclass(frozen=True)
class Application(Task):
    """A function of some arguments, for outcomes that no folder keeps."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self, shared: Any) -> Any:
        return self.function(*self.arguments)


@dataclasses.dataclass(frozen=True)
class Failure:
    """The error of a task."""

    kind: str
    message: str
    trace: str

    @classmethod
    def from_error(cls, error: BaseException) -> Failure:
        """Return the failure for an exception, with the end of its traceback."""
        trace = traceback.format_exception(error, limit=-3)
        return cls(type(error).__name__, str(error), "".join(trace)[-4000:])


@dataclasses.dataclass(frozen=True)
class Runner:
    """A function that runs a task in any process, under the caller's limit of memory.

    With `guard` it returns an exception as a `Failure`.
    """

    memory_limit: int | None
    guard: bool

    def __call__(self, task: Task, shared: Any, asked: str) -> Any:
        """Return the outcome; RuntimeError unless `version` of the task's libraries is `asked`."""
        try:
            if (mine := version(*task.libraries)) != asked:
                names = ", ".join([*LIBRARIES, *task.libraries])
                raise RuntimeError(
                    f"this worker has expqk {mine}, the caller {asked}: their code, or their "
                    f"versions of {names}, differ"
                )
            memory.set_limit(self.memory_limit)
            if not task.single_thread:
                return task.run(shared)
            with one_thread():
                return task.run(shared)
        except Exception as error:
            if not self.guard:
                raise
            return Failure.from_error(error)


# Keys


@functools.cache
def code(*packages: str) -> str:
    """Return a hash of source and data files of packages, and of the versions of libraries."""
    h = hashlib.sha256(repr([metadata.version(name) for name in LIBRARIES]).encode())
    for package in packages:
        for folder in importlib.import_module(package).__path__:
            for path in sorted(p for p in Path(folder).rglob("*.*") if p.suffix in DECISIVE):
                h.update(path.relative_to(folder).as_posix().encode() + b"\n" + path.read_bytes())
    return h.hexdigest()


CODE = code("approx", "analysis")  # as it is now: a file may change before a key is asked for


@functools.cache
def version(*others: str) -> str:
    """Return the version of this package, a hash of its code, and the versions of other packages.

    Examples
    --------
    >>> version("numpy") == f"{version()}, numpy {np.__version__}"
    True
    """
    names = "".join(f", {name} {metadata.version(name)}" for name in others)
    return f"{metadata.version('expqk')}+{CODE[:12]}{names}"


def key(*decisive: Any) -> str:
    """Return a hash of all that decides an outcome: texts, numbers, arrays by their bytes.

    The source and data files of `approx` and `analysis` are hashed, too, as they were when this
    module was imported.
    """
    h = hashlib.sha256(CODE.encode())
    for x in decisive:
        if isinstance(x, np.ndarray):
            h.update(repr((x.shape, x.dtype.str)).encode())
            h.update(np.ascontiguousarray(x).tobytes())
        else:
            h.update(repr(x).encode())
        h.update(b"\n")
    return h.hexdigest()
