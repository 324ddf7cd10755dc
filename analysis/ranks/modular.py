"""Exact ranks modulo a prime, without a tolerance for zero.

The rank modulo a prime is at most the rank over the rationals. For random points the two are equal
except with probability O(rank/2³¹).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.kernels.jit import kernel
from approx.method import Rng, generator

PRIME = 2**31 - 1  # products of residues fit in 64 bits
MOST_DEGREE = 4096  # its factorials take half a second


@kernel
def _eliminate(A: Any, prime: int) -> int:
    rank = 0
    for column in range(A.shape[1]):
        pivot = rank
        while pivot < A.shape[0] and A[pivot, column] == 0:
            pivot += 1
        if pivot == A.shape[0]:
            continue
        for j in range(A.shape[1]):
            A[rank, j], A[pivot, j] = A[pivot, j], A[rank, j]
        inverse, base, power = 1, A[rank, column], prime - 2  # a^{p−2} = a^{−1}
        while power > 0:
            if power % 2 == 1:
                inverse = inverse * base % prime
            base = base * base % prime
            power //= 2
        for i in range(rank + 1, A.shape[0]):
            factor = A[i, column] * inverse % prime
            if factor != 0:
                for j in range(column, A.shape[1]):
                    A[i, j] = (A[i, j] - factor * A[rank, j]) % prime
        rank += 1
    return rank


def modular_rank(matrix: ArrayLike) -> int:
    """Return the rank of a matrix of integers modulo 2³¹ − 1, by Gaussian elimination.

    Notes
    -----
    Cost: O(n l min(n, l)); 0.3 s at 512.

    Examples
    --------
    >>> modular_rank([[1, 2], [2, 4]])
    1
    """
    return int(_eliminate(_residues("matrix", matrix), PRIME))


def _residues(name: str, value: ArrayLike) -> Array:
    """Return a new matrix of residues, in int64."""
    try:
        A = np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{name} must have rows of one length, got {checks.display(value)}"
        ) from None
    if A.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers of 64 bits, got dtype {A.dtype}")
    if A.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, got shape {A.shape}")
    wide = A.astype(np.uint64 if A.dtype.kind == "u" else np.int64)  # PRIME does not fit in int8
    return np.ascontiguousarray(wide % PRIME, dtype=np.int64)


def points(n: int, d: int, *, sphere: bool = False, rng: Rng = None) -> Array:
    """Return generic points modulo 2³¹ − 1, (n, d); on the sphere, each has x·x = 1.

    Points of the sphere are stereographic projections (2u, 1 − u·u)/(1 + u·u) of u with d − 1
    coordinates.
    """
    n = checks.integer("n", n, least=1)
    d = checks.integer("d", d, least=1)
    draw = generator(rng).integers(1, PRIME, (n, d - 1 if sphere else d)).tolist()
    if not sphere:
        return np.array(draw, dtype=np.int64)
    out = []
    for u in draw:
        square = sum(a * a for a in u) % PRIME
        inverse = pow(1 + square, -1, PRIME)
        out.append([2 * a * inverse % PRIME for a in u] + [(1 - square) * inverse % PRIME])
    return np.array(out, dtype=np.int64)


def taylor_kernel(degree: int, Q: ArrayLike, K: ArrayLike) -> Array:
    """Return Σ_{j ≤ degree} (q·k)^j/j! modulo 2³¹ − 1, (n, l), of Q (n, d) and K (l, d)."""
    degree = checks.integer("degree", degree, least=0, most=MOST_DEGREE)
    q, k = _residues("Q", Q), _residues("K", K)
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"Q and K must have the same width d, got {q.shape} and {k.shape}")
    x = np.zeros((len(q), len(k)), np.int64)
    for a, b in zip(q.T, k.T):
        x = (x + a[:, None] * b[None, :] % PRIME) % PRIME
    total = np.zeros_like(x)
    for j in range(degree, -1, -1):  # Horner's rule
        total = (total * x % PRIME + pow(math.factorial(j), -1, PRIME)) % PRIME
    return total
