"""Summaries of blocks of keys; two summaries can be merged without the keys.

A summary of the keys B has r terms: exp(q·k_j) ≈ Σ_p e^{w_p(q)} T_pj for j ∈ B. w is a function of
the query, and T (r, |B|) does not depend on the query. Two summaries a and b are merged into a
summary of the union of their blocks, with T = transfer·diag(T_a, T_b). So the state
Σ_{j ∈ B} T_j v_jᵀ of a block follows from the states of its halves.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from approx.checks import Array
from approx.kernels.elementary import exp
from approx.kernels.jit import kernel
from approx.low_rank.pivots import NEAR

TIE = 2.0**-32  # as in `supports.patterns`: a kernel uses names of its own file


class Summary(Protocol):
    """A block of keys, summarised by a few terms."""

    @classmethod
    def from_keys(cls, keys: Array, rank: int) -> tuple[Self, Array]:
        """Return the summary of keys (s, d), and T (r, s) with r ≤ rank."""

    def merged(self, other: Self, rank: int) -> tuple[Self, Array]:
        """Return the summary of both blocks, and the transfer (r, r_a + r_b)."""

    def logs(self, q: Array) -> Array:
        """Return w(q), (n, r), for queries q (n, d)."""

    @classmethod
    def width(cls, d: int) -> int:
        """Return how many numbers a query reads per term, besides the term's state."""

    @classmethod
    def to_merge(cls, d: int) -> tuple[int, int]:
        """Return how many more numbers are held to merge blocks: per term, and per block."""

    @classmethod
    def work(cls, d: int, rank: int, c: int) -> tuple[int, int]:
        """Return the multiply-adds per key of a leaf, and per merge of two blocks.

        Both include the multiply-adds of the states of values (c).
        """


