"""What query heads that share their keys read together."""

from approx import Method, checks
from approx.method.prices import Shape


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
        (shared + min(group·chosen, most))/group + own, see `approx.method.prices.Reads`; for one
        head it is the price in reads. It is None where that is not known.

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
    found = method.shared_reads(shape)
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
    Every number has as many bytes, but the codes of keys and values, which have their bits. They
    are shared by the group, unless a head chooses its values for itself. In 16 bits and for one
    head this is the currency ``bytes_read``.

    Examples
    --------
    Eight keys of four numbers at two bits, their values, and two scales each:

    >>> from approx import parse
    >>> bytes_read(parse("quantised(bits=2)"), Shape(n=8, l=8, d=4, c=4))
    104.0
    """
    checks.positive("number", number)
    reads, price = method.shared_reads(shape), method.priced(shape)
    if reads is None or price is None:
        return None
    part = reads.paid_share(group)
    return (reads.per_head(group) - price.few * part) * number + price.few_bytes * part
