"""The gated attention unit, and FLASH: local quadratic attention plus global linear attention.

For X (n, d) and widths e and s: U = swish(X W_u), V = swish(X W_v) (n, e), Z = swish(X W_z) (n, s).
Queries and keys are Z·γ + β, each with its own (γ, β), and O = (U ⊙ A V) W_o. Units differ in A.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate import memory
from approx.estimate.approximation import Approximation
from approx.estimate.corrections import Addition
from approx.estimate.low import Factors
from approx.kernels import pattern_products
from approx.supports import patterns

NORMALISERS = ("length", "chunk", "previous", "printed")


class Projections(NamedTuple):
    """Queries and keys of the local and the global part, (n, s) each, of the same n tokens."""

    local_queries: Array
    local_keys: Array
    global_queries: Array
    global_keys: Array


@dataclasses.dataclass(frozen=True, eq=False)
class GatedUnit:
    """The parameters of a gated attention unit.

    Parameters
    ----------
    W_u, W_v : (d, e)
    W_o : (e, d)
    W_z : (d, s)
    gamma, beta : (4, s)
        Scales and offsets of local queries, local keys, global queries and global keys, in this
        order; `quadratic` uses the first two.

    References
    ----------
    .. [1] W. Hua, Z. Dai, H. Liu, Q. Le, "Transformer quality in linear time", ICML 2022,
       sections 2 and 3.
    """

    W_u: Array
    W_v: Array
    W_o: Array
    W_z: Array
    gamma: Array
    beta: Array

    @classmethod
    def random(cls, d: int, e: int, s: int, rng: np.random.Generator) -> GatedUnit:
        """Return a unit with Gaussian weights of variance 1/fan-in, γ near 1 and β near 0."""
        u, v = rng.standard_normal((2, d, e)) / np.sqrt(d)
        o, z = rng.standard_normal((e, d)) / np.sqrt(e), rng.standard_normal((d, s)) / np.sqrt(d)
        gamma, beta = 0.1 * rng.standard_normal((2, 4, s))
        return cls(u, v, o, z, 1 + gamma, beta)

    @property
    def parameters(self) -> int:
        """The number of parameters: 3·d·e + d·s + 8·s."""
        return sum(int(np.size(getattr(self, f.name))) for f in dataclasses.fields(self))

    def projections(self, X: ArrayLike) -> Projections:
        """Return the four affine maps of Z = swish(X W_z)."""
        Z = swish(checks.array("X", X, ndim=2) @ self.W_z)
        return Projections(*(Z * gamma + beta for gamma, beta in zip(self.gamma, self.beta)))

    def combine(self, X: ArrayLike, A: Any = None, *, gate: bool = True) -> Array:
        """Return (U ⊙ A V) W_o, (n, d); A = None means the identity, and gate = False means U = 1.

        Notes
        -----
        A = I gives the gated linear unit (U ⊙ V) W_o; U = 1 gives attention times W_o, A V W_o.
        """
        x = checks.array("X", X, ndim=2)
        V = swish(x @ self.W_v)
        mixed = V if A is None else A @ V
        return np.asarray((swish(x @ self.W_u) * mixed if gate else mixed) @ self.W_o)

    def flash(self, X: ArrayLike, size: int, *, causal: bool = False) -> Array:
        """Return FLASH: A is mixed chunk attention, in O(n·(size + s)·e) operations."""
        parts = self.projections(X)
        v = swish(checks.array("X", X, ndim=2) @ self.W_v)
        mixed = mixed_chunk_output(parts, v, size, causal=causal)
        U = swish(checks.array("X", X, ndim=2) @ self.W_u)
        return np.asarray((U * mixed) @ self.W_o)


def swish(x: ArrayLike) -> Array:
    """Return x·sigmoid(x).

    Examples
    --------
    >>> swish(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    values = checks.array("x", x)
    return np.asarray(values * scipy.special.expit(values))


def normalisers(n: int, size: int, *, causal: bool = False, normaliser: str | None = None) -> Array:
    """Return the divisors of the global part in each chunk, (⌈n/size⌉,); inf makes the part 0.

    Parameters
    ----------
    normaliser : {"length", "chunk", "previous", "printed"}
        The divisor of chunk g = 1, 2, …. If not causal, the default ``length`` is n, at which
        constant keys and values give 1; ``chunk`` is size, with a gain of n/size. If causal, the
        default ``previous`` is (g − 1)·size, the number of tokens in the sum; ``printed`` is
        (g − 1)·n/size, which scales the part by size²/n. The first chunk has no previous one.

    Examples
    --------
    >>> normalisers(12, 4, causal=True)
    array([inf,  4.,  8.])
    """
    known = NORMALISERS[2:] if checks.flag("causal", causal) else NORMALISERS[:2]
    kind = checks.one_of("normaliser", known[0] if normaliser is None else normaliser, known)
    n, size = checks.integer("n", n, least=1), checks.integer("size", size, least=1)
    chunks = -(-n // size)
    memory.reserve(8 * chunks, "the normalisers", "n")
    if not causal:
        return np.full(chunks, float(n if kind == "length" else size))
    before = np.arange(chunks) * (float(size) if kind == "previous" else n / size)
    before[0] = np.inf
    return before


def local_quadratic(
    Q: Array, K: Array, size: int, *, causal: bool = False, width: int | None = None
) -> Addition:
    """Return relu²(Q Kᵀ)/(size·width) within chunks, n·size entries if size | n.

    The width is by default that of Q. Give 1 if Q and K are already scaled.
    """
    n, l = len(Q), len(K)
    causal = checks.causal(causal, n, l)
    places = patterns.aligned(n, l)
    indptr, indices = patterns.same_chunk(places, l, size)
    memory.reserve(24 * len(indices), "the local part", "size")
    block = scipy.sparse.csr_array((np.zeros(len(indices), Q.dtype), indices, indptr), shape=(n, l))
    if causal:
        block = scipy.sparse.tril(block, format="csr")
    return relu_squared(Q, K, block, size * (Q.shape[1] if width is None else width))


def relu_squared(Q: Array, K: Array, block: scipy.sparse.csr_array, divisor: float) -> Addition:
    """Return relu²(Q Kᵀ)/divisor at the entries of a pattern."""
    logits = pattern_products.product(Q, K, block)
    top = max(float(logits.max(initial=0.0)), float(np.finfo(Q.dtype).tiny))
    values = np.square(np.maximum(logits, 0.0) / Q.dtype.type(top))
    matrix = scipy.sparse.csr_array((values, block.indices, block.indptr), shape=block.shape)
    return Addition(matrix, 2 * np.log(top) - np.log(divisor))


def global_linear(
    Q: Array, K: Array, size: int, *, causal: bool = False, normaliser: str | None = None
) -> Factors:
    """Return the global part as factors: Q Kᵀ/n of rank s, or of rank (⌈n/size⌉ − 1)·s if causal.

    If causal, chunk g sees Σ_{h<g} K_hᵀ V_h. The rows of chunk g have Q_g/normaliser in the columns
    of every chunk h < g; the keys of chunk h have K_h in the columns of their own chunk.
    """
    causal = checks.causal(causal, len(Q), len(K))
    by = normalisers(len(Q), size, causal=causal, normaliser=normaliser)
    chunk = np.arange(len(Q)) // size if causal else np.zeros(len(Q), int)
    left = (Q / by[chunk, None]).astype(Q.dtype)
    right = K
    if causal:
        others = np.arange(len(by) - 1)
        width = len(others) * Q.shape[1]
        memory.reserve(16 * len(Q) * width, "the causal factors", "n/size (or mixed_chunk_output)")
        seen, own = others < chunk[:, None], others == chunk[:, None]
        left = (seen[:, :, None] * left[:, None, :]).reshape(len(Q), width)
        right = (own[:, :, None] * K[:, None, :]).reshape(len(K), width)
    return Factors(left, right, np.zeros(len(Q), Q.dtype))


def _of_one_shape(parts: Projections) -> Projections:
    arrays = Projections(*(checks.array("parts", x, ndim=2) for x in parts))
    if len({x.shape for x in arrays}) > 1:
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise ValueError(f"parts must be four arrays of one shape (n, s), got {shapes}")
    return arrays


def mixed_chunk(
    parts: Projections,
    size: int,
    *,
    causal: bool = False,
    normaliser: str | None = None,
    width: int | None = None,
) -> Approximation:
    """Return mixed chunk attention as an operator: block-diagonal relu² plus low rank.

    A is relu²(Q Kᵀ)/(size·s) within chunks, plus global linear attention.

    Parameters
    ----------
    parts : Projections
    size : int
        Tokens per chunk; the last chunk may have fewer.
    causal : bool
        Whether chunks are lower-triangular, and the global part has previous chunks only.
    normaliser : str, optional
        See `normalisers`.
    width : int, optional
        See `local_quadratic`.

    Notes
    -----
    This is not an estimate of softmax, and does not converge to it. If size | n, its rank is s and
    its nnz n·size; if also causal, (n/size − 1)·s by construction and n·(size + 1)/2.

    References
    ----------
    .. [1] W. Hua, Z. Dai, H. Liu, Q. Le, "Transformer quality in linear time", ICML 2022,
       section 3.2.
    """
    q, k, queries, keys = _of_one_shape(parts)
    low = global_linear(queries, keys, size, causal=causal, normaliser=normaliser)
    local = local_quadratic(q, k, size, causal=causal, width=width)
    return Approximation(low, local, space="attention")


def mixed_chunk_output(
    parts: Projections,
    V: ArrayLike,
    size: int,
    *,
    causal: bool = False,
    normaliser: str | None = None,
) -> Array:
    """Return A V, (n, e), chunk by chunk; the global part is one running (s, e) sum.

    Notes
    -----
    Cost: n·size·(s + e) + 2·n·s·e multiply-adds; no n×n array is stored.
    """
    q, k, queries, keys = _of_one_shape(parts)
    values = checks.values(V, len(k))
    v = values.reshape(len(k), -1)
    by = normalisers(len(q), size, causal=causal, normaliser=normaliser)
    state = np.zeros((q.shape[1], v.shape[1])) if causal else keys.T @ v
    out = np.empty((len(q), v.shape[1]))
    for g, divisor in enumerate(by):
        rows = slice(g * size, (g + 1) * size)
        A = np.square(np.maximum(q[rows] @ k[rows].T, 0.0)) / (size * q.shape[1])
        out[rows] = (np.tril(A) if causal else A) @ v[rows] + queries[rows] @ state / divisor
        if causal:
            state += keys[rows].T @ v[rows]
    return out.reshape(len(q), *values.shape[1:])
