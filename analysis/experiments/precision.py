"""Rounding error against approximation error: float32 arithmetic, bfloat16 inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.compute.seeds import seed_sequence
from analysis.costs import budget
from analysis.experiments.profile import Profile
from analysis.experiments.rounded_inputs import FORMATS, precision
from analysis.inputs import Head
from analysis.sweeps.table import Row, head
from approx import Method, parse

TEMPLATES = (
    "uniform()", "positive()", "trigonometric()", "top_k()",
    "scatterbrain(low_rank=positive(), sparse=top_k())", "truncated_svd()", "nystrom()",
)  # fmt: skip
PRICED = ("taylor(degree=4)", "tensor_power(n=4)")  # at their own width: nothing fits the budget
EXACT = "exact attention"
COUNT = 256


def _rows(
    x: Head, method: Method, price: float, temperatures: tuple[float, ...], trials: int, seed: int
) -> list[Row]:
    rows, stream = list[Row](), seed_sequence(seed, x.digest(), str(method))
    for t in temperatures:
        at = x.at_temperature(t)
        for trial, child in enumerate(np.random.default_rng(stream).spawn(trials)):
            errors = {form: precision(method, at, form, rng=child) for form in FORMATS}
            place = head(at, method, price, trial)
            rows.append((*place, "approximation", errors["float32"].approximation, np.nan))
            rows += [(*place, form, part.rounding, np.nan) for form, part in errors.items()]
            if str(method) == "uniform()":
                rows += [
                    (*head(at, EXACT), form, part.floor, np.nan) for form, part in errors.items()
                ]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return, relative to exact outputs in float64: approximation error, and rounding in a format.

    Of the first 256 queries and keys of the profile's inputs. Exact attention in a format has rows
    of its own.
    """
    tasks = []
    for x in [x.first(COUNT) for x in profile.inputs]:
        methods = budget.match(map(parse, TEMPLATES), profile.budget, x, profile.currency).fitting
        for method in [*methods, *map(parse, PRICED)]:
            price = method.price(n=x.n, l=x.l, d=x.d, mask=x.mask)
            paid = -1.0 if price is None else price.stored
            trials = profile.trials if method.uses_rng else 1
            tasks.append((x, method, paid, profile.temperatures, trials, profile.seed))
    return profile.study(_rows, tasks, "precision")
