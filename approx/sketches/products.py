"""Products of random linear forms, the features of most sketches, and their moments.

For w with independent entries of mean 0 and variance 1, y = (w·a)(w·b) has mean a·b and

    E y² = |a|²|b|² + 2(a·b)² + κ₄ Σ_i a_i² b_i²,

where κ₄ is the fourth cumulant of an entry: −2 for signs, 0 for Gaussians.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from approx.checks import Array
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.random_features.exponentials import exponentials

CUMULANTS = {  # the 4th, 6th and 8th cumulants of an entry of w
    "rademacher": (-2.0, 16.0, -272.0),
    "gaussian": (0.0, 0.0, 0.0),
}
LAWS = tuple(CUMULANTS)


def forms(law: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Return random vectors w, one per row."""
    if law == "gaussian":
        return rng.standard_normal(shape)
    return 2.0 * rng.integers(0, 2, shape) - 1.0


def augmented(X: Array, degree: int) -> Array:
    """Return (x/√p, 1) in float64; the inner products are 1 + q·k/p."""
    x = np.asarray(X, np.float64) / np.sqrt(degree)
    return np.hstack([x, np.ones((len(x), 1))])


def unit(X: Array) -> tuple[Array, Array]:
    """Return X with rows of norm 1 (a zero row stays zero), and the logarithms of the norms."""
    top = np.abs(X).max(axis=1, keepdims=True)
    x = X / np.where(top > 0, top, 1.0)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    norm = np.where(norm > 0, norm, 1.0)
    return x / norm, (np.log(norm) + np.log(np.where(top > 0, top, 1.0)))[:, 0]


def products(
    Q: Array,
    K: Array,
    levels: Iterable[Array],
    log_weight: Array,
    dtype: Any,
    mask: Mask | None = None,
) -> Factors:
    """Return φ(Q) φ(K)ᵀ with φ(x)_r = e^{log_weight_r} Π_i w_ri·x.

    Parameters
    ----------
    Q, K : (n, d), (l, d)
    levels : matrices (count_i, d)
        Rows w_ri for i = 1, 2, …; the first count_i features have an i-th factor.
    log_weight : (m,)
    dtype : numpy dtype
        Dtype of the factors, which are computed in float64.
    mask : Mask, optional
        Without a mask all keys share one scale; under a mask each key has its own.
    """
    X = np.concatenate([Q, K]).astype(np.float64, copy=False)
    log = np.tile(log_weight, (len(X), 1))
    sign = np.ones_like(log)
    for W in levels:
        y = X @ W.T
        sign[:, : len(W)] *= np.sign(y)
        with np.errstate(divide="ignore"):
            log[:, : len(W)] += np.log(np.abs(y))
    n = len(Q)
    # scaled for float32: some sketches continue in float64 and are rounded to float32 at the end
    factors = exponentials(log[:n].copy(), log[n:].copy(), np.zeros(1), mask, np.float32)
    signed = dataclasses.replace(
        factors, left=factors.left * sign[:n], right=factors.right * sign[n:]
    )
    return signed.astype(dtype)


def sums(a: Array, b: Array, r: int, s: int) -> Array:
    """Return Σ_i a_i^r b_i^s for every pair, (n, l)."""
    return np.asarray(a**r @ (b**s).T)


def pair_moments(a: Array, b: Array, law: str) -> tuple[Array, Array, Array, Array]:
    """Return E y, E y², E y³, E y⁴ of y = (w·a)(w·b) for every pair, (n, l) each.

    They are sums of cumulants: a partition of (a, …, a, b, …, b) into blocks of even size
    contributes the product of κ_{r+s} Σ_i a_i^r b_i^s over its blocks.
    """
    k4, k6, k8 = CUMULANTS[law]

    def P(r: int, s: int) -> Array:
        return sums(a, b, r, s)

    c, A, B = a @ b.T, np.square(a).sum(axis=1)[:, None], np.square(b).sum(axis=1)
    N = A * B
    second = N + 2 * c**2 + k4 * P(2, 2)
    third = (
        9 * N * c
        + 6 * c**3
        + k4 * (3 * A * P(1, 3) + 3 * B * P(3, 1) + 9 * c * P(2, 2))
        + k6 * P(3, 3)
    )
    fourth = (
        9 * N**2
        + 72 * N * c**2
        + 24 * c**4
        + k4 * (3 * B**2 * P(4, 0) + 3 * A**2 * P(0, 4))
        + k4 * (48 * c * (B * P(3, 1) + A * P(1, 3)) + 36 * (N + 2 * c**2) * P(2, 2))
        + k4**2 * (P(4, 0) * P(0, 4) + 16 * P(3, 1) * P(1, 3) + 18 * P(2, 2) ** 2)
        + k6 * (6 * A * P(2, 4) + 6 * B * P(4, 2) + 16 * c * P(3, 3))
        + k8 * P(4, 4)
    )
    return c, second, third, fourth
