"""The exact attention of a head, as a matrix or in stripes, with its spectra and sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from analysis.inputs import Head
from analysis.ranks import state_rank
from approx import checks
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.masks import MaskLike
from approx.hierarchical.partition import Partition

MOST_ENTRIES = 2**22  # of a matrix that is stored or decomposed


class Weights:
    """The softmax rows of a head, in stripes, or stored if they have at most 2^22 entries.

    Parameters
    ----------
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask

    Examples
    --------
    >>> Weights([[0.0], [0.0]], [[1.0], [1.0]], mask="causal").matrix
    array([[1. , 0. ],
           [0.5, 0.5]])
    """

    def __init__(self, Q: ArrayLike, K: ArrayLike, mask: MaskLike = None) -> None:
        self.Q, self.K = (np.asarray(x, np.float64) for x in checks.queries_keys(Q, K))
        self.mask = masks.as_mask(mask, len(self.Q), len(self.K))
        self._held = np.zeros(1)
        self._spectra: dict[Partition | int, list[Array]] = {}

    @classmethod
    def from_head(cls, x: Head) -> Weights:
        """Return the weights of a head, which has no attention sink."""
        x.require_no_sinks("bounds and ranks of attention weights")
        return cls(x.Q, x.K, x.mask)

    @property
    def is_stored(self) -> bool:
        """Whether the weights are stored as a matrix."""
        return math.prod(self.mask.shape) <= MOST_ENTRIES

    @functools.cached_property
    def matrix(self) -> Array:
        """The matrix, (n, l)."""
        return exact.softmax(self.Q, self.K, self.mask)

    @functools.cached_property
    def singular_values(self) -> Array:
        """The singular values of the matrix, descending."""
        return np.asarray(scipy.linalg.svdvals(self.matrix, check_finite=False))

    def stripes(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows with their weights for all keys."""
        if self.is_stored:
            yield slice(0, self.mask.n), self.matrix
            return
        for rows in exact.stripes(*self.mask.shape):
            yield rows, exact.softmax(self.Q[rows], self.K, self.mask.take(rows))

    def rows(self, rows: Array) -> Array:
        """Return the weights of some queries for all keys, as an array."""
        if self.is_stored:
            return np.asarray(self.matrix[rows])
        return exact.softmax(self.Q[rows], self.K, self.mask.take(rows))

    def take(self, order: Array) -> Weights:
        """Return the `Weights` of some queries."""
        return Weights(self.Q[order], self.K, self.mask.take(order))

    def spectra(self, cut: Partition | int | None) -> list[Array]:
        """Return the singular values of disjoint blocks, rounded down and cached.

        Parameters
        ----------
        cut : Partition, int or None
            The blocks of a hierarchy; dyadic rectangles, where a stretch of at most ``cut`` keys is
            not halved; or None for the whole matrix.
        """
        if cut is None:
            return [state_rank.lowered(self.singular_values, self.mask.shape)]
        if cut not in self._spectra:
            self._spectra[cut] = [
                state_rank.singular_values(self.matrix[block]) for block in self._blocks(cut)
            ]
        return self._spectra[cut]

    def _blocks(self, cut: Partition | int) -> list[tuple[Array | slice, slice]]:
        if isinstance(cut, int):
            return [*state_rank.rectangles(self.mask, cut)]
        return [
            (level.rows[pairs], cut.keys(level, block))
            for level in cut.levels
            for block, pairs in level.groups
        ]

    @property
    def slack(self) -> float:
        """A bound on the rounding error of a sum of weights, in a row or on average.

        Each logit is off by at most d·eps/2·|q||k|, each exponential by 2 eps, its argument (down
        to −745) by 745·eps/2, and each sum of l terms by l·eps/2.
        """
        norms = [math.sqrt(np.square(x).sum(axis=1).max()) for x in (self.Q, self.K)]
        d, l = self.Q.shape[1], self.mask.l
        return float(np.finfo(float).eps * (d * math.prod(norms) + 2 * l + 1024))

    def largest(self, count: int) -> float:
        """Return the sum of the `count` largest weights in all rows together."""
        count = min(count, self.mask.entries)
        if count >= len(self._held):
            most = self.mask.entries if self.is_stored else count
            top = np.zeros(0)
            for _, P in self.stripes():
                top = np.concatenate([top, P[P > 0]])
                if (rest := len(top) - most) > 0:
                    top = np.partition(top, rest)[rest:]
            self._held = np.concatenate([[0.0], np.cumsum(np.sort(top)[::-1])])
        return float(self._held[min(count, len(self._held) - 1)])

    def lost(self, held: float) -> float:
        """Return the mean lost attention if all rows together hold `held`, rounded down."""
        return max(1.0 - held / self.mask.n - self.slack, 0.0)
