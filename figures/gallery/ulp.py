"""Errors in units of the last place, beside what the condition of the problem allows."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.ulp import PANELS, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Accuracy of what everything is made of"
ORDER = 370
TITLES = {
    "exp": mark("exponential"),
    "log": mark("logarithm"),
    "softmax": mark("softmax weight"),
    "tv": mark("total variation"),
    "kl": mark("KL divergence"),
    "variance": mark("log relative variance"),
    "bound": mark("bound of Taylor's error"),
}
ARGUMENTS = {
    "exp": "|x|",
    "log": "|log x|",
    "softmax": mark("largest logit"),
    "tv": mark("distance of the estimate"),
    "kl": mark("distance of the estimate"),
    "variance": "|q + k|",
    "bound": "B",
}
LOOKS = {"float64": ("#0072B2", "o"), "float32": ("#D55E00", "x")}
LEAST = 1e-2  # ulp; smaller errors are drawn there


def allowed(part: pd.DataFrame) -> pd.Series:
    """Return max(½, κ/2): what the rounding of the arguments or of the result does anyway."""
    return (part.condition / 2).clip(lower=0.5)


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel a function: errors against the argument, and the line of the condition."""
    with style.style():
        figure = Figure(figsize=(7.4, 4.4))
        axes = figure.subplots(2, 4).ravel()
        for ax, name in zip(axes, PANELS):
            part = table[table.function == name].sort_values("x")
            for dtype, (colour, marker) in LOOKS.items():
                some = part[part.dtype == dtype]
                if len(some):
                    ax.plot(
                        some.x, some.value.clip(LEAST), marker, color=colour, markersize=2.5,
                        alpha=0.6, markeredgewidth=0.6, label=dtype,
                    )  # fmt: skip
            line = part[part.dtype == "float64"]
            ax.plot(
                line.x, allowed(line), color="black", linewidth=1.0,
                label=tr("max(½, κ/2), what rounded arguments do"),
            )  # fmt: skip
            ax.set(xscale="log", yscale="log", xlabel=tr(ARGUMENTS[name]))
            ax.set_title(tr(TITLES[name]))
        for ax in (axes[0], axes[4]):
            ax.set_ylabel(tr("error, ulp"))
        axes[-1].axis("off")
        style.legend(figure, list(axes[:-1]))
    return figure


def finding(table: pd.DataFrame) -> str:
    ratio = table.value / allowed(table)
    return tr(
        "{under:.0%} of all errors are within what rounding does to any algorithm; none is "
        "above {most:.1f} times that.",
        under=float((ratio <= 1).mean()),
        most=float(ratio[(table.dtype == "float64") & table.function.isin(PANELS)].max()),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Errors against 50-digit arithmetic in units of the last place. Line: max(½, κ/2), κ the "
        "relative condition of the problem."
    )
