"""The rank of polynomial kernels, and the ε-rank of exp(q·k) that polynomials promise."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.polynomial_rank import EPSILON, compute as compute
from figures.drawing import style
from figures.words.translation import mark, share, tr

TITLE = "Rank of polynomials, and of exp(q·k)"
ORDER = 340
LOOKS = {
    "taylor": ("Taylor", style.PALETTE[1], "p"),
    "minimax": (mark("minimax"), style.PALETTE[2], "s"),
}


def _ranks(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.degree >= 0]


def draw(table: pd.DataFrame) -> Figure:
    """Draw ranks against degree, then ε-rank and bounds against temperature of three inputs."""
    heads = table[table.degree < 0].input.unique().tolist()[:3]
    with style.style():
        rows = 1 + len(heads) // 2
        figure = Figure(figsize=(7.0, 2.4 * rows + 0.6))
        axes = figure.subplots(rows, 2, squeeze=False).ravel()
        looks = {mark("generic points"): style.PALETTE[0], mark("sphere"): style.PALETTE[2]}
        ends: list[tuple[str, float, Any]] = []
        for (name, d), part in _ranks(table).groupby(["input", "d"]):
            wide = part.pivot(index="degree", columns="metric", values="value")
            color, dash = looks[str(name)], "-" if d == 4 else "--"
            axes[0].plot(wide.index, wide.predicted, color=color, linestyle=dash,
                         label="_")  # fmt: skip
            said = tr("{name}, d = {d}", name=tr(str(name)), d=d)
            ends.append((said, float(wide.predicted.iloc[-1]), color))
            axes[0].plot(wide.index, wide.numerical, "o", color=color, mfc="none", markersize=7,
                         label=tr("numerical rank"))  # fmt: skip
            axes[0].plot(wide.index, wide.modular, "x", color="black", label=tr("rank mod 2³¹ − 1"))
        axes[0].set(
            xlabel=tr("degree"),
            ylabel=tr("rank"),
            yscale="log",
            title=tr("Taylor kernels"),
        )
        axes[0].plot([], [], color="0.3", label=tr("formula"))
        style.direct(axes[0], ends, apart=0.1)
        axes[0].legend(*_once(axes[0]), loc="lower right", fontsize=style.SMALL)
        for ax, name in zip(axes[1:], heads):
            part = table[(table.input == name) & (table.degree < 0)]
            true = part[part.method == "exact"]
            ax.plot(true.temperature, true.value, color="black", marker=".",
                    label=tr("ε-rank of exp(q·k), ε = {epsilon:g}", epsilon=EPSILON))  # fmt: skip
            for method, (label, colour, marker) in LOOKS.items():
                line = part[part.method == method]
                ax.plot(line.temperature, line.value, color=colour, marker=marker, linestyle="--",
                        label=tr("bound by {label}", label=tr(label)))  # fmt: skip
            ax.set(xscale="log", yscale="log", xlabel=tr("temperature t"), ylabel=tr("rank"))
            ax.set_xscale("log", base=2)
            ax.set_title(f"{name}\nn = l = {true.n.iloc[0]}, d = {true.d.iloc[0]}")
        for ax in axes[1 + len(heads) :]:
            ax.set_visible(False)
        style.legend(figure, list(axes[1 : 1 + len(heads)]), columns=2)
    return figure


def _once(ax: Axes) -> tuple[list[Any], list[str]]:
    """Return the handles and names of a legend, each name once."""
    named = dict(zip(*reversed(ax.get_legend_handles_labels())))
    return list(named.values()), list(named)


def finding(table: pd.DataFrame) -> str:
    from_here = []
    bounds = table[table.method == "minimax"]
    for _, part in bounds.groupby("input", sort=False):
        bound = part.set_index("temperature").value.sort_index()
        useful = (bound < part.n.iloc[0])[::-1].cummin()
        from_here += [float(useful.index[useful].min())] if useful.any() else []
    return tr(
        "A polynomial bounds the rank of exp(q·k) below n on {share}, and there from t = {t} on at "
        "the earliest.",
        share=share(len(from_here), bounds.input.nunique()),
        t=f"{min(from_here):g}" if from_here else "∞",
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "First: ranks of Taylor kernels. Others: the ε-rank of exp(q·k) and its bound by "
        "polynomials, ε = {epsilon:g}.",
        epsilon=EPSILON,
    )
