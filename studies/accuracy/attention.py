"""Functions of arrays: logits, softmax, attention and its relatives, distances, statistics of rows.

Arrays are small, so that every derivative can be computed. Rows of a real head show the effect of
sums over many keys.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from mpmath import mp

from analysis.inputs import Head, sample, statistics
from approx import Approximation, Mask
from approx.decoding import cache
from approx.estimate import distances, exact
from approx.kernels import pattern_products
from approx.mechanisms import lara, randomized_attention
from approx.random_features import angular_hybrid, generalized_exponential
from approx.supports import boxes, hashing
from approx.textbook import attention, flash
from studies.accuracy.measure import Point, exact as digits, measured, points

BOTH = (np.float64, np.float32)
SCALES = 0.01, 1.0, 5.0, 30.0  # of q and k: logits up to about 3000


def dot(x: Any, y: Any) -> Any:
    return mp.fdot(x, y)


def products(q: Any, k: Any) -> list:
    return [[dot(x, y) for y in k] for x in q]


def softmax(x: list) -> list:
    top = max(x)
    e = [mp.exp(y - top) for y in x]
    total = mp.fsum(e)
    return [y / total for y in e]


def times(p: Any, v: Any) -> list:
    return [[dot(row, column) for column in zip(*v)] for row in p]


def arrays(size: int, dtype: type, *shapes: tuple[int, ...], scales: Any = SCALES) -> list[tuple]:
    """Return tuples of Gaussian arrays at several scales; a larger size gives more."""
    rng = np.random.default_rng(5)
    if size < 20:
        scales = sorted({scales[0], scales[-1]})
    return [
        tuple((s * rng.standard_normal(shape)).astype(dtype) for shape in shapes)
        for s in scales
        for _ in range(max(1, size // 100))
    ]


def head(size: int, dtype: type) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of a head of SmolLM2, and its arrays: 64 wide, 512 keys."""
    x = next(iter(sample("smollm2").heads()))
    rows = np.linspace(5, x.n - 1, 12).astype(int).tolist() if size >= 100 else [5, 40]
    return rows, *(np.asarray(y, dtype) for y in (x.Q, x.K, x.V))


def seen_row(i: int, Q: np.ndarray, K: np.ndarray) -> tuple[list, list, list]:
    """Return the logits of a causal row, Σ_c 2|q_c k_c| of each, and the attention weights."""
    q = digits(Q[i])
    k = [digits(y) for y in K[: i + 1]]
    x = [dot(q, y) for y in k]
    moves = [2 * mp.fsum(abs(a * b) for a, b in zip(q, y)) for y in k]
    return x, moves, softmax(x)


@measured("approx.estimate.exact.logits", "approx.estimate.exact.seen_logits", dtypes=BOTH)
def logits(size: int, dtype: type) -> Iterator[Point]:
    width = 64 if size >= 20 else 12
    few = arrays(size, dtype, (2, width), (3, width))
    yield from points(exact.logits, products, few)
    yield from points(
        lambda q, k: exact.seen_logits(q, k, Mask.full(2, 3), slice(0, 2)), products, few[:1]
    )


@measured("approx.estimate.exact.kernel", dtypes=BOTH)
def kernel(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        exact.kernel,
        lambda q, k: [[mp.exp(x) for x in row] for row in products(q, k)],
        arrays(size, dtype, (2, 4), (5, 4), scales=(0.01, 1.0, 4.0)),
    )


@measured("approx.estimate.exact.scaled_kernel", dtypes=BOTH)
def scaled_kernel(size: int, dtype: type) -> Iterator[Point]:
    """Values down to e^−500; below e^−708 numbers have fewer digits."""

    def truth(q, k):
        x = products(q, k)
        top = max(map(max, x))
        return [[mp.exp(y - top) for y in row] for row in x]

    few = arrays(size, dtype, (2, 4), (5, 4), scales=(0.01, 1.0, 4.0))
    yield from points(lambda q, k: exact.scaled_kernel(q, k)[0], truth, few)


