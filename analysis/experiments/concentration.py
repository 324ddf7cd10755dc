"""Error of random features against their number, where it concentrates and where it does not."""

import math

import numpy as np
import pandas as pd

from analysis.experiments.profile import Profile
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx.checks import Array, required
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

COLUMNS = ("family", "distance", "m", "metric", "value")
SUMS = (1.0, 2.0, 3.0, 4.0)  # |q + k| of positive features
DIFFERENCES = (1.0, 2.0, 3.0)  # |q − k| of sines and cosines
COUNTS = tuple(2**i for i in range(2, 14))
REPEATS = 256
DELTA = 0.1  # the probability with which an error may be above its bound


def terms(family: str, distance: float, count: int, seed: np.random.SeedSequence) -> Array:
    """Return the terms, one a frequency, whose mean is estimate/exp(q·k); their mean is 1.

    distance is |q + k| of ``positive``, with q = k, or |q − k| of ``trigonometric``, with q = −k.

    Shape: (count,).
    """
    q, k = _pair(family, distance)
    columns = count * (2 if family == "trigonometric" else 1)
    left, right = _method(family, columns).approximate(q, k, rng=seed).factors()
    share = left[0] * right[0] * (count / math.exp(float((q @ k.T)[0, 0])))
    return np.asarray(share.reshape(columns // count, count).sum(axis=0))


def _pair(family: str, distance: float) -> tuple[Array, Array]:
    q = np.array([[distance / 2]])
    return q, (q if family == "positive" else -q)


def _method(family: str, columns: int) -> Positive | Trigonometric:
    return Positive(m=columns) if family == "positive" else Trigonometric(m=columns)


def variance(family: str, distance: float) -> float:
    """Return the relative variance of one term: e^{s²} − 1 of s = |q + k|, cosh D² − 1."""
    q, k = _pair(family, distance)
    known = required(_method(family, 2 if family == "trigonometric" else 1).moments(q, k))
    return math.exp(float(known.log_relative_variance[0, 0]))


def bernstein(variance: float, largest: float, m: int, delta: float) -> float:
    """Return t with P(|mean − 1| ≥ t) ≤ δ, for m terms of mean 1 with |term − 1| ≤ largest.

    2 exp(−m t²/(2 variance + 2 largest t/3)) = δ. No such bound holds for terms without a largest.

    References
    ----------
    .. [1] S. Boucheron, G. Lugosi, P. Massart, "Concentration Inequalities", 2013, Eq. (2.10).
    """
    log = math.log(2 / delta)
    linear = largest * log / 3
    return (linear + math.sqrt(linear**2 + 2 * m * variance * log)) / m


def _errors(family: str, distance: float, seed: int) -> list[Row]:
    stream = seed_sequence(seed, "concentration", family, str(distance))
    x = terms(family, distance, REPEATS * COUNTS[-1], stream).reshape(REPEATS, -1)
    var, rows = variance(family, distance), list[Row]()
    for m in COUNTS:
        error = np.abs(x[:, :m].mean(axis=1) - 1)
        if family == "positive":
            values = {"median": float(np.median(error)), "deviation": math.sqrt(var / m)}
        else:
            largest = math.exp(distance**2 / 2) + 1  # |cos| ≤ 1 times e^{D²/2}
            values = {
                "quantile": float(np.quantile(error, 1 - DELTA)),
                "bernstein": bernstein(var, largest, m, DELTA),
            }
        rows += [(family, distance, m, metric, value) for metric, value in values.items()]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors of one entry over exp(q·k) against frequencies."""
    places = [*(("positive", s) for s in SUMS), *(("trigonometric", s) for s in DIFFERENCES)]
    return profile.study(_errors, [(*place, profile.seed) for place in places], "norms", COLUMNS)
