"""The smallest degree at which a polynomial of exp has an error ε on [−B, B]."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.minimum_degree import BOUNDS, EPSILONS, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "The degree an error asks for"
ORDER = 320
NORMS = {"relative": "|p − exp|/exp", "scaled": "|p − exp|/max exp"}
LOOKS = {
    "taylor": ("Taylor", style.PALETTE[1], "p"),
    "tensor_power": ("(1 + x/n)ⁿ", style.PALETTE[3], "h"),
    "chebyshev": (mark("Chebyshev truncation"), style.PALETTE[0], "o"),
    "minimax": (mark("minimax of that norm"), style.PALETTE[2], "s"),
}


def draw(table: pd.DataFrame) -> Figure:
    """Draw degree against B, a panel a norm; the looser ε dashed."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.4))
        axes = figure.subplots(1, 2)
        for ax, (norm, label) in zip(axes, NORMS.items()):
            for (method, epsilon), part in table[table.norm == norm].groupby(["method", "epsilon"]):
                name, colour, marker = LOOKS[str(method)]
                ax.plot(
                    part.bound, part.value, color=colour, marker=marker,
                    markersize=6 if method == "chebyshev" else 4,
                    linestyle=_dash(epsilon), label=tr(name) if epsilon == min(EPSILONS) else None,
                )  # fmt: skip
            ax.set(xscale="log", yscale="log", xlabel=tr("B, the largest |logit|"), title=label)
            style.ticks(ax, BOUNDS)
        for epsilon in sorted(EPSILONS):
            axes[0].plot(
                [], [], color="0.3", linestyle=_dash(epsilon),
                label=tr("error ε = {epsilon:g}", epsilon=epsilon),
            )  # fmt: skip
        axes[0].set_ylabel(tr("smallest degree"))
        axes[1].set(yticks=(3, 5, 10, 20, 33), yticklabels=("3", "5", "10", "20", "33"))
        style.legend(figure, list(axes), columns=3)
    return figure


def _dash(epsilon: object) -> str:
    return "-" if epsilon == min(EPSILONS) else "--"


def finding(table: pd.DataFrame) -> str:
    at = table.set_index(["method", "norm", "bound", "epsilon"]).value
    B, epsilon = max(BOUNDS), max(EPSILONS)
    return tr(
        "On [−{b:g}, {b:g}] an error of {epsilon:g} asks for degree {relative:.0f} relative to "
        "each entry, {scaled:.0f} relative to the largest.",
        b=B,
        epsilon=epsilon,
        relative=at["minimax", "relative", B, epsilon],
        scaled=at["minimax", "scaled", B, epsilon],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Smallest degree with error {fine:g} (solid) and {coarse:g} (dashed) on [−B, B].",
        fine=min(EPSILONS),
        coarse=max(EPSILONS),
    )