@measured("approx.estimate.exact.softmax", dtypes=BOTH)
def rows_of_softmax(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (2, 4), (5, 4), scales=(0.01, 1.0, 8.0))
    yield from points(
        lambda q, k: exact.softmax(q, k), lambda q, k: list(map(softmax, products(q, k))), few
    )
    rows, Q, K, _ = head(size, dtype)
    for i in rows[:2]:
        value = exact.softmax(Q[i : i + 1], K[: i + 1])[0]
        _, moves, p = seen_row(i, Q, K)
        mean = dot(p, moves)
        for j, (y, share) in enumerate(zip(value, p)):
            yield Point(f"SmolLM2, row {i}, key {j}", y, share, share * (moves[j] + mean))


@measured("approx.estimate.exact.log_row_sums")
def logarithms_of_row_sums(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k):
        return [max(x) + mp.log(mp.fsum(mp.exp(y - max(x)) for y in x)) for x in products(q, k)]

    yield from points(exact.log_row_sums, truth, arrays(size, dtype, (2, 4), (5, 4)))
    rows, Q, K, _ = head(size, dtype)
    for i in rows:
        value = exact.log_row_sums(Q[i : i + 1], K[: i + 1])[0]
        x, moves, p = seen_row(i, Q, K)
        total = max(x) + mp.log(mp.fsum(mp.exp(y - max(x)) for y in x))
        yield Point(f"SmolLM2, row {i}", value, total, dot(p, moves))


def _attention(q, k, v):
    return times(map(softmax, products(q, k)), v)


@measured("approx.estimate.exact.attention", dtypes=BOTH)
def outputs(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (2, 4), (5, 4), (5, 2), scales=SCALES[:3])
    yield from points(exact.attention, _attention, few)
    rows, Q, K, V = head(size, dtype)
    for i in rows:
        value = exact.attention(Q[i : i + 1], K[: i + 1], V[: i + 1])[0]
        _, moves, p = seen_row(i, Q, K)
        for c in range(0, V.shape[1], 16):
            v = digits(V[: i + 1, c])
            out = dot(p, v)
            reach = mp.fsum(a * (abs(b) + abs(b - out) * m) for a, b, m in zip(p, v, moves))
            yield Point(f"SmolLM2, row {i}, value {c}", value[c], out, reach)


@measured("approx.textbook.attention.softmax", "approx.decoding.cache.softmax", dtypes=BOTH)
def softmax_of_logits(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (9,), scales=(0.01, 1.0, 100.0))
    for function in (attention.softmax, cache.softmax):
        yield from points(function, softmax, few)


@measured("approx.textbook.attention.dot_product_attention", dtypes=BOTH)
def scaled_attention(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k, v):
        s = 1 / mp.sqrt(len(q[0]))
        return times([softmax([s * x for x in row]) for row in products(q, k)], v)

    few = arrays(size, dtype, (2, 4), (5, 4), (5, 2), scales=SCALES[:3])
    yield from points(attention.dot_product_attention, truth, few)


def transposed(x: Any) -> list:
    return [list(y) for y in zip(*x)]


def _self_attention(x, wq, wk, wv):
    q, k, v = (times(x, w) for w in (wq, wk, wv))
    s = 1 / mp.sqrt(len(q[0]))
    return times([softmax([s * y for y in row]) for row in products(q, k)], v)


@measured(
    "approx.textbook.attention.self_attention",
    "approx.textbook.attention.multi_head_attention",
    dtypes=BOTH,
)
def attention_of_embeddings(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (3, 2), (2, 2), (2, 2), (2, 1), scales=(0.3, 1.0))
    yield from points(attention.self_attention, _self_attention, few)
    one = np.eye(1, dtype=dtype)
    yield from points(
        lambda x, *w: attention.multi_head_attention(x, *(y[None] for y in w), one),
        _self_attention,
        few[:1],
    )


@measured("approx.textbook.attention.nadaraya_watson", dtypes=BOTH)
def regression(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k):
        return [softmax([-mp.fsum((a - b) ** 2 for a, b in zip(x, y)) / 2 for y in k]) for x in q]

    few = arrays(size, dtype, (2, 4), (5, 4), scales=SCALES[:3])
    yield from points(attention.nadaraya_watson, truth, few)


