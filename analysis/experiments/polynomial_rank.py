"""The rank of polynomial kernels, and the ε-rank of exp(q·k) that polynomials promise."""

import dataclasses

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks import modular
from analysis.ranks.rank import exact_singular_values, summary
from analysis.sweeps.table import Row
from approx.estimate import exact
from approx.polynomials.error_bounds import epsilon_rank_bound
from approx.polynomials.taylor import Taylor

COLUMNS = ("input", "n", "l", "d", "temperature", "degree", "method", "metric", "value")
EPSILON = 1e-2
COUNT = 256
GENERIC = ((4, 6), (8, 4))  # d, highest degree
TEMPERATURES = tuple((2.0 ** np.arange(-2, 11)).tolist())
BOUNDS = ("taylor", "chebyshev", "minimax")


def _generic(d: int, degree: int, n: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    for name, sphere in (("generic points", False), ("sphere", True)):
        x = (data.sphere if sphere else data.gaussian)(n, d, rng=seed).at_temperature(0.5)
        estimate = Taylor(degree).approximate(x.Q, x.K)
        Q, K = (modular.points(n, d, sphere=sphere, rng=seed + i) for i in range(2))
        ranks = {
            "predicted": Taylor(degree).polynomial().rank(n, n, d, sphere=sphere),
            "numerical": summary(estimate.to_dense())["numerical_rank"],
            "modular": modular.modular_rank(modular.taylor_kernel(degree, Q, K)),
        }
        head = (name, n, n, d, 0.5, degree, "taylor")
        rows += [(*head, metric, float(value)) for metric, value in ranks.items()]
    return rows


def _real(inputs: Head, t: float) -> list[Row]:
    x = inputs.at_temperature(t)
    s = exact_singular_values(x)
    logits = np.asarray(exact.logits(x.Q, x.K), np.float64)
    head = (x.name, x.n, x.l, x.d, t, -1)
    rows: list[Row] = [(*head, "exact", "epsilon_rank", float(np.sum(s > EPSILON * s[0])))]
    # s is over the largest entry, the bound over e^B
    largest = s[0] * np.exp(logits.max() - np.abs(logits).max())
    for method in BOUNDS:
        bound = epsilon_rank_bound(method, logits, x.d, EPSILON, largest=float(largest))
        rows.append((*head, method, "rank_bound", float(bound)))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ranks of Taylor kernels three ways, and ε-ranks of exp(q·k) beside their bounds.

    They are of all queries and keys, whatever the mask: what a polynomial promises are factors, and
    a mask takes the rank of their product away.
    """
    count = min(COUNT, max(x.n for x in profile.inputs))
    small = data.gaussian(count, 4, rng=profile.seed)
    own = (x.first(count) for x in profile.inputs if x.name != small.name)
    heads = [small, *(dataclasses.replace(x, mask=None) for x in own)]
    degrees = [(d, n, count, profile.seed) for d, most in GENERIC for n in range(1, most + 1)]
    tasks = [(x, t) for x in heads for t in TEMPERATURES]
    generic = profile.study(_generic, degrees, "ranks", COLUMNS)
    real = profile.study(_real, tasks, "ranks", COLUMNS)
    return pd.concat([generic, real], ignore_index=True)
