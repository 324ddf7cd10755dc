"""Sketches of exp and of its tensor power beside positive features: error against width and t."""

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.compute.seeds import seed_sequence
from analysis.errors.metrics import compare
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.moments import expected_error, monte_carlo
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import required
from approx.estimate import exact

D, COUNT, M, TEMPERATURE, DEGREE = 16, 64, 256, 1.0, 4
SIZES = (32, 64, 128, 256, 512, 1024)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
POSITIVE = "positive"
FAMILIES = (
    POSITIVE,
    "random_maclaurin",
    "random_maclaurin(law='poisson', exact=2)",
    f"product_sketch(degree={DEGREE})",
    f"tensor_sketch(degree={DEGREE})",
    f"squared_sketch(degree={DEGREE})",
)
LIMIT = f"tensor_power(n={DEGREE})"  # of the sketches, as m grows
TAYLOR = "taylor(degree=2)"  # C(18, 2) = 153 columns
BASELINES = (LIMIT, TAYLOR, "uniform()")
MOST_DRAWS = 200  # draws of a cell
KERNEL, TV = "kernel_relative_frobenius", "attention_tv"
EXPECTED = "expected_kernel_error"


def _rows(x: Head, method: Method, m: int, draws: int, count: int, seed: int) -> list[Row]:
    Q, K, spec = x.Q, x.K, str(method)
    place = head(x, method, 2.0 * m)
    expected = required(expected_error(method, Q, K))
    rows = numbers(place, **{EXPECTED: expected})
    if not method.uses_rng:
        error = compare(method.approximate(Q, K), Q, K)
        return rows + numbers(place, **{name: error[name] for name in (KERNEL, TV)})
    errors = [
        compare(method.approximate(Q, K, rng=stream), Q, K)
        for _, stream in trials(method, x, count, seed)
    ]
    for name in (TV, "negative_fraction", "nonpositive_rows"):
        values = np.array([error[name] for error in errors])
        stderr = float(values.std(ddof=1) / np.sqrt(len(values)))
        rows += numbers(place, **{name: (values.mean(), stderr)})
    rng = np.random.default_rng(seed_sequence(seed, x.digest(), spec, "moments"))
    sample = monte_carlo(method, Q, K, draws=draws, rng=rng)
    weight = np.square(exact.kernel(Q, K))
    square = sample.variance * (1 - 1 / draws) + np.square(sample.mean - 1)
    measured = float(np.sqrt(np.sum(weight * square) / weight.sum()))
    return rows + numbers(place, **{KERNEL: measured}, believable=sample.believable.mean())


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at equal width (budget/2 columns), of Gaussian inputs; −2 where it has none.

    expected_kernel_error: √(E‖estimate − exact‖²_F)/‖exact‖_F in closed form;
    kernel_relative_frobenius: the same from draws; believable: share of entries whose sample
    variance may be believed (`analysis.moments.MonteCarlo`); attention_tv, negative_fraction,
    nonpositive_rows: means over trials.
    """
    n = 24 if profile.grid == "quick" else COUNT
    raw = data.gaussian(n, D, rng=profile.seed)
    cells = [(TEMPERATURE, m) for m in SIZES] + [(t, M) for t in TEMPERATURES if t != TEMPERATURE]
    draws, count = min(profile.draws, MOST_DRAWS), max(2, profile.trials)
    tasks = []
    for t, m in cells:
        x = raw.at_temperature(t)
        for family in FAMILIES:
            method = required(parse(family).within(2 * m, n=n, l=n, d=D))
            tasks.append((x, method, m, draws, count, profile.seed))
    for t in TEMPERATURES:
        x = raw.at_temperature(t)
        tasks += [(x, parse(spec), -1, draws, count, profile.seed) for spec in BASELINES]
    return profile.study(_rows, tasks, "sketches")
