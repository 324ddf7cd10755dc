"""Error of softmax in floating point against length and size of logits, beside its bounds."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.float_softmax import DTYPES, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Softmax in floating point"
ORDER = 355
SHOWN = "float32"  # against the size of logits
COLOURS = dict(zip(DTYPES, (style.PALETTE[2], style.PALETTE[1], style.PALETTE[4])))
MARKERS = dict(zip(DTYPES, "sDv"))
LOOKS = {
    "division_free": (mark("without division"), style.PALETTE[2], "s"),
    "online": (mark("online"), style.PALETTE[1], "D"),
    "shifted": (mark("shifted"), style.PALETTE[0], "o"),
    "unshifted": ("", style.PALETTE[4], "v"),
}
LEAST = 0.1


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error over u: left against length, right against the largest logit.

    Bounds are dotted; grey is the condition number.
    """
    with style.style():
        figure = Figure(figsize=(7.0, 3.6))
        left, right = figure.subplots(1, 2)
        part = table[table.study == "length"]
        ends = []
        for dtype in DTYPES:
            for formula in ("recursive", "pairwise"):
                curve = part[(part.dtype == dtype) & (part.formula == formula)]
                error = curve[curve.metric == "error"]
                colour = COLOURS[dtype] if formula == "recursive" else style.PALETTE[0]
                left.plot(error.n, error.value, color=colour, marker=MARKERS[dtype], markersize=3)
                if formula == "recursive":
                    name = tr("running sum, {dtype}", dtype=dtype)
                    ends.append((name, error.value.iloc[-1], colour))
                if dtype == DTYPES[-1]:
                    line = curve[curve.metric == "bound"]
                    left.plot(line.n, line.value, color="0.3", linestyle=":")
                    if formula == "pairwise":
                        name = tr("in pairs, all three")
                        ends.append((name, error.value.iloc[-1], colour))
        left.set(xscale="log", yscale="log", xlabel=tr("length n"), ylabel=tr("error over u"))
        left.set_xlim(part.n.min() / 1.2, part.n.max() * 1.2)
        style.direct(left, ends)
        part = table[(table.study == "size") & (table.dtype == SHOWN)]
        ends = []
        for formula, (name, colour, marker) in LOOKS.items():
            curve = part[(part.formula == formula) & np.isfinite(part.value)]
            error = curve[curve.metric == "error"]
            right.plot(error.largest, error.value, color=colour, marker=marker, markersize=3)
            last = error.largest.iloc[-1], error.value.iloc[-1]
            if formula == "unshifted":
                _beside(right, tr("unshifted overflows"), last, colour, up=-14)
            else:
                ends.append((tr(name), last[1], colour))
            if formula == "division_free":
                line = curve[curve.metric == "bound"]
                right.plot(line.largest, line.value, color=colour, linestyle=":")
        line = part[(part.metric == "condition") & (part.value > LEAST)]
        right.plot(line.largest, line.value, color="0.45", linewidth=2.5, zorder=0)
        _beside(right, tr("condition"), (3.0, float(line.value.max())), "0.45")
        right.set(xscale="log", yscale="log", xlabel=tr("largest logit"), title=SHOWN)
        right.set_ylabel(tr("error over u"))
        right.set_xlim(part.largest.min() / 1.2, part.largest.max() * 1.2)
        left.set_title(tr("logits of deviation 1"))
        style.direct(right, ends)
    return figure


def _beside(ax: Axes, text: str, place: tuple[float, float], colour: str, *, up: float = 5) -> None:
    ax.annotate(
        text, place, (2, up), textcoords="offset points", color=colour, fontsize=style.SMALL,
        ha="left" if up > 0 else "right",
    )  # fmt: skip


def _errors(table: pd.DataFrame) -> pd.Series:
    keys = ["study", "dtype", "formula", "metric", "n", "largest"]
    return table.set_index(keys).value.sort_index()


def _unit(dtype: str) -> float:
    return float(np.finfo(dtype).eps) / 2


def finding(table: pd.DataFrame) -> str:
    at, n = _errors(table), int(table.n.max())
    off = {
        formula: at["length", "float16", formula, "error", n].iloc[0] * _unit("float16")
        for formula in ("recursive", "pairwise")
    }
    return tr(
        "In float16, adding {n} terms one by one makes weights wrong by {recursive:.0%}, in pairs "
        "by {pairwise:.2%}. In {dtype}, softmax errs by up to {free:.0f} u undivided, {online:.0f} "
        "u online, {shifted:.1f} u shifted, in pairs.",
        n=n,
        recursive=off["recursive"],
        pairwise=off["pairwise"],
        dtype=SHOWN,
        free=at["size", SHOWN, "division_free", "error"].max(),
        online=at["size", SHOWN, "online", "error"].max(),
        shifted=at["size", SHOWN, "shifted", "error"].max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Largest error over the largest weight, in u. Dotted: bounds.")
