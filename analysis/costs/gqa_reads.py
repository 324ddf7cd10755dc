"""The numbers read by a group of query heads that share their keys."""

from approx import Method, checks
from approx.method.prices import Shape, price_at


def group_reads(method: Method, shape: Shape, group: int) -> float | None:
    """Return the numbers read per new query and query head, in a group that shares keys.

    Parameters
    ----------
    method : Method
    shape : Shape
        The shape of one head, such as `Head.shape`.
    group : int
        The number of query heads with the same keys and values.

    Returns
    -------
    float or None
        (shared + min(group·chosen, most))/group + unshared, see `approx.method.prices.Reads`: an
        upper bound where heads choose keys, since two heads may choose the same key. For one head
        it is the price in reads. None if it is not known.

    Notes
    -----
    Shared are keys that depend on positions (`exact`, `sink_window`, …) or on the keys alone
    (`columns` by norms, …); data about all keys for a selection (boxes of pages, sorted lists);
    logits from keys that are compressed by themselves; and states, if a row depends on no other
    query, since all heads of the group then have the same frequencies. Chosen are the keys of every
    other support. Unshared are numbers that are fitted to the queries of a head. The tests count
    these numbers by the same arrays as the prices.

    Examples
    --------
    Three heads share a window of 16 keys; or each chooses 16 of 40 keys, at most all 40 together:

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
    """Return the bytes read per new query and query head, from a cache of a given precision.

    Parameters
    ----------
    method, shape, group
        As in `group_reads`.
    number : float
        Bytes per number: 2 in bfloat16 and float16, 4 in float32.

    Notes
    -----
    Codes of keys and values count their own bits, all other numbers count ``number`` bytes. The
    group shares codes, unless each head chooses its values for itself. With 16 bits and one head
    this is the currency ``bytes_read``.

    Examples
    --------
    Eight keys of four numbers at two bits, their values, and two scales each:

    >>> from approx import parse
    >>> bytes_read(parse("quantised(bits=2)"), Shape(n=8, l=8, d=4, c=4))
    104.0
    """
    checks.positive("number", number)
    reads, price = method.shared_reads(shape), price_at(method, shape)
    if reads is None or price is None:
        return None
    part = reads.paid_share(group)
    return (reads.per_head(group) - price.few * part) * number + price.few_bytes * part
