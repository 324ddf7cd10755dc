"""Boxes around pages of keys and values, which certificates read in place of the keys."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate.masks import Mask
from approx.supports import boxes
from approx.supports.patterns import rounded

SIZE = 16  # keys per page, as in Quest
MOST_BITS = 8
DEPTH = 4  # bits that store the number of bits of a coordinate
EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
# Relative error of e^x for x ≥ −745: 745·eps/2 from rounding x, and at most 4 units in the last
# place from NumPy's exp. For smaller x, e^x is 0 in float64, and TINY covers it.
EXP = 2.0**-42


@dataclasses.dataclass(frozen=True, eq=False)
class PageBoxes:
    """Boxes of pages of keys, and balls around their values, read in place of the keys.

    The keys of a page lie in a box lo ≤ k ≤ hi. With ``bits``, each side of the box is divided into
    2^bits equal parts, and a code says in which part a coordinate of a key lies; so each key has
    its own box. With ``weights``, the bits of a key are distributed among its coordinates, page by
    page. The values of a page lie within ``radius`` of their ``centre``.

    Parameters
    ----------
    size, bits : int
        Keys per page, and mean bits per coordinate of a key, 0 to 8.
    depths : (pages, d)
        Bits of each coordinate, 0 to 8.
    lo, hi : (pages, d)
    codes : (l, d) uint8, or None
        The part in which each coordinate lies; None without ``bits``.
    centre, radius : (pages, c), (pages,), or None
        None without values.

    Notes
    -----
    Cost: O(l·(d + c)), once. For each page with unread visible keys, a row reads 2d numbers, c + 1
    for the values, and bits·d bits per unread key. A page that a causal query sees in part has the
    box of all its keys. The bound holds; a box computed anew with every token would be narrower.
    With ``weights`` there are 4·d more bits per page.

    A coordinate with b bits changes q·k by up to |q_c|·side_c/2^(b + 1). Bits are assigned one at a
    time to the coordinate with the largest weight_c·side_c/2^b, which minimises the sum of these
    terms. Weights estimate |q_c|, for example from earlier queries. Any weights give valid bounds.

    Examples
    --------
    >>> known = PageBoxes.from_keys([[1.0], [3.0], [2.0]], size=2)
    >>> known.lo.ravel(), known.hi.ravel()
    (array([1., 2.]), array([3., 2.]))
    """

    size: int
    bits: int
    l: int
    depths: Array
    lo: Array
    hi: Array
    codes: Array | None
    centre: Array | None
    radius: Array | None

    @classmethod
    def from_keys(
        cls,
        K: ArrayLike,
        V: ArrayLike | None = None,
        *,
        size: int = SIZE,
        bits: int = 0,
        weights: Array | None = None,
    ) -> PageBoxes:
        """Return the boxes of pages of K (l, d), and of V (l, c) if it is given.

        Weights ≥ 0, (d,) or (pages, d), distribute the bits among the coordinates.
        """
        keys = checks.array("K", K, ndim=2).astype(np.float64)
        if not keys.size:
            raise ValueError(f"K must not be empty, got shape {keys.shape}")
        size = checks.integer("size", size, least=1)
        bits = checks.integer("bits", bits, least=0, most=MOST_BITS)
        lo, hi = boxes.page_boxes(keys, size)
        page = np.arange(len(keys)) // size
        codes = centre = radius = None
        depths = np.full(lo.shape, bits)
        if bits and weights is not None:
            depths = shared_bits(np.broadcast_to(weights, lo.shape) * (hi - lo), bits)
        if bits:
            step = ((hi - lo) / 2.0**depths)[page]
            parts = np.divide(keys - lo[page], step, out=np.zeros_like(keys), where=step > 0)
            codes = np.clip(np.floor(parts), 0, 2.0 ** depths[page] - 1).astype(np.uint8)
        if V is not None:
            v = checks.values(V, len(keys)).astype(np.float64).reshape(len(keys), -1)
            least, most = boxes.page_boxes(v, size)
            centre = least + (most - least) / 2
            apart = lengths(v - centre[page])
            radius = np.maximum.reduceat(apart, np.arange(0, len(v), size)) * (1 + EPS) + TINY
        return cls(size, bits, len(keys), depths, lo, hi, codes, centre, radius)

    @property
    def starts(self) -> Array:
        """The first key of each page, (pages,)."""
        return np.arange(0, self.l, self.size)

    @property
    def cells(self) -> Array:
        """The first key of each cell; a cell is a page, or a key if keys have codes."""
        return np.arange(self.l) if self.bits else self.starts

    def bounds(self, Q: ArrayLike) -> tuple[Array, Array]:
        """Return lower and upper bounds of q·k, rounded outwards, (n, cells) each.

        A cell is a page without ``bits``, and a key with ``bits``.
        """
        q = checks.array("Q", Q, ndim=2).astype(np.float64)
        if self.codes is None:
            return boxes.bounds(q, self.lo, self.hi)
        page = np.arange(self.l) // self.size
        step = (self.hi - self.lo) / 2.0**self.depths
        most = np.maximum(np.abs(self.lo), np.abs(self.hi))
        middle = self.lo[page] + (self.codes + 0.5) * step[page]
        # A code and a middle take eight roundings of numbers up to 2·most, so a key is within
        # step/2 + 8·eps·most of the middle of its part. q·middle and ``reach`` are sums of d
        # products, each off by at most d·eps/2 of S = Σ|q_c| most_c, and adding them rounds twice:
        # (d + 4)·2·eps·S covers all of this. A product may underflow, by TINY at most.
        reach = np.abs(q) @ (step / 2 + 8 * EPS * most).T
        margin = (q.shape[1] + 4) * (2 * EPS * (np.abs(q) @ most.T) + TINY)
        x, off = q @ middle.T, (reach + margin)[:, page]
        return x - off, x + off

    def from_centres(self, points: Array, off: Array) -> Array:
        """Return a bound on ‖v − x‖ for all values v of a page and all x within off of points."""
        assert self.centre is not None
        assert self.radius is not None
        both = points, self.centre
        unit = 2.0 ** np.ceil(np.log2(max(float(np.abs(x).max()) for x in both) + TINY))
        x, middle = (y / unit for y in both)  # a power of two, so that no square overflows
        total = np.square(x).sum(axis=1)[:, None] + np.square(middle).sum(axis=1)
        # |x|² + |c|² − 2x·c: each of the three is off by at most (c + 2)·eps/2 of its size
        off_by = (x.shape[1] + 4) * (2 * EPS * total + TINY)
        square = np.maximum(total - 2 * (x @ middle.T) + off_by, 0.0)
        distance = np.sqrt(square) * (1 + 4 * EPS) * unit + off[:, None]
        return np.asarray((distance + self.radius) * (1 + 4 * EPS) + TINY)


def shared_bits(sizes: Array, bits: int) -> Array:
    """Return bits b (pages, d), bits·d in each row, with the least Σ_c size_c/2^b_c."""
    rest, found = sizes.astype(np.float64), np.zeros(sizes.shape, np.intp)
    rows = np.arange(len(sizes))
    for _ in range(bits * sizes.shape[1]):
        largest = np.argmax(rounded(np.where(found < MOST_BITS, rest, -np.inf)), axis=1)
        rest[rows, largest] /= 2
        found[rows, largest] += 1
    return found


def channels_so_far(q: Array, mask: Mask, size: int) -> Array:
    """Return √(Σ q_c²) over the queries that came before a page was complete, (pages, d).

    Without a mask the sum is over all queries. For a page without earlier queries the result is 1.
    """
    ends = np.minimum(np.arange(size, mask.l + size, size), mask.l)
    order = np.argsort(mask.stop, kind="stable")
    with np.errstate(over="ignore"):  # an overflow counts as no query
        squares = np.cumsum(np.square(q[order]), axis=0)
    sums = np.vstack([np.zeros(q.shape[1]), squares])
    before = np.searchsorted(mask.stop[order], ends, "right")
    found = sums[np.full(len(ends), len(q)) if mask.is_full else before]
    some = found.any(axis=1) & np.isfinite(found).all(axis=1)
    return np.where(some[:, None], np.sqrt(found), 1.0)


def lengths(x: Array) -> Array:
    """Return an upper bound on the norm of each row (…, d); each hypot rounds by eps.

    No square overflows or underflows.
    """
    return np.asarray(np.hypot.reduce(x, axis=-1) * (1 + (x.shape[-1] + 4) * EPS))
