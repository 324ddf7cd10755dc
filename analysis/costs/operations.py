"""The costs of attention in exact integers: multiply-adds, and numbers in memory.

Notation: n tokens (queries and keys), head width d, m features, s entries of a support per row, c
tokens per chunk, h heads and b sequences. For a gated unit, s is the width of queries and e the
inner width.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from approx import checks


class Counts(NamedTuple):
    """Multiply-adds of the parts of one attention layer, for one head and one sequence.

    Attributes
    ----------
    scores : int
        Multiply-adds of logits or features.
    mixing : int
        Multiply-adds of the product with V.
    correction : int
        Multiply-adds of entries on a support.
    """

    scores: int
    mixing: int
    correction: int = 0

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(self)


def _sizes(**sizes: int) -> Iterator[int]:
    """Yield sizes as Python integers, which do not overflow; a chunk has at least one token."""
    return (checks.integer(x, size, least=int(x == "c")) for x, size in sizes.items())


# Multiply-adds


def exact_attention(n: int, d: int) -> Counts:
    """Return the counts of Q Kᵀ and A V: n²d each, 2n²d together.

    Examples
    --------
    >>> exact_attention(4096, 64).total
    2147483648
    """
    n, d = _sizes(n=n, d=d)
    return Counts(n * n * d, n * n * d)


def linear_attention(n: int, d: int, m: int) -> Counts:
    """Return 2nmd for φ(Q), ψ(K) from m frequencies, and 2nmd for ψ(K)ᵀV, φ(Q)(·): 4nmd together.

    Examples
    --------
    >>> linear_attention(4096, 64, 128).total
    134217728
    """
    n, d, m = _sizes(n=n, d=d, m=m)
    return Counts(2 * n * m * d, 2 * n * m * d)


def scatterbrain(n: int, d: int, m: int, s: int) -> Counts:
    """Return the counts of linear attention and a correction of s entries per row, n·s·(m + 2d).

    On the support, φ(q)·φ(k) costs nsm, q·k costs nsd, and the product with V nsd.

    Examples
    --------
    >>> scatterbrain(4096, 64, 128, 64).correction
    67108864
    """
    n, d, m, s = _sizes(n=n, d=d, m=m, s=s)
    scores, mixing, _ = linear_attention(n, d, m)
    return Counts(scores, mixing, n * s * (m + 2 * d))


def quadratic_unit(n: int, e: int, s: int) -> Counts:
    """Return the counts of relu²(Q Kᵀ), width s, and its product with V, width e: n²(s + e)."""
    n, e, s = _sizes(n=n, e=e, s=s)
    return Counts(n * n * s, n * n * e)


def mixed_chunk(n: int, e: int, s: int, c: int) -> Counts:
    """Return n·c·(s + e) within chunks, and 2·n·s·e for the global part; c must divide n."""
    n, e, s, c = _sizes(n=n, e=e, s=s, c=c)
    if n % c:
        raise ValueError(f"chunks of c tokens must divide n, got n={n}, c={c}")
    return Counts(n * c * s, n * c * e + 2 * n * s * e)


# Numbers in memory


def parallel_causal_memory(b: int, h: int, n: int, s: int) -> int:
    """Return bhns²: the running sums of all tokens at once."""
    b, h, n, s = _sizes(b=b, h=h, n=n, s=s)
    return b * h * n * s * s


def quadratic_memory(b: int, h: int, n: int) -> int:
    """Return bhn²: the attention weights."""
    b, h, n = _sizes(b=b, h=h, n=n)
    return b * h * n * n


# Lengths


def break_even(
    cost: Callable[[int], float],
    exact: Callable[[int], float],
    *,
    step: int = 1,
    most: int = 2**40,
) -> int | None:
    """Return the smallest n, a multiple of step, from which ``cost`` is below ``exact``.

    Parameters
    ----------
    cost, exact : callable
        Functions of n. If cost/exact grows in places, as where each query reads whole pages, the
        result is a length at which ``cost`` falls below ``exact``, perhaps not the least one.

    Returns
    -------
    int or None
        None if ``cost`` is not below ``exact`` up to ``most``.

    Examples
    --------
    Linear attention with m features is cheaper beyond n = 2m:

    >>> cost = lambda n: linear_attention(n, 64, 128).total
    >>> break_even(cost, lambda n: exact_attention(n, 64).total)
    257
    """
    checks.instance("cost", cost, Callable, "a function of n")  # type: ignore[arg-type]
    checks.instance("exact", exact, Callable, "a function of n")  # type: ignore[arg-type]
    most = checks.integer("most", most, least=1)
    low, high = 0, checks.integer("step", step, least=1)
    while cost(high) >= exact(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        low, high = (middle, high) if cost(middle) >= exact(middle) else (low, middle)
    return high


class Kind(NamedTuple):
    """A form of attention: its name, its cost at n, and the cost that it is compared with."""

    name: str
    cost: Callable[[int], int]
    exact: Callable[[int], int]
    step: int = 1


def kinds(d: int, m: int, s: int, c: int) -> list[Kind]:
    """Return the comparisons for `break_even`, at head width d.

    They are: linear attention with m features, and Scatterbrain with s entries in addition, against
    exact attention; FLASH with chunks of c tokens against FLASH-Quad, with queries of width d and
    values of width e = 2d; and the memory of parallel causal linear attention against the memory of
    attention weights.
    """
    d, m, s, c = _sizes(d=d, m=m, s=s, c=c)

    def exact(n: int) -> int:
        return exact_attention(n, d).total

    return [
        Kind(f"linear, m = {m}", lambda n: linear_attention(n, d, m).total, exact),
        Kind(f"Scatterbrain, m = {m}, s = {s}", lambda n: scatterbrain(n, d, m, s).total, exact),
        Kind(
            f"FLASH, c = {c}, against FLASH-Quad",
            lambda n: mixed_chunk(n, 2 * d, d, c).total,
            lambda n: quadratic_unit(n, 2 * d, d).total,
            c,
        ),
        Kind(
            "memory of causal linear, all tokens at once",
            lambda n: parallel_causal_memory(1, 1, n, d),
            lambda n: quadratic_memory(1, 1, n),
        ),
    ]
