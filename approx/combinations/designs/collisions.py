"""A design by hashing: keys that share buckets with the query, weighted by their probability."""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.combinations.designs.design import Design, Rest
from approx.estimate import memory
from approx.kernels.jit import kernel, summing_kernel
from approx.supports import hashing


@kernel
def _often(
    begins: Any,
    ends: Any,
    order: Any,
    least: Any,
    held_indptr: Any,
    held: Any,
    first: Any,
    stop: Any,
    counts: Any,
    indptr: Any,
    keys: Any,
) -> None:
    """Write the keys of each row that share at least `least` buckets with its query, in order.

    With an empty indptr only count them. In table t, query i shares its bucket with
    order[t, begins[t, i]], …, order[t, ends[t, i] − 1].
    """
    shared = np.zeros(order.shape[1], np.int32)
    for i in range(counts.size):
        for t in range(order.shape[0]):
            for p in range(begins[t, i], ends[t, i]):
                shared[order[t, p]] += 1
        for p in range(held_indptr[i], held_indptr[i + 1]):
            shared[held[p]] = 0
        found = 0
        for j in range(first[i], stop[i]):
            if shared[j] >= least:
                if indptr.size:
                    keys[indptr[i] + found] = j
                found += 1
        counts[i] = found
        for t in range(order.shape[0]):
            for p in range(begins[t, i], ends[t, i]):
                shared[order[t, p]] = 0


@summing_kernel
def _squared_chords(q: Any, k: Any, rows: Any, keys: Any, out: Any) -> None:
    for p in range(rows.size):
        a, b = q[rows[p]], k[keys[p]]
        total = 0.0
        for c in range(a.size):
            total += (a[c] - b[c]) ** 2
        out[p] = total


@dataclasses.dataclass(frozen=True, eq=False)
class Collisions(Design):
    """Keys that share the query's bucket in at least `least` of L tables of K sign hashes.

    A hash is the side of a random hyperplane, which q and k share with probability 1 − θ/π. A table
    joins K hashes, so q and k share a bucket with probability p = (1 − θ/π)^K, and

        P[≥ 1 of L] = 1 − (1 − p)^L,
        P[≥ 2 of L] = 1 − (1 − p)^L − L·p·(1 − p)^(L−1).

    Two keys both lie on the query's side with probability 1 − (θ_qj + θ_ql + θ_jl)/(2π), which
    gives the joint probabilities.

    Parameters
    ----------
    q, k : (n, d), (l, d)
        The hashed vectors.
    hashes, tables, least : int
        K, L, and 1 or 2.

    References
    ----------
    .. [1] Z. Chen et al., "MagicPIG: LSH sampling for efficient LLM generation", ICLR 2025,
       section 4 (as far as its public code goes).
    """

    q: Array
    k: Array
    hashes: int
    tables: int
    least: int

    def draw(self, rest: Rest, rng: np.random.Generator) -> scipy.sparse.csr_array:
        n, l, d = len(self.q), len(self.k), self.q.shape[1]
        memory.reserve(
            8 * (self.tables * (2 * n + l) + self.hashes * (n + l + d)), "the tables", "n or l"
        )
        begins, ends = np.empty((2, self.tables, n), np.intp)
        order = np.empty((self.tables, l), np.intp)
        powers = 1 << np.arange(self.hashes)
        for t in range(self.tables):
            omega = rng.standard_normal((self.hashes, d))
            of_queries, of_keys = (hashing.sign(x, omega) @ powers for x in (self.q, self.k))
            order[t] = np.argsort(of_keys, kind="stable")
            begins[t] = np.searchsorted(of_keys[order[t]], of_queries, "left")
            ends[t] = np.searchsorted(of_keys[order[t]], of_queries, "right")
        counts, none = np.zeros(n, np.intp), np.empty(0, np.intp)
        held_indptr, held = (np.asarray(x, np.intp) for x in rest.held)
        given = begins, ends, order, self.least, held_indptr, held, rest.mask.first, rest.mask.stop
        _often(*given, counts, none, none)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        keys = np.empty(int(indptr[-1]), np.intp)
        _often(*given, counts, indptr, keys)
        rows = np.repeat(np.arange(n), counts)
        return rest.weights(indptr, keys, 1.0 / self._at_least(1.0 - self._angles(rows, keys)))

    def variances(self, rest: Rest, i: int) -> tuple[Array, Array]:
        p = self.probabilities(i, rest.keys(i))
        reached = p > 0
        return np.where(reached, (1.0 - p) / np.where(reached, p, 1.0), 0.0), reached

    def probabilities(self, i: int, keys: Array) -> Array:
        """Return π of query i and some keys."""
        return self._at_least(1.0 - self._angles(np.full(len(keys), i), keys))

    def row_covariance(self, rest: Rest, i: int) -> Array:
        keys = rest.keys(i)
        theta = self._angles(np.full(len(keys), i), keys)
        between = hashing.angles(self.k[keys], self.k[keys]) / np.pi
        p = self._at_least(1.0 - theta)
        one = (1.0 - theta) ** self.hashes
        side = 1.0 - (theta[:, None] + theta + between) / 2.0  # both on the query's side
        both = np.clip(side, 0.0, None) ** self.hashes
        only = np.clip(one[:, None] - both, 0.0, None)  # j shares a bucket with the query, l not
        none = np.clip(1.0 - both - only - only.T, 0.0, 1.0)
        L = self.tables
        # P[j in fewer than `least` tables] = 1 − π_j, and the same for both keys:
        seldom = none**L
        if self.least == 2:
            seldom = seldom + L * none ** (L - 1) * (both + only + only.T)
            if L >= 2:
                seldom = seldom + L * (L - 1) * none ** (L - 2) * only * only.T
        joint = np.clip(seldom - 1.0 + p[:, None] + p, 0.0, None)
        np.fill_diagonal(joint, p)
        product = p[:, None] * p
        return np.where(product > 0, joint / np.where(product > 0, product, 1.0) - 1.0, 0.0)

    def _at_least(self, same_side: Array) -> Array:
        # P[X ≥ c] of X binomial is a regularised incomplete beta function, and exact where tiny
        return np.asarray(
            scipy.special.betainc(self.least, self.tables - self.least + 1, same_side**self.hashes)
        )

    def _angles(self, rows: Array, keys: Array) -> Array:
        """Return the angle of each pair divided by π."""
        q, k = hashing.unit(self.q), hashing.unit(self.k)
        theta = np.empty(len(rows))
        _squared_chords(q, k, rows, keys, theta)
        theta = 2.0 * np.arcsin(np.minimum(np.sqrt(theta) / 2.0, 1.0))
        q_zero, k_zero = (~np.any(x, axis=1) for x in (q, k))
        return np.where(q_zero[rows] != k_zero[keys], 0.5, theta / np.pi)
