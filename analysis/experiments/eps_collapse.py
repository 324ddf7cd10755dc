"""The eps of public Performers: where it makes attention uniform."""

import math

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.advice.pitfalls import concentration, with_eps
from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row, numbers
from approx import Approximation
from approx.estimate import exact
from approx.random_features.positive import Positive

COLUMNS = ("input", "n", "l", "d", "temperature", "eps", "method", "metric", "value", "stderr")
D, COUNT, M = 16, 256, 128
TEMPERATURES = tuple((2.0 ** np.arange(-4, 3.25, 0.5)).tolist())
SIZES = (0.0, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def _rows(inputs: Head, t: float, trials: int, seed: int) -> list[Row]:
    x = inputs.at_temperature(t)
    Q, K, method = x.Q, x.K, Positive(M)
    head = (x.name, x.n, x.l, x.d, t)
    truth = Approximation.from_factors(exact.softmax(Q, K), np.eye(x.l))
    true = concentration(truth)
    rows = numbers((*head, 0.0, "exact"), concentration=true)
    seeds = [seed_sequence(seed, x.digest(), trial) for trial in range(trials)]
    for eps in SIZES:
        # the same draws for every eps, and for the honest estimator
        values = np.array(
            [
                concentration(
                    with_eps(method, Q, K, eps=eps, rng=np.random.default_rng(s))
                    if eps > 0
                    else method.approximate(Q, K, rng=np.random.default_rng(s))
                )
                for s in seeds
            ]
        )
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else np.nan
        mean = float(values.mean())
        place = (*head, eps, str(method))
        rows += numbers(place, concentration=(mean, error), ratio=(mean / true, error / true))
    half = float(np.square(np.concatenate([x.q, x.k])).sum(axis=1).mean()) / (2 * math.sqrt(x.d))
    return rows + numbers((*head, math.exp(-half / t), str(method)), predicted=half)


def compute(profile: Profile) -> pd.DataFrame:
    """Return concentration, 1 − entropy/ln l of the rows, mean over rows and trials.

    Column eps: 0 is the honest estimator. Metrics: concentration; ratio, over that of exact
    attention; predicted, at the eps with mean |x|²/2 = ln(1/eps), the value being t·mean |x|²/2.
    """
    x = data.gaussian(COUNT, D, rng=profile.seed)
    trials = min(profile.trials, 5)
    tasks = [(x, t, trials, profile.seed) for t in TEMPERATURES]
    return profile.study(_rows, tasks, "eps", COLUMNS)
