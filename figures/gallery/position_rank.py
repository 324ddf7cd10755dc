"""Rank of logits with positions at the input and at the logits, before and after exp."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.position_rank import D_H, D_P, HEADS, D, N, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Rank with positions at the input and at the logits"
ORDER = 390
WHERE = {"input": mark("at the input"), "logits": mark("at the logits")}
LOOKS = {
    ("input", "logits"): (mark("logits, positions at the input"), style.PALETTE[0], "-", "o"),
    ("logits", "logits"): (mark("logits, positions at the logits"), style.PALETTE[2], "-", "s"),
    ("input", "exp"): (mark("exp of logits, at the input"), style.PALETTE[0], "--", "^"),
    ("logits", "exp"): (mark("exp of logits, at the logits"), style.PALETTE[2], ":", "v"),
}


def draw(table: pd.DataFrame) -> Figure:
    """Draw rank against d_p for one head, and of the sum over heads against their number."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.3))
        left, right = figure.subplots(1, 2)
        ends: list[list[tuple[str, float, str]]] = [[], []]
        for (where, metric), (label, colour, line, marker) in LOOKS.items():
            part = table[(table["where"] == where) & (table.metric == metric)]
            left.plot(
                part.d_p, part.value, label=tr(label), color=colour, linestyle=line, marker=marker
            )
            ends[0].append((style.lines(tr(label), 18), float(part.value.iloc[-1]), colour))
        left.set(
            xlabel=tr("width $d_p$ of positions (head size {d_h})", d_h=D_H), ylabel=tr("rank")
        )
        left.set_title(tr("one head, n = {n}", n=N))
        for where, name in WHERE.items():
            _, colour, _, marker = LOOKS[where, "logits"]
            for metric, line, what in (
                ("sum", "-", tr("their sum")),
                ("largest_head", "--", tr("one head")),
            ):
                said = tr("{what}, {name}", what=what, name=tr(name))
                part = table[(table["where"] == where) & (table.metric == metric)]
                right.plot(
                    part.heads, part.value, color=colour, linestyle=line, marker=marker,
                    markerfacecolor="none" if line == "--" else colour,
                    label=said,
                )  # fmt: skip
                ends[1].append((style.lines(said, 18), float(part.value.iloc[-1]), colour))
        right.set(xlabel=tr("heads"), title=tr("several heads, $d_p$ = {d_p}", d_p=D_P))
        right.set_xticks(HEADS)
        for ax in (left, right):
            ax.set_ylim(0, N + 2)
        for ax, some in zip((left, right), ends):
            style.direct(ax, some, apart=0.12)
    return figure


def finding(table: pd.DataFrame) -> str:
    one = table[table.metric.isin(["logits", "exp"])]
    at = one.set_index(["where", "metric", "d_p"]).value.sort_index()
    return tr(
        "Positions at the input leave logits of rank {first:g}, at the logits {last:g} (d_p = "
        "{d_p}); after exp no rank is below {after:g} of {n}.",
        first=at["input", "logits"].max(),
        last=at["logits", "logits", D_P],
        d_p=D_P,
        after=one.value[one.metric == "exp"].min(),
        n=N,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Numerical ranks of Gaussian inputs, d = {d}, head size {d_h}. Right: sums over heads.",
        d=D,
        d_h=D_H,
    )
