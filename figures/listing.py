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
    return [_row(parse(name)) for name in METHODS]


def _row(one: Method) -> dict[str, Any]:
    name, method = one.name, type(one)
    fields = [
        f"{f.name}" if f.default is None else f"{f.name}={_short(f.default)}"
        for f in dataclasses.fields(method)  # type: ignore[arg-type]
    ]
    line = (inspect.getdoc(method) or "").splitlines()[0].rstrip(".")
    return {
        "method": f"{name}({', '.join(fields)})",
        "draws": _draws(one),
        "use": "oracle" if one.oracle else "runnable",
        "autoregressive": one.autoregressive,
        "row_local": one.row_local,
        "refusal": one.refusal,
        "also": [alias for alias, spec in ALIASES.items() if spec.partition("(")[0] == name],
        "what it is": line,
    }


def _draws(one: Method) -> str:
    if one.uses_rng:
        return "random"
    return "none" if one.deterministic else "none by default"


def _short(default: object) -> str:
    return str(default) if isinstance(default, Method) else repr(default)


def about(name: str) -> dict[str, Any]:
    """Return the row of one method, with its docstring and the projections it takes.

    What it is and needs is said of the fields that a familiar name stands for.

    Raises
    ------
    ValueError
        An unknown name, with a suggestion.
    """
    one = parse(name)
    method = type(one)
    return {
        **_row(one),
        "description": inspect.getdoc(method) or "",
        "projections": [name for name in PROJECTIONS if _takes(method, name)],
    }


def describe(name: str) -> str:
    """Return one method's page: its spec, its docstring, the projections it takes."""
    row = about(name)
    spec = f"{name} = {ALIASES[name]}" if name in ALIASES else row["method"]
    page = f"{spec}    [draws: {row['draws']}; {row['use']}]\n\n"
    if name in ALIASES:
        page += f"{row['method']}\n\n"
    page += f"{row['description']}\n\nUnder a mask: {_under_a_mask(row)}."
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