@measured("approx.textbook.attention.regression_logits", dtypes=BOTH)
def logits_of_regression(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k):
        return [[dot(x, y) - dot(y, y) / 2 for y in k] for x in q]

    yield from points(attention.regression_logits, truth, arrays(size, dtype, (2, 4), (5, 4)))


@measured("approx.textbook.attention.simple_normalisation", dtypes=BOTH)
def normalised(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lambda x: attention.simple_normalisation(x)[0],
        lambda x: [y / mp.fsum(x) for y in x],
        arrays(size, dtype, (9,)),
    )


@measured("approx.textbook.attention.additive_scores", dtypes=BOTH)
def additive(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k, wq, wk, wv):
        left, right = products(q, wq), products(k, wk)
        return [
            [mp.fsum(w * mp.tanh(a + b) for w, a, b in zip(wv, x, y)) for y in right] for x in left
        ]

    few = arrays(size, dtype, (2, 3), (2, 2), (4, 3), (4, 2), (4,), scales=(0.1, 1.0))
    yield from points(attention.additive_scores, truth, few)


@measured("approx.textbook.attention.relu_squared", dtypes=BOTH)
def squares_of_relu(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (2, 4), (5, 4))
    yield from points(
        attention.relu_squared,
        lambda q, k: [[max(x, 0) ** 2 / (5 * mp.mpf(4)) for x in row] for row in products(q, k)],
        few,
    )


@measured("approx.textbook.flash.swish", dtypes=BOTH)
def swish(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        flash.swish, lambda x: [y / (1 + mp.exp(-y)) for y in x], arrays(size, dtype, (9,))
    )


@measured("approx.textbook.attention.jacobian_norm", dtypes=BOTH)
def norms_of_jacobians(size: int, dtype: type) -> Iterator[Point]:
    def truth(p):
        square, cube = (mp.fsum(x**n for x in p) for n in (2, 3))
        return mp.sqrt(square - 2 * cube + square**2)

    few = [(attention.softmax(*x),) for x in arrays(size, dtype, (9,), scales=(0.1, 1.0, 9.0))]
    yield from points(attention.jacobian_norm, truth, few)


@measured(
    "approx.textbook.attention.linear_attention",
    "approx.textbook.attention.linear_weights",
    dtypes=BOTH,
)
def linear(size: int, dtype: type) -> Iterator[Point]:
    few = [
        (abs(a), abs(b), v)
        for a, b, v in arrays(size, dtype, (2, 3), (5, 3), (5, 2), scales=(0.01, 1.0))
    ]

    def weights(a, b):
        return [[x / mp.fsum(row) for x in row] for row in products(a, b)]

    yield from points(attention.linear_attention, lambda a, b, v: times(weights(a, b), v), few)
    yield from points(attention.linear_weights, weights, [x[:2] for x in few])


# Distances and angles


@measured("approx.estimate.distances.half_square", dtypes=BOTH)
def half_squares(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        distances.half_square,
        lambda x: [dot(y, y) / 2 for y in x],
        arrays(size, dtype, (2, 16)),
    )


def near(size: int, dtype: type, gaps: Any = (1.0, 1e-2, 2e-3, 1e-3)) -> list[tuple]:
    """Return pairs of rows (x, y) at distances relative to their norm; also nearly opposite."""
    rng = np.random.default_rng(6)
    found = []
    for gap in gaps if size >= 20 else gaps[-1:]:
        for sign in (1, -1):
            x, g = rng.standard_normal((2, 1, 8))
            found.append((x.astype(dtype), (sign * x + gap * g).astype(dtype)))
    return found


@measured("approx.estimate.distances.squared_distances", dtypes=BOTH)
def squares_of_distances(size: int, dtype: type) -> Iterator[Point]:
    """Above 1e-6 of |x|² + |y|², squares are expanded, which loses up to six more digits."""
    yield from points(
        distances.squared_distances,
        lambda x, y: [[mp.fsum((a - b) ** 2 for a, b in zip(r, s)) for s in y] for r in x],
        near(size, dtype),
    )


def _angle(x, y):
    a, b = mp.sqrt(dot(x, x)), mp.sqrt(dot(y, y))
    x, y = [z / a for z in x], [z / b for z in y]
    far, apart = (mp.sqrt(mp.fsum((p + s * r) ** 2 for p, r in zip(x, y))) for s in (1, -1))
    return 2 * mp.atan2(apart, far)


