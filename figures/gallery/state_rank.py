"""What a causal head's rank is: of the blocks of later queries and earlier keys."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks import rank, state_rank
from analysis.ranks.recurrence import recurrence, ungated
from analysis.sweeps.table import Row
from approx.estimate import exact
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Why the rank of a causal matrix is the wrong question"
ORDER = 430
COLUMNS = ("input", "layer", "head", "n", "metric", "position", "states", "value")
ROWS = {"quick": 96, "default": 256}
STATES = {"quick": (4, 16), "default": (4, 8, 16, 32)}
POSITIONS = {"quick": 12, "default": 32}
MOST_HEADS = 4
EPSILON = 1e-2
LOOKS = {
    "eckart_young": (mark("whole matrix at rank m (SVD)"), looks.PALETTE[2], "--", "v"),
    "ungated": (mark("m features, best found"), looks.PALETTE[1], "-", "s"),
    "recurrence": (mark("m states, best found"), looks.PALETTE[0], "-", "o"),
    "lower_bound": (mark("lower bound for any m states"), "black", "-", ""),
}  # fmt: skip
FLOOR = 1e-4
KEYS = ["input", "layer", "head"]


def _rows(x: Head, states: tuple[int, ...], positions: int) -> list[Row]:
    P = exact.softmax(x.Q, x.K, x.mask)
    place = x.name, x.layer, x.head, x.n
    rows: list[Row] = []

    def add(metric: str, value: float | np.floating[Any], position: int = -1, m: int = -1) -> None:
        rows.append((*place, metric, position, m, float(value)))

    found = state_rank.profile(P, x.mask, epsilon=EPSILON, positions=positions)
    for position, count in zip(found.position, found.epsilon_rank):
        add("epsilon_rank", count, int(position))
    add("epsilon_rank", rank.summary(P, epsilon=EPSILON)["epsilon_rank"])
    bounds = state_rank.lower_bound(P, states, mask=x.mask, partition="best")
    s = rank.singular_values(P)
    for m, bound in zip(states, bounds):
        add("lower_bound", bound, m=m)
        add("recurrence", recurrence(P, m).error, m=m)
        add("ungated", ungated(P, m, sweeps=20), m=m)
        add("eckart_young", np.sqrt(np.square(s[m:]).sum() / np.square(s).sum()), m=m)
    return rows


def heads(profile: Profile) -> list[Head]:
    """Return the causal heads of a profile, or else those of the bundled language model."""
    own = [x for x in profile.inputs if x.n == x.l and str(x.mask) == "causal"]
    return (own or list(data.sample("smollm2").heads()))[:MOST_HEADS]


def compute(profile: Profile) -> pd.DataFrame:
    """Return the profile of ε-ranks, and errors against the number of states, of causal heads."""
    states, positions = STATES[profile.grid], POSITIONS[profile.grid]
    tasks = [(x.first(min(x.n, ROWS[profile.grid])), states, positions) for x in heads(profile)]
    return profile.study(_rows, tasks, "states", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw ranks against position and errors against states, medians over heads."""
    figure, (left, right) = style.row(2, 3.3)
    ranks = table[table.metric == "epsilon_rank"].groupby("position").value.median()
    look = {"color": looks.PALETTE[4]}
    left.axhline(ranks[-1], **look, linestyle="--", label=tr("rank of the whole matrix"))
    blocks = ranks.drop(-1)
    left.plot(blocks, **look, label=tr("rank of later queries × earlier keys"))
    left.set(xlabel=tr("position"), ylim=(0, None))
    left.set_ylabel(tr("singular values above {epsilon:.0%}", epsilon=EPSILON))
    for metric, (label, colour, line, marker) in LOOKS.items():
        errors = table[table.metric == metric].groupby("states").value.median().clip(FLOOR)
        right.plot(errors, color=colour, linestyle=line, marker=marker, label=tr(label))
    right.set(xscale="log", yscale="log", xlabel=tr("states or features m"))
    right.set_ylabel(tr("relative Frobenius error"))
    style.ticks(right, sorted(table.states[table.states > 0].unique()))
    style.legend(figure, [left, right], columns=2)
    return figure


def _ranks(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the ε-rank of each head's matrix, and the largest of its blocks."""
    ranks = table[table.metric == "epsilon_rank"]
    whole = ranks[ranks.position < 0].set_index(KEYS).value
    return whole, ranks[ranks.position > 0].groupby(KEYS, sort=False).value.max()


def finding(table: pd.DataFrame) -> str:
    whole, most = _ranks(table)
    return tr(
        "A causal matrix of ε-rank {whole:.0f} needs only {most:.0f} states in a recurrence "
        "(medians).",
        whole=whole.median(),
        most=most.median(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Medians over heads. Left: ε-rank, singular values above {epsilon:.0%} of the largest. "
        "Right: errors of the attention matrix.",
        epsilon=EPSILON,
    )
