"""Squared bias and variance of one method of each family, over the whole kernel matrix."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from analysis.costs import budget
from analysis.experiments.profile import Profile, nearest_to_one
from analysis.inputs import Head
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers, with_currency
from approx import Method, parse
from approx.checks import Array
from approx.estimate import exact
from approx.sample_moments import pareto_k, reliable_k

COUNT = 256  # queries and keys at most: a closed form is a matrix for each method
SAMPLES = 100  # draws of a method without closed form
POLYNOMIALS = "taylor(degree=2)", "minimax(degree=2)"
FAMILIES = (  # one method of each family
    "uniform()", "positive", "positive(projection='orthogonal')", "generalized_exponential",
    "dense_exponential", "trigonometric", "tensor_sketch(degree=2)", *POLYNOMIALS,
    "truncated_svd", "nystrom", "top_k", "sliding_window", "lsh",
    "scatterbrain(low_rank=positive(), sparse=sliding_window())",
)  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return log squared bias and log variance of each family, both over ‖exact‖²_F, nearest t = 1.

    The relative squared Frobenius error of a draw has their sum as its expectation. A polynomial
    that does not fit the budget stands at its own price, with a budget of −1.
    """
    tasks = []
    for whole in profile.inputs:
        x = whole.first(COUNT)
        fitting = budget.match(map(parse, FAMILIES), profile.budget, x, profile.currency).fitting
        priced = [method for method in map(parse, POLYNOMIALS) if method not in fitting]
        for method, at in [(m, profile.budget) for m in fitting] + [(m, -1.0) for m in priced]:
            tasks.append((x, method, at, nearest_to_one(profile.temperatures), profile.seed))
    return with_currency(profile.study(_study, tasks, "bias and variance"), profile.currency)


def _study(inputs: Head, method: Method, paid: float, t: float, seed: int) -> list[Row]:
    x = inputs.at_temperature(t)
    return numbers(head(x, method, paid), **bias_and_variance(method, x, seed))


def bias_and_variance(method: Method, x: Head, seed: int) -> dict[str, float]:
    """Return log squared bias and log variance of a kernel estimate, both over ‖exact‖²_F.

    ``closed_form`` is 1, or 0 where both are of `SAMPLES` draws; then ``pareto_k`` is the tail
    shape of their squared distances, and ``reliable`` says whether it is small enough.
    """
    if (known := closed_form(method, x)) is not None:
        bias, variance, shape = *known, math.nan
    else:
        seeds = seed_sequence(seed, x.digest(), str(method))
        bias, variance, shape = _sampled(method, x, seeds)
    return {
        "log_squared_bias": bias,
        "log_variance": variance,
        "closed_form": float(known is not None),
        "pareto_k": shape,
        "reliable": float(known is not None or shape <= reliable_k(SAMPLES)),
    }


def closed_form(method: Method, x: Head) -> tuple[float, float] | None:
    """Return log squared bias and log variance over ‖exact‖²_F, or None where none is known."""
    known = method.moments(x.Q, x.K, mask=x.mask)
    if known is None:
        return None
    square = 2 * x.logits()
    with np.errstate(divide="ignore"):
        log_bias = 2 * np.log(np.abs(known.relative_bias))
    total = logsumexp(square)
    return (
        float(logsumexp(square + log_bias) - total),
        float(logsumexp(square + known.log_relative_variance) - total),
    )


def _sampled(method: Method, x: Head, seed: np.random.SeedSequence) -> tuple[float, ...]:
    truth = exact.kernel(x.Q, x.K)
    x.mask.hide(truth)
    norm = float(np.linalg.norm(truth))
    streams = np.random.default_rng(seed).spawn(SAMPLES)
    draws = [x.approximate(method, rng=rng).to_dense() / norm for rng in streams]
    bias, variance, shape = of_draws(draws, truth / norm)
    with np.errstate(divide="ignore"):
        return float(np.log(bias)), float(np.log(variance)), shape


def of_draws(draws: Sequence[Array] | Array, truth: Array) -> tuple[float, float, float]:
    """Return squared bias and variance of drawn matrices, and the tail shape of the latter's terms.

    The mean of the draws is off by its own variance, which is taken away.
    """
    mean, count = np.mean(draws, axis=0), len(draws)
    squares = np.square([np.linalg.norm(draw - mean) for draw in draws])
    variance = float(squares.sum()) / (count - 1)
    bias = max(0.0, float(np.linalg.norm(mean - truth)) ** 2 - variance / count)
    return bias, variance, pareto_k(squares)
