"""Ranks of causal heads before and after each position, and how near m states can come."""

from typing import Any

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks import rank, state_rank
from analysis.ranks.recurrence import recurrence, ungated
from analysis.sweeps.table import Row
from approx.estimate import exact

COLUMNS = ("input", "layer", "head", "n", "metric", "position", "states", "value")
ROWS = {"quick": 96, "default": 256}
STATES = {"quick": (4, 16), "default": (4, 8, 16, 32)}
POSITIONS = {"quick": 12, "default": 32}
MOST_HEADS = 4
EPSILON = 1e-2
WINDOW = 32  # of the bound for models that have exact attention near by as well


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
