"""Bounds on the attention of a row to keys of which only boxes are read, rounded outwards."""

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.kernels import pattern_products
from approx.supports.key_boxes import EPS, EXP, TINY, PageBoxes


class Unread:
    """Rows with the keys whose logits they have read, and with boxes of all other keys.

    Exponentials are at the scale e^−top of each row; top is an upper bound of the row's logits. The
    relative error of a sum of them is less than ``round``, and underflow loses less than ``least``.

    Parameters
    ----------
    mask : Mask
        The mask of these rows.
    read : (rows, l) CSR
        The keys whose logits are read; all are inside the mask.
    known : PageBoxes

    Attributes
    ----------
    counts, row : (rows,), (entries,)
        The number of keys that a row has read, and the row of each read key.
    unread : (rows, cells)
        The number of unread keys of each cell inside the mask.
    low, high : (entries,)
        After `bound`: lower and upper bounds of the exponentials of the read logits.
    cell_low, cell_high : (rows, cells)
        After `bound`: bounds of the exponential for any unread key of a cell.
    L, U : (rows,)
        After `bound`: bounds of the sum of exponentials over unread keys.
    """

    def __init__(self, mask: Mask, read: scipy.sparse.csr_array, known: PageBoxes) -> None:
        self.mask, self.s, self.known = mask, read, known
        n, l = read.shape
        self.round, self.least = EXP + (l + 16) * EPS, l * TINY
        self.counts = np.diff(read.indptr)
        self.row = np.repeat(np.arange(n), self.counts)
        starts = known.cells
        ends = np.append(starts[1:], known.l)
        first, stop = mask.first[:, None], mask.stop[:, None]
        seen = np.maximum(np.minimum(stop, ends) - np.maximum(first, starts), 0)
        cell = read.indices if known.bits else read.indices // known.size
        held = np.bincount(self.row * len(starts) + cell, minlength=seen.size)
        self.unread = np.asarray(seen - held.reshape(seen.shape))

    def bound(self, q: Array, k: Array) -> None:
        """Bound the exponentials of read and of unread keys, for the queries q of these rows."""
        # S = Σ|q_c k_c|. The sum of d products is off by at most d·eps/2·S [2], the computed S by
        # as much, and x ± e rounds by eps/2·(|x| + e): together less than (d + 4)·eps·S.
        x = self.logits = pattern_products.product(q, k, self.s)
        self.size = pattern_products.product(np.abs(q), np.abs(k), self.s)
        e = self.off = (q.shape[1] + 4) * (EPS * self.size + TINY)
        lower, upper = self.known.bounds(q)
        none = self.unread == 0
        lower[none] = upper[none] = -np.inf
        top = upper.max(axis=1)
        np.maximum.at(top, self.row, x + e)
        t = top[self.row]
        self.low, self.high = np.exp(x - e - t) * (1 - EXP), np.exp(x + e - t) * (1 + EXP) + TINY
        self.cell_low = np.exp(lower - top[:, None]) * (1 - EXP)
        self.cell_high = np.exp(upper - top[:, None]) * (1 + EXP) + TINY
        self.L = (self.unread * self.cell_low).sum(axis=1) * (1 - self.round)
        self.U = (self.unread * self.cell_high).sum(axis=1) * (1 + self.round)

    def over_read(self, x: Array) -> Array:
        """Return the sums of x over the read keys of each row, (rows,)."""
        return np.bincount(self.row, x, minlength=len(self.counts))

    def by_page(self, x: Array) -> Array:
        """Return the sums of x over the cells of each page, (rows, pages)."""
        return np.add.reduceat(x, self.known.starts, axis=1) if self.known.bits else x

    def lost(self, kept: Array, eps: float) -> Array:
        """Return a bound on tv of softmax restricted to some of the read keys, (rows,).

        With R = U + the sum over the other read keys, the bound is R/(R + the sum over ``kept``),
        plus a margin for the estimate's logits, which are rounded in a precision eps.
        """
        held = self.over_read(np.where(kept, self.low, 0.0)) * (1 - self.round)
        rest = self.over_read(np.where(kept, 0.0, self.high)) * (1 + self.round) + self.U
        share = rest / np.maximum(held + rest, TINY) * (1 + 4 * EPS)
        # Logit errors of δ change every weight by e^±δ, and the shares in sum by e^{2δ} − 1.
        off = np.zeros(len(self.counts))
        np.maximum.at(off, self.row, np.where(kept, self.off + 64 * eps * (1 + self.size), 0.0))
        share += np.expm1(np.minimum(2 * (off + EXP), 1.0)) + self.least
        return np.asarray(np.where(held > 0, np.minimum(share, 1.0), (rest > 0).astype(float)))