@measured(
    "approx.supports.hashing.angles", "approx.random_features.angular_hybrid.angles", dtypes=BOTH
)
def angles(size: int, dtype: type) -> Iterator[Point]:
    few = near(size, dtype, (1.0, 1e-2, 1e-5) if dtype == np.float64 else (1.0, 1e-2))
    for function in (hashing.angles, angular_hybrid.angles):
        yield from points(function, lambda x, y: [[_angle(r, s) for s in y] for r in x], few)


@measured("approx.supports.hashing.unit", dtypes=BOTH)
def unit_rows(size: int, dtype: type) -> Iterator[Point]:
    def truth(x):
        return [[z / mp.sqrt(dot(y, y)) for z in y] for y in x]

    yield from points(hashing.unit, truth, arrays(size, dtype, (2, 8)))


@measured("approx.supports.boxes.highest", dtypes=BOTH)
def highest(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, lo, hi):
        return [
            [mp.fsum(max(a * b, a * c) for a, b, c in zip(x, y, z)) for y, z in zip(lo, hi)]
            for x in q
        ]

    few = [(q, a - abs(b), a + abs(b)) for q, a, b in arrays(size, dtype, (2, 8), (3, 8), (3, 8))]
    yield from points(boxes.highest, truth, few)


# Parts of methods


@measured("approx.mechanisms.lara.log_xi", dtypes=BOTH)
def logarithms_of_xi(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lara.log_xi,
        lambda x, w: [[dot(y, z) - dot(y, y) / 2 for z in w] for y in x],
        arrays(size, dtype, (2, 8), (3, 8)),
    )


@measured("approx.mechanisms.randomized_attention.mean_softmax", dtypes=BOTH)
def mean_of_softmax(size: int, dtype: type) -> Iterator[Point]:
    def truth(omega, k):
        parts = [
            [softmax([dot(w, y) - dot(y, y) / 2 for y in k]) for w in of_sample]
            for of_sample in omega
        ]
        return [[mp.fsum(x) / len(parts) for x in zip(*rows)] for rows in zip(*parts)]

    few = arrays(size, dtype, (2, 2, 3), (4, 3), scales=(0.1, 1.0, 3.0))
    yield from points(randomized_attention.mean_softmax, truth, few)


@measured("approx.random_features.generalized_exponential.second_moments")
def second_moments(size: int, dtype: type) -> Iterator[Point]:
    from approx.random_features.features import Frame

    yield from points(
        lambda a, b: generalized_exponential.second_moments(Frame(a, b)),
        lambda a, b: [
            mp.fsum((x[c] + y[c]) ** 2 for x in a for y in b) / (len(a) * len(b))
            for c in range(len(a[0]))
        ],
        [*arrays(size, dtype, (3, 2), (4, 2)), *_opposite(dtype)],
    )


def _opposite(dtype: type) -> list[tuple]:
    rng = np.random.default_rng(7)
    a = 3 + 1e-3 * rng.standard_normal((3, 2))
    return [(a.astype(dtype), (-a[:2]).astype(dtype))]


def _pattern(dtype: type) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(np.ones((2, 5), dtype))


@measured(
    "approx.kernels.pattern_products.product", "approx.kernels.pattern_products.matmat", dtypes=BOTH
)
def products_at_a_pattern(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (2, 17), (5, 17))
    yield from points(lambda q, k: pattern_products.product(q, k, _pattern(dtype)), products, few)
    yield from points(
        lambda s, v: pattern_products.matmat(scipy.sparse.csr_array(s), v),
        times,
        arrays(size, dtype, (2, 5), (5, 3)),
    )


def _estimate(left: np.ndarray, right: np.ndarray, causal: bool = False) -> Approximation:
    return Approximation.from_factors(left, right, mask="causal" if causal else None)


