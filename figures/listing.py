"""What methods there are, from the registry and its docstrings alone."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from approx import METHODS, Method, parse
from approx.projections import PROJECTIONS


def listing() -> list[dict[str, str]]:
    """Return one row a method: spec, what it is, whether it is random, what it needs.

    Examples
    --------
    >>> listing()[0]["method"]
    'zero()'
    """
    return [_row(name, method) for name, method in METHODS.items()]


def _row(name: str, method: type[Method]) -> dict[str, str]:
    fields = [
        f"{f.name}" if f.default is None else f"{f.name}={_short(f.default)}"
        for f in dataclasses.fields(method)  # type: ignore[arg-type]
    ]
    line = (inspect.getdoc(method) or "").splitlines()[0].rstrip(".")
    return {
        "method": f"{name}({', '.join(fields)})",
        "draws": _draws(method, parse(name)),
        "use": "oracle" if parse(name).oracle else "runnable",
        "what it is": line,
    }


def _draws(method: type[Method], default: Method) -> str:
    if default.uses_rng:
        return "random"
    return "none" if method.deterministic else "none by default"


def _short(default: object) -> str:
    return str(default) if isinstance(default, Method) else repr(default)


def about(name: str) -> dict[str, Any]:
    """Return the row of one method, with its docstring and the projections it takes.

    Raises
    ------
    ValueError
        An unknown name, with a suggestion.
    """
    method = type(parse(name))
    return {
        **_row(method.name, method),
        "description": inspect.getdoc(method) or "",
        "projections": [name for name in PROJECTIONS if _takes(method, name)],
    }


def describe(name: str) -> str:
    """Return one method's page: its spec, its docstring, the projections it takes."""
    row = about(name)
    page = f"{row['method']}    [draws: {row['draws']}; {row['use']}]\n\n{row['description']}"
    known = ", ".join(row["projections"])
    return f"{page}\n\nProjections: {known}." if known else page


def _takes(method: type[Method], projection: str) -> bool:
    if "projection" not in {f.name for f in dataclasses.fields(method)}:  # type: ignore[arg-type]
        return False
    try:
        method(projection=projection)  # type: ignore[call-arg]
    except ValueError:
        return False
    return True
