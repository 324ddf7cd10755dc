"""HyperAttention's blocks: queries and keys are sorted by their hashes and cut into blocks."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.method import Size
from approx.method.fields import integer
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import POSITIONAL, RANDOM, READS_VALUES, ROTATION, SCALE
from approx.sparse.support import SupportMethod
from approx.supports import hashing, patterns


@dataclasses.dataclass(frozen=True)
class SortedLSH(SupportMethod):
    """Keys in the query's block after both are sorted by an angular hash, exact: sortLSH.

    A hash is a word of the signs of w_1·x, …, w_h·x, w ~ N(0, I). Queries and keys are sorted by
    the place of their word in the Gray code, in which neighbours differ by one sign. Then the keys
    are cut into blocks of `size`; the query of rank r joins the block of the key of rank ⌊r·l/n⌋.

    Parameters
    ----------
    size : int, optional
        Keys per block; None is a template.
    hashes : int
        h, at most 62.

    Notes
    -----
    The probability that a pair shares a block depends on every other point and has no closed form,
    so the moments are unknown. The support is still independent of the draws of other methods.
    Blocks contain all tokens even under a mask, which then hides part of each block. So the support
    is not autoregressive, and a row may hold no key. Ties keep their order.
    The public code (at commit 68b91e9; KDEformer's, at 427df2d, alike) sorts by the Gray code b ⊕
    ⌊b/2⌋ of a word b instead of the place of b in the code, which is the inverse. So neighbours in
    its order may differ in several signs, up to 4 of 7. It also pads keys by zeros where `size`
    does not divide their number; here the last block is shorter.
    Cost: (n + l)·d·hashes operations and the sorting; at most n·size entries.

    References
    ----------
    .. [1] I. Han et al., "HyperAttention: long-context attention in near-linear time", ICLR 2024,
       section 3 (sortLSH); its public code.

    Examples
    --------
    >>> x = [[9.0], [-9.0]]
    >>> SortedLSH(size=1, hashes=3).approximate(x, x, rng=1).sparse.indices
    array([0, 1], dtype=int32)
    """

    name = "sorted_lsh"
    label = "sorted LSH blocks"
    tags = frozenset({READS_VALUES, RANDOM, POSITIONAL, ROTATION, SCALE})
    examples = ("sorted_lsh(hashes=2)",)
    sized_by = Size("size", counts="entries")

    size: int | None = None
    hashes: int = integer(7, most=62)

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        n, l = mask.shape
        omega = rng.standard_normal((self.hashes, Q.shape[1])).astype(Q.dtype)
        of_queries, of_keys = (gray_places(hashing.sign(x, omega)) for x in (Q, K))
        places = np.empty(n, int)
        places[np.argsort(of_queries, kind="stable")] = patterns.aligned(n, l)
        indptr, indices = patterns.same_chunk(places, l, self.size or 0)
        return indptr, np.argsort(of_keys, kind="stable")[indices]

    def selection(self, shape: Shape) -> Price:
        directions = float(self.hashes * shape.d)
        return Price.from_numbers(0.0, directions * shape.both, Numbers(directions + shape.l))


def gray_places(bits: Array) -> Array:
    """Return the place of each word (n, h) in the Gray code; bit 0 counts least."""
    place = np.bitwise_xor.accumulate(bits[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(place @ (1 << np.arange(bits.shape[1])))
