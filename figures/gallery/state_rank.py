"""What a causal head's rank is: of the blocks of later queries and earlier keys."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.state_rank import EPSILON, WINDOW, compute as compute
from figures import style
from figures.language import mark, tr

TITLE = "Why the rank of a causal matrix is the wrong question"
LOOKS = {
    "eckart_young": (mark("rank m of the whole matrix (SVD)"), style.PALETTE[2], "--", "v"),
    "ungated": (mark("m features, best found"), style.PALETTE[1], "-", "s"),
    "recurrence": (mark("m states, best found"), style.PALETTE[0], "-", "o"),
    "lower_bound": (mark("lower bound for any m states"), "black", "-", ""),
    "lower_bound_beside_a_window": (
        mark("the same beside {width} exact keys"), "black", ":", "",
    ),
}  # fmt: skip
FLOOR = 1e-4


def draw(table: pd.DataFrame) -> Figure:
    """Draw one column per head: ranks before and after positions, errors against states."""
    groups = list(table.groupby(["input", "layer", "head"], sort=False))
    with style.style():
        figure = Figure(figsize=(7.0, 4.4))
        axes = figure.subplots(2, len(groups), sharey="row", squeeze=False)
        for (above, below), ((name, *_), part) in zip(axes.T, groups):
            ranks = part[part.metric == "epsilon_rank"]
            whole, blocks = ranks[ranks.position < 0].value.iloc[0], ranks[ranks.position > 0]
            above.axhline(whole, color=style.PALETTE[2], linestyle="--", label=tr("whole matrix"))
            above.plot(
                blocks.position, blocks.value, color=style.PALETTE[0],
                label=tr("later queries × earlier keys"),
            )  # fmt: skip
            above.set(title=name, yscale="log", xlabel=tr("position"))
            for metric, (label, colour, line, marker) in LOOKS.items():
                errors = part[part.metric == metric]
                below.plot(
                    errors.states, errors.value.clip(FLOOR), label=tr(label, width=WINDOW),
                    color=colour, linestyle=line, marker=marker, markersize=4,
                )  # fmt: skip
            below.set(xscale="log", yscale="log", xlabel=tr("m"))
            style.ticks(below, sorted(part.states[part.states > 0].unique()))
        axes[0, 0].set_ylabel(tr("{epsilon:g}-rank", epsilon=EPSILON))
        axes[1, 0].set_ylabel(tr("relative Frobenius error"))
        style.legend(figure, list(axes.flat), columns=2)
    return figure


def caption(table: pd.DataFrame) -> str:
    keys = ["input", "layer", "head"]
    ranks = table[table.metric == "epsilon_rank"]
    whole = ranks[ranks.position < 0].set_index(keys).value
    most = ranks[ranks.position > 0].groupby(keys, sort=False).value.max()
    errors = table[table.states > 0].pivot_table("value", [*keys, "states"], "metric")
    ratio = errors.recurrence / errors.lower_bound
    features = errors.ungated / errors.lower_bound
    m = int(table.states[table.states <= 16].max())
    at = errors[errors.index.get_level_values("states") == m].median()
    return tr(
        "Attention of causal heads ({names}), n = {n}. Above: singular values over {epsilon:g} of "
        "the largest, of the whole triangular matrix (median {whole:.0f}) and of the blocks of "
        "queries after a position and keys before it (at most {most:.0f}, median over heads). Only "
        "what passes through such a block must fit into a recurrence's state. Below, medians at "
        "m = {m}: error {eckart:.2g} of rank m, at least {bound:.2g} with m states of any linear "
        "attention or state-space model. Fitted to each head with hindsight, a recurrence "
        "comes within {least:.2g} to {largest:.2g} times the bound, and linear attention without "
        "gates within {features:.2g} to {most_features:.2g}.",
        names=tr(", ").join(dict.fromkeys(whole.index.get_level_values("input"))),
        n=int(table.n.max()),
        epsilon=EPSILON,
        whole=whole.median(),
        most=most.median(),
        m=m,
        eckart=at["eckart_young"],
        bound=at["lower_bound"],
        least=ratio.min(),
        largest=ratio.max(),
        features=features.min(),
        most_features=features.max(),
    )
