"""Attention rows and their estimates at equal budget, as pictures: a panel a temperature."""

import numpy as np
import pandas as pd

from analysis.costs.budget import match
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.sweeps.table import Row, with_currency
from approx import parse
from approx.checks import Array
from approx.estimate import exact

SIDE = 64  # pixels a picture is wide and high, at most
EXACT, WEIGHTS = "exact", "weights"
SPECS = {
    "positive": "Performer",
    "top_k": "top-k",
    "scatterbrain(low_rank=positive(), sparse=top_k())": "Scatterbrain",
    "truncated_svd(space='attention')": "truncated SVD",
    "uniform": "uniform",
}
ERRORS = ("attention_tv", "attention_relative_frobenius")
PIXELS = tuple(f"pixel_{place}" for place in range(SIDE))
COLUMNS = (
    "input", "n", "l", "temperature", "name", "method", "budget", "metric", "query", "value",
    *PIXELS,
)  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors, and a row of pixels a query: its weight on each group of neighbouring keys.

    A picture has at most `SIDE` queries, evenly spaced, and as many groups; pixels that a shorter
    sequence has no use for are NaN. A random method shows its first draw in a sweep.
    """
    heads = [x for x in profile.inputs if x.layer >= 0] or profile.inputs[-1:]
    shown = {x.name: x for x in (profile.inputs[0], heads[len(heads) // 2])}
    tasks = [
        (x.at_temperature(t), profile.budget, profile.currency, profile.seed)
        for x in shown.values()
        for t in profile.temperatures
    ]
    return with_currency(profile.study(_rows, tasks, "pictures", COLUMNS), profile.currency)


def _rows(x: Head, budget: float, currency: str, seed: int) -> list[Row]:
    groups = _groups(x.l)
    head = (x.name, x.n, x.l, x.temperature)
    rows = _picture((*head, EXACT, EXACT, -1.0), exact.attention(x.Q, x.K, groups, mask=x.mask))
    for spec, name in SPECS.items():
        for method in match([parse(spec)], budget, x, currency).fitting:
            about = (*head, name, str(method), budget)
            ((_, stream),) = trials(method, x, 1, seed)
            estimate = x.approximate(method, rng=stream)
            errors = x.compare(estimate)
            rows += [(*about, key, -1, errors[key], *[np.nan] * SIDE) for key in ERRORS]
            rows += _picture(about, estimate.attend(groups))
    return rows


def _groups(l: int) -> Array:
    """Return which of at most `SIDE` groups of neighbours each of l keys is in, (l, groups)."""
    group = np.arange(l) // -(-l // SIDE)
    return np.equal.outer(group, np.unique(group)).astype(float)


def _picture(about: Row, attention: Array) -> list[Row]:
    """Return the rows of a picture, to three digits: more than a colour shows."""
    unused = [np.nan] * (SIDE - attention.shape[1])
    return [
        (*about, WEIGHTS, query, np.nan, *(float(f"{w:.3g}") for w in attention[query]), *unused)
        for query in range(0, len(attention), -(-len(attention) // SIDE))
    ]
