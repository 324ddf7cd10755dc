"""Expected Frobenius error, predicted in closed form, against the error of independent draws."""

import dataclasses
import math

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import SYNTHETIC, Profile
from analysis.inputs import Head
from analysis.moments.squared_errors import frobenius_error
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import Array, required
from approx.estimate import exact

COUNT, D, M, SIZE = 128, 64, 64, 16
TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
BELIEVED = 0.1  # bound on the *squared* relative standard error, as in analysis.moments
SHARE = 5  # draws of the profile for one of this figure


def _scatterbrain(sparse: str) -> str:
    return str(parse(f"scatterbrain(low_rank=positive(m={M}), sparse={sparse})"))


SPECS = (
    f"positive(m={M})",
    f"hyperbolic(m={M})",
    f"generalized_exponential(m={M})",
    _scatterbrain(f"sliding_window(width={SIZE})"),
    _scatterbrain(f"random(k={SIZE})"),
    _scatterbrain("lsh(hashes=4, rounds=2)"),
)


def heads(profile: Profile) -> list[Head]:
    """Return Gaussian inputs and a real head, the user's own if there is one: its first queries."""
    own = (x for x in profile.inputs if x.name not in SYNTHETIC)
    real = next(own) if profile.synthetic else next(iter(data.sample().heads()))
    return [
        data.gaussian(COUNT, D, rng=profile.seed),
        dataclasses.replace(real.first(COUNT), v=None),
    ]


def squares(
    method: Method, x: Head, log_unit: float, draws: int, rng: np.random.Generator
) -> Array:
    """Return e^{−2 log_unit}·‖estimate − exact‖²_F of independent draws."""
    Q, K = x.Q, x.K
    shift = np.full(len(Q), log_unit)
    truth = np.exp(exact.logits(Q, K) - log_unit)
    x.mask.hide(truth)
    errors = np.empty(draws)
    for place, child in enumerate(rng.spawn(draws)):
        estimate = x.approximate(method, rng=child).block(slice(None), shift=shift)
        errors[place] = np.square(estimate - truth).sum()
    return errors


def _study(inputs: Head, method: Method, draws: int, seed: int) -> list[Row]:
    heads = map(inputs.at_temperature, TEMPERATURES)
    return [row for x in heads for row in _rows(x, method, draws, seed)]


def _rows(x: Head, method: Method, draws: int, seed: int) -> list[Row]:
    known = required(frobenius_error(method, x.Q, x.K, mask=x.mask))
    log_square = 2 * exact.logits(x.Q, x.K)
    x.mask.hide(log_square, fill=-np.inf)
    log_norm = float(np.logaddexp.reduce(log_square, axis=None))
    stream = seed_sequence(seed, x.digest(), str(method), str(x.temperature))
    unit = (known.log_mean + log_norm) / 2  # the predicted error, not relative
    sample = squares(method, x, unit, draws, np.random.default_rng(stream))
    ratio, error = float(sample.mean()), float(sample.std(ddof=1) / math.sqrt(draws))
    bound = known.relative_deviation / math.sqrt(draws)
    predicted = math.exp(min(known.log_mean / 2, 700.0))
    return numbers(
        head(x, method),
        predicted_error=predicted,
        measured_error=predicted * math.sqrt(ratio),
        square_ratio=(ratio, error),
        stderr_bound=bound,
        believable=bound <= math.sqrt(BELIEVED),
    )


def compute(profile: Profile) -> pd.DataFrame:
    """Return the relative Frobenius error of exp(q·k), predicted and measured.

    predicted_error: √(E‖estimate − exact‖²)/‖exact‖; measured_error: the same of the mean over
    draws; square_ratio: mean measured square over the predicted, with the standard error of the
    sample; stderr_bound: what that standard error is at most, in closed form; believable: whether
    the square of the bound is at most 0.1.
    """
    draws = max(2, profile.draws // SHARE)
    tasks = [(x, parse(s), draws, profile.seed) for x in heads(profile) for s in SPECS]
    return profile.study(_study, tasks, "predictions")
