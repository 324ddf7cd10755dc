"""Rank of logits with positions at the input and at the logits, before and after exp."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.ranks import position_rank
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Rank with positions at the input and at the logits"
ORDER = 390
COLUMNS = ("n", "d", "d_h", "d_p", "heads", "where", "metric", "value")
N, D, D_H, D_P = 32, 16, 4, 6  # the finding speaks of D_P
WIDTHS = (0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32)  # values of d_p
LOOKS = {
    "input": (mark("logits q·k, positions added to the input"), looks.PALETTE[0], "-", "o"),
    "logits": (mark("logits q·k, positions added to the logits"), looks.PALETTE[2], "-", "s"),
}


def _of_width(d_p: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed_sequence(seed, "position_rank", d_p))
    head = position_rank.generic(N, D, D_H, d_p, rng=rng)
    rows: list[Row] = []
    for where, logits in (("input", head.at_input()), ("logits", head.at_logits())):
        place = (N, D, D_H, d_p, 1, where)
        ranks = position_rank.ranks(logits)
        rows += [(*place, name, float(ranks[name])) for name in ("logits", "exp")]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ranks against the width d_p of positions."""
    return profile.study(_of_width, [(d_p, profile.seed) for d_p in WIDTHS], "widths", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw rank against d_p for one head, before and after exp."""
    figure, (ax,) = style.row(1, 3.6)
    exp = table[table.metric == "exp"].groupby("d_p").value.min()
    ax.plot(exp, color="0.4", linestyle="--", label=tr("exp(q·k), either way"))
    for where, (label, colour, line, marker) in LOOKS.items():
        part = table[(table["where"] == where) & (table.metric == "logits")]
        ax.plot(part.d_p, part.value, color=colour, ls=line, marker=marker, label=tr(label))
    ax.set(xlabel=tr("width of the position encodings"), ylim=(0, N + 2))
    ax.set_ylabel(tr("rank of the {n} × {n} matrix", n=N))
    style.legend(figure, ax, columns=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    at = table.set_index(["where", "metric", "d_p"]).value.sort_index()
    return tr(
        "Positions at the input leave logits of rank {first:g}, at the logits {last:g} (d_p = "
        "{d_p}); after exp no rank is below {after:g} of {n}.",
        first=at["input", "logits"].max(),
        last=at["logits", "logits", D_P],
        d_p=D_P,
        after=table.value[table.metric == "exp"].min(),
        n=N,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Numerical ranks of Gaussian inputs, d = {d}, head size {d_h}, one head.",
        d=D,
        d_h=D_H,
    )
