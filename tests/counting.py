"""An instrumented reader: arrays that count which of their numbers are read and multiplied.

A `Counted` array is memory or a register. What is in memory counts when it enters an operation,
element by element; indexing alone reads nothing. The operator @ counts its multiply-adds. No other
operation does, and what could multiply unseen (np.dot, np.einsum, …) is refused.
"""

import math

import numpy as np

REFUSED = ("dot", "inner", "vdot", "outer", "einsum", "tensordot", "kron", "convolve", "cov")


class Counter:
    """How many numbers were read and how many multiply-adds were done."""

    def __init__(self):
        self.reads = 0
        self.multiply_adds = 0
        self.passes = []  # the names of the numbers that each operation read
        self.owner = 0  # the head whose memory it is, where heads do not share it
        self.made = 0

    def memory(self, x, own=None):
        """Return an array whose numbers count when they are used; each of them has a name."""
        counted = _wrapped(np.array(x, float), self, True)
        self.made += 1
        owner = self.owner if own is None else own
        counted.names = (owner * 10**6 + self.made) * 10**6 + np.arange(counted.size)
        counted.names = counted.names.reshape(counted.shape)
        return counted

    def register(self, x):
        """Return an array that is at hand: a query, or what was computed from it."""
        return _wrapped(np.array(x, float), self, False)

    def decomposition(self, r):
        """Count a decomposition of an r × r matrix."""
        self.multiply_adds += r**3

    def inverse_times(self, r):
        """Count the inverse of an r × r matrix times a vector."""
        self.multiply_adds += r**2

    def transform(self, x):
        """Return a Fourier transform of m numbers, for m·log₂ m multiply-adds."""
        self.multiply_adds += len(x) * math.log2(len(x))
        return self.register(np.real(np.fft.fft(np.asarray(x))))


def _wrapped(x, counter, stored):
    counted = np.asarray(x).view(Counted)
    counted.counter, counted.stored = counter, stored
    return counted


class Counted(np.ndarray):
    """Numbers in memory, if `stored`, or in registers."""

    counter = None
    stored = False
    names = None

    def __array_finalize__(self, of):
        if isinstance(of, Counted):
            self.counter, self.stored, self.names = of.counter, of.stored, of.names

    def __getitem__(self, at):
        part = super().__getitem__(at)
        if self.stored:
            part = np.asarray(part).view(Counted)
            part.counter, part.stored, part.names = self.counter, True, self.names[at]
        return part

    def reshape(self, *shape):
        part = super().reshape(*shape)
        part.names = None if self.names is None else self.names.reshape(*shape)
        return part

    def _plain(self):
        if self.stored:
            self.counter.reads += self.size
            self.counter.passes.append(set(self.names.ravel().tolist()))
        return self.view(np.ndarray)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        assert out is None, "an operation in place would read nothing"
        shapes = [getattr(x, "shape", ()) for x in inputs]
        plain = [x._plain() if isinstance(x, Counted) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            rows = shapes[0][0] if len(shapes[0]) == 2 else 1
            columns = shapes[1][1] if len(shapes[1]) == 2 else 1
            self.counter.multiply_adds += rows * shapes[0][-1] * columns
        return _wrapped(result, self.counter, False)

    def __array_function__(self, function, types, arguments, options):
        assert function.__name__ not in REFUSED, f"write {function.__name__} with @"
        assert not function.__module__.startswith("numpy.linalg"), "count a decomposition"

        def plain(x):
            if isinstance(x, Counted):
                return x._plain()
            return type(x)(map(plain, x)) if isinstance(x, list | tuple) else x

        result = function(*plain(arguments), **options)
        return _wrapped(result, self.counter, False) if isinstance(result, np.ndarray) else result
