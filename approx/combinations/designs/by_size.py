"""Designs that draw each key with a probability proportional to its size."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.combinations.designs.design import Design, Rest
from approx.estimate import memory

Sizes = Callable[[int, Array], Array]  # (row, its keys) → log of their sizes


@dataclasses.dataclass(frozen=True, eq=False)
class BySize(Design):
    """A design of k draws per row, by sizes.

    Parameters
    ----------
    k : int
        Keys per row, ≥ 1; a row with fewer keys draws all of them.
    log_sizes : callable, optional
        Maps a row and its keys to the log of their sizes; by default sizes are equal.
    """

    k: int
    log_sizes: Sizes | None = None

    def shares(self, rest: Rest, i: int) -> Array:
        """Return the size of each key of row i divided by their sum."""
        keys = rest.keys(i)
        if self.log_sizes is None:
            return np.full(len(keys), 1.0 / max(len(keys), 1))
        log = self.log_sizes(i, keys)
        x = np.exp(log - log.max(initial=-np.inf))
        return np.asarray(x / x.sum())

    def draw(self, rest: Rest, rng: np.random.Generator) -> scipy.sparse.csr_array:
        if self.log_sizes is None and (alike := self.draw_alike(rest.counts, rng)) is not None:
            places, chosen, weights = alike
            indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(chosen, axis=1))])
            return rest.weights(indptr, rest.at(indptr, places[chosen]), weights[chosen])
        drawn = [self.draw_row(self.shares(rest, i), rng) for i in range(rest.mask.n)]
        indptr = np.concatenate([[0], np.cumsum([len(places) for places, _ in drawn])])
        places = np.concatenate([places for places, _ in drawn])
        weights = np.concatenate([weights for _, weights in drawn])
        return rest.weights(indptr, rest.at(indptr, places), weights)

    def draw_alike(
        self, counts: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array] | None:
        """Return (places, chosen, weights), (n, k) each, for rows of keys of equal size.

        Values that are not chosen mean nothing. None means that each row must read all its keys.
        """
        return None

    @abstractmethod
    def draw_row(self, shares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return places and weights of the drawn keys; equal rows use as many random numbers."""


def inclusion(shares: Array, k: int) -> Array:
    """Return probabilities ∝ shares with sum k, all at most 1.

    Keys whose k·share is at least the remaining share have probability 1; the others share the
    remaining probability.
    """
    if k >= len(shares):
        return np.ones(len(shares))
    certain = np.zeros(len(shares), bool)
    while True:
        total = shares[~certain].sum()
        if total == 0:  # the remaining shares underflow to 0
            return np.where(certain, 1.0, (k - certain.sum()) / (~certain).sum())
        p = np.where(certain, 1.0, (k - certain.sum()) * shares / total)
        above = (p >= 1.0) & ~certain
        if not above.any():
            return np.asarray(p)
        certain |= above


