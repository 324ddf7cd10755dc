"""Mean log variance of every family of random features against the norm of the inputs."""

import dataclasses
import math

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import parse
from approx.checks import Array, required

COLUMNS = ("input", "n", "l", "d", "norm", "method", "metric", "value")
D, COUNT, M = 16, 48, 64
NORMS = tuple(np.geomspace(0.25, 4.0, 17).tolist())
OFFSET = 0.5  # of the mean of the third input, in each coordinate
FAMILIES = (
    "trigonometric", "random_phase", "positive", "hyperbolic", "generalized_exponential",
    "shifted_positive(a=None)", "dense_exponential", "poisson", "geometric", "angular_hybrid",
)  # fmt: skip


def kinds(seed: int) -> list[Head]:
    """Return Gaussian inputs, inputs on a sphere, and clusters of unequal axes off the centre."""
    clustered = data.clustered(COUNT, D, rng=seed)
    axes = np.geomspace(2.0, 0.25, D)
    q, k = (x * axes + OFFSET for x in (clustered.q, clustered.k))
    uneven = dataclasses.replace(clustered, name="clustered, off centre", q=q, k=k)
    return [data.gaussian(COUNT, D, rng=seed), data.sphere(COUNT, D, rng=seed), uneven]


def scaled(x: Array, norm: float) -> Array:
    """Return x times what makes the root mean square of its rows' norms that norm."""
    return np.asarray(x * (norm / math.sqrt(np.square(x).sum(axis=1).mean())))


def _rows(x: Head, spec: str) -> list[Row]:
    method, rows = parse(spec), list[Row]()
    for norm in NORMS:
        known = required(method.moments(scaled(x.q, norm), scaled(x.k, norm)))
        value = float(known.log_relative_variance.mean())
        rows.append((x.name, x.n, x.l, x.d, norm, str(method), "mean_log_relative_variance", value))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return mean_log_relative_variance over all pairs, in closed form.

    Column norm: the root mean square of |q|, and of |k|. Of the profile only the seed matters.
    """
    sized = [f"{f[:-1]}, m={M})" if f.endswith(")") else f"{f}(m={M})" for f in FAMILIES]
    tasks = [(x, spec) for x in kinds(profile.seed) for spec in sized]
    return profile.study(_rows, tasks, "families", COLUMNS)
