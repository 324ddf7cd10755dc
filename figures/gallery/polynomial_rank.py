"""The ε-rank of exp(q·k) against temperature, and the rank that polynomials promise."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.polynomial_rank import EPSILON, compute as compute
from figures.drawing import looks, style
from figures.words.translation import share, tr

TITLE = "Rank of polynomials, and of exp(q·k)"
ORDER = 340


def draw(table: pd.DataFrame) -> Figure:
    """Draw the ε-rank and its bound against temperature."""
    heads = _drawn(table)
    figure, axes = style.row(len(heads), 3.0, sharey=True)
    for ax, name in zip(axes, heads):
        part = table[table.input == name]
        for method, colour, marker, label in (
            ("minimax", looks.PALETTE[2], "s", tr("bound by the best polynomial")),
            ("exact", "black", ".", tr("rank that fits exp(q·k) within {e:.0%}", e=EPSILON)),
        ):
            line = part[part.method == method]
            ax.plot(line.temperature, line.value, color=colour, marker=marker, label=label)
        ax.set_xscale("log", base=2)
        ax.set(yscale="log", xlabel=tr("temperature"))
        ax.set_title(
            tr(
                "{name}\nfull rank {n}, width {d}",
                name=name,
                n=part.n.iloc[0],
                d=part.d.iloc[0],
            )
        )
    axes[0].set_ylabel(tr("rank"))
    style.legend(figure, axes)
    return figure


def _drawn(table: pd.DataFrame) -> list[str]:
    """Return the inputs that are drawn; the report has a table of all."""
    return table.input.unique().tolist()[:3]


def finding(table: pd.DataFrame) -> str:
    from_here = []
    bounds = table[(table.method == "minimax") & table.input.isin(_drawn(table))]
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
        "The ε-rank of exp(q·k) and its bound by the best polynomial against temperature, "
        "ε = {epsilon:g}.",
        epsilon=EPSILON,
    )
