"""Error of one entry against q·k: LSH alone, random features, and Scatterbrain of the two."""

import math

import numpy as np
import pandas as pd

from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.moments import monte_carlo
from analysis.moments.squared_errors import squared_error
from analysis.sweeps.table import Row
from approx import Mask, Method
from approx.checks import Array, required
from approx.combinations.scatterbrain import Scatterbrain
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.positive import Positive
from approx.sparse.lsh import LSH

COLUMNS = ("norm", "hashes", "logit", "curve", "metric", "value", "stderr")
D, M, ROUNDS = 16, 44, 4
HASHES = (1, 2, 3)
PUBLISHED = 23  # hashes joined in the published script, which means it as a number of buckets
NORMS = (0.5, 1.0, 1.5, 2.0)
UNIT = 1.0  # |q| = |k| of the published figure
DOTS = 201
SAMPLED = (-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75)  # cosines
TIMES = 2  # draws of the profile
BELIEVED = 0.1  # relative standard error, in closed form
PLAIN = ("performer", "hyperbolic")  # without LSH
CURVES = ("lsh", *PLAIN, "scatterbrain", "scatterbrain_hyperbolic")


def pairs(norm: float, cosines: Array) -> tuple[Array, Array]:
    """Return one query and keys, all of that length, at these cosines."""
    Q, K = np.zeros((1, D)), np.zeros((len(cosines), D))
    Q[0, 0] = norm
    K[:, 0], K[:, 1] = norm * cosines, norm * np.sqrt(1 - np.square(cosines))
    return Q, K


def method(curve: str, hashes: int, columns: int = M) -> Method:
    """Return what a curve is of; hyperbolic features have as many columns as the others."""
    sparse = LSH("cross_polytope", hashes=max(hashes, 1), rounds=ROUNDS, transform="none")
    low = Hyperbolic(columns) if "hyperbolic" in curve else Positive(columns)
    if curve == "lsh":
        return sparse
    return Scatterbrain(low, sparse) if curve.startswith("scatterbrain") else low


def mse(of: Method, norm: float, cosines: Array) -> Array:
    """Return E(estimate − exact)² in closed form."""
    known = required(squared_error(of, *pairs(norm, cosines)))
    return np.asarray(np.exp(known.log_mean[0] + 2 * norm**2 * cosines))


def published_collision(cosines: Array) -> Array:
    """Return p as the script has it: ln(1/p₁) = t²/(4 − t²) ln d, p = 1 − (1 − p₁²³)⁴."""
    square = 2 - 2 * np.asarray(cosines, np.float64)
    with np.errstate(divide="ignore"):
        p = np.exp(-PUBLISHED * square / (4 - square) * math.log(D))
    return np.asarray(-np.expm1(ROUNDS * np.log1p(-np.minimum(p, 1 - 1e-16))))


def hyperbolic_factor(cosines: Array | None) -> Array:
    """Return ½(1 − e^{−|q+k|²}) for unit vectors; None: the script's constant ½(1 − e^{−1}).

    The error of hyperbolic features over that of positive ones with as many frequencies, hence
    half the columns.
    """
    square = 1.0 if cosines is None else 2 + 2 * np.asarray(cosines)
    return np.asarray(-np.expm1(-square) / 2)


def published_mse(curve: str, cosines: Array) -> Array:
    """Return the error of a curve as the script has it."""
    off = 1 - published_collision(cosines)
    if curve == "lsh":
        return np.asarray(off * np.exp(2 * cosines))
    error = mse(Positive(M), UNIT, cosines)
    error = error * hyperbolic_factor(None) if "hyperbolic" in curve else error
    return np.asarray(error * off if curve.startswith("scatterbrain") else error)


def _study(curve: str, hashes: int, draws: int, seed: int) -> list[Row]:
    return _closed(curve, hashes) + (_sampled(curve, hashes, draws, seed) if draws else [])


def collision(of: LSH, cosines: Array) -> Array:
    """Return the probability that a pair at each cosine shares a bucket."""
    q, k = pairs(UNIT, cosines)
    return np.asarray(of.inclusion(q, k, Mask.full(len(q), len(k)))[0])


