"""Error of the randomised range finder against oversampling and power steps, beside its bounds."""

import math

import numpy as np
import pandas as pd

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx.checks import Array
from approx.estimate import exact
from approx.low_rank.subspace import orthonormal, spectral_norm

COLUMNS = ("input", "n", "temperature", "steps", "oversampling", "metric", "value")
K = 16  # the rank that is wanted
OVERSAMPLING = (2, 4, 8, 16, 32, 64)
STEPS = (0, 1)
N, LEAST = 512, 96  # queries that are taken; the least number of different queries and keys
LANCZOS = 1e-4  # residual of a spectral norm, whose square is then as accurate


def range_basis(A: Array, omega: Array, steps: int) -> Array:
    """Return an orthonormal basis of the range of (A Aᵀ)^steps A Ω, by subspace iteration.

    Its first j columns are the basis for the first j columns of Ω.

    Shape: A (n, l), omega (l, m) give (n, m), m ≤ n. Cost: 2·steps + 1 products with A.

    References
    ----------
    .. [1] N. Halko, P.-G. Martinsson, J. Tropp, "Finding structure with randomness", SIAM Review
       53, 2011, algorithms 4.1 and 4.4.
    """
    Q, _ = orthonormal(A @ omega)
    for _ in range(steps):
        Q, _ = orthonormal(A @ orthonormal(A.T @ Q)[0])
    return Q


def spectral_bound(s: Array, k: int, p: int, steps: int = 0) -> float:
    """Return a bound of E‖A − QQᵀA‖₂ for k + p Gaussian columns, p ≥ 2, and so many power steps.

    [(1 + √(k/(p − 1))) s_{k+1}^e + e√(k + p)/p · (Σ_{j>k} s_j^{2e})^½]^{1/e}, e = 2·steps + 1
    (outside of the exponents, e is Euler's number).

    References
    ----------
    .. [1] Halko, Martinsson, Tropp, as above, theorem 10.6 and corollary 10.10.
    """
    power = 2 * steps + 1
    rest = (s[k:] / s[k]) ** power if s[k] > 0 else np.zeros(1)
    first = 1 + math.sqrt(k / (p - 1))
    second = math.e * math.sqrt(k + p) / p * float(np.linalg.norm(rest))
    return float(s[k] * (first + second) ** (1 / power))


def _study(x: Head, t: float, draws: int, seed: int) -> list[Row]:
    at = x.at_temperature(t)
    A = exact.softmax(at.Q, at.K, at.mask)
    s = np.linalg.svd(A, compute_uv=False)
    A, s = A / s[0], s / s[0]
    rng = np.random.default_rng(seed_sequence(seed, at.digest(), "randomised_svd"))
    omegas = [rng.standard_normal((A.shape[1], K + OVERSAMPLING[-1])) for _ in range(draws)]
    place = x.name, x.n, t
    rows: list[Row] = [(*place, -1, 0, "spectral", float(s[K]))]
    rows += [(*place, -1, p, "spectral_least", float(s[K + p])) for p in OVERSAMPLING]
    for steps in STEPS:
        bases = [range_basis(A, omega, steps) for omega in omegas]
        for p in OVERSAMPLING:
            norms = []
            for Q in bases:
                rest = A - Q[:, : K + p] @ (Q[:, : K + p].T @ A)
                norms.append(spectral_norm(rest, LANCZOS))
            rows.append((*place, steps, p, "spectral", float(np.mean(norms))))
            rows.append((*place, steps, p, "spectral_bound", spectral_bound(s, K, p, steps)))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors over the largest singular value of softmax rows of one head, cold and hot."""
    x = profile.real_head(LEAST, N)
    ends = min(profile.temperatures), max(profile.temperatures)
    tasks = [(x, t, 2 * profile.trials, profile.seed) for t in dict.fromkeys(ends)]
    return profile.study(_study, tasks, "bases", COLUMNS)
