"""Attention error of every polynomial at equal width across temperatures."""

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.errors.metrics import compare
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import parse
from approx.estimate import exact

COLUMNS = (
    "input", "n", "l", "d", "temperature", "bound", "degree", "polynomial", "metric", "value",
)  # fmt: skip
D, COUNT = 8, 512
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)
DEGREES = tuple(range(1, 9))
METRICS = ("attention_tv", "negative_fraction", "nonpositive_rows")
TAYLOR, NARROW = "Taylor", "relative minimax on ±3σ"
SPECS = {  # {n} degree, {s} three standard deviations
    TAYLOR: "taylor({n})",
    "(1 + x/n)ⁿ": "tensor_power({n})",
    "Richardson of two powers": "richardson({half})",
    "Chebyshev truncation on ±max": "chebyshev({n})",
    "absolute minimax on ±max": "minimax({n}, weight='absolute')",
    "relative minimax on ±max": "minimax({n})",
    NARROW: "minimax({n}, bound={s!r})",
    "least squares, relative": "least_squares({n})",
    "least squares, absolute": "least_squares({n}, weight='absolute')",
}


def _study(inputs: Head, t: float) -> list[Row]:
    x = inputs.at_temperature(t)
    rows: list[Row] = []
    logits = np.asarray(exact.logits(x.Q, x.K), np.float64)
    bound, spread = float(np.abs(logits).max()), float(3 * logits.std())
    for name, spec in SPECS.items():
        for n in DEGREES:
            if name.startswith("Richardson") and n % 2:
                continue
            method = parse(spec.format(n=n, half=n // 2, s=spread))
            errors = compare(method.approximate(x.Q, x.K), x.Q, x.K)
            head = (x.name, x.n, x.l, x.d, t, bound, n, name)
            rows += [(*head, metric, float(errors[metric])) for metric in METRICS]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors and signs of the attention of every polynomial, on Gaussian inputs of d = 8."""
    count = min(COUNT, max(x.n for x in profile.inputs))
    x = data.gaussian(count, D, rng=profile.seed)
    tasks = [(x, t) for t in TEMPERATURES]
    return profile.study(_study, tasks, "errors", COLUMNS)