@dataclasses.dataclass(frozen=True, eq=False)
class Means:
    """Runs of successive keys; each run has its mean key and a second-order correction.

    w_p(q) = q·μ_p + log(1 + ½ Σ_c q_c² σ²_pc), with the mean and variance of the keys of run p, and
    T_pj = 1 for these keys. A leaf is cut into r runs of nearly equal length; two blocks are merged
    by merging pairs of successive runs.

    Attributes
    ----------
    mean, variance : (r, d)
    counts : (r,)
    """

    mean: Array
    variance: Array
    counts: Array

    @classmethod
    def from_keys(cls, keys: Array, rank: int) -> tuple[Means, Array]:
        """Return the runs of the keys, and T."""
        runs = np.array_split(np.arange(len(keys)), min(rank, len(keys)))
        counts = np.array([len(run) for run in runs])
        terms = np.repeat(np.eye(len(runs)), counts, axis=1)
        mean = terms @ keys / counts[:, None]
        offset = keys - np.repeat(mean, counts, axis=0)
        return cls(mean, terms @ offset**2 / counts[:, None], counts), terms

    def merged(self, other: Means, rank: int) -> tuple[Means, Array]:
        """Return the merged pairs of successive runs of both blocks, and the transfer."""
        mean, variance, counts = (
            np.concatenate([getattr(self, f.name), getattr(other, f.name)])
            for f in dataclasses.fields(self)
        )
        r = -(-len(counts) // 2)
        transfer = np.repeat(np.eye(r), 2, axis=1)[:, : len(counts)]
        total = transfer @ counts
        share = transfer * counts / total[:, None]
        both = share @ mean
        offset = mean - transfer.T @ both
        return Means(both, share @ (variance + offset**2), total), transfer

    def logs(self, q: Array) -> Array:
        """Return q·μ + log(1 + ½ Σ_c q_c² σ²_c)."""
        return np.asarray(q @ self.mean.T + np.log1p(0.5 * (q**2 @ self.variance.T)))

    @classmethod
    def width(cls, d: int) -> int:
        """Return 2·d, the numbers of a mean and a variance."""
        return 2 * d

    @classmethod
    def to_merge(cls, d: int) -> tuple[int, int]:
        """Return 1 and 0: the count of a run."""
        return 1, 0

    @classmethod
    def work(cls, d: int, rank: int, c: int) -> tuple[int, int]:
        """Return 0 for a key, and the multiply-adds to merge means and variances of 2·rank runs."""
        return 0, 4 * rank * d


@dataclasses.dataclass(frozen=True, eq=False)
class Pivots:
    """A few keys of the block (pivots), with weights for the others.

    w_p(q) = q·z_p and T = G(Z, Z)⁻¹ G(Z, B), which interpolates a function of the key from its
    values at the pivots Z, with G(x, y) = exp(−|x − y|²/(2s²)) and s² the mean squared distance of
    two keys of the block. A pivoted Cholesky decomposition of G chooses the pivots: each is the key
    with the largest |mass| times residual of G_jj = 1. Keys of a leaf have mass 1. Two merged
    blocks choose among the pivots of both; the mass of a pivot is the sum of its weights, Σ_j T_pj.

    Attributes
    ----------
    keys : (r, d)
    mass : (r,)
    count, mean, spread : int, (d,), float
        Number and mean of the keys of the block, and their mean squared distance from it.
    """

    LEAST: ClassVar[float] = 1e-300  # a spread above 0, so that equal keys have distance 0

    keys: Array
    mass: Array
    count: int
    mean: Array
    spread: float

    @classmethod
    def from_keys(cls, keys: Array, rank: int) -> tuple[Pivots, Array]:
        """Return pivots among the keys, and T."""
        mean = keys.mean(axis=0)
        spread = float(np.square(keys - mean).sum(axis=1).mean())
        chosen, terms = _interpolation(keys, np.ones(len(keys)), spread, rank)
        return cls(keys[chosen], terms.sum(axis=1), len(keys), mean, spread), terms

    def merged(self, other: Pivots, rank: int) -> tuple[Pivots, Array]:
        """Return pivots among the pivots of both blocks, and the transfer."""
        count = self.count + other.count
        a, b = self.count / count, other.count / count
        gap = self.mean - other.mean
        spread = a * self.spread + b * other.spread + a * b * float(gap @ gap)
        keys, mass = np.vstack([self.keys, other.keys]), np.hstack([self.mass, other.mass])
        chosen, transfer = _interpolation(keys, np.abs(mass), spread, rank)
        mean = a * self.mean + b * other.mean
        return Pivots(keys[chosen], transfer @ mass, count, mean, spread), transfer

    def logs(self, q: Array) -> Array:
        """Return q·z."""
        return np.asarray(q @ self.keys.T)

    @classmethod
    def width(cls, d: int) -> int:
        """Return d, the numbers of a key."""
        return d

    @classmethod
    def to_merge(cls, d: int) -> tuple[int, int]:
        """Return 1 and d + 2: the mass of a pivot, and count, mean and spread of the block."""
        return 1, d + 2

    @classmethod
    def work(cls, d: int, rank: int, c: int) -> tuple[int, int]:
        """Return the multiply-adds of the kernel with pivots, of pivots, weights and states."""
        each = rank * (d + 2 * rank)
        return each + rank * c, 2 * rank * (each + rank * (c + 1))


def _interpolation(keys: Array, mass: Array, spread: float, rank: int) -> tuple[Array, Array]:
    """Return the indices of pivots among keys (s, d), at most rank, and G(Z, Z)⁻¹ G(Z, keys)."""
    most = min(rank, len(keys))
    chosen, terms = np.empty(most, np.intp), np.empty((most, len(keys)))
    width = max(4 * spread, Pivots.LEAST)  # s² = 2·spread
    rest, new = np.ones(len(keys)), np.empty(len(keys))
    r = _pivots(np.ascontiguousarray(keys), mass, width, NEAR, rest, new, chosen, terms)
    return chosen[:r], terms[:r]


@kernel
def _pivots(
    keys: Any, mass: Any, width: float, near: float, rest: Any, new: Any, chosen: Any, terms: Any
) -> Any:
    # First the pivoted Cholesky decomposition of `approx.low_rank.pivots`, transposed: its columns
    # are the rows of terms. Then the triangular system, from the last row up.
    # NumPy's functions, such as a maximum, would take longer to compile than all of this.
    count, d = keys.shape
    r = 0
    while r < chosen.size:
        unit, most, p = 0.0, -1.0, 0
        for j in range(count):
            unit = mass[j] * rest[j] * TIE if mass[j] * rest[j] * TIE > unit else unit
        for j in range(count if unit > 0.0 else 0):
            gain = np.rint(mass[j] * rest[j] / unit)
            p, most = (j, gain) if gain > most else (p, most)
        if rest[p] == 0:
            break
        for j in range(count):
            distance = 0.0
            for c in range(d):
                gap = keys[p, c] - keys[j, c]
                distance += gap * gap
            new[j] = -distance / width
        for j in range(count):
            new[j] = exp(new[j])
        for t in range(r):
            share = terms[t, p]
            for j in range(count):
                new[j] -= share * terms[t, j]
        root = math.sqrt(new[p])
        for j in range(count):
            terms[r, j] = new[j] / root
        for t in range(r):
            terms[r, chosen[t]] = 0.0
        for j in range(count):
            left = max(rest[j] - terms[r, j] * terms[r, j], 0.0)
            rest[j] = 0.0 if left < near or j == p else left
        chosen[r] = p
        r += 1
    for i in range(r - 1, -1, -1):
        pivot = terms[i, chosen[i]]
        for t in range(i + 1, r):
            new[t] = terms[i, chosen[t]]
        for t in range(i + 1, r):
            share = new[t]
            for j in range(count):
                terms[i, j] -= share * terms[t, j]
        for j in range(count):
            terms[i, j] /= pivot
    return r
