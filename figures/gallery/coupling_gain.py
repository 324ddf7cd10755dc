"""What coupling the frequencies of positive features is worth: exact error over that of iid."""

import re

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.coupling_gain import AT, BOUND, compute as compute
from figures.drawing import style
from figures.words.translation import tr

TITLE = "What coupled frequencies are worth"
ORDER = 90
BIASED = ("moment_matched", "regularized")
FADED = "positive()", "positive(projection='antithetic')"


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel a width d: lines in closed form, markers by Monte Carlo."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.6))
        widths = table.d.unique()
        axes = figure.subplots(1, len(widths), sharex=True, sharey=True, squeeze=False)[0]
        for ax, d in zip(axes, widths):
            part = table[table.d == d]
            closed, sampled = (
                dict(list(part[part.metric == name].groupby("method")))
                for name in ("mse_ratio", "sampled_mse_ratio")
            )
            for spec in style.order([s for s in closed if s != BOUND]):
                look = style.look(spec)
                look["label"] += tr(" (biased)") if _coupling(spec) in BIASED else ""
                line = closed[spec]
                ax.plot(line.squared_sum, line.value, **look | {"marker": ""})
                if spec in sampled and _coupling(spec) != "antithetic":
                    dots = sampled[spec]
                    dot = look | {"linestyle": "", "label": None, "elinewidth": 0.9}
                    ax.errorbar(
                        dots.squared_sum, dots.value, dots.stderr, capsize=1.5, markersize=3, **dot
                    )
            line = closed[BOUND]
            ax.plot(
                line.squared_sum, line.value, color="black", linestyle=":",
                label=tr("Theorem 2: bound of orthogonal"),
            )  # fmt: skip
            ax.set(xscale="log", ylim=(0.0, 1.1), title=f"d = {d}, m = {part.m.iloc[0]}")
            ax.set_xticks([0.1, 1.0, 10.0], ["0.1", "1", "10"])
            ax.set_xlabel("|q + k|²")
        axes[0].set_ylabel(tr("error² over the Performer's"))
        style.legend(figure, list(axes), columns=2, faded=map(style.label, FADED))
    return figure


def finding(table: pd.DataFrame) -> str:
    closed = table[(table.metric == "mse_ratio") & (table.squared_sum == AT)]
    at = closed.assign(name=closed.method.map(_coupling)).pivot(
        index="d", columns="name", values="value"
    )
    d = at.index.max()
    return tr(
        "At |q + k|² = {at:g} and d = {d} orthogonal frequencies leave {orthogonal:.0%} of the "
        "error of independent ones, simplex ones {simplex:.0%}.",
        at=AT,
        d=d,
        orthogonal=at.orthogonal[d],
        simplex=at.simplex[d],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean squared error over that of independent frequencies, m = 2d. Lines: closed form; "
        "markers: Monte Carlo, one standard error."
    )


def _coupling(spec: str) -> str:
    quoted = re.search("'(.*)'", spec)
    return quoted[1] if quoted else spec
