"""What query heads that share their keys read together."""

from __future__ import annotations

from typing import NamedTuple

from approx import Method, checks
from approx.combinations.centred import Centered
from approx.combinations.sampled import Sampled
from approx.combinations.scatterbrain import Scatterbrain
from approx.compressed_logits.channels import Channels
from approx.compressed_logits.logit_svd import LogitSVD
from approx.compressed_logits.quantised import Quantised
from approx.method.prices import Shape, entries
from approx.polynomials.method import PolynomialMethod
from approx.sparse.columns import OF_KEYS, Columns
from approx.sparse.projected_top_k import ProjectedTopK
from approx.sparse.support import ByPlace, SupportMethod
from approx.sparse.true_denominator import TrueDenominator


class Reads(NamedTuple):
    """The numbers that a new query of one head reads, by who else reads them.

    Attributes
    ----------
    shared : float
        Those that every head of the group reads, once for all of them.
    chosen : float
        Those of keys and values that a head chooses for itself.
    most : float
        How many numbers there are to choose from, so that a group reads no more than these.
    own : float
        Those that belong to one head.
    """

    shared: float = 0.0
    chosen: float = 0.0
    most: float = 0.0
    own: float = 0.0

    @property
    def of_one(self) -> float:
        """What one head reads: the price."""
        return self.shared + self.chosen + self.own

    def per_head(self, group: int) -> float:
        """Return what a head of a group reads on average."""
        return (self.shared + min(group * self.chosen, self.most)) / group + self.own


def group_reads(method: Method, shape: Shape, group: int) -> float | None:
    """Return the numbers read per new query and query head, in a group that shares its keys.

    Parameters
    ----------
    method : Method
    shape : Shape
        That of one head, such as `Head.shape`.
    group : int
        Query heads that have the same keys and values.

    Returns
    -------
    float or None
        (shared + min(group·chosen, most))/group + own, see `Reads`; for one head it is the price in
        reads. It is None where that is not known.

    Notes
    -----
    Shared are keys that follow from places (`exact`, `sink_window`, …) or from the keys alone
    (`columns` by norms, …), whatever is kept of all keys to choose among them (boxes of pages,
    places in sorted lists), logits from keys that are compressed by themselves, and states, if a
    row needs no other query: all heads of the group then have the same frequencies. Chosen are the
    keys of every other support. Own is what is fitted to the queries of a head. The numbers are
    counted by the same arrays as the prices, in the tests.

    Examples
    --------
    Three heads share a window of 16 keys, and choose 16 keys of 40 each:

    >>> from approx import parse
    >>> shape = Shape(n=40, l=40, d=4, c=4)
    >>> [group_reads(parse(spec), shape, 3) for spec in ("sink_window(k=16)", "top_k(k=16)")]
    [42.666666666666664, 106.66666666666667]
    """
    size = checks.integer("group", group, least=1)
    checks.instance("method", method, Method, "a method")
    checks.instance("shape", shape, Shape, "a Shape")
    found = _reads(method, shape)
    return None if found is None else found.per_head(size)


def bytes_read(method: Method, shape: Shape, *, group: int = 1, number: float = 2) -> float | None:
    """Return the bytes read per new query and query head, from a cache in another precision.

    Parameters
    ----------
    method, shape, group
        As in `group_reads`.
    number : float
        Bytes of a number: 2 in bfloat16 and float16, 4 in float32.

    Notes
    -----
    Every number has as many bytes, but those of keys that are `quantised`, which have their bits.

    Examples
    --------
    Eight keys of four numbers at two bits, their values, and two scales each:

    >>> from approx import parse
    >>> bytes_read(parse("quantised(bits=2)"), Shape(n=8, l=8, d=4, c=4))
    104.0
    """
    checks.positive("number", number)
    numbers = group_reads(method, shape, group)
    if numbers is None or not isinstance(method, Quantised):
        return None if numbers is None else numbers * number
    rounded = max(shape.most - method.recent, 0) * shape.d / group
    return (numbers - rounded) * number + rounded * method.bits / 8


def _reads(method: Method, shape: Shape) -> Reads | None:
    price = method.priced(shape)
    if price is None or price.reads is None:
        return None
    reads, most = price.reads, float(shape.most * (shape.d + shape.c))
    if isinstance(method, SupportMethod):
        return _of_support(method, shape, reads, most)
    if isinstance(method, Sampled | Scatterbrain | TrueDenominator | Centered):
        return _of_parts(method, shape, reads, most)
    if isinstance(method, Channels):
        values = float(shape.most * shape.c)
        return Reads(values, reads - values, float(shape.most * shape.d))
    if isinstance(method, LogitSVD):
        values = float(shape.most * shape.c)
        return Reads(values, own=reads - values)
    if isinstance(method, PolynomialMethod) and reads > most:  # from the logits
        return Reads(most, own=reads - most)
    return Reads(reads) if method.row_local else Reads(own=reads)


def _of_support(method: SupportMethod, shape: Shape, reads: float, most: float) -> Reads:
    held = method.held(shape.decoding)
    assert held is not None
    keys = entries(float(held.max()), shape).reads or 0.0
    rest = reads - keys
    if isinstance(method, ByPlace) or (isinstance(method, Columns) and method.by in OF_KEYS):
        return Reads(reads)
    by_channels = isinstance(method, ProjectedTopK) and method.by == "channels"
    if method.row_local and not by_channels:
        return Reads(rest, keys, most)
    return Reads(0.0, keys, most, rest)


def _of_parts(method: Method, shape: Shape, reads: float, most: float) -> Reads | None:
    """Return the sum of the parts, the keys that are drawn beside them, and what is left."""
    parts = [_reads(part, shape) for part in method.parts.values()]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    shared, own = sum(part.shared for part in known), sum(part.own for part in known)
    chosen = sum(part.chosen for part in known)
    rest = reads - shared - chosen - own
    if isinstance(method, Sampled):
        sizes = method.of_sizes(shape).reads or 0.0
        if isinstance(method.sparse, ByPlace):  # whose keys no head draws
            most -= method.sparse.priced(shape).reads  # type: ignore[union-attr, operator]
        return Reads(shared + sizes, chosen + rest - sizes, most, own)
    return Reads(shared, chosen, most, own + rest)
