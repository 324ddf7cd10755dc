"""Rank of logits with positions at the input and at the logits, before and after exp."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.ranks import position_rank
from analysis.sweeps.table import Row
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Rank with positions at the input and at the logits"
ORDER = 390
COLUMNS = ("n", "d", "d_h", "d_p", "heads", "where", "metric", "value")
N, D, D_H, D_P = 32, 16, 4, 6
WIDTHS = (0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32)  # d_p
HEADS = (1, 2, 3, 4, 6, 8)
WHERE = {"input": mark("at the input"), "logits": mark("at the logits")}
LOOKS = {
    ("input", "logits"): (mark("logits, positions at the input"), style.PALETTE[0], "-", "o"),
    ("logits", "logits"): (mark("logits, positions at the logits"), style.PALETTE[2], "-", "s"),
    ("input", "exp"): (mark("exp of logits, at the input"), style.PALETTE[0], "--", "^"),
    ("logits", "exp"): (mark("exp of logits, at the logits"), style.PALETTE[2], ":", "v"),
}


def _of_width(d_p: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed_sequence(seed, "position_rank", d_p))
    head = position_rank.generic(N, D, D_H, d_p, rng=rng)
    rows: list[Row] = []
    for where, logits in (("input", head.at_input()), ("logits", head.at_logits())):
        place = (N, D, D_H, d_p, 1, where)
        rows += [(*place, name, float(rank)) for name, rank in position_rank.ranks(logits).items()]
    built = position_rank.construction(N, D, D_H, d_p)
    built_rank = position_rank.ranks(built.at_logits())["logits"]
    bound = min(D_H + d_p, N)
    place = (N, D, D_H, d_p, 1, "logits")
    return [*rows, (*place, "construction", float(built_rank)), (*place, "bound", float(bound))]


def _of_heads(heads: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed_sequence(seed, "position_rank", "heads", heads))
    head = position_rank.generic(N, D, D_H, D_P, rng=rng, heads=heads)
    rows: list[Row] = []
    for where, logits in (("input", head.at_input()), ("logits", head.at_logits())):
        each = [position_rank.ranks(head)["logits"] for head in logits]
        place = (N, D, D_H, D_P, heads, where)
        rows.append((*place, "sum", float(position_rank.ranks(logits.sum(axis=0))["logits"])))
        rows.append((*place, "largest_head", float(max(each))))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ranks against the width d_p of positions, and against the number of heads."""
    widths = [(d_p, profile.seed) for d_p in WIDTHS]
    heads = [(count, profile.seed) for count in HEADS]
    by_width = profile.study(_of_width, widths, "widths", COLUMNS)
    by_heads = profile.study(_of_heads, heads, "heads", COLUMNS)
    return pd.concat([by_width, by_heads], ignore_index=True)


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
