"""The Numba options of the project, in one place, with the reason for each.

cache=True
    A kernel compiles once per machine. Numba's cache does not notice an edit in *another*
    file, so a kernel calls only kernels of its own module and the shared ``exp``; the
    Makefile and conftest name NUMBA_CACHE_DIR by the hash of this file and ``_exp.py``.
nogil=True
    Threads may run kernels side by side.
error_model="numpy"
    Division by zero gives inf or NaN as in NumPy, without a branch a loop cannot vectorise.
fastmath={"contract", "nsz"}
    Fused multiply-add, and -0.0 may be 0.0. Never "nnan" or "ninf": NaN and inf keep their
    meaning. "reassoc" lets a sum be vectorised; only kernels made of plain sums may have it.
prefer-vector-width=512
    LLVM vectorises for half of the registers of Intel's processors with AVX-512, for fear of
    the lower clock rate of the first of them; the exponential is 1.5 times faster with whole
    ones. An attribute of each kernel, so other code compiled in the process is left as it was;
    processors without AVX-512 ignore it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from numba import get_num_threads, njit, set_num_threads
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering

F = TypeVar("F", bound=Callable[..., Any])


class _WideFunction(Lower):  # type: ignore[misc]
    """Translate a function to LLVM, with the wish for whole vector registers."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # llvmlite prints attributes as they are, but its own add() knows only those without value
        set.add(self.function.attributes, '"prefer-vector-width"="512"')


@register_pass(mutates_CFG=True, analysis_only=False)
class _WideLowering(BaseNativeLowering):  # type: ignore[misc]
    _name = "wide_lowering"
    lowering_class = _WideFunction


class _WideCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler, its translation to LLVM replaced by the wide one."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_WideLowering, NativeLowering)
        passes.passes = [p for p in passes.passes if p[0] is not NativeLowering]
        passes.finalize()
        return [passes]


OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "pipeline_class": _WideCompiler,
}
SAFE = {"contract", "nsz"}


def kernel(function: F) -> F:
    """Compile a loop over arrays, lazily, for the dtypes it is called with."""
    return cast(F, njit(**OPTIONS, fastmath=SAFE)(function))


def summing_kernel(function: F) -> F:
    """Compile a kernel whose sums may be reordered (and so vectorised)."""
    return cast(F, njit(**OPTIONS, fastmath=SAFE | {"reassoc"})(function))


@contextlib.contextmanager
def one_numba_thread() -> Iterator[None]:
    """Run parallel kernels, which only a user's own method may have, on one thread."""
    before = get_num_threads()
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)
