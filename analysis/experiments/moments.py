"""Bias and variance against temperature: closed form as lines, Monte Carlo as markers."""

import dataclasses
import math

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from analysis.costs import budget
from analysis.experiments.decomposition import closed_form, of_draws
from analysis.experiments.profile import Profile, nearest_to_one, trials
from analysis.inputs import Head
from analysis.moments import MonteCarlo, features_needed, monte_carlo, normalised_moments
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers, with_currency
from approx import Method, parse
from approx.checks import required
from approx.projections.summand import times
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.sample_moments import VARIANCE, reliable_k

MATCHED = ("positive", "trigonometric", "scatterbrain(low_rank=positive(), sparse=top_k())")
OWN_PRICE = ("taylor(degree=2)", "tensor_power(n=2)")
TARGET = 0.1  # relative Frobenius error of the whole kernel matrix
TV, MANY, DRAWS = 0.1, 4096, 5  # features, and draws, of which the total variation is measured
COUNT, MOST_DRAWS = 64, 200  # queries and keys of the matrices, and draws of them at most
GRIDS = {  # temperatures of the matrices: high ones, as the delta method needs them
    "quick": (0.25, 1.0, 4.0, 16.0, 64.0),
    "default": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
}
SMALL = 0.3  # above this largest relative variance the delta method is unreliable
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
    x: Head,
    place: tuple[int, int],
    method: Method,
    paid: float,
    temperatures: tuple[float, ...],
    draws: int,
    seed: int,
) -> list[Row]:
    i, j = place
    sees = x.mask.take(slice(i, i + 1))
    stream = seed_sequence(seed, x.digest(), str(method))
    rows: list[Row] = []
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
        about = head(at, method, paid)
        known = required(method.moments(at.Q[i : i + 1], at.K, mask=sees))
        bias, log_variance = known.relative_bias[0, j], known.log_relative_variance[0, j]
        rows += numbers(about, relative_bias=bias, log_relative_variance=log_variance)
        if isinstance(method, Positive) and t == nearest_to_one(temperatures):
            rows += numbers(
                about,
                features_needed=features_needed(method, TARGET, at.Q, at.K, mask=at.mask),
                attention_tv_of_many=_tv(dataclasses.replace(method, m=MANY), at, seed),
            )
        if sample is None or np.isneginf(log_variance):
            continue
        entry = 0, (j if sample.mean.size > 1 else 0)
        rows += numbers(
            about,
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


def _matrices(x: Head, method: Method, paid: float, t: float, draws: int, seed: int) -> list[Row]:
    at = x.at_temperature(t)
    known = required(method.moments(at.Q, at.K, mask=at.mask))
    with np.errstate(over="ignore"):
        bias, deviation = np.exp(np.array(required(closed_form(method, at))) / 2)
    found = {"kernel_bias": bias, "kernel_deviation": deviation}
    log = at.logits()
    at.mask.hide(log, fill=-np.inf)
    norm = float(logsumexp(2 * log)) / 2
    weights = np.exp(log - logsumexp(log, axis=1, keepdims=True))
    size = float(np.linalg.norm(weights))
    source = np.random.default_rng(seed_sequence(seed, x.digest(), str(method), "matrices"))
    streams = source.spawn(1 if method.deterministic else draws)
    kernel, attention = np.empty((2, len(streams), *log.shape))
    for i, rng in enumerate(streams):
        estimate = at.approximate(method, rng=rng)
        scale = np.asarray(estimate.row_log(), np.float64)
        values = np.asarray(estimate.block(slice(None), shift=scale), np.float64)
        total = values.sum(axis=1, keepdims=True)
        attention[i] = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
        kernel[i] = times(values, scale[:, None] - norm)
    drawn = {
        "kernel": (kernel, np.exp(log - norm)),
        "attention": (attention / size, weights / size),
    }
    for space, (sample, truth) in drawn.items():
        if method.deterministic or not np.isfinite(sample).all():
            continue
        square, variance, shape = of_draws(sample, truth)
        closed = deviation**2 if space == "kernel" else variance
        agrees = abs(variance - closed) <= math.sqrt(VARIANCE) * closed < math.inf
        found |= {
            f"sampled_{space}_bias": math.sqrt(square),
            f"sampled_{space}_deviation": math.sqrt(variance),
            f"sampled_{space}_noise": math.sqrt(variance / draws),
            f"sampled_{space}_reliable": float(agrees and shape <= reliable_k(draws)),
        }
    if method.deterministic:
        off = float(np.linalg.norm(attention[0] - weights)) / size
        found |= {"attention_bias": off, "attention_deviation": 0.0}
    elif known.log_relative_variance.max() <= math.log(SMALL):
        delta = required(normalised_moments(method, at.Q, at.K, mask=at.mask))
        found["attention_bias"] = float(np.linalg.norm(delta.bias)) / size
        found["attention_deviation"] = math.sqrt(delta.variance.sum()) / size
    return numbers(head(at, method, paid), **found)


def compute(profile: Profile) -> pd.DataFrame:
    """Return moments of exp(q·k) and of normalised attention, and of one pair of each input.

    {kernel,attention}_{bias,deviation} are of the first 64 queries and keys of the main input, over
    the Frobenius norm of the exact matrix: in closed form, and for attention exact without chance
    or by the delta method, where the largest relative variance of an entry is at most 0.3.
    sampled_{…} are of draws. From the squared bias its expected noise is subtracted; below twice
    sampled_{…}_noise it shows nothing. sampled_{…}_reliable is 1 where Pareto k̂ of the squared
    distances is small enough and, of the kernel, the variance within 32 % of its closed form.

    The other rows are closed-form and sampled moments of one pair of each input.
    features_needed and attention_tv_of_many, at the temperature nearest 1, are of the whole matrix:
    how many features a kernel error of 10 % takes, and the total variation of many positive
    features.
    """
    tasks, whole = [], []
    main, count = profile.main.first(COUNT), min(profile.draws, MOST_DRAWS)
    for x in (*profile.inputs, main):
        place, specs = pair(x), map(parse, MATCHED)
        matched = budget.match(specs, profile.budget, x, profile.currency).fitting
        for method in [*matched, *(parse(spec) for spec in OWN_PRICE)]:
            at = profile.budget if method in matched else -1.0
            if x is main:
                grid = GRIDS[profile.grid]
                whole += [(x, method, at, t, count, profile.seed) for t in grid]
            else:
                size = profile.temperatures, profile.draws
                tasks.append((x, place, method, at, *size, profile.seed))
    studies = (_study, tasks, "moments"), (_matrices, whole, "bias and variance")
    table = pd.concat([profile.study(*one) for one in studies], ignore_index=True)
    return with_currency(table, profile.currency)