@measured("approx.estimate.approximation.Approximation.attend", dtypes=BOTH)
def attended(size: int, dtype: type) -> Iterator[Point]:
    """Positive factors, and factors of both signs; under a causal mask by chunks."""

    def truth(left, right, v):
        rows = products(left, right)
        return times([[x / mp.fsum(row) for x in row] for row in rows], v)

    def causal(left, right, v):
        rows = [row[: i + 1] for i, row in enumerate(products(left, right))]
        return [
            [dot(row, column[: i + 1]) / mp.fsum(row) for column in zip(*v)]
            for i, row in enumerate(rows)
        ]

    few = arrays(size, dtype, (2, 3), (5, 3), (5, 2), scales=(0.01, 1.0))
    few = [(abs(a), abs(b), v) for a, b, v in few]
    signed = arrays(size, dtype, (2, 3), (5, 3), (5, 2))[0]
    few.append((few[1][0], signed[1] + dtype(0.1), signed[2]))
    yield from points(lambda a, b, v: _estimate(a, b).attend(v), truth, few)
    square = [(abs(a), abs(b), v) for a, b, v in arrays(size, dtype, (4, 3), (4, 3), (4, 2))[:1]]
    yield from points(lambda a, b, v: _estimate(a, b, True).attend(v), causal, square)


@measured("approx.estimate.masked.matmat", dtypes=BOTH)
def products_under_a_mask(size: int, dtype: type) -> Iterator[Point]:
    def truth(a, b, v):
        rows = [row[: i + 1] for i, row in enumerate(products(a, b))]
        return [[dot(row, c[: i + 1]) for c in zip(*v)] for i, row in enumerate(rows)]

    few = arrays(size, dtype, (4, 3), (4, 3), (4, 2))
    yield from points(lambda a, b, v: _estimate(a, b, True) @ v, truth, few)


# Statistics of rows


@measured("analysis.inputs.statistics.norm", "analysis.inputs.statistics.sparsity", dtypes=BOTH)
def norms(size: int, dtype: type) -> Iterator[Point]:
    few = [(x, p) for (x,) in arrays(size, dtype, (12,)) for p in (0.5, 1.0, 2.0, 3.5)]
    yield from points(
        statistics.norm, lambda x, p: mp.fsum(abs(y) ** p for y in x) ** (1 / p), few, given=(1,)
    )
    yield from points(
        statistics.sparsity,
        lambda x: mp.fsum(abs(y) for y in x) / mp.sqrt(len(x) * dot(x, x)),
        [x[:1] for x in few[::4]],
    )


def _entropy(p):
    return -mp.fsum(x * mp.log(x) for x in p if x)


@measured("analysis.inputs.statistics.weight_statistics", part="entropy")
def entropies(size: int, dtype: type) -> Iterator[Point]:
    """Rows from equal weights to one key with all weight except e^−40."""
    few = arrays(size, dtype, (9,), scales=(0.01, 1.0, 10.0))
    few += [(np.array([gap, 0.0, -1.0]),) for gap in (1.0, 8.0, 20.0, 40.0)]
    yield from points(
        lambda x: statistics.weight_statistics(x)["entropy"], lambda x: _entropy(softmax(x)), few
    )


@measured("analysis.inputs.statistics.row_entropy")
def entropies_of_heads(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k):
        rows = [_entropy(softmax(row)) for row in products(q, k)]
        return mp.fsum(rows) / len(rows) / mp.log(len(k))

    few = arrays(size, dtype, (2, 4), (5, 4), scales=(0.1, 1.0, 3.0))
    yield from points(lambda q, k: statistics.row_entropy(Head("x", q, k, scaling=1.0)), truth, few)


@measured("analysis.inputs.statistics.temperature_at")
def temperatures(size: int, dtype: type) -> Iterator[Point]:
    """Two keys whose logits differ by log 9: at t = 1 the weights are (0.9, 0.1)."""
    x = Head("two", np.ones((1, 1)), np.array([[math.log(9)], [0.0]]))

    def truth(h):
        def gap(t):
            return _entropy(softmax([mp.mpf(math.log(9)) / t, mp.mpf(0)])) / mp.ln2 - h

        return mp.findroot(gap, statistics.temperature_at(x, float(h)), tol=1e-60, verify=False)

    few = [(h,) for h in (0.1, 0.469, 0.9)]
    yield from points(lambda h: statistics.temperature_at(x, h), truth, few)
