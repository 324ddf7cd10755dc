"""Sines and cosines against positive features: the ratio of their mean squared errors."""

import math

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from analysis.experiments.profile import Profile
from analysis.sweeps.table import Row
from approx.checks import Array, required
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

COLUMNS = ("length", "angle", "columns", "metric", "value")
ANGLES = {"π/4": 0.25, "π/2": 0.5, "3π/4": 0.75, "0.9π": 0.9, "0.99π": 0.99}  # over π
QUOTED = (1.0, 2.0)
SLICES = (0.5, 1.0, 1.5, 2.0)


def log_ratio(length: float, angles: Array, columns: int = 1) -> Array:
    """Return log of the error of one frequency of sin/cos over that of some positive features.

    q = (|q|, 0), k = |q| (cos φ, sin φ).
    """
    Q = np.array([[length, 0.0]])
    K = length * np.column_stack([np.cos(angles), np.sin(angles)])
    waves, positive = (required(x.moments(Q, K)) for x in (Trigonometric(m=2), Positive(m=columns)))
    return np.asarray(waves.log_relative_variance[0] - positive.log_relative_variance[0])


def crossover(length: float, columns: int) -> float:
    """Return the angle below which sines and cosines have the smaller error."""
    return float(brentq(lambda a: log_ratio(length, np.array([a]), columns)[0], 0.1, 3.1))


def compute(profile: Profile) -> pd.DataFrame:
    """Return the ratio in closed form; the profile does not matter.

    Columns: length |q| = |k|, angle φ, columns of the positive features (1: as many
    frequencies; 2: as many columns as sin/cos). Metrics: map_log10 (log10 r on the grid), ratio
    (r along φ), quoted (r at the angles of the caption), crossover (an angle where r = 1).
    """
    rows: list[Row] = []
    across = np.linspace(-math.pi, math.pi, 160)  # even counts: neither |q| = 0 nor φ = 0: 0/0
    for length in np.linspace(-2.0, 2.0, 80):
        values = log_ratio(length, across) / math.log(10)
        rows += [(length, a, 1, "map_log10", v) for a, v in zip(across, values)]
    fine = np.linspace(-math.pi, math.pi, 360)
    for length in sorted({*np.linspace(0.1, 2.0, 39).round(9).tolist(), *SLICES}):
        rows += [(length, np.nan, c, "crossover", crossover(length, c)) for c in (1, 2)]
    for length in SLICES:
        ratio = np.exp(np.clip(log_ratio(length, fine), -690, 690))
        rows += [(length, a, 1, "ratio", v) for a, v in zip(fine, ratio)]
    places = math.pi * np.array(list(ANGLES.values()))
    for length in QUOTED:
        rows += [
            (length, a, 1, "quoted", v) for a, v in zip(places, np.exp(log_ratio(length, places)))
        ]
    return pd.DataFrame(rows, columns=list(COLUMNS))
