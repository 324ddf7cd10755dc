"""Orthogonal features from a raw QR decomposition: a bias that depends on the direction."""

import math

import numpy as np
import pandas as pd

from analysis.advice.pitfalls import RawQR
from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.moments import monte_carlo
from analysis.sweeps.table import Row
from approx.checks import Array
from approx.projections import Orthogonal, Projection
from approx.random_features.positive import Positive

COLUMNS = ("d", "m", "norm", "direction", "projection", "metric", "value", "stderr")
WIDTHS = (2, 4, 8, 16, 32, 64)
NORMS = (1.0, 2.0)
M = 64
PROJECTIONS: dict[str, Projection] = {"raw QR": RawQR(), "Haar": Orthogonal()}
DIRECTIONS = ("e₁", "1/√d", "−1/√d", "random")


def directions(d: int, seed: int) -> Array:
    """Return e₁, 1/√d·(1, …, 1), its negative, and a random one, as rows of length 1."""
    ones = np.full(d, 1 / math.sqrt(d))
    g = np.random.default_rng(seed_sequence(seed, "direction", d)).standard_normal(d)
    return np.stack([np.eye(d)[0], ones, -ones, g / np.linalg.norm(g)])


def _rows(d: int, projection: str, draws: int, seed: int) -> list[Row]:
    K = np.concatenate([norm * directions(d, seed) for norm in NORMS])
    rng = np.random.default_rng(seed_sequence(seed, d, projection))
    method = Positive(M, PROJECTIONS[projection])
    sample = monte_carlo(method, np.zeros((1, d)), K, draws=draws, rng=rng)
    names = [(norm, name) for norm in NORMS for name in DIRECTIONS]
    return [
        (d, M, norm, name, projection, "mean_ratio", value, error)
        for (norm, name), value, error in zip(names, sample.mean[0], sample.mean_stderr[0])
    ]


def compute(profile: Profile) -> pd.DataFrame:
    """Return mean_ratio, the mean of estimate/exact by Monte Carlo, with its standard error.

    Columns: norm |q+k| and direction of q + k; projection: raw QR, or Haar, whose standard error is
    the closed form. A draw is m/d blocks of d rows, as many features at every d.
    """
    tasks = [(d, name, profile.draws, profile.seed) for name in PROJECTIONS for d in WIDTHS]
    return profile.study(_rows, tasks, "blocks", COLUMNS)
