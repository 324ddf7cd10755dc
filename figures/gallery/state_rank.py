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
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Why the rank of a causal matrix is the wrong question"
ORDER = 430
COLUMNS = ("input", "layer", "head", "n", "metric", "position", "states", "value")
ROWS = {"quick": 96, "default": 256}
STATES = {"quick": (4, 16), "default": (4, 8, 16, 32)}
POSITIONS = {"quick": 12, "default": 32}
MOST_HEADS = 4
EPSILON = 1e-2
WINDOW = 32  # of the bound for models that have exact attention near by as well
LOOKS = {
    "eckart_young": (mark("rank m of the whole matrix (SVD)"), style.PALETTE[2], "--", "v"),
    "ungated": (mark("m features, best found"), style.PALETTE[1], "-", "s"),
    "recurrence": (mark("m states, best found"), style.PALETTE[0], "-", "o"),
    "lower_bound": (mark("lower bound for any m states"), "black", "-", ""),
    "lower_bound_beside_a_window": (
        mark("the same beside {width} exact keys"), "black", ":", "",
    ),
}  # fmt: skip
BOUNDS = "eckart_young", "lower_bound", "lower_bound_beside_a_window"
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
    whole = rank.summary(P, epsilon=EPSILON)
    add("epsilon_rank", whole["epsilon_rank"])
    add("numerical_rank", whole["numerical_rank"])
    bounds = state_rank.lower_bound(P, states, mask=x.mask, partition="best")
    hybrid = state_rank.lower_bound(P, states, mask=x.mask, window=WINDOW, partition="best")
    s = rank.singular_values(P)
    ordered = -np.sort(-P, axis=1)
    for m, bound, beside in zip(states, bounds, hybrid):
        add("lower_bound", bound, m=m)
        add("lower_bound_beside_a_window", beside, m=m)
        add("recurrence", recurrence(P, m).error, m=m)
        add("ungated", ungated(P, m, sweeps=20), m=m)
        add("eckart_young", np.sqrt(np.square(s[m:]).sum() / np.square(s).sum()), m=m)
        add("largest_entries", np.linalg.norm(ordered[:, m:]) / np.linalg.norm(P), m=m)
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
    """Draw the ranks of every head against position, and the median errors against states."""
    groups = list(table.groupby(KEYS, sort=False))
    with style.style():
        figure = Figure(figsize=(7.0, 3.3))
        left, right = figure.subplots(1, 2)
        names: list[tuple[str, float, Any]] = []
        for (head, part), colour in zip(groups, style.PALETTE * len(groups)):
            ranks = part[part.metric == "epsilon_rank"]
            whole, blocks = ranks[ranks.position < 0].value.iloc[0], ranks[ranks.position > 0]
            left.axhline(whole, color=colour, linestyle="--", linewidth=1)
            names.append((_name(head, groups), float(whole), colour))
            left.plot(blocks.position, blocks.value, color=colour)
        left.set(yscale="log", xlabel=tr("position"))
        style.direct(left, names)
        left.set_ylabel(tr("{epsilon:g}-rank", epsilon=EPSILON))
        lines = tr("dashed: whole matrix\nsolid: later queries × earlier keys")
        left.set_title(lines, fontsize=style.SMALL)
        for metric, (label, colour, line, marker) in LOOKS.items():
            errors = table[table.metric == metric].groupby("states").value.median()
            look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4}
            pale = style.PALE if metric in BOUNDS else {}
            right.plot(
                errors.index, errors.clip(FLOOR), label=tr(label, width=WINDOW), **(look | pale)
            )
        right.set(xscale="log", yscale="log", xlabel=tr("states or features m"))
        right.set_ylabel(tr("relative Frobenius error"))
        right.set_title(tr("medians over heads"))
        style.ticks(right, sorted(table.states[table.states > 0].unique()))
        style.legend(figure, right, columns=2)
    return figure


def _name(head: tuple[Any, ...], groups: list[Any]) -> str:
    """Return the name of a head's input, with layer and head where several have it."""
    name, layer, number = head
    alone = sum(other[0] == name for other, _ in groups) == 1
    return str(name) if alone else f"{name} {layer}.{number}"


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
        "Left: singular values over {epsilon:g} of the largest. Right: errors against the number "
        "m of states; pale: bounds.",
        epsilon=EPSILON,
    )
