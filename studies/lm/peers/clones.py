"""Import the authors' modules from clones of their repositories, without a GPU."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers  # noqa: F401  # before any stand-in: it asks which packages there are

# Packages of sparse-attention-hub whose imports are left out
_ATTENTION = "sparse_attention_hub.sparse_attention"
_MASKERS = f"{_ATTENTION}.research_attention.maskers"
_BARE = (
    "sparse_attention_hub",
    _ATTENTION,
    f"{_ATTENTION}.utils",
    f"{_ATTENTION}.research_attention",
    _MASKERS,
    *(
        f"{_MASKERS}.{kind}{part}"
        for kind in ("fixed", "sampling")
        for part in ("", ".implementations")
    ),
)


class _Any(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Nothing(metaclass=_Any):
    """A stand-in for a name of an absent module: a class, a function or a decorator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args else self


class Absent(ModuleType):
    """A stand-in for a module that is not installed, such as Triton, and whose code is not run."""

    __path__ = ()
    __all__ = ("math", "nn", "torch")  # names that MInference gets from star imports
    math, nn, torch = math, torch.nn, torch

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or type(name, (Nothing,), {})


def load(
    root: Path, name: str, *, bare: Iterable[str] = (), absent: Iterable[str] = ()
) -> ModuleType:
    """Import a module of a clone, whose folder ``root`` becomes the first on the path.

    The ``__init__`` of ``bare`` packages isn't run, and stand-ins replace ``absent`` modules, which
    are imported but not used here. No module of the clone stays in `sys.modules`, because several
    clones have a package with the same name.
    """
    before = dict(sys.modules)
    for package in bare:
        empty = ModuleType(package)
        empty.__path__ = [str(root / package.replace(".", "/"))]
        sys.modules[package] = empty
    sys.modules.update({gone: Absent(gone) for gone in absent})
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(root))
        for new, found in list(sys.modules.items()):
            path = getattr(found, "__path__", [])
            place = str(getattr(found, "__file__", None) or next(iter(path), ""))
            mine = isinstance(found, Absent) or place.startswith(str(root))
            if new not in before and mine:
                del sys.modules[new]


def commit(root: Path) -> str:
    """Return the short name and the day of the last commit of a clone."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%h, %cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    marked = root / "COMMIT"  # for files that were not cloned
    return marked.read_text().strip() if marked.exists() else done.stdout.strip() or "unknown"


def tensor(x: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return an array as a batch of one head, (1, 1, n, d)."""
    return torch.as_tensor(x, dtype=dtype)[None, None]


@contextlib.contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    """Use this dtype for tensors that are created without a dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def masker(clone: Path, name: str) -> ModuleType:
    """Return a module of the hub's maskers, such as "sampling.implementations.magic_pig"."""
    return load(clone, f"{_MASKERS}.{name}", bare=_BARE, absent=("ray",))


def load_attention(clone: Path, name: str) -> ModuleType:
    """Return another module of the hub's attention, such as "utils.mask"."""
    return load(clone, f"{_ATTENTION}.{name}", bare=_BARE, absent=("ray",))
