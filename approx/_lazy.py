"""Import the modules and names of a package at their first use (PEP 562)."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Any

NONE: Mapping[str, str] = MappingProxyType({})


def attribute(package: str, homes: Mapping[str, str] = NONE) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which imports its modules and names on demand.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict, optional
        name → the module that defines it, for names that are not modules.
    """

    def found(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        # Interpreters and notebooks ask every module for special names, such as __wrapped__.
        module = f"{package}.{name}"
        if name.isidentifier() and name[0] != "_" and importlib.util.find_spec(module):
            return importlib.import_module(module)
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package]
        )

    return found


def modules_of(package: str) -> None:
    """Let a package import its modules on demand; a type checker knows only what is imported."""
    vars(sys.modules[package])["__getattr__"] = attribute(package)


class Shortcuts(MetaPathFinder, Loader):
    """Let modules of subpackages be imported by shorter public paths; the objects are the same.

    Parameters
    ----------
    package : str
        ``import package.name`` imports the module in `rooms` under that name.
    rooms : dict
        name → module, without the package.
    """

    def __init__(self, package: str, rooms: Mapping[str, str]) -> None:
        self.rooms = {f"{package}.{name}": f"{package}.{room}" for name, room in rooms.items()}
        self.specs: dict[str, ModuleSpec | None] = {}
        sys.meta_path.append(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a short path, or None for any other path."""
        return ModuleSpec(fullname, self) if fullname in self.rooms else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module behind the short path."""
        module = importlib.import_module(self.rooms[spec.name])
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; the module was already executed under its full path."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = self.specs.pop(spec.name)
