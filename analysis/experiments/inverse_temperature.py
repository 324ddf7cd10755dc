"""Log variance against 1/t: closed form through what Monte Carlo can see."""

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.moments import monte_carlo
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import required

D, COUNT, M = 16, 8, 32
SPECS = (
    f"positive(m={M})", f"positive(m={M}, projection='orthogonal')", f"hyperbolic(m={M})",
    f"generalized_exponential(m={M})", f"trigonometric(m={M})",
)  # fmt: skip
LINE = tuple((1 / np.linspace(1 / 32, 1.25, 40)).tolist())
SAMPLED = (32.0, 16.0, 8.0, 4.0, 8 / 3, 2.0, 1.6, 1.0, 0.8)


def pair(x: Head) -> tuple[int, int]:
    """Return query and key of the median |q+k|²."""
    squares = np.square(x.Q[:, None] + x.K).sum(axis=2)
    place = np.argsort(squares, axis=None, kind="stable")[squares.size // 2]
    i, j = np.unravel_index(place, squares.shape)
    return int(i), int(j)


def _rows(inputs: Head, method: Method, at: tuple[int, int], draws: int, seed: int) -> list[Row]:
    spec, rows = str(method), list[Row]()
    price = required(method.price(n=inputs.n, l=inputs.l, d=inputs.d))
    for t in LINE:
        x = inputs.at_temperature(t)
        place = head(x, method, price.stored)
        known = required(method.moments(x.Q, x.K))
        z = np.square(x.Q[at[0]] + x.K[at[1]]).sum()
        variance = known.log_relative_variance[at]
        rows += numbers(place, log_relative_variance=variance, squared_sum=z)
    for t in SAMPLED:
        x = inputs.at_temperature(t)
        place = head(x, method, price.stored)
        rng = np.random.default_rng(seed_sequence(seed, x.digest(), spec, str(t)))
        sample = monte_carlo(method, x.Q, x.K, draws=draws, rng=rng)
        v, error = sample.variance[at], sample.variance_stderr[at]
        with np.errstate(divide="ignore"):
            low, high = np.log([max(v - 2 * error, 0.0), v + 2 * error])
        rows += numbers(
            place,
            sampled_log_variance=(np.log(v), error / v),
            sampled_low=low,
            sampled_high=high,
            believable=sample.believable[at],
        )
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ln(relative variance) of one pair of Gaussian inputs, in closed form and sampled.

    sampled_low and sampled_high are ln of the sample variance less and plus two standard errors;
    squared_sum is |q+k|².
    """
    x = data.gaussian(COUNT, D, rng=profile.seed)
    tasks = [(x, parse(s), pair(x), profile.draws, profile.seed) for s in SPECS]
    return profile.study(_rows, tasks, "temperatures")