def _closed(curve: str, hashes: int) -> list[Row]:
    of, cosines = method(curve, hashes), np.linspace(-1, 1, DOTS)
    rows: list[Row] = []
    for norm in NORMS:
        values = mse(of, norm, cosines)
        rows += _curve(norm, hashes, cosines, curve, "mse", values)
    if isinstance(of, LSH):
        p = collision(of, cosines)
        for metric, values in (
            ("collision", p), ("bias_squared", (1 - p) ** 2), ("variance", p * (1 - p)),
        ):  # fmt: skip
            rows += _curve(UNIT, hashes, cosines, curve, metric, values)
    return rows


def _sampled(curve: str, hashes: int, draws: int, seed: int) -> list[Row]:
    """Return the mean square of the draws, and its standard error in closed form."""
    of, cosines = method(curve, hashes), np.array(SAMPLED)
    Q, K = (np.vstack(x) for x in zip(*(pairs(norm, cosines) for norm in NORMS)))
    rng = np.random.default_rng(seed_sequence(seed, curve, hashes))
    sample = monte_carlo(of, Q, K, draws=draws, rng=rng)
    known = required(squared_error(of, Q, K))
    rows: list[Row] = []
    for i, norm in enumerate(NORMS):
        at = (i, slice(i * len(SAMPLED), (i + 1) * len(SAMPLED)))
        spread = sample.variance[at] * (1 - 1 / draws)
        square = (spread + (sample.mean[at] - 1) ** 2) * np.exp(2 * norm**2 * cosines)
        relative = np.exp((known.log_relative_variance[at] - math.log(draws)) / 2)
        errors = relative * mse(of, norm, cosines)
        head = (norm, hashes)
        rows += _curve(*head, cosines, curve, "sampled_mse", square, errors)
        believable = (relative <= BELIEVED).astype(float)
        rows += _curve(*head, cosines, curve, "believable", believable)
    return rows


def _curve(
    norm: float,
    hashes: int,
    cosines: Array,
    curve: str,
    metric: str,
    values: Array,
    errors: Array | None = None,
) -> list[Row]:
    errors = np.full(len(cosines), np.nan) if errors is None else errors
    return [
        (norm, hashes, norm**2 * c, curve, metric, v, e) for c, v, e in zip(cosines, values, errors)
    ]


def _script() -> list[Row]:
    cosines, rows = np.linspace(-1, 1, DOTS), list[Row]()
    for curve in CURVES:
        double = 2 * M if "hyperbolic" in curve else M  # the script counts frequencies
        exact = mse(method(curve, PUBLISHED, double), UNIT, cosines)
        coded = published_mse(curve, cosines)
        for metric, values in (("published_mse", coded), ("corrected_mse", exact)):
            rows += _curve(UNIT, PUBLISHED, cosines, curve, metric, values)
    sparse = method("lsh", PUBLISHED)
    assert isinstance(sparse, LSH)
    for metric, values in (
        ("published_collision", published_collision(cosines)),
        ("collision", collision(sparse, cosines)),
    ):
        rows += _curve(UNIT, PUBLISHED, cosines, "lsh", metric, values)
    coded = np.full(DOTS, hyperbolic_factor(None))
    for metric, values in (
        ("published_factor", coded), ("factor", hyperbolic_factor(cosines)),
    ):  # fmt: skip
        rows += _curve(UNIT, 0, cosines, "hyperbolic", metric, values)
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return the mean squared error of one entry, in closed form and sampled.

    Columns: norm r = |q| = |k|; hashes joined in a round, 0 where there is no LSH; logit q·k;
    curve. Metrics: mse; sampled_mse with the standard error of its closed form, and whether that
    is at most 10 %; at norm 1 collision p and, over e^{2q·k}, bias_squared (1 − p)² and variance
    p(1 − p) of LSH alone; published_* as the script has it, and at its parameters corrected_mse,
    collision and factor by the exact formulas.
    """
    draws = TIMES * profile.draws
    plain = [(c, 0, draws, profile.seed) for c in PLAIN]
    mixed = [
        (c, hashes, draws, profile.seed) for c in CURVES if c not in PLAIN for hashes in HASHES
    ]
    tasks = plain + mixed
    table = profile.study(_study, tasks, "curves", COLUMNS)
    script = pd.DataFrame(_script(), columns=table.columns)
    return pd.concat([table, script], ignore_index=True)
