"""The ε-rank of exp(q·k), and the rank that the best polynomial promises."""

import dataclasses

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks.rank import exact_singular_values
from analysis.sweeps.table import Row
from approx.estimate import exact
from approx.polynomials.error_bounds import epsilon_rank_bound

COLUMNS = ("input", "n", "l", "d", "temperature", "method", "value")
EPSILON = 1e-2
COUNT = 256
TEMPERATURES = tuple((2.0 ** np.arange(-2, 11)).tolist())


def _ranks(inputs: Head, t: float) -> list[Row]:
    x = inputs.at_temperature(t)
    s = exact_singular_values(x)
    logits = np.asarray(exact.logits(x.Q, x.K), np.float64)
    head = (x.name, x.n, x.l, x.d, t)
    # s is over the largest entry, the bound over e^B, which may underflow
    largest = max(s[0] * np.exp(logits.max() - np.abs(logits).max()), np.nextafter(0.0, 1.0))
    bound = epsilon_rank_bound("minimax", logits, x.d, EPSILON, largest=float(largest))
    rank = float(np.sum(s > EPSILON * s[0]))
    return [(*head, "exact", rank), (*head, "minimax", float(bound))]


def compute(profile: Profile) -> pd.DataFrame:
    """Return ε-ranks of exp(q·k), beside their bounds by the best polynomial.

    They are of all queries and keys, whatever the mask: what a polynomial promises are factors, and
    a mask takes the rank of their product away.
    """
    count = min(COUNT, max(x.n for x in profile.inputs))
    small = data.gaussian(count, 4, rng=profile.seed)
    own = (x.first(count) for x in profile.inputs if x.name != small.name)
    heads = [small, *(dataclasses.replace(x, mask=None) for x in own)]
    tasks = [(x, t) for x in heads for t in TEMPERATURES]
    return profile.study(_ranks, tasks, "ranks", COLUMNS)
