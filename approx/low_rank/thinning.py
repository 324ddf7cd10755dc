"""Kernel thinning: halve a set of points repeatedly, keeping the mean feature nearly unchanged.

Points are paired, and one point of each pair is kept. Let f_i = φ(x_2i) − φ(x_2i+1), and let the
sign s_i say which point is kept. The mean of φ over the kept half of b points differs from the mean
over all by Σ s_i f_i/b. Fair coins give E|Σ s_i f_i|² = Σ |f_i|²; coins that are biased against the
sum so far give less.
"""

import math

import numpy as np

from approx.checks import Array

DELTA = 0.5  # by the bound of [1], the chance that any coin's probability is cut to [0, 1]


def thinned(points: Array, rank: int, rng: np.random.Generator) -> Array:
    """Return the indices of a thinned subset of points (count, d), in order, (rank,).

    Notes
    -----
    The kernel is e^{x·y}. First rank·2^m ≤ count points are taken, with the largest such m, spread
    evenly from a random start. Then each of m rounds keeps half of them. A round halves buckets of
    successive points. Each round has four times fewer buckets than the round before, of twice the
    size; the last round has one bucket of 2·rank points. So a round takes 4·rank² entries of the
    kernel. A fair coin per bucket decides which half is kept, so each point is kept with
    probability rank/count.

    References
    ----------
    .. [1] A. Carrell, A. Gong, A. Shetty, R. Dwivedi, L. Mackey, "Low-rank thinning", ICML 2025,
       arXiv:2502.12063, KH-Compress; its code is microsoft/thinformer.
    """
    rounds = (len(points) // rank).bit_length() - 1
    count = rank << rounds
    even = (np.arange(count) + rng.random()) * (len(points) / count)
    places: Array = np.minimum(even.astype(np.intp), len(points) - 1)
    if rounds == 0:
        return places
    first = _bucket(rank, rounds, 0)
    for done in range(rounds):
        size = _bucket(rank, rounds, done)
        buckets = places.reshape(-1, size)
        delta = DELTA * size**2 / (first * rounds * count)
        places = np.take_along_axis(buckets, halves(points[buckets], delta, rng), axis=1).ravel()
    return places


def kernel_entries(count: int, rank: int) -> int:
    """Return the number of kernel entries that all rounds compute."""
    rounds = (count // rank).bit_length() - 1
    sizes = (_bucket(rank, rounds, done) for done in range(rounds))
    return sum((rank << rounds - done) * size for done, size in enumerate(sizes))


def _bucket(rank: int, rounds: int, done: int) -> int:
    """Return the number of points of a bucket, which is even, after ``done`` rounds."""
    left = rounds - done
    even = rank << left
    twos = (even & -even).bit_length() - 1  # the largest power of two that divides them
    return even >> min(2 * (left - 1), twos - 1)


def halves(points: Array, delta: float, rng: np.random.Generator) -> Array:
    """Return the indices of the kept half of each bucket of points (buckets, b, d): (buckets, b/2).

    Notes
    -----
    With ψ = Σ_{j<i} s_j f_j and a = |f_i| max_{j≤i} |f_j| (½ + log(2b/δ)), s_i is −1 with
    probability ½ + ½⟨ψ, f_i⟩/a, cut to [0, 1]. So

        E|ψ + s_i f_i|² = E|ψ|² + |f_i|² − 2 E min(⟨ψ, f_i⟩²/a, |⟨ψ, f_i⟩|),

    and E|Σ s_i f_i|² ≤ Σ |f_i|².

    References
    ----------
    .. [1] R. Dwivedi, L. Mackey, "Generalized kernel thinning", ICLR 2022, algorithm 2 (of its
       arXiv version), by which the source of `thinned` halves.
    """
    dots = points @ points.transpose(0, 2, 1)  # the scale is common, and no entry overflows at it
    G = np.exp(dots - np.diagonal(dots, axis1=1, axis2=2).max())
    f = G[:, ::2] - G[:, 1::2]
    f = f[:, :, ::2] - f[:, :, 1::2]  # ⟨f_i, f_j⟩
    buckets, pairs, _ = f.shape
    size = np.sqrt(np.maximum(np.diagonal(f, axis1=1, axis2=2), 0.0))
    bound = size * np.maximum.accumulate(size, axis=1) * (0.5 + math.log(4 * pairs / delta))
    coins = bound * rng.uniform(-1.0, 1.0, bound.shape)
    signs = np.ones((buckets, pairs))
    added = f[:, 0].copy()
    for i in range(1, pairs):
        signs[:, i] = np.where(coins[:, i] <= added[:, i], -1.0, 1.0)
        added += signs[:, i, None] * f[:, i]
    signs *= rng.choice([-1.0, 1.0], (buckets, 1))
    return np.asarray(np.arange(0, 2 * pairs, 2) + (signs < 0))
