"""Statistics of an input that tell whether it is easy or hard to approximate."""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from analysis.inputs import Head
from approx import checks
from approx.checks import Array
from approx.estimate import exact, memory
from approx.estimate.masks import ALL, Mask
from approx.method import Rng, generator
from approx.textbook import attention


def describe(inputs: Head) -> dict[str, float]:
    """Return the spread of the logits, the entropy of attention and the size of q + k.

    Returns
    -------
    dict
        - ``logit_min``, ``logit_max``, ``logit_std``: of the logits inside the mask
        - ``row_entropy``: mean over rows of the entropy of softmax, divided by its largest value,
          the logarithm of the number of keys inside the mask and any attention sink; rows with one
          key and no sink are left out
        - ``median_squared_sum``: median of |q + k|², the logarithm of the cost of random features

    Notes
    -----
    Cost: 2·n·l·d operations per pass, in a few passes over row stripes. No array of size n×l is
    stored, but the median is exact.

    Examples
    --------
    >>> from analysis.inputs import Head
    >>> facts = describe(Head("same", np.zeros((2, 1)), np.zeros((2, 1))))
    >>> facts["row_entropy"], facts["logit_std"]
    (1.0, 0.0)
    """
    checks.instance("inputs", inputs, Head, "a Head")
    mask, count = inputs.mask, inputs.mask.entries
    Q, K = (np.asarray(x, np.float64) for x in (inputs.Q, inputs.K))
    of_q, of_k = (np.square(x).sum(axis=1) for x in (Q, K))

    def stripes() -> Iterator[tuple[Array, Array]]:
        """Yield the logits inside the mask for some rows, and |q + k|² of these pairs."""
        for rows, cols, x in _stripes(Q, K, mask):
            squares = of_q[rows, None] + of_k[cols] + 2 * x
            seen = ALL if mask.is_full else mask.visible(rows, cols)
            yield x[seen].ravel(), squares[seen].ravel()

    kept = list(stripes()) if inputs.n * inputs.l <= exact.STRIPE else None

    def each() -> Iterable[tuple[Array, Array]]:
        return stripes() if kept is None else kept

    sums = [(x.min(), x.max(), x.sum()) for x, _ in each()]
    low, high, totals = (np.array(part) for part in zip(*sums))
    mean = totals.sum() / count
    square = sum(float(np.square(x - mean).sum()) for x, _ in each())
    return {
        "logit_min": float(low.min()),
        "logit_max": float(high.max()),
        "logit_std": math.sqrt(square / count),
        "row_entropy": _entropy(Q, K, mask, inputs.sink),
        "median_squared_sum": _median(lambda: (y for _, y in each()), count),
    }


def _stripes(Q: Array, K: Array, mask: Mask) -> Iterator[tuple[slice, slice, Array]]:
    """Yield stripes of rows, the span of keys that they see, and their logits."""
    for rows in exact.stripes(len(Q), len(K)):
        cols = mask.span(rows)
        yield rows, cols, np.asarray(Q[rows] @ K[cols].T, np.float64)


def _entropy(Q: Array, K: Array, mask: Mask, sink: float) -> float:
    entropy, keys = np.empty(len(Q)), mask.counts + (sink > -math.inf)
    for rows, cols, x in _stripes(Q, K, mask):
        mask.hide(x, rows, cols, fill=-np.inf)
        if sink > -math.inf:
            x = np.column_stack([x, np.full(len(x), sink)])
        entropy[rows] = _entropies(x)
    several = keys > 1
    return float(np.mean(entropy[several] / np.log(keys[several]))) if several.any() else 0.0


def _entropies(x: Array) -> Array:
    """Return the entropies log Σ e^x − Σ p x of rows of logits, accurate also near 0.

    With the largest logit at 0, it is log(1 + Σ e^x of the others) + Σ p·|x|; all terms are ≥ 0.
    """
    below = x - x.max(axis=-1, keepdims=True)
    weights = np.exp(below)
    depth = np.where(weights > 0, -below, 0.0)
    at = below.argmax(axis=-1)[..., None]
    np.put_along_axis(weights, at, 0.0, axis=-1)
    others = weights.sum(axis=-1)
    return np.asarray(np.log1p(others) + (weights * depth).sum(axis=-1) / (1 + others))


