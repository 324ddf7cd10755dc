"""The smallest degree at which a polynomial of exp has an error ε on [−B, B]."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.minimum_degree import BOUNDS, EPSILONS, compute as compute
from approx.polynomials.monomials import width
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
D = 64


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


def details(table: pd.DataFrame) -> str:
    at = table.set_index(["method", "norm", "bound", "epsilon"]).value
    B, epsilon = max(BOUNDS), max(EPSILONS)
    relative = {m: at[m, "relative", B, epsilon] for m in LOOKS}
    scaled = at["minimax", "scaled", B, epsilon]
    growth = {
        norm: np.log2(at["minimax", norm, B, epsilon] / at["minimax", norm, B / 4, epsilon]) / 2
        for norm in NORMS
    }
    return tr(
        "Smallest degree with error ε = {fine:g} (solid) and {coarse:g} "
        "(dashed) on [−B, B]. The norm decides: at B = {b:g}, ε = {epsilon:g}, relative to "
        "each entry the best polynomial needs degree {minimax:.0f} (Chebyshev "
        "{chebyshev:.0f}, Taylor {taylor:.0f}, (1 + x/n)ⁿ {tensor_power:.0f}), relative to "
        "the largest entry {scaled:.0f}. From B/4 to B its degree grows like "
        "B^{relative:.2f} and B^{growth_scaled:.2f}. A degree n is a rank of C(d + n, n): at d "
        "= {d} and n = {scaled:.0f}, {width:.1e}.",
        fine=min(EPSILONS),
        coarse=max(EPSILONS),
        b=B,
        epsilon=epsilon,
        minimax=relative["minimax"],
        chebyshev=relative["chebyshev"],
        taylor=relative["taylor"],
        tensor_power=relative["tensor_power"],
        scaled=scaled,
        relative=growth["relative"],
        growth_scaled=growth["scaled"],
        d=D,
        width=float(width(D, int(scaled))),
    )
