"""The looks of methods in figures and tables: the name that people know, colour, line, marker."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from approx import METHODS, Method, parse
from approx.method import Label
from approx.method.tags import ORACLE
from figures.words.translation import mark, tr

if TYPE_CHECKING:
    import pandas as pd

# petroff10, safe for colour-blind readers; line styles and markers carry the same information.
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
MARKERS = "osD^vPXd<>ph8*H"
LINES = {"low rank": "-", "sparse + low rank": "-", "compressed logits": ":"}  # by class; else "--"
# Colour, line and marker of what many figures compare, by label; they follow from the class and
# from the place in the registry elsewhere.
EXCEPTIONS = {
    "zero matrix": ("0.6", ":", ""),
    "all ones": ("0.75", ":", ""),
    "best constant": ("0.5", "-.", ""),
    "uniform attention": ("0.35", "--", ""),
    "Performer (positive features)": (PALETTE[0], "-", "o"),
    "Scatterbrain (Performer + top-k)": (PALETTE[4], "-", "D"),
    "Scatterbrain (Performer + window)": (PALETTE[5], "-", "X"),
    "sink and window": (PALETTE[9], "--", "s"),
    "top-k of each row": (PALETTE[6], "-", "^"),
    "truncated SVD": (PALETTE[2], "--", ""),
    "largest entries of the matrix": (PALETTE[6], "--", ""),
    "sparse + low rank (GoDec)": ("black", "-", ""),
    "Robust PCA (pursuit)": (PALETTE[8], "", "P"),
}
PALE: dict[str, Any] = {  # the line of a method that sees all logits
    "linewidth": 4.0, "alpha": 0.35, "marker": "",
    "solid_capstyle": "butt", "dash_capstyle": "butt",
}  # fmt: skip
STANDINGS = mark("bound"), mark("best found"), mark("all logits")  # of `candidates.standing`


@functools.cache
def method_of(spec: str) -> Method | None:
    """Return the method of a spec, or None where it is a name of something else."""
    try:
        return parse(spec)
    except ValueError:
        return None


def of_methods(table: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return the rows of a table whose method has one of these names in the registry."""
    methods = map(method_of, table.method)
    return table[[method is not None and method.name in names for method in methods]]


def label(spec: str) -> str:
    """Return the name of a method as people know it: its spec if that name needs an open size.

    Examples
    --------
    >>> label("positive(m=16)"), label("taylor()"), label("mine(m=3)")
    ('Performer (positive features)', 'taylor()', 'mine(m=3)')
    """
    method = method_of(spec)
    if method is None:
        return spec
    fields = {name: value for name, value in vars(method).items() if value is not None}
    try:
        return tr(Label(method.label).choose(method)).format(**fields)
    except KeyError:
        return spec


def look(spec: str) -> dict[str, Any]:
    """Return label, colour, line style and marker of a method; an unknown name gets its own."""
    method, line, marker = method_of(spec), "--", "*"
    if method is None:
        place = int(hashlib.sha256(spec.encode()).hexdigest(), 16)
    else:
        place, line = sum(_place(method)), LINES.get(method.class_name, line)
        marker = MARKERS[place % len(MARKERS)]
    colour = PALETTE[place % len(PALETTE)]
    if method is not None:
        key = Label(method.label).choose(method)
        colour, line, marker = EXCEPTIONS.get(key, (colour, line, marker))
    return {"label": label(spec), "color": colour, "linestyle": line, "marker": marker}


def reference_look(spec: str) -> dict[str, Any]:
    """Return the look of a method's line: broad, pale and unmarked if it sees all logits.

    Examples
    --------
    >>> reference_look("top_k(k=4)")["label"]
    'top-k of each row (sees all logits)'
    >>> [reference_look(spec)["marker"] for spec in ("top_k(k=4)", "positive(m=4)")]
    ['', 'o']
    """
    own, method = look(spec), method_of(spec)
    if method is None or ORACLE not in method.tags:
        return own
    return own | PALE | {"label": tr("{name} (sees all logits)", name=own["label"])}


def references() -> str:
    """Return the meaning of the words for methods that see all logits."""
    return tr(
        "Methods that see all logits are references. bound: provably the best of its class. "
        "best found: the best that a search found. all logits: it optimises another error."
    )


def order(specs: Iterable[str]) -> list[str]:
    """Return specs in the order of the registry, unknown ones last."""

    def place(spec: str) -> tuple[int, ...]:
        method = method_of(spec)
        return (len(METHODS),) if method is None else _place(method)

    return sorted(dict.fromkeys(specs), key=place)


def _place(method: Method) -> tuple[int, int]:
    """Return the place of a method in the registry, and of its variant in its class."""
    known = Label(method.label)
    return list(METHODS).index(method.name), known.names.index(known.choose(method))
