"""Bias and variance against temperature: closed form as lines, Monte Carlo as markers."""

import dataclasses
import math

import numpy as np
import pandas as pd

from analysis.costs import budget
from analysis.experiments.profile import Profile, nearest_to_one, trials
from analysis.inputs import Head
from analysis.moments import MonteCarlo, features_needed, monte_carlo
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers, with_currency
from approx import Method, parse
from approx.checks import required
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive

MATCHED = ("positive", "trigonometric", "scatterbrain(low_rank=positive(), sparse=top_k())")
OWN_PRICE = ("taylor(degree=2)", "tensor_power(n=2)")
TARGET = 0.1  # relative Frobenius error of the whole kernel matrix
TV, MANY, DRAWS = 0.1, 4096, 5  # features, and draws, of which the total variation is measured
QUANTILE = 0.9  # quantile of q·k: such a pair matters, but no small support holds it


def pair(inputs: Head) -> tuple[int, int]:
    """Return query and key of the pair at the quantile of q·k; the same at every temperature.

    It is one of the pairs that are seen.
    """
    logits = inputs.Q @ inputs.K.T
    inputs.mask.hide(logits, fill=np.inf)
    order = np.argsort(logits, axis=None, kind="stable")
    place = order[int(QUANTILE * (inputs.mask.entries - 1))]
    i, j = np.unravel_index(place, logits.shape)
    return int(i), int(j)


def _study(
    x: Head, method: Method, paid: float, temperatures: tuple[float, ...], draws: int, seed: int
) -> list[Row]:
    i, j = pair(x)
    sees = x.mask.take(slice(i, i + 1))
    stream = seed_sequence(seed, x.digest(), str(method))
    rows: list[Row] = []
    unbiased = isinstance(method, RandomFeatures)
    samples: list[MonteCarlo | None] = [None] * len(temperatures)
    if not method.deterministic:
        one, rng = x.at_temperature(1.0), np.random.default_rng(stream)
        # A support depends on all keys; features of MATCHED do not, and one entry is enough.
        alone = isinstance(method, RandomFeatures)
        samples[:] = monte_carlo(
            method,
            one.Q[i : i + 1],
            one.K[j : j + 1] if alone else one.K,
            draws=draws,
            rng=rng,
            mask=None if alone else sees,
            temperatures=temperatures,
        )
    for t, sample in zip(temperatures, samples):
        at = x.at_temperature(t)
        place = head(at, method, paid)
        known = required(method.moments(at.Q[i : i + 1], at.K, mask=sees))
        bias, log_variance = known.relative_bias[0, j], known.log_relative_variance[0, j]
        rows += numbers(place, relative_bias=bias, log_relative_variance=log_variance)
        if unbiased:
            needed = features_needed(method, TARGET, at.Q, at.K, mask=at.mask)
            rows += numbers(place, features_needed=needed)
            if isinstance(method, Positive) and t == nearest_to_one(temperatures):
                rows += numbers(
                    place, attention_tv_of_many=_tv(dataclasses.replace(method, m=MANY), at, seed)
                )
        if sample is None or np.isneginf(log_variance):
            continue
        entry = 0, (j if sample.mean.size > 1 else 0)
        rows += numbers(
            place,
            sampled_bias=(sample.mean[entry] - 1, sample.mean_stderr[entry]),
            sampled_variance=(sample.variance[entry], sample.variance_stderr[entry]),
            believable=sample.believable[entry],
        )
    return rows


def _tv(method: Method, x: Head, seed: int) -> tuple[float, float]:
    """Return the mean total variation of some draws, and its standard error."""
    draws = trials(method, x, DRAWS, seed)
    tv = [x.compare(x.approximate(method, rng=stream))["attention_tv"] for _, stream in draws]
    return float(np.mean(tv)), float(np.std(tv, ddof=1) / math.sqrt(DRAWS))


def compute(profile: Profile) -> pd.DataFrame:
    """Return closed-form and sampled moments of one pair of each input.

    features_needed and attention_tv_of_many, at the temperature nearest 1, are of the whole matrix:
    how many features a kernel error of 10 % takes, and the total variation of many positive
    features.
    """
    tasks = []
    for x in profile.inputs:
        specs = map(parse, MATCHED)
        matched = budget.match(specs, profile.budget, x, profile.currency).fitting
        for method in [*matched, *(parse(spec) for spec in OWN_PRICE)]:
            at = profile.budget if method in matched else -1.0
            tasks.append((x, method, at, profile.temperatures, profile.draws, profile.seed))
    return with_currency(profile.study(_study, tasks, "moments"), profile.currency)