def _median(parts: Callable[[], Iterable[Array]], count: int) -> float:
    """Return the median of ``count`` numbers; each call of ``parts`` yields all of them in parts.

    Numbers become integers of the same order. Each pass counts them by 16 more leading bits, until
    few candidates are left.
    """
    if count <= exact.STRIPE:
        return float(np.median(np.concatenate([*parts()])))
    lower, upper = (count - 1) // 2, count // 2  # ranks of the two middle numbers
    prefix, bits, below, inside = 0, 0, 0, count
    while inside > exact.STRIPE and bits < 64:
        counts = np.zeros(2**16, np.intp)
        for y in parts():
            keys = _ordered(y)
            mine = keys[keys >> (64 - bits) == prefix] if bits else keys
            digits = mine >> (48 - bits) & 0xFFFF
            counts += np.bincount(digits.astype(np.intp), minlength=len(counts))
        digit = int(np.searchsorted(np.cumsum(counts), lower - below, "right"))
        below, inside = below + int(counts[:digit].sum()), int(counts[digit])
        prefix, bits = prefix << 16 | digit, bits + 16
    held, above = [], math.inf
    for y in parts():
        heads = _ordered(y) >> (64 - bits)
        own = y[heads == prefix]
        held.append(own[:1] if bits == 64 else own)  # after 64 bits all are equal
        above = min(above, float(y[heads > prefix].min(initial=math.inf)))
    values = np.sort(np.concatenate(held))

    def at(rank: int) -> float:
        place = rank - below
        return float(values[min(place, len(values) - 1)]) if place < inside else above

    return (at(lower) + at(upper)) / 2


def _ordered(y: Array) -> Array:
    """Return uint64 integers in the same order as the floats."""
    bits = y.view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def weight_statistics(logits: ArrayLike) -> dict[str, Array]:
    """Return four statistics of softmax for each row of logits (…, n).

    A logit of −inf marks a key outside the mask, which does not count.

    Accuracy: 4 eps·κ, as docs/accuracy.md defines it.

    Returns
    -------
    dict
        entropy : −Σ p log p, at most the logarithm of the number of finite logits
        largest_weight : max p
        sparsity : S*_{1,2}(p) = ‖p‖₁/(√n ‖p‖₂) over the n keys with finite logits
        jacobian_norm : ‖diag(p) − p pᵀ‖_F, the size of the gradient

    Examples
    --------
    >>> {name: round(float(x), 3) for name, x in weight_statistics(np.zeros(4)).items()}
    {'entropy': 1.386, 'largest_weight': 0.25, 'sparsity': 1.0, 'jacobian_norm': 0.433}
    """
    x = checks.array("logits", logits, finite=False)
    if not x.ndim or not x.shape[-1]:
        raise ValueError(f"logits must have rows of numbers, (…, n), got shape {x.shape}")
    if not (x.max(axis=-1) < math.inf).all() or not (x.max(axis=-1) > -math.inf).all():
        raise ValueError("logits must be finite, or -inf beside one that is finite in its row")
    p = attention.softmax(x)
    top = p.max(axis=-1)
    one, two = (np.sum((p / top[..., None]) ** r, axis=-1) ** (1 / r) * top for r in (1, 2))
    n = x.shape[-1]
    return {
        "entropy": _entropies(x),
        "largest_weight": np.asarray(top),
        "sparsity": n**-0.5 * one / two * np.sqrt(n / np.isfinite(x).sum(axis=-1)),
        "jacobian_norm": attention.jacobian_norm(p),
    }


def gaussian_logits(n: int, beta: float, *, rows: int, rng: Rng) -> dict[str, tuple[float, float]]:
    """Return the mean and standard error of `weight_statistics` for rows of n logits N(0, β²).

    Notes
    -----
    For β < √(2 log n), the entropy is log n − β²/2 up to o(1) (`gaussian_entropy`): its distance
    from log n does not depend on n, and the largest weight falls as n grows. For larger β, a few
    keys have most of the weight of a row.
    """
    n, rows = checks.integer("n", n, least=1), checks.integer("rows", rows, least=2)
    beta = checks.number("beta", beta)
    memory.reserve(32 * n * rows, "rows of logits", "n or rows")
    statistics = weight_statistics(beta * generator(rng).standard_normal((rows, n)))
    return {
        name: (float(x.mean()), float(x.std(ddof=1) / math.sqrt(rows)))
        for name, x in statistics.items()
    }


def gaussian_entropy(n: int, beta: float) -> float:
    """Return log n − β²/2 for β < √(2 log n), and NaN for larger β, where it does not hold."""
    n, beta = checks.integer("n", n, least=1), abs(checks.number("beta", beta))
    return math.log(n) - beta**2 / 2 if beta < math.sqrt(2 * math.log(n)) else math.nan
