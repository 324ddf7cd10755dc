"""What a package has is imported when it is first asked for (PEP 562)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

NONE: Mapping[str, str] = MappingProxyType({})


def attribute(package: str, homes: Mapping[str, str] = NONE) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: it knows its modules, and names that stand in them.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict, optional
        The module of each further name.
    """

    def found(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        # Interpreters and notebooks ask every module for names of their own, as __wrapped__.
        module = f"{package}.{name}"
        if name.isidentifier() and name[0] != "_" and importlib.util.find_spec(module):
            return importlib.import_module(module)
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package]
        )

    return found
