"""The decorators of kernels, and Numba's options for all of them, with the reason for each.

cache=True
    A kernel compiles once per machine. Numba's cache does not notice an edit in *another*
    file, so a kernel calls only kernels of its own module and of ``elementary``. The Makefile
    and conftest name NUMBA_CACHE_DIR by the hash of this file, ``elementary`` and ``compiler``.
nogil=True
    Threads may run kernels in parallel.
no_cfunc_wrapper=True
    No entry point from C is compiled, and none from Python for a kernel that another kernel calls.
    This saves a tenth of the time of first calls.
error_model="numpy"
    Division by zero gives inf or NaN as in NumPy, without a branch that prevents vectorisation.
fastmath={"contract", "nsz"}
    Fused multiply-add, and -0.0 may become 0.0. Never "nnan" or "ninf": NaN and inf keep their
    meaning. "reassoc" lets a sum be vectorised; only kernels made of plain sums may have it.
prefer-vector-width=512 (in ``compiler``)
    On Intel's processors with AVX-512, LLVM uses half of the register width, because the first of
    them lowered their clock rate; the exponential is 1.5 times faster at full width. This is an
    attribute of each kernel, so other code compiled in the process is not affected. Processors
    without AVX-512 ignore it. The CPU feature "-prefer-256-bit" gives the same code and speed, but
    affects the whole process, and only if it is set before Numba's first function.
"""

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
SAFE = {"contract", "nsz"}


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Switch Python's garbage collection off, for code that allocates much and keeps it.

    Importing Numba and compiling are such code, and each collection visits all objects.
    """
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


class Kernel:
    """A function that is compiled, and Numba imported, when it is first called."""

    def __init__(self, function: Callable[..., Any], fastmath: set[str]) -> None:
        functools.update_wrapper(self, function)
        self.function, self.fastmath = function, fastmath

    @property
    def options(self) -> dict[str, Any]:
        """Numba's options for this kernel."""
        return OPTIONS | {"fastmath": self.fastmath}

    @functools.cached_property
    def compiled(self) -> Any:
        """Numba's dispatcher, which compiles for each new set of dtypes."""
        with uncollected():
            from approx.kernels import compiler

        # From Python 3.12 on cached_property has no lock: setdefault gives all threads one object.
        return vars(self).setdefault("compiled", compiler.dispatcher(self.function, self.options))

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @functools.cached_property
    def called(self) -> Any:
        """Numba's dispatcher for kernels that call this one, without an entry point from Python."""
        from approx.kernels import compiler

        options = self.options | {"cache": False, "no_cpython_wrapper": True}
        return vars(self).setdefault("called", compiler.dispatcher(self.function, options))

    @property
    def _numba_type_(self) -> Any:
        # Numba reads it: the type of this kernel in a compiled function that calls it.
        return self.called._numba_type_

    def __reduce__(self) -> str | tuple[Any, ...]:
        module, name = self.function.__module__, self.function.__qualname__
        if module != "__main__" and getattr(sys.modules.get(module), name, None) is self:
            return name  # pickled by name, as functions are
        return Kernel, (self.function, self.fastmath)


class ByPrecision(Kernel):
    """A function with two bodies; in kernels, the precision of the argument selects one."""

    def __init__(self, function: Callable[..., Any], double: Kernel, single: Kernel) -> None:
        super().__init__(function, double.fastmath)
        self.double, self.single = double, single

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @functools.cached_property
    def _numba_type_(self) -> Any:
        from approx.kernels import compiler

        return compiler.by_precision(self.double.function, self.single.function, self.options)


def kernel(function: F) -> F:
    """Compile a loop over arrays, lazily, for the dtypes of each call."""
    return cast(F, Kernel(function, SAFE))


def summing_kernel(function: F) -> F:
    """Compile, lazily, a kernel whose sums may be reordered, so that they are vectorised."""
    return cast(F, Kernel(function, SAFE | {"reassoc"}))


def by_precision(double: Any, single: Any) -> Callable[[F], F]:
    """Give a function two bodies, of which kernels compile the one for their precision."""

    def decorate(function: F) -> F:
        return cast(F, ByPrecision(function, double, single))

    return decorate


@contextlib.contextmanager
def one_numba_thread() -> Iterator[None]:
    """Run parallel kernels, which only users' own methods have, on one thread."""
    from numba import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)
