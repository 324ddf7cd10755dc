"""What a page may say of a heat map: the names of rows and columns, and the value of each cell.

Few values are said as numbers or words. Of many, the picture has them already: its colours are read
as a colour bar is, so that a page with a dozen pictures of thousands of cells grows by nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.image import AxesImage

from approx.checks import Array

POINTS = 72  # an inch, in which SVG places everything
APART = "\t"
LEVELS = 256  # of a scale of colours
_SAID: WeakKeyDictionary[Axes, dict[str, Any]] = WeakKeyDictionary()


def named(
    ax: Axes,
    what: Sequence[str],
    columns: Iterable[object],
    rows: Iterable[object],
    values: object = None,
    edges: tuple[Array, Array] | None = None,
    *,
    beyond: tuple[float, float] = (-math.inf, math.inf),
    below: str = "",
) -> None:
    """Say what the cells of a heat map are.

    Parameters
    ----------
    ax : Axes
    what : sequence of str
        What a column is, what a row is, what a value is.
    columns, rows : sequence
        Their names, or numbers, in the order of the arrays.
    values : array of rows, optional
        Numbers, or words, of each cell; without, the colours of each image in the axes are read,
        whose ``label`` is its name.
    edges : pair of arrays, optional
        Of the columns and of the rows; as `imshow` has them if not given.
    beyond : pair of floats, optional
        What is below the first or above the second has its colour.
    below : str, optional
        What the colour below the scale says.
    """
    named = {"what": list(what), "columns": _line(columns), "rows": _line(rows)}
    if values is not None:
        named["values"] = [_line(row) for row in np.asarray(values, dtype=object)]
    _SAID[ax] = named | {"edges": edges, "beyond": "{:g} {:g}".format(*beyond), "below": below}


def pictures(ax: Axes) -> dict[AxesImage, str]:
    """Return the images of axes whose colours are read, and their names, which may be ""."""
    if ax not in _SAID or "values" in _SAID[ax]:
        return {}
    labels = {image: str(image.get_label()) for image in ax.images}
    return {image: "" if x.startswith("_") else x for image, x in labels.items()}


def said(ax: Axes) -> str | None:
    """Return all that is said of the cells of axes, in JSON; None where nothing is.

    Places are those of an SVG, in points. Two edges of more cells are the first and the last.
    """
    if ax not in _SAID:
        return None
    about = dict(_SAID[ax], title=str(ax.get_title()).replace(r"\$", "$"))
    given, below = about.pop("edges"), about.pop("below")
    if images := pictures(ax):
        first = next(iter(images))
        about["scale"] = f"{_kind(first)} 0 {LEVELS} {first.norm.vmin:.8g} {first.norm.vmax:.8g}"
        about["colours"] = bytes(first.cmap(np.arange(LEVELS), bytes=True)[:, :3]).hex()
        if below:
            about["below"] = {"said": below, "colour": to_hex(tuple(first.cmap.get_under()))[1:]}
        boxes = [image.get_extent() for image in images]
        rows = [box[2:] if x.origin == "lower" else box[:1:-1] for x, box in zip(images, boxes)]
        about["parts"] = [
            {"name": name, **_places(ax, box[:2], up)}
            for name, box, up in zip(images.values(), boxes, rows)
        ]
    else:
        ends = (about[name].count(APART) + 1 for name in ("columns", "rows"))
        columns, rows = given or [np.array([-0.5, count - 0.5]) for count in ends]
        about["parts"] = [{"name": "", **_places(ax, columns, rows)}]
    return json.dumps(about, ensure_ascii=False, separators=(",", ":"))


def _kind(image: AxesImage) -> str:
    return "log" if type(image.norm).__name__ == "LogNorm" else "linear"


def _places(ax: Axes, columns: Sequence[float] | Array, rows: Sequence[float] | Array) -> Any:
    """Return the places of edges."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    left, top = np.min(columns), np.min(rows)
    across = ax.transData.transform([(x, top) for x in columns])[:, 0]
    up = ax.transData.transform([(left, y) for y in rows])[:, 1]
    scale, height = POINTS / figure.dpi, POINTS * figure.get_figheight()
    return {
        "x": [round(float(x * scale), 2) for x in across],
        "y": [round(float(height - y * scale), 2) for y in up],
    }


def _line(values: Iterable[object]) -> str:
    """Return what cells beside each other say; in a page it is shorter than a list is."""
    return APART.join(map(_said, values))


def _said(value: object) -> str:
    """Return a number to three digits, or a word; "–" of what is no number.

    Examples
    --------
    >>> _said(0.123456), _said(float("nan")), _said("top-k"), _said(8.0)
    ('0.123', '–', 'top-k', '8')
    """
    if isinstance(value, str):
        return value
    said = f"{float(value):.3g}".replace("nan", "–").replace("inf", "∞")  # type: ignore[arg-type]
    return re.sub(r"e([+-])0*", lambda e: "e" + e[1].replace("+", ""), said)
