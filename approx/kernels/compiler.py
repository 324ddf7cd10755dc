"""All code that needs Numba; it is imported, in 0.2 s, when a kernel is first called."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.registry import cpu_target
from numba.core.typed_passes import BaseNativeLowering, NativeLowering
from numba.extending import overload

from approx.kernels.jit import uncollected


class _WideFunction(Lower):  # type: ignore[misc]
    """Translate a function to LLVM, with a preference for full-width vector registers."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # llvmlite prints attributes unchanged, but its own add() accepts only those without value
        set.add(self.function.attributes, '"prefer-vector-width"="512"')


@register_pass(mutates_CFG=True, analysis_only=False)
class _WideLowering(BaseNativeLowering):  # type: ignore[misc]
    _name = "wide_lowering"
    lowering_class = _WideFunction


class WideCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler, with its translation to LLVM replaced by the wide one."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes of a compilation."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_WideLowering, NativeLowering)
        passes.passes = [p for p in passes.passes if p[0] is not NativeLowering]
        passes.finalize()
        return [passes]

    def compile_extra(self, func: Any) -> Any:
        """Compile, without garbage collection in between."""
        with uncollected():
            return super().compile_extra(func)


def dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return Numba's dispatcher of a kernel; without a cache where no folder can be written."""
    try:
        return numba.njit(pipeline_class=WideCompiler, **options)(function)
    except RuntimeError:
        _warn_once()
        return numba.njit(pipeline_class=WideCompiler, **options | {"cache": False})(function)


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "every run compiles again, because compiled code can be written neither beside the "
        "package nor into the home folder: set NUMBA_CACHE_DIR to a folder that can be written",
        RuntimeWarning,
        stacklevel=1,
    )


def by_precision(
    double: Callable[..., Any], single: Callable[..., Any], options: dict[str, Any]
) -> Any:
    """Return Numba's type of a function that is `single` on float32 and `double` otherwise."""

    def function(x: Any) -> Any:
        """Be the placeholder that either body replaces."""

    @overload(function, jit_options=options | {"cache": False})  # type: ignore[untyped-decorator]
    def body(x: Any) -> Callable[..., Any]:
        return single if getattr(x, "dtype", x) == types.float32 else double

    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(function)
