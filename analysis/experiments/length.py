"""Entropy, sparsity and the largest weight of softmax against length and temperature."""

import math

import numpy as np
import pandas as pd

from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.inputs.statistics import gaussian_entropy, gaussian_logits, weight_statistics
from analysis.sweeps.table import Row, numbers
from approx.textbook.attention import log_length_scale

COLUMNS = ("input", "n", "scale", "temperature", "metric", "value", "stderr")
GRIDS = {
    "quick": (128, 512, 2048),
    "default": (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
}
ROWS, BASE, COUNT = 64, 512, 256  # rows a length; n at which scales agree; queries of an input
SCALES = ("constant", "sqrt_log", "log")


def beta(scale: str, n: int) -> float:
    """Return the standard deviation of the logits at length n; 1 at n = 512.

    Examples
    --------
    >>> [round(beta(scale, 512**2), 3) for scale in SCALES]
    [1.0, 1.414, 2.0]
    """
    power = {"constant": 0.0, "sqrt_log": 0.5, "log": 1.0}[scale]
    return float(log_length_scale(n, 1, base=BASE) ** power)


def _at_length(n: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    for scale in SCALES:
        b = beta(scale, n)
        rng = np.random.default_rng(seed_sequence(seed, "length", n, scale))
        place = ("Gaussian logits", n, scale, math.nan)
        statistics = gaussian_logits(n, b, rows=ROWS, rng=rng)
        rows += numbers(place, **statistics, predicted_entropy=gaussian_entropy(n, b))
    return rows


def _at_temperature(x: Head, t: float) -> list[Row]:
    statistics = weight_statistics(x.at_temperature(t).logits())
    place = (x.name, x.n, "temperature", t)
    return numbers(place, **{name: values.mean() for name, values in statistics.items()})


def compute(profile: Profile) -> pd.DataFrame:
    """Return the statistics of Gaussian logits against n, and of the inputs against t."""
    grid = [(n, profile.seed) for n in GRIDS[profile.grid]]
    lengths = profile.study(_at_length, grid, "n", COLUMNS)
    inputs = [x.first(COUNT) for x in profile.inputs]
    tasks = [(x, t) for x in inputs for t in profile.temperatures]
    temperatures = profile.study(_at_temperature, tasks, "temperatures", COLUMNS)
    return pd.concat([lengths, temperatures], ignore_index=True)
