"""What a row of attention can have on keys of which it read boxes only, rounded outwards."""

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.kernels import pattern_products
from approx.supports.key_boxes import EPS, EXP, TINY, PageBoxes


class Unread:
    """Some rows, the keys whose logits they have read, and the boxes of all others.

    Exponentials are at the scale e^−top of each row, where top is at least every logit of it. Every
    sum of them is off by less than ``round`` of itself, and what underflows is less than ``least``.

    Parameters
    ----------
    mask : Mask
        That of the rows.
    read : (rows, l) CSR
        The keys whose logits are read, all of which are seen.
    known : PageBoxes

    Attributes
    ----------
    counts, row : (rows,), (entries,)
        How many keys a row has read, and the row of each.
    unread : (rows, cells)
        How many seen keys of each cell it has not.
    low, high : (entries,)
        Exponentials of the read logits, after `bound`, at least and at most.
    cell_low, cell_high : (rows, cells)
        Those of one key of a cell.
    L, U : (rows,)
        The sums over unread keys.
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
        """Bound the exponentials of what is read, and of what is not, for q of these rows."""
        # The sum of d products is off by at most d·eps/2·Σ|q_c k_c| [2], that sum itself by as
        # much of itself, and x ± e rounds by eps/2·(|x| + e): all below (d + 4)·eps·Σ|q_c k_c|.
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
        """Return the sums over the keys that were read, (rows,)."""
        return np.bincount(self.row, x, minlength=len(self.counts))

    def by_page(self, x: Array) -> Array:
        """Return the sums over the cells of a page, (rows, pages)."""
        return np.add.reduceat(x, self.known.starts, axis=1) if self.known.bits else x

    def lost(self, kept: Array, eps: float) -> Array:
        """Return a bound on tv of softmax on the kept ones of the keys that were read, (rows,).

        It is (U + the sum over what was read and is not kept)/(all of that + the sum over what is
        kept), for logits that are rounded as in a precision eps.

        Parameters
        ----------
        kept : (entries,) bool
        eps : float
            The precision in which the estimate has its logits.
        """
        held = self.over_read(np.where(kept, self.low, 0.0)) * (1 - self.round)
        rest = self.over_read(np.where(kept, 0.0, self.high)) * (1 + self.round) + self.U
        share = rest / np.maximum(held + rest, TINY) * (1 + 4 * EPS)
        # Logits that are off by δ change every weight by e^±δ, and shares in sum by e^{2δ} − 1.
        off = np.zeros(len(self.counts))
        np.maximum.at(off, self.row, np.where(kept, self.off + 64 * eps * (1 + self.size), 0.0))
        share += np.expm1(np.minimum(2 * (off + EXP), 1.0)) + self.least
        return np.asarray(np.where(held > 0, np.minimum(share, 1.0), (rest > 0).astype(float)))
