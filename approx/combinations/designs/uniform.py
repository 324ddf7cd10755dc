"""Simple random sampling: k different keys of a row, all sets of k equally likely."""

import dataclasses

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.combinations.designs.design import Design, Rest
from approx.sparse.random import choose


@dataclasses.dataclass(frozen=True, eq=False)
class Uniform(Design):
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