@dataclasses.dataclass(frozen=True, eq=False)
class Systematic(BySize):
    """A comb with k teeth: the keys in which C_j = π_1 + … + π_j passes u, u + 1, …, u uniform.

    Each key is drawn with probability π_j ∝ its size, at most once, and always k keys are drawn.
    Key j is drawn if u lies in an arc of length π_j on the circle of circumference 1. So π_jl is
    the overlap of two arcs; it may be 0.

    References
    ----------
    .. [1] W. G. Madow, "On the theory of systematic sampling, II", Annals of Mathematical
       Statistics 20, 1949 (from memory).
    """

    def draw_row(self, shares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        p = inclusion(shares, self.k)
        passed = np.floor(_ends(p) - rng.random())
        drawn = np.flatnonzero(np.diff(passed) > 0)
        return drawn, 1.0 / p[drawn]

    def draw_alike(
        self, counts: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array] | None:
        N, t = counts[:, None], np.arange(self.k)
        step = np.maximum(N / self.k, 1.0)
        places = np.ceil((rng.random(len(N))[:, None] + t) * step).astype(np.intp) - 1
        places = np.where(self.k < N, np.clip(places, 0, N - 1), t)
        return places, t < N, np.broadcast_to(step, places.shape)

    def variances(self, rest: Rest, i: int) -> tuple[Array, Array]:
        return _variance(inclusion(self.shares(rest, i), self.k))

    def row_covariance(self, rest: Rest, i: int) -> Array:
        p = inclusion(self.shares(rest, i), self.k)
        start = _ends(p)[:-1]
        gap = (start[None, :] - start[:, None]) % 1.0  # from the arc of j to that of l
        ahead = np.clip(np.minimum(p[:, None] - gap, p[None, :]), 0.0, None)
        behind = np.clip(np.minimum(p[None, :] - (1.0 - gap), p[:, None]), 0.0, None)
        return _covariance(np.minimum(ahead + behind, np.minimum(p[:, None], p[None, :])), p)


def _ends(p: Array) -> Array:
    # 0, C_1, …, C_N; the last is an integer except for rounding
    ends = np.concatenate([[0.0], np.cumsum(p)])
    ends[-1:] = np.round(ends[-1:])
    return ends


@dataclasses.dataclass(frozen=True, eq=False)
class PoissonSampling(BySize):
    """Each key drawn independently, with probability π_j ∝ its size; k keys on average.

    π_jl = π_j π_l, so weights of different keys do not covary. It needs a random number per key.

    References
    ----------
    .. [1] C.-E. Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", Springer 1992,
       section 3.5 (from memory).
    """

    def draw_row(self, shares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        p = inclusion(shares, self.k)
        drawn = np.flatnonzero(rng.random(len(p)) < p)
        return drawn, 1.0 / p[drawn]

    def variances(self, rest: Rest, i: int) -> tuple[Array, Array]:
        return _variance(inclusion(self.shares(rest, i), self.k))

    def row_covariance(self, rest: Rest, i: int) -> Array:
        return np.diag(self.variances(rest, i)[0])


@dataclasses.dataclass(frozen=True, eq=False)
class Multinomial(BySize):
    """k draws with replacement, each with probabilities p ∝ sizes; repeated draws add up.

    W = (times drawn)/(k·p), Var[W_j] = (1/p_j − 1)/k and Cov(W_j, W_l) = −1/k.

    References
    ----------
    .. [1] M. H. Hansen, W. N. Hurwitz, "On the theory of sampling from finite populations", Annals
       of Mathematical Statistics 14, 1943 (from memory).
    """

    def draw_row(self, shares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        memory.reserve(32 * self.k, "draws with replacement", "k")
        u = rng.random(self.k)
        if not len(shares):
            return np.empty(0, np.intp), np.empty(0)
        ends = np.cumsum(shares)
        drawn = np.searchsorted(ends, u * ends[-1], "right")
        return drawn, 1.0 / (self.k * shares[drawn])

    def draw_alike(
        self, counts: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array] | None:
        N = counts[:, None]
        memory.reserve(32 * len(N) * self.k, "draws with replacement", "n or k")
        places = (rng.random(len(N) * self.k).reshape(-1, self.k) * N).astype(np.intp)
        share = np.broadcast_to(N / self.k, places.shape)
        return places, np.broadcast_to(N > 0, places.shape), share

    def variances(self, rest: Rest, i: int) -> tuple[Array, Array]:
        p = self.shares(rest, i)
        reached = p > 0
        return np.where(reached, (1.0 / np.where(reached, p, 1.0) - 1.0) / self.k, 0.0), reached

    def row_covariance(self, rest: Rest, i: int) -> Array:
        variance, reached = self.variances(rest, i)
        covariance = np.where(reached[:, None] & reached, -1.0 / self.k, 0.0)
        np.fill_diagonal(covariance, variance)
        return covariance


def _variance(p: Array) -> tuple[Array, Array]:
    """Return (1 − π)/π, 0 where π is 0, and whether π > 0."""
    reached = p > 0
    return np.where(reached, (1.0 - p) / np.where(reached, p, 1.0), 0.0), reached


def _covariance(joint: Array, p: Array) -> Array:
    """Return π_jl/(π_j π_l) − 1, 0 where π_j or π_l is 0."""
    product = p[:, None] * p
    return np.where(product > 0, joint / np.where(product > 0, product, 1.0) - 1.0, 0.0)
