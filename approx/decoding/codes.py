"""Keys and values in few bits: packed codes with their scales, and exact last keys."""

from typing import Any, Protocol

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache, Rows, softmax


class Coder(Protocol):
    """An encoder and decoder for keys of width d."""

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """(numbers per key, bits per number) for each array of codes."""

    def shared(self, block: Array) -> Array:
        """Return the scales that a group of keys (members, d) shares, (t,)."""

    def encode(self, keys: Array, shared: Array) -> tuple[list[Array], Array]:
        """Return codes (m, count) of each kind, and scales (m, s), for keys of one group."""

    def decode(self, codes: list[Array], scales: Array, shared: Array) -> Any:
        """Return the decoded keys, given the shared scales (l, t) of each key."""


def packed(codes: Array, bits: int) -> Array:
    """Return codes (m, count) as packed bits, (m, ⌈count·bits/8⌉) bytes.

    Examples
    --------
    >>> bytes_of = packed(np.array([[1, 0, 3, 2]]), 2)
    >>> bytes_of.shape, unpacked(bytes_of, 4, 2)
    ((1, 1), array([[1, 0, 3, 2]]))
    """
    each = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(each.reshape(len(codes), -1).astype(np.uint8), axis=1)


def unpacked(x: Array, count: int, bits: int) -> Array:
    """Return the codes (m, count) from the bytes of `packed`."""
    each = np.unpackbits(x, axis=1, count=count * bits).reshape(len(x), count, bits)
    if bits == 1:
        return each[..., 0]
    found = each[..., 0].astype(np.int64)
    for bit in range(1, bits):
        found |= each[..., bit].astype(np.int64) << bit
    return found


class RoundedRows(Rows):
    """Rows that are stored as packed codes with scales, and read as the rounded numbers."""

    def __init__(self, width: int, coder: Coder) -> None:
        super().__init__(width)
        [(count, bits)] = coder.widths
        self.coder, self.packed, self.scales = coder, Rows(-(-count * bits // 8)), Rows()

    def append(self, rows: Array) -> None:
        [codes], scales = self.coder.encode(rows, np.zeros(0))
        if not len(self):
            self.scales = Rows(scales.shape[1])
        self.packed.append(packed(codes, self.coder.widths[0][1]))
        self.scales.append(scales)
        self._count += len(rows)

    @property
    def array(self) -> Any:
        if not len(self):
            return super().array
        codes = unpacked(self.packed.array, *self.coder.widths[0])
        shared = np.zeros((len(self), 0))
        return self.coder.decode([codes], self.scales.array, shared).keys

    @property
    def numbers(self) -> int:
        return super().numbers + self.scales.numbers

    @property
    def wide(self) -> list[Rows]:
        return [self.scales]

    @property
    def codes(self) -> list[Rows]:
        return [self.packed]


class CodedCache(Cache):
    """Keys in packed codes, except the last keys, which are exact; and all values.

    Parameters
    ----------
    d, c : int
    coder : Coder
    sides : callable
        (q (1, d), the result of `Coder.decode`) → left and right; their product is the logits.
    recent : int
        Number of last keys that stay exact, at least members − 1.
    members : int
        Number of consecutive keys that share scales.
    parameters : int
        Numbers that a query reads in addition, such as the entries of a rotation.

    Examples
    --------
    Two of four keys are coded, in one byte each:

    >>> from approx import parse
    >>> from approx.decoding.cache import storage
    >>> cache = parse("quantised(bits=2, recent=2)").cache(d=4, c=1)
    >>> for key in np.eye(4):
    ...     cache.append(key, [1.0])
    >>> cache.reads, storage([cache])
    (24, (16, 2))
    """

    def __init__(
        self, d: int, c: int, coder: Coder, sides: Any, recent: int, members: int, parameters: int
    ) -> None:
        super().__init__(d, c)
        self.coder, self.sides, self.recent, self.members = coder, sides, recent, members
        self.parameters = parameters
        self.last, self.values = Rows(d), Rows(c)
        self.codes = [Rows(-(-count * bits // 8)) for count, bits in coder.widths]
        self.scales: Rows | None = None
        self.groups: Rows | None = None

    def add(self, k: Array, v: Array) -> None:
        self.last.append(k[None])
        self.values.append(v[None])
        if len(self.last) > self.recent:
            self._code()

    def _code(self) -> None:
        keys = self.last.array
        if self.groups is None or self._coded % self.members == 0:
            shared = self.coder.shared(keys[: self.members].copy())
            self.groups = Rows(len(shared)) if self.groups is None else self.groups
            self.groups.append(shared[None])
        codes, scales = self.coder.encode(keys[:1].copy(), self.groups.array[-1])
        for rows, code, (_, bits) in zip(self.codes, codes, self.coder.widths):
            rows.append(packed(code, bits))
        self.scales = Rows(scales.shape[1]) if self.scales is None else self.scales
        self.scales.append(scales)
        self.last.drop(np.zeros(1, np.intp))

    @property
    def _coded(self) -> int:
        return 0 if self.scales is None else len(self.scales)

    def answer(self, q: Array, sink: float) -> Array:
        logits = [self.last.array @ q]
        if self.scales is not None and self.groups is not None:
            codes = [
                unpacked(rows.array, *width) for rows, width in zip(self.codes, self.coder.widths)
            ]
            group = np.arange(self._coded) // self.members
            found = self.coder.decode(codes, self.scales.array, self.groups.array[group])
            left, right = self.sides(q[None], found)
            logits.insert(0, right @ left[0])
        return np.asarray(softmax(np.concatenate(logits), sink) @ self.values.array)

    @property
    def reads(self) -> int:
        codes = self._coded * sum(count for count, _ in self.coder.widths)
        numbers = sum(x.numbers for x in (self.last, self.values, *self._scales()))
        return int(codes + numbers + self.parameters)

    def arrays(self) -> list[Any]:
        return [self.last, *self.values.wide, *self._scales()]

    def _scales(self) -> list[Rows]:
        return [x for x in (self.scales, self.groups) if x is not None]

    def coded(self) -> list[Any]:
        return [*self.codes, *self.values.codes]
