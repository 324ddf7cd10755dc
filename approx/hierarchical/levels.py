"""The low-rank part of a hierarchical estimate: one pair of factors per block, level by level."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array, Given
from approx.estimate import memory
from approx.estimate.low import Dense, Low, Rows, ScaledFactors, rescale
from approx.estimate.masks import ALL, Mask
from approx.hierarchical.partition import Partition
from approx.supports import patterns


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """The factors of the blocks of one level.

    For a block with keys B, low[i, B] = e^log left right[B]ᵀ for each query i that takes the block.

    Attributes
    ----------
    left : (pairs, r)
        One row per pair of a query and a block.
    logs : (pairs,)
        The log scale of each pair.
    right : (l, r)
        One row per key; 0 if no query takes its block.
    """

    left: Array
    logs: Array
    right: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Levels(Low):
    """The sum over the levels of a partition; 0 for near keys and unseen keys.

    Every pair of a query and a block has its own scale, so that a row does not depend on keys that
    its query does not see. There are `Terms` for each level.
    """

    partition: Partition
    terms: list[Terms]

    @property
    def zero_outside(self) -> Mask:
        return self.partition.mask

    @property
    def shape(self) -> tuple[int, int]:
        return self.partition.mask.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.terms[0].left.dtype

    @property
    def rank(self) -> int:
        """The trivial bound min(n, l): a matrix of low-rank blocks need not have low rank."""
        return min(self.shape)

    @property
    def parameters(self) -> int:
        return self.partition.stored(self.terms[0].left.shape[1])

    @property
    def nbytes(self) -> int:
        terms = sum(t.left.nbytes + t.logs.nbytes + t.right.nbytes for t in self.terms)
        return terms + self.partition.nbytes

    @functools.cached_property
    def _row_logs(self) -> Array:
        top = np.full(self.shape[0], np.finfo(self.dtype).min / 8, self.dtype)  # takes no block
        for level, terms in zip(self.partition.levels, self.terms):
            np.maximum.at(top, level.rows, terms.logs)
        return top

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        return np.asarray(self._row_logs[rows])

    @functools.cached_property
    def _by_row(self) -> list[tuple[Array, Array]]:
        # for each level, the order of the pairs by row, and the offset of each row in it
        n = self.shape[0]
        return [
            (
                np.argsort(level.rows, kind="stable"),
                np.concatenate([[0], np.cumsum(np.bincount(level.rows, minlength=n))]),
            )
            for level in self.partition.levels
        ]

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        if not isinstance(cols, slice) or cols.step not in (None, 1):
            entries = self.block(rows, ALL, shift)[:, cols]
            return np.positive(entries, out=out, order="C")
        begin, end, _ = cols.indices(self.shape[1])
        if out is None:
            out = np.empty((len(shift), max(end - begin, 0)), self.dtype)
        out[:] = 0
        chosen = np.arange(self.shape[0])[rows]
        for level, terms, (order, start) in zip(self.partition.levels, self.terms, self._by_row):
            indptr, places = patterns.runs(start[chosen], start[chosen + 1])
            pairs, local = order[places], np.repeat(np.arange(len(chosen)), np.diff(indptr))
            ordered = np.argsort(level.blocks[pairs], kind="stable")
            pairs, local = pairs[ordered], local[ordered]
            blocks = level.blocks[pairs]
            edges = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
            for a, z in itertools.pairwise(edges):
                if a == z:
                    continue
                keys = self.partition.keys(level, int(blocks[a]))
                left, right = max(keys.start, begin), min(keys.stop, end)
                if left < right:
                    with np.errstate(over="ignore", invalid="ignore"):  # rescale raises
                        values = terms.left[pairs[a:z]] @ terms.right[left:right].T
                    scale = terms.logs[pairs[a:z]] - shift[local[a:z]]
                    out[local[a:z], left - begin : right - begin] = rescale(values, scale)
        return out

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        rows = np.repeat(np.arange(self.shape[0]), np.diff(pattern.indptr))
        keys = pattern.indices
        out = np.zeros(len(keys), self.dtype)
        for level, terms, (order, _) in zip(self.partition.levels, self.terms, self._by_row):
            if not len(order):  # no query takes a block of this size
                continue
            blocks = (keys - self.partition.sinks) // level.size
            count = self.shape[1] // level.size + 2  # number of blocks, plus one for the sinks
            known = level.rows[order] * count + level.blocks[order]  # ascending
            asked = np.where(keys < self.partition.sinks, -1, rows.astype(np.intp) * count + blocks)
            found = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            hit = np.flatnonzero(known[found] == asked)
            pairs = order[found[hit]]
            values = (terms.left[pairs] * terms.right[keys[hit]]).sum(axis=1)
            out[hit] = rescale(values, terms.logs[pairs] - shift[rows[hit]])
        return out

    def matmat(self, V: Array) -> tuple[Array, Array]:
        """Return (y, row_log) with low @ V = diag(e^row_log) y: one sum per block, O(n log n)."""
        row_log = self._row_logs
        y = np.zeros((self.shape[0], V.shape[1]), np.result_type(self.dtype, V))
        for level, terms in zip(self.partition.levels, self.terms):
            weight = np.exp(terms.logs - row_log[level.rows])[:, None]
            for block, pairs in level.groups:
                keys = self.partition.keys(level, block)
                state = terms.right[keys].T @ V[keys]
                y[level.rows[pairs]] += weight[pairs] * (terms.left[pairs] @ state)
        return y, row_log

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        y = np.zeros((self.shape[1], W.shape[1]), np.result_type(self.dtype, W))
        for level, terms in zip(self.partition.levels, self.terms):
            for block, pairs in level.groups:
                rows = level.rows[pairs]
                weighted = rescale(W[rows], terms.logs[pairs] - row_log[rows])
                keys = self.partition.keys(level, block)
                y[keys] += terms.right[keys] @ (terms.left[pairs].T @ weighted)
        return y

    def scaled_factors(self) -> ScaledFactors:
        row_log = self._row_logs
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        memory.reserve(nbytes, "the dense low-rank part", "n or l (or use block, @)")
        return Dense(self.block(ALL, ALL, row_log), row_log).scaled_factors()

    def rescaled(self, row: Array, column: Array) -> Levels:
        terms = []
        for level, old in zip(self.partition.levels, self.terms):
            logs, right = old.logs + row[level.rows], old.right.copy()
            for block, pairs in level.groups:
                keys = self.partition.keys(level, block)
                top = column[keys].max()
                right[keys] *= np.exp(column[keys] - top)[:, None]
                logs[pairs] += top
            terms.append(Terms(old.left, logs, right))
        return Levels(self.partition, terms)
