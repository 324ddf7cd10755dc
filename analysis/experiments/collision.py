"""The gain of a support in Scatterbrain: its theorem, checked, and the theorem's condition."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.advice.pitfalls import LargestEstimates, OneStream
from analysis.experiments.profile import Profile
from analysis.moments import monte_carlo
from analysis.moments.squared_errors import squared_error
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx import Mask, Method, parse
from approx.checks import Array, required
from approx.combinations.scatterbrain import Scatterbrain
from approx.random_features.positive import Positive
from approx.sparse.lsh import LSH
from approx.sparse.support import SupportMethod
from approx.sparse.top_k import TopK

COLUMNS = ("part", "case", "logit", "metric", "value", "stderr")
D = 16
SUPPORTS = (  # those of the theorem
    "lsh(hashes=2, rounds=2, transform='none')",
    "lsh(family='cross_polytope', hashes=1, rounds=2, transform='none')",
    "lsh(family='e2', hashes=1, rounds=2, transform='none')",
    "random(k=6)",
    "smyrf(size=4, rounds=2)",
)
SMALL, LENGTH, FEATURES, SHOWN = 12, 0.45, 16, 8  # |q + k|² ≤ 0.81; pairs shown
DEPENDENT = ("independent", "one stream", "largest estimates")
ANGLES = tuple(np.linspace(0.1, 0.9, 9).tolist())  # angles of the second part, over π
FREQUENCIES, LONG = 2, 0.7  # frequencies, and length of q and k, of the second part
TIMES = 2  # multiplies the draws of the profile
MORE = 8  # the same for the last part


class _CollisionCase(NamedTuple):
    part: str
    case: str
    draws: int
    seed: int

    def rng(self, *what: str) -> np.random.Generator:
        """Return the generator of this piece of work."""
        return np.random.default_rng(seed_sequence(self.seed, self.part, self.case, *what))


def arc(length: float, angles: Array) -> tuple[Array, Array]:
    """Return one query and keys of that length at these angles from it."""
    Q, K = np.zeros((1, D)), np.zeros((len(angles), D))
    Q[0, 0] = length
    K[:, 0], K[:, 1] = length * np.cos(angles), length * np.sin(angles)
    return Q, K


def cloud(seed: int) -> tuple[Array, Array]:
    """Return few short queries and keys in four dimensions, where every collision happens."""
    x = data.sphere(SMALL, 4, rng=seed)
    return x.q * (LENGTH / 2), x.k * (LENGTH / 2)  # from the sphere of radius √4


def frequency(
    method: SupportMethod, Q: Array, K: Array, draws: int, rng: np.random.Generator
) -> Array:
    """Return the share of draws in which each pair is in the support, (n, l)."""
    counts = np.zeros((len(Q), len(K)))
    seen = Mask.full(len(Q), len(K))
    for child in rng.spawn(draws):
        indptr, indices = method.pattern(Q, K, seen, child)
        counts[np.repeat(np.arange(len(Q)), np.diff(indptr)), indices] += 1
    return counts / draws


def _theorem(task: _CollisionCase) -> list[Row]:
    """Return error of Scatterbrain over that of its features, and 1 − p, of a few pairs."""
    Q, K = cloud(task.seed)
    low, sparse = Positive(FEATURES), parse(task.case)
    assert isinstance(sparse, SupportMethod)
    p, error = sparse.probability(Q, K), np.zeros((SMALL, SMALL))
    if p is None:
        p = frequency(sparse, Q, K, task.draws, task.rng("p"))
        error = np.sqrt(np.maximum(p * (1 - p), 0) / task.draws)
    unit = required(squared_error(low, Q, K))
    sample = monte_carlo(Scatterbrain(low, sparse), Q, K, draws=task.draws, rng=task.rng())
    square = sample.variance * (1 - 1 / task.draws) + (sample.mean - 1) ** 2
    ratio = square / np.exp(unit.log_mean)
    fourth = np.exp(np.logaddexp(unit.log_relative_variance, 0.0))  # E e⁴/(E e²)²
    errors = np.sqrt((1 - p) * np.maximum(fourth - (1 - p), 0) / task.draws)
    place = np.argsort(p, axis=None, kind="stable")[np.linspace(0, p.size - 1, SHOWN).astype(int)]
    logits = (Q @ K.T).ravel()[place]
    return _rows(task, logits, "one_minus_p", (1 - p).ravel()[place], error.ravel()[place]) + _rows(
        task, logits, "mse_ratio", ratio.ravel()[place], errors.ravel()[place]
    )


def dependent(case: str) -> Method:
    """Return an honest Scatterbrain, or one whose support knows its features."""
    low, sparse = Positive(FREQUENCIES), LSH(hashes=1, transform="none")
    if case == "largest estimates":
        return LargestEstimates(low, TopK(2))
    return (OneStream if case == "one stream" else Scatterbrain)(low, sparse)


def _dependence(task: _CollisionCase) -> list[Row]:
    Q, K = arc(LONG, math.pi * np.array(ANGLES))
    sample = monte_carlo(dependent(task.case), Q, K, draws=task.draws, rng=task.rng())
    errors = sample.mean_stderr[0]
    return _rows(task, (Q @ K.T)[0], "relative_bias", sample.mean[0] - 1, errors)


def _rows(
    task: _CollisionCase, logits: Array, metric: str, values: Array, errors: Array | None = None
) -> list[Row]:
    errors = np.full(len(logits), np.nan) if errors is None else errors
    return [(task.part, task.case, x, metric, v, e) for x, v, e in zip(logits, values, errors)]


PARTS = {"theorem": _theorem, "dependence": _dependence}


def _study(task: _CollisionCase) -> list[Row]:
    return PARTS[task.part](task)


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors of Scatterbrain beside the probabilities that pairs are on its support.

    Parts: theorem (mse_ratio, error of Scatterbrain over that of its features, and one_minus_p),
    dependence (relative_bias where the support is independent of the features, and where it is
    not).
    """
    draws = TIMES * profile.draws
    cases = {"theorem": SUPPORTS, "dependence": DEPENDENT}
    times = {"dependence": MORE // TIMES}
    tasks = [
        (_CollisionCase(part, case, draws * times.get(part, 1), profile.seed),)
        for part, some in cases.items()
        for case in some
    ]
    return profile.study(_study, tasks, "supports", COLUMNS)
