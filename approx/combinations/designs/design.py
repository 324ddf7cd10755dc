"""The base class of sampling designs: random weights W ≥ 0 on keys, each with E[W] = 1.

A key that is not drawn has W = 0. A drawn key with inclusion probability π has W = 1/π (Horvitz and
Thompson); b draws with replacement and probabilities p give W = (times drawn)/(b·p) (Hansen and
Hurwitz). Either way Σ W_j x_j is an unbiased estimate of Σ x_j, whatever x is.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate import masks, memory
from approx.estimate.masks import Mask
from approx.kernels.jit import kernel
from approx.sparse.random import choose
from approx.supports.patterns import Pattern


@kernel
def _to_keys(places: Any, indptr: Any, first: Any, held: Any, held_indptr: Any) -> None:
    """Replace r by the index of the r-th key of its row that is not held, from 0, in place.

    The keys of a row are first, first + 1, …; its held keys are in order.
    """
    for i in range(first.size):
        begin, count = held_indptr[i], held_indptr[i + 1] - held_indptr[i]
        for p in range(indptr[i], indptr[i + 1]):
            low, high = 0, count  # bounds of the number of held keys before the key
            while low < high:
                middle = (low + high) // 2
                if held[begin + middle] - middle <= first[i] + places[p]:
                    low = middle + 1
                else:
                    high = middle
            places[p] += first[i] + low


@dataclasses.dataclass(frozen=True, eq=False)
class Rest:
    """The keys of each row that are seen and not held, among which a design draws.

    Parameters
    ----------
    mask : Mask
    held : Pattern
        Keys that are exact without a draw: seen, in order, each once.
    """

    mask: Mask
    held: Pattern

    @classmethod
    def all_seen(cls, mask: Mask) -> Rest:
        """Return the rest if no key is held."""
        return cls(mask, (np.zeros(mask.n + 1, np.intp), np.empty(0, np.intp)))

    @functools.cached_property
    def counts(self) -> Array:
        """The number of keys of the rest in each row, (n,)."""
        return np.asarray(self.mask.counts - np.diff(self.held[0]))

    def keys(self, i: int) -> Array:
        """Return the keys of the rest in row i, in order."""
        first, stop = int(self.mask.first[i]), int(self.mask.stop[i])
        free = np.ones(stop - first, bool)
        indptr, indices = self.held
        free[indices[indptr[i] : indptr[i + 1]] - first] = False
        return np.flatnonzero(free) + first

    def visible(self) -> Array:
        """Return which keys are in the rest of each row, (n, l) bool."""
        rest = self.mask.visible()
        indptr, indices = self.held
        rest[np.repeat(np.arange(self.mask.n), np.diff(indptr)), indices] = False
        return rest

    def weights(self, indptr: Array, keys: Array, weights: Array) -> scipy.sparse.csr_array:
        """Return drawn keys as a matrix, in order; the weights of repeated draws add up."""
        drawn = scipy.sparse.csr_array((weights, keys, indptr), shape=self.mask.shape)
        drawn.sum_duplicates()
        return drawn

    def cut(self, drawn: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """Return the entries that are in the rest."""
        seen = masks.cut(drawn, self.mask)
        n, l = seen.shape
        pairs, held = (
            np.repeat(np.arange(n), np.diff(indptr)) * l + indices
            for indptr, indices in ((seen.indptr, seen.indices), self.held)
        )
        free = ~np.isin(pairs, held)
        indptr = np.concatenate([[0], np.cumsum(free)])[seen.indptr]
        return self.weights(indptr, seen.indices[free], seen.data[free])

    def at(self, indptr: Array, places: Array) -> Array:
        """Return the keys at given places in the rest of each row, counted from 0."""
        keys = places.astype(np.intp)
        held_indptr, held = (np.asarray(x, np.intp) for x in self.held)
        _to_keys(keys, np.asarray(indptr, np.intp), self.mask.first, held, held_indptr)
        return keys


class Design(ABC):
    """A way to draw keys of the rest of each row, independently for each row."""

    @abstractmethod
    def draw(self, rest: Rest, rng: np.random.Generator) -> scipy.sparse.csr_array:
        """Return the weights of the drawn keys, (n, l) CSR."""

    @abstractmethod
    def variances(self, rest: Rest, i: int) -> tuple[Array, Array]:
        """Return (variance, reached) of the keys `rest.keys(i)`.

        Variance is Var[W]. A key that is not reached is never drawn: W = 0, with variance 0.
        """

    @abstractmethod
    def row_covariance(self, rest: Rest, i: int) -> Array:
        """Return Cov(W_j, W_l) of the keys `rest.keys(i)`."""

    def moments(self, rest: Rest) -> tuple[Array, Array]:
        """Return (variance, reached) of all entries, (n, l); 0 and False off the rest."""
        memory.reserve(17 * rest.mask.n * rest.mask.l, "the variance of the weights", "n or l")
        variance, reached = np.zeros(rest.mask.shape), np.zeros(rest.mask.shape, bool)
        for i in range(rest.mask.n):
            keys = rest.keys(i)
            variance[i, keys], reached[i, keys] = self.variances(rest, i)
        return variance, reached

    def covariance(self, rest: Rest, i: int) -> Array:
        """Return Cov(W_j, W_l) of all keys of row i, (l, l); 0 off the rest."""
        keys = rest.keys(i)
        covariance = np.zeros((rest.mask.l, rest.mask.l))
        covariance[np.ix_(keys, keys)] = self.row_covariance(rest, i)
        return covariance


@dataclasses.dataclass(frozen=True, eq=False)
class SimpleRandom(Design):
    """k different keys of the N in a row, all sets of k alike; all keys where N ≤ k.

    π = k/N and π_jl = k(k − 1)/(N(N − 1)), so Var[W] = N/k − 1 and
    Cov(W_j, W_l) = (k − 1)N/(k(N − 1)) − 1 < 0.

    Parameters
    ----------
    k : int or (n,)
        Keys per row, ≥ 1.

    References
    ----------
    .. [1] W. G. Cochran, "Sampling Techniques", 3rd ed., Wiley 1977, section 2.5 (from memory).
    """

    k: int | Array

    def draw(self, rest: Rest, rng: np.random.Generator) -> scipy.sparse.csr_array:
        """Return the weights N/k of the drawn keys; a row uses k random numbers, or N."""
        counts = np.minimum(self.k, rest.counts)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        places = np.empty(int(indptr[-1]), np.intp)
        # random numbers are in the order of the rows, so later rows do not change earlier ones
        choose(rng.random(len(places)), indptr[:-1], np.zeros_like(counts), rest.counts, indptr,
               places)  # fmt: skip
        weights = np.repeat(rest.counts / np.maximum(counts, 1), counts)
        return rest.weights(indptr, rest.at(indptr, places), weights)

    def variances(self, rest: Rest, i: int) -> tuple[Array, Array]:
        count, k = self._sizes(rest, i)
        return np.full(count, count / max(k, 1) - 1.0), np.ones(count, bool)

    def row_covariance(self, rest: Rest, i: int) -> Array:
        count, k = self._sizes(rest, i)
        off = (k - 1) * count / (k * (count - 1)) - 1.0 if count > 1 else 0.0
        covariance = np.full((count, count), off)
        np.fill_diagonal(covariance, count / max(k, 1) - 1.0)
        return covariance

    def _sizes(self, rest: Rest, i: int) -> tuple[int, int]:
        count = int(rest.counts[i])
        return count, min(int(np.broadcast_to(self.k, rest.mask.n)[i]), count)
