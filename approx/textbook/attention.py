"""Exact attention: kernel regression, scores, scales of the logits, and linear attention.

Arrays may have leading axes (heads, batches): queries (…, n, d), keys (…, l, d), values (…, l, c).
Logits are not scaled here unless a function says so.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate import memory
from approx.kernels.jit import kernel


def softmax(logits: ArrayLike) -> Array:
    """Return exp(x − max)/Σ over the last axis; an entry of −inf gets the weight 0.

    It uses NumPy's exponential, so it is an independent check of `approx.estimate.exact`.

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.

    Examples
    --------
    >>> softmax(np.array([0.0, np.log(3.0)]))
    array([0.25, 0.75])
    """
    x = checks.array("logits", logits, finite=False)
    top = x.max(axis=-1, keepdims=True) if x.ndim and x.shape[-1] else np.full(1, np.nan)
    if not np.isfinite(top).all():
        raise ValueError(
            f"logits must have a finite maximum along the last axis, got {checks.display(logits)}"
        )
    weights = np.exp(x - top)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _pair(Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
    """Return queries and keys as arrays of equal width, with representable products and squares."""
    q, k = checks.array("Q", Q), checks.array("K", K)
    if q.ndim < 2 or k.ndim < 2 or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"Q and K must be (…, n, d) and (…, l, d) of the same width, got {q.shape}, {k.shape}"
        )
    dtype = np.result_type(q, k)
    largest = max(float(np.abs(x).max(initial=0.0)) for x in (q, k))
    if 4 * largest * largest * q.shape[-1] > float(np.finfo(dtype).max) / 4:  # also of q − k
        raise ValueError(
            f"|q − k|² and q·k must be representable in {dtype}, got entries up to {largest:.3g}"
        )
    return q, k


def _projected(x: Array, name: str, W: ArrayLike) -> Array:
    w = checks.array(name, W)
    if not x.ndim:
        raise ValueError(f"what {name} multiplies must be (…, n, d), got a number")
    if w.ndim < 2 or w.shape[-2] != x.shape[-1]:
        raise ValueError(f"{name} must have {x.shape[-1]} rows, got shape {w.shape}")
    return np.asarray(x @ w)


def _logits(Q: ArrayLike, K: ArrayLike, causal: bool = False) -> tuple[Array, Array, Array]:
    q, k = _pair(Q, K)
    checks.causal(causal, q.shape[-2], k.shape[-2])
    memory.reserve(16 * math.prod(q.shape[:-1]) * k.shape[-2], "the logits", "n or l")
    return q, k, q @ np.swapaxes(k, -1, -2)


# Kernel regression


def nadaraya_watson(Q: ArrayLike, K: ArrayLike, *, w: float = 1.0) -> Array:
    """Return the weights of Nadaraya–Watson regression with a Gaussian kernel, (…, n, l).

    G(√w (q − k_j))/Σ_c G(√w (q − k_c)),  G(u) = (2π)^{−d/2} e^{−|u|²/2}: softmax(−w|q − k|²/2).

    Parameters
    ----------
    w : float
        > 0; the factor of |q − k|². For a bandwidth h, w = 1/h².

    Notes
    -----
    It is computed from differences, as it is defined; `regression_logits` is its softmax form.

    References
    ----------
    .. [1] E. Nadaraya, "On estimating regression", 1964; G. Watson, "Smooth regression analysis",
       1964.

    Examples
    --------
    >>> nadaraya_watson([[0.0]], [[1.0], [-1.0]])
    array([[0.5, 0.5]])
    """
    q, k = _pair(Q, K)
    memory.reserve(8 * math.prod(q.shape) * k.shape[-2], "the differences", "n or l")
    difference = q[..., :, None, :] - k[..., None, :, :]
    return softmax(-0.5 * checks.positive("w", w) * np.square(difference).sum(axis=-1))


def regression_logits(Q: ArrayLike, K: ArrayLike, *, w: float = 1.0) -> Array:
    """Return w·(q·k − |k|²/2), whose softmax is `nadaraya_watson` because |q|² cancels per row.

    So kernel regression equals softmax(w·q·k) if and only if |k| is the same for all keys.
    """
    _, k, x = _logits(Q, K)
    return np.asarray(checks.positive("w", w) * (x - 0.5 * np.square(k).sum(axis=-1)[..., None, :]))


def simple_normalisation(scores: ArrayLike) -> tuple[Array, float]:
    """Return a_j/Σ_c a_c over the last axis, and the share of rows where these are not weights.

    A row has weights if all a_j ≥ 0 and the sum is positive. A row whose sum is 0 gives zeros.

    Examples
    --------
    >>> simple_normalisation([[1.0, 3.0], [2.0, -1.0]])
    (array([[ 0.25,  0.75],
           [ 2.  , -1.  ]]), 0.5)
    """
    a = _rows("scores", scores)
    total = a.sum(axis=-1, keepdims=True)
    weights = np.divide(a, total, out=np.zeros_like(a), where=total != 0)
    bad = (a < 0).any(axis=-1) | (total[..., 0] <= 0)
    return weights, float(bad.mean())


def _rows(name: str, given: ArrayLike) -> Array:
    x = checks.array(name, given)
    if not (x.ndim and x.size):
        raise ValueError(f"{name} must have rows that are not empty, got {checks.display(given)}")
    return x


# Scores


def additive_scores(
    Q: ArrayLike, K: ArrayLike, W_q: ArrayLike, W_k: ArrayLike, w_v: ArrayLike
) -> Array:
    """Return w_vᵀ tanh(W_q q + W_k k) for every pair, (…, n, l); the widths of q and k may differ.

    Notes
    -----
    The scores are not a function of q·k, and their rank is not bounded: tanh is applied to every
    entry of an array (…, n, l, h), which is stored. Cost: (n·a + l·b)·h multiply-adds, n·l·h tanh.

    References
    ----------
    .. [1] D. Bahdanau, K. Cho, Y. Bengio, "Neural machine translation by jointly learning to align
       and translate", ICLR 2015, appendix A.1.2.
    """
    q, k = checks.array("Q", Q), checks.array("K", K)
    wq, wk = checks.array("W_q", W_q, ndim=2), checks.array("W_k", W_k, ndim=2)
    wv = checks.array("w_v", w_v, ndim=1)
    left, right = _projected(q, "W_qᵀ", wq.T), _projected(k, "W_kᵀ", wk.T)
    if not left.shape[-1] == right.shape[-1] == len(wv):
        raise ValueError(
            f"W_q, W_k, w_v must be (h, a), (h, b), (h,), got {wq.shape}, {wk.shape}, {wv.shape}"
        )
    memory.reserve(16 * math.prod(left.shape) * right.shape[-2], "the scores", "n, l or h")
    return np.asarray(np.tanh(left[..., :, None, :] + right[..., None, :, :]) @ wv)


def dot_product_attention(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, causal: bool = False, scale: float | None = None
) -> Array:
    """Return softmax(scale·Q Kᵀ) V, (…, n, c); the scale is 1/√d by default.

    Accuracy: 4 eps·κ, as docs/accuracy.md defines it.

    References
    ----------
    .. [1] A. Vaswani et al., "Attention is all you need", NIPS 2017, Eq. (1).
    """
    q, k, x = _logits(Q, K, causal)
    v = checks.array("V", V)
    if v.ndim < 2 or v.shape[-2] != k.shape[-2]:
        raise ValueError(f"V must be (…, l, c) with l={k.shape[-2]} rows, got shape {v.shape}")
    x *= 1 / math.sqrt(q.shape[-1]) if scale is None else checks.number("scale", scale)
    if causal:
        x = np.where(np.tri(x.shape[-1], dtype=bool), x, -np.inf)
    return np.asarray(softmax(x) @ v)


def self_attention(
    X: ArrayLike, W_q: ArrayLike, W_k: ArrayLike, W_v: ArrayLike, *, causal: bool = False
) -> Array:
    """Return softmax(X W_q (X W_k)ᵀ/√b) X W_v, (…, n, c), for W_q, W_k (d, b) and W_v (d, c)."""
    x = checks.array("X", X)
    names = ("W_q", "W_k", "W_v")
    q, k, v = (_projected(x, name, W) for name, W in zip(names, (W_q, W_k, W_v)))
    return dot_product_attention(q, k, v, causal=causal)


def multi_head_attention(
    X: ArrayLike,
    W_q: ArrayLike,
    W_k: ArrayLike,
    W_v: ArrayLike,
    W_o: ArrayLike,
    *,
    causal: bool = False,
) -> Array:
    """Return `self_attention` of every head, concatenated and multiplied by W_o, (n, d_out).

    W_q, W_k and W_v have a leading axis for heads; W_o is (heads·c, d_out).
    """
    heads = self_attention(checks.array("X", X, ndim=2)[None], W_q, W_k, W_v, causal=causal)
    joined = np.moveaxis(heads, 0, 1).reshape(heads.shape[1], -1)
    return _projected(joined, "W_o", W_o)


# Linear attention


@kernel
def _running_sums(phi_q: Any, phi_k: Any, v: Any, state: Any, out: Any) -> None:
    for i in range(phi_q.shape[0]):
        for r in range(phi_k.shape[1]):
            a, b = phi_k[i, r], phi_q[i, r]
            for c in range(v.shape[1]):
                state[r, c] += a * v[i, c]
                out[i, c] += b * state[r, c]


def linear_attention(
    phi_q: ArrayLike,
    phi_k: ArrayLike,
    V: ArrayLike,
    *,
    causal: bool = False,
    normalise: bool = True,
) -> Array:
    """Return D⁻¹ φ(Q) (ψ(K)ᵀ V) for any features, (…, n, c); no n×l array is stored.

    Parameters
    ----------
    phi_q, phi_k : (…, n, m), (…, l, m)
        φ(Q) and ψ(K).
    V : (…, l, c)
    causal : bool
        Query i sees keys 0…i, by one running (m, c) sum S_i = S_{i−1} + ψ(k_i) v_iᵀ.
    normalise : bool
        Whether to divide by the row sums φ(q)·Σψ(k); a row whose sum is ≤ 0 gives 0.

    Notes
    -----
    The matrix D⁻¹ φ(Q) ψ(K)ᵀ, which is never formed here, has rank ≤ m. So m, not d, limits the
    rank of a head. The other order of association, (φ(Q) ψ(K)ᵀ) V, gives the same up to rounding.
    Cost: 2·n·m·c multiply-adds, (m, c) numbers.

    References
    ----------
    .. [1] A. Katharopoulos et al., "Transformers are RNNs", ICML 2020, Eq. (5), (18)–(20).

    Examples
    --------
    >>> one = np.ones((2, 1))
    >>> linear_attention(one, one, [[1.0], [3.0]], causal=True)
    array([[1.],
           [2.]])
    """
    left, right, v = (checks.array(n, x) for n, x in (("phi_q", phi_q), ("phi_k", phi_k), ("V", V)))
    if (
        min(left.ndim, right.ndim) < 2
        or left.shape[-1] != right.shape[-1]
        or right.shape[:-1] != v.shape[:-1]
    ):
        raise ValueError(
            "phi_q, phi_k, V must be (…, n, m), (…, l, m), (…, l, c), got "
            f"{left.shape}, {right.shape}, {v.shape}"
        )
    causal = checks.causal(causal, left.shape[-2], right.shape[-2])
    if checks.flag("normalise", normalise):
        v = np.concatenate([v, np.ones((*v.shape[:-1], 1), v.dtype)], axis=-1)
    y = _causal(left, right, v) if causal else left @ (np.swapaxes(right, -1, -2) @ v)
    if not normalise:
        return np.asarray(y)
    total = y[..., -1:]
    return np.divide(y[..., :-1], total, out=np.zeros_like(y[..., :-1]), where=total > 0)


def _causal(left: Array, right: Array, v: Array) -> Array:
    heads = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    dtype = np.result_type(left, right, v)
    flat = [
        np.ascontiguousarray(np.broadcast_to(x, (*heads, *x.shape[-2:])), dtype).reshape(
            math.prod(heads), *x.shape[-2:]
        )
        for x in (left, right, v)
    ]
    out = np.zeros((len(flat[0]), left.shape[-2], v.shape[-1]), dtype)
    for a, b, c, y in zip(*flat, out):
        _running_sums(a, b, c, np.zeros((b.shape[1], c.shape[1]), dtype), y)
    return out.reshape(*heads, *out.shape[1:])


def linear_weights(phi_q: ArrayLike, phi_k: ArrayLike, *, causal: bool = False) -> Array:
    """Return the matrix D⁻¹ φ(Q) ψ(K)ᵀ, (…, n, l), whose product with V is `linear_attention`."""
    _, k, _ = _logits(phi_q, phi_k, causal)
    identity = np.broadcast_to(np.eye(k.shape[-2]), (*k.shape[:-2], k.shape[-2], k.shape[-2]))
    return linear_attention(phi_q, phi_k, identity, causal=causal)


# relu², and scales that depend on the length


def relu_squared(Q: ArrayLike, K: ArrayLike, *, scaling: str = "ns") -> Array:
    """Return relu²(Q Kᵀ)/(l·s) or relu²(Q Kᵀ/l), (…, n, l), not normalised by row sums.

    Parameters
    ----------
    Q, K : (…, n, s), (…, l, s)
    scaling : {"ns", "n2"}
        ``ns``: factor 1/(l·s), that is (1/l)·relu²(Q Kᵀ/√s); ``n2``: 1/l², as in public code.

    Notes
    -----
    relu² of symmetric logits of variance 1 has mean ½. So the row sums do not depend on l with
    ``ns``, and fall as s/l with ``n2``.

    References
    ----------
    .. [1] W. Hua, Z. Dai, H. Liu, Q. Le, "Transformer quality in linear time", ICML 2022,
       section 2.2 and its code.
    """
    q, k, x = _logits(Q, K)
    l, s = k.shape[-2], q.shape[-1]
    if float(x.max(initial=0.0)) > math.sqrt(np.finfo(x.dtype).max):
        raise ValueError(f"(q·k)² must be representable in {x.dtype}, got q·k up to {x.max():.3g}")
    divisor = l * s if checks.one_of("scaling", scaling, ("ns", "n2")) == "ns" else l * l
    return np.asarray(np.square(np.maximum(x, 0.0)) / divisor)


def log_length_scale(n: int, d: int, *, base: int = 512) -> float:
    """Return κ·log(n)/d, with κ such that n = base gives 1/√d: the log-n scale of the logits.

    For iid Gaussian logits of standard deviation β the entropy of softmax is log n − β²/2 while
    β < √(2 log n). With β ∝ log n it grows more slowly than log n, but it is not constant.

    Examples
    --------
    >>> log_length_scale(512, 64)
    0.125
    """
    checks.integer("n", n, least=1)
    checks.integer("d", d, least=1)
    return math.log(n) / (math.log(checks.integer("base", base, least=2)) * math.sqrt(d))


def jacobian_norm(weights: ArrayLike) -> Array:
    """Return ‖diag(p) − p pᵀ‖_F, (…,), the norm of softmax's Jacobian at weights p (…, l).

    It equals √(Σp² − 2Σp³ + (Σp²)²): ½ for two equal weights, √(1/l − 1/l²) for l equal weights,
    and 0 where softmax is saturated.

    Examples
    --------
    >>> float(jacobian_norm([0.5, 0.5]))
    0.5
    """
    p = _rows("weights", weights)
    # Σp²(1 − p)² + Σ_{i≠j} p_i² p_j², by the largest p and the rest, does not cancel where softmax
    # is saturated
    square = np.square(p)
    own, at = np.square(p * (1 - p)).sum(axis=-1), p.argmax(axis=-1)[..., None]
    largest = np.take_along_axis(square, at, axis=-1)
    np.put_along_axis(square, at, 0.0, axis=-1)
    rest = square.sum(axis=-1, keepdims=True)
    among = (square * (largest + np.maximum(rest - square, 0.0))).sum(axis=-1)
    return np.asarray(np.sqrt(own + largest[..., 0] * rest[..., 0] + among))
