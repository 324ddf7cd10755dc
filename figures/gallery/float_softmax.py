"""Error of softmax in floating point against length and size of logits."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.float_softmax import compute as compute
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Softmax in floating point"
ORDER = 355
SHOWN = "float32"  # against the size of logits
LENGTH_LOOKS = {
    ("float16", "recursive"): (mark("float16, one by one"), looks.PALETTE[2], "s"),
    ("float64", "recursive"): (mark("float64, one by one"), looks.PALETTE[4], "v"),
    ("float32", "recursive"): (mark("float32, one by one"), looks.PALETTE[1], "D"),
    ("float16", "pairwise"): (mark("float16, in pairs"), looks.PALETTE[0], "o"),
}
SIZE_LOOKS = {
    (SHOWN, "division_free"): (mark("undivided: exp(x − log Σ)"), looks.PALETTE[5], "P"),
    (SHOWN, "online"): (mark("online: sum in one pass"), looks.PALETTE[6], "X"),
    (SHOWN, "shifted"): (mark("shifted by the largest logit"), looks.PALETTE[8], "h"),
    (SHOWN, "unshifted"): (mark("not shifted: overflows"), looks.PALETTE[9], "^"),
}
PANELS = (
    ("length", "n", LENGTH_LOOKS, mark("how the terms are added")),
    ("size", "largest", SIZE_LOOKS, mark("how float32 computes softmax")),
)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error in rounding units: left against length, right against the largest logit."""
    figure, axes = style.row(2, 4.0)
    for ax, (study, x, curves, title) in zip(axes, PANELS):
        part = table[table.study == study]
        for (dtype, formula), (name, colour, marker) in curves.items():
            curve = part[(part.dtype == dtype) & (part.formula == formula)]
            ax.plot(curve[x], curve.value, color=colour, marker=marker, label=tr(name))
        ax.set(xscale="log", yscale="log", title=tr(title))
        ax.legend(loc="upper left")
    axes[0].set(xlabel=tr("length n"), ylabel=tr("error in rounding units of the format"))
    axes[1].set_xlabel(tr("largest logit"))
    return figure


def _errors(table: pd.DataFrame) -> pd.Series:
    keys = ["study", "dtype", "formula", "n", "largest"]
    return table.set_index(keys).value.sort_index()


def _unit(dtype: str) -> float:
    return float(np.finfo(dtype).eps) / 2


def finding(table: pd.DataFrame) -> str:
    at, n = _errors(table), int(table.n.max())
    off = {
        formula: at["length", "float16", formula, n].iloc[0] * _unit("float16")
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
        free=at["size", SHOWN, "division_free"].max(),
        online=at["size", SHOWN, "online"].max(),
        shifted=at["size", SHOWN, "shifted"].max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Error over the largest weight; u: the format's rounding unit.")
