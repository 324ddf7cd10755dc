"""What methods there are, from the registry and its docstrings alone."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from approx import ALIASES, METHODS, Method, parse
from approx.projections import PROJECTIONS


def listing() -> list[dict[str, Any]]:
    """Return one row per method: spec, what it is, whether it is random, and what it needs.

    ``autoregressive``, ``row_local`` and ``refusal`` are what the method declares about masks, with
    the defaults of its fields. ``also`` has the familiar names of its specs.

    Examples
    --------
    >>> listing()[0]["method"]
    'zero()'
    """
    return [_row(name, method) for name, method in METHODS.items()]


def _row(name: str, method: type[Method]) -> dict[str, Any]:
    fields = [
        f"{f.name}" if f.default is None else f"{f.name}={_short(f.default)}"
        for f in dataclasses.fields(method)  # type: ignore[arg-type]
    ]
    line = (inspect.getdoc(method) or "").splitlines()[0].rstrip(".")
    default = parse(name)
    return {
        "method": f"{name}({', '.join(fields)})",
        "draws": _draws(method, default),
        "use": "oracle" if default.oracle else "runnable",
        "autoregressive": default.autoregressive,
        "row_local": default.row_local,
        "refusal": default.refusal,
        "also": [alias for alias, spec in ALIASES.items() if spec.partition("(")[0] == name],
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
    page += f"\n\nUnder a mask: {_under_a_mask(row)}."
    if row["also"]:
        page += "\n\nFamiliar names: " + ", ".join(f"{a} = {ALIASES[a]}" for a in row["also"]) + "."
    known = ", ".join(row["projections"])
    return f"{page}\n\nProjections: {known}." if known else page


def _under_a_mask(row: dict[str, Any]) -> str:
    if row["refusal"]:
        return f"refused, because {row['refusal']}"
    past = "follows from" if row["autoregressive"] else "depends on more than"
    alone = "without" if row["row_local"] else "with"
    return f"by default a row {past} what came before, and is computed {alone} the other queries"


def _takes(method: type[Method], projection: str) -> bool:
    if "projection" not in {f.name for f in dataclasses.fields(method)}:  # type: ignore[arg-type]
        return False
    try:
        method(projection=projection)  # type: ignore[call-arg]
    except ValueError:
        return False
    return True
