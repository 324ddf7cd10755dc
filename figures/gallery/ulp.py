"""Errors in units of the last place, beside what the condition of the problem allows."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.ulp import DEGREE, PANELS, compute as compute
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


def details(table: pd.DataFrame) -> str:
    double = table[table.dtype == "float64"]
    of = {name: double[double.function == name] for name in PANELS}
    single = table[(table.function == "exp") & (table.dtype == "float32")]
    under = float((table.value <= allowed(table)).mean())
    over = {name: float((part.value / allowed(part)).max()) for name, part in of.items()}
    tv, kl = (of[name].iloc[int(of[name].x.argmin())] for name in ("tv", "kl"))
    return tr(
        "Errors against 50-digit arithmetic in units of the last place, and max(½, κ/2), which the "
        "rounding of the arguments and of the result does to any algorithm; κ is the relative "
        "condition of the problem. exp is within {exp:.2f} ulp of e^x (float32: {exp32:.2f}), log "
        "within {log:.2f} ulp. {under:.0%} of all points are under the line, and none is above "
        "{most:.1f} times the line. An estimate within {distance:.0e} of exact attention has a "
        "total variation with κ = {tv:.0e} and a KL divergence with κ = {kl:.0e}: so many ulp of "
        "them mean nothing, however they are computed. The variance is that of 8 positive "
        "features, the bound is that of degree {degree}. The documentation has a table of "
        "every function.",
        exp=of["exp"].value.max(),
        exp32=single.value.max(),
        log=of["log"].value.max(),
        under=under,
        most=max(over.values()),
        distance=tv.x,
        tv=tv.condition,
        kl=kl.condition,
        degree=DEGREE,
    )
