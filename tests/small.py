"""Small examples of every method, the strategy of their inputs, the error bound of their sums."""

import math

import numpy as np
from hypothesis import settings, strategies as st

from approx import METHODS, Mask, parse
from approx.estimate import exact
from approx.estimate.corrections import Support, coordinates
from approx.estimate.masked import Masked
from approx.polynomials.elementwise import Elementwise
from approx.projections import Fixed
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

# Sizes where a budget would give a trivial one (all keys) at n, l ≤ 8.
SIZES = {
    "top_k": "top_k(k={half})",
    "sliding_window": "sliding_window(width={half})",
    "sink_window": "sink_window(k={half})",
    "columns": "columns(k={half})",
    "channels": "channels(r=1)",
    "quantised": "quantised(bits=1)",
    "projected_top_k": "projected_top_k(k={half})",
    "pages": "pages(k=2, size=2)",
    "vertical_slash": "vertical_slash(k={half})",
    "chunk": "chunk(size={half})",
    "strided": "strided(k={half})",
    "random": "random(k={half})",
    "threshold": "threshold(level=0.2)",
    "top_p": "top_p(p=0.6)",
    "lsh": "lsh(hashes=2, rounds=2)",
    "smyrf": "smyrf(size=1, rounds=2)",
    "sorted_lsh": "sorted_lsh(size={half}, hashes=2)",
    "sampled": "sampled(sparse=sink_window(k=1), k={half})",
    "reformer": "reformer(size={half}, rounds=2)",
    "true_denominator": "true_denominator(top_k(k={half}))",
    "taylor": "taylor(degree=3)",
    "tensor_power": "tensor_power(n=3)",
    "richardson": "richardson(n=2)",
    "chebyshev": "chebyshev(degree=3)",
    "minimax": "minimax(degree=3)",
    "least_squares": "least_squares(degree=2)",
    "random_maclaurin": "random_maclaurin(m=5)",
    "product_sketch": "product_sketch(m=4, degree=3)",
    "tensor_sketch": "tensor_sketch(m=5, degree=3)",
    "squared_sketch": "squared_sketch(inner=3)",
    "centered": "centered(positive(m=3))",
    "hierarchical": "hierarchical(rank=1, leaf=2)",
    "flash": "flash(size={half})",
    "eva": "eva(m=1, sparse=chunk(size={half}))",
    "scatterbrain": "scatterbrain(low_rank=positive(m=3), sparse=top_k(k={half}))",
}
VARIANTS = {
    "attention svd": "truncated_svd(rank=1, space='attention')",
    "rows near in tv": "truncated_svd(rank=1, space='attention', refine='tv')",
    "largest of a head": "top_k(k={half}, per='head')",
    "taylor on top_k": "scatterbrain(low_rank=taylor(degree=2), sparse=top_k(k={half}))",
    "waves on window": "scatterbrain(low_rank=trigonometric(m=4), sparse=sliding_window(width=1))",
    "power on window": "scatterbrain(low_rank=tensor_power(n=5), sparse=sliding_window(width=1))",
    "three powers": "richardson(n=1, points=3)",
    "interpolant": "chebyshev(degree=2, kind='interpolation')",
    "narrow series": "chebyshev(degree=4, bound=0.5)",  # logits lie beyond it
    "narrow minimax": "minimax(degree=3, bound=0.5)",
    "absolute minimax": "minimax(degree=3, bound=4.0, weight='absolute')",
    "absolute least squares": "least_squares(degree=2, weight='absolute')",
    "series on top_k": "scatterbrain(low_rank=chebyshev(degree=3), sparse=top_k(k={half}))",
    "centered taylor": "centered(taylor(degree=2))",
    "centered scatterbrain": "centered(scatterbrain(positive(m=3), top_k(k=1)), queries=False)",
    "svd on top_k": "scatterbrain(low_rank=truncated_svd(rank=1), sparse=top_k(k=1))",
    "nothing on random": "scatterbrain(low_rank=zero(), sparse=random(k={half}))",
    "taylor on lsh": "scatterbrain(low_rank=taylor(degree=1), sparse=lsh(hashes=1))",
    "positive on smyrf": "scatterbrain(low_rank=positive(m=3), sparse=smyrf(size=1))",
    "angular lsh": "lsh(family='cross_polytope', hashes=1)",
    "euclidean lsh": "lsh(family='e2', hashes=2, width=1.5)",
    "buckets cut apart": "reformer(size={half}, rounds=2, buckets=2, cut='bucket')",
    "true denominator of random": "true_denominator(random(k={half}))",
    "Poisson degrees": "random_maclaurin(m=8, law='poisson', exact=2)",
    "Gaussian products": "product_sketch(m=4, law='gaussian')",
    "even buckets": "tensor_sketch(m=4, degree=2)",
    "Gaussian squares": "squared_sketch(inner=2, degree=6, law='gaussian')",
    "sketch on top_k": "scatterbrain(low_rank=tensor_sketch(m=4), sparse=top_k(k={half}))",
    "Gaussian combinations": "linformer(rank=1, combinations='gaussian')",
    "grouped on window": "eva(m=1, sparse=sliding_window(width=1))",
    "Nyström of the past": "nystrom(rank={half}, block=2)",
    "coreset of the past": "coreset(rank={half}, tau=1.5, block=2)",
    "thinned keys": "coreset(rank={half}, pivots='thinning', weights='equal')",
    "columns and window": "columns(k={half}, recent=1)",
    "best logits on top_k": "scatterbrain(low_rank=logit_svd(rank=1), sparse=top_k(k={half}))",
    "centered logits": "centered(key_pca(rank=1, centred=False))",
    "scaled channels": "channels(r=1, scaled=True)",
    "levels per channel": "quantised(bits=1, per='channel', group=3)",
    "rounded and recent": "quantised(bits=1, recent=1)",
    "largest by channels": "projected_top_k(k={half}, r=1, by='channels')",
    "lines by mass": "vertical_slash(k={half}, vertical=0.6, by='mass', recent=1)",
    "means of pages": "pages(k=2, size=2, by='mean', current=True)",
    "heavy hitters": "columns(k={half}, by='h2o')",
    "hierarchy of rows": "hierarchical(rank=1, leaf=2, space='attention')",
    "hierarchy of means": "hierarchical(rank=1, leaf=2, basis='mean')",
    "hierarchy of pivots": "hierarchical(rank=2, leaf=1, basis='pivots', sinks=1)",
    "comb around features": (
        "sampled(sparse=top_k(k=1), design='systematic', k={half}, low_rank=positive(m=3))"
    ),
    "columns with replacement": (
        "sampled(design='multinomial', k={half}, shared=True, low_rank=taylor(degree=1))"
    ),
    "one collision": "sampled(sink_window(k=1), 'lsh', hashes=1, tables=2, collisions=1)",
    "nothing on top_k": "scatterbrain(low_rank=zero(), sparse=top_k(k={half}))",
}
# A share of the usual examples where there are many methods, or an example is dear. What methods
# have in common is seen by them all; `make study` draws five times as many.
few, very_few = (settings(max_examples=max(1, settings().max_examples // n)) for n in (12, 25))
FIXED = {"fixed positive": Positive, "fixed waves": Trigonometric}
NAMES = [*METHODS, *VARIANTS, *FIXED]
# The size of every method that has one size, a whole number.
SIZED = {
    name: size.field
    for name, method in METHODS.items()
    if (size := method().sized_by) is not None and size.whole and not method().parts
}


def small(name, n, l, d):
    """Return a method of that name for n queries and l keys of width d."""
    if name in FIXED:
        omega = np.random.default_rng(7).standard_normal((3, d))
        return FIXED[name](projection=Fixed(omega, [0.5, 0.3, 0.2]))
    if name in SIZES or name in VARIANTS:
        return parse((SIZES | VARIANTS)[name].format(half=(l + 1) // 2))
    template = METHODS[name]()
    for budget in (2, 4, 8, 16, 64):
        filled = template.within(budget * (n + l) / n, n=n, l=l, d=d)
        if filled is not None:
            return filled
    return template  # it has no size


# Sized by default, and larger than the matrices of tests
TEMPLATES = {
    "scatterbrain": "scatterbrain(low_rank=positive(), sparse=top_k())",
    "centered": "centered(positive())",
    "pages": "pages(size=2)",
}


def member(name, n, l, d):
    """Return a registered method that stores less than the n × l matrix, where there is one."""
    template = parse(TEMPLATES.get(name, name))
    budgets = 0.7 * l * 2.0 ** np.arange(8)  # values per row; the least that holds a member
    filled = (template.within(b, n=n, l=l, d=d) for b in budgets)
    return next(filter(None, filled), METHODS[name]())  # or it chooses its own size


@st.composite
def problems(draw, least=1, square=False, dtypes=(np.float64, np.float32)):
    """Draw Q (n, d), K (l, d), V (l, 2), entries in [−1, 1], and a seed for the method."""
    n, l = draw(st.integers(least, 8)), draw(st.integers(least, 8))
    l = n if square else l
    d, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**32 - 1))
    dtype = draw(st.sampled_from(dtypes))
    x = np.random.default_rng(seed).uniform(-1, 1, (n + 2 * l, 4)).astype(dtype)
    return x[:n, :d].copy(), x[n : n + l, :d].copy(), x[n + l :, :2].copy(), seed


def hiding(n, l, seed=0):
    """Return a mask, as the seed has it: causal, a window, or intervals in order or in none."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4)
    if kind < 2 and n <= l:
        return Mask.window(n, l, int(rng.integers(1, l + 1))) if kind else Mask.causal(n, l)
    first, last = np.sort(rng.integers(0, l, (n, 2)), axis=1).T
    if kind < 3:
        first, last = np.sort(first), np.sort(last)
    return Mask(first, last + 1, l)


def points(d):
    """Return x = ½u for four directions u: every |q ± k| ≤ 1, with 0 and 1 among them."""
    u = np.zeros((4, d))
    u[0, 0] = 1.0
    u[1], u[2] = 1 / math.sqrt(d), -1 / math.sqrt(d)
    u[3] = np.random.default_rng(0).standard_normal(d)
    u[3] /= np.linalg.norm(u[3])
    return u / 2


def made(name, Q, K, seed=0, mask=None):
    """Return the approximation of a small method, and the method."""
    method = small(name, len(Q), len(K), Q.shape[1])
    return method.approximate(Q, K, mask=mask, rng=seed), method


def under(name, Q, K, seed=0, masks=("causal", "hiding")):
    """Yield the approximation without a mask, and under those of the masks that the method takes.

    Masks that these Q and K cannot have are left out; "hiding" is one that the seed draws.
    """
    yield made(name, Q, K, seed)[0]
    n, l = len(Q), len(K)
    if small(name, n, l, Q.shape[1]).refusal is None:
        for mask in masks:
            if mask != "causal" or n <= l:
                mask = hiding(n, l, seed) if mask == "hiding" else mask
                yield made(name, Q, K, seed, mask)[0]


def sizes(A):
    """Return Σ_r |left_ir right_jr| + |S_ij| at the row scale, (n, l), and that scale.

    Each way of adding the terms of an entry differs from their true sum by at most
    ``roundings(A)`` times this.
    """
    left, right, log = (np.asarray(x, np.float64) for x in A.scaled_factors())
    row_log = np.asarray(A.row_log(), np.float64)
    size = np.abs(left) @ np.abs(right).T * np.exp(log - row_log)[:, None]
    size += np.finfo(A.dtype).tiny / np.finfo(A.dtype).eps  # products below it have fewer digits
    low = A.low.low if isinstance(A.low, Masked) else A.low
    if isinstance(low, Elementwise) and low.polynomial.basis == "chebyshev":
        # Clenshaw's rule adds c_k T_k(x/B), which need not be small where x is
        size += np.exp(low.row_log().astype(np.float64) - row_log)[:, None]
    size[~A.mask.visible()] = 0.0
    if isinstance(A.correction, Support) and A.correction.weights is not None:
        at = coordinates(A.correction.matrix)
        size[at] *= 1.0 + A.correction.weights
    if A.correction is not None:
        size += np.abs(A.correction.scaled(row_log.astype(A.dtype)).toarray())
    return size, row_log


def roundings(A):
    """Return the relative error of a sum of ``rank`` products at |x| ≤ 1, d ≤ 4.

    One eps a term of the sum; each term is a product of exponentials, powers and weights whose
    exponents are ≤ 16 in size (|ω·x| + |x|²/2, log-scales, logits ≤ 4), and e^y carries |y| eps:
    four of them.
    """
    return (A.rank + A.nnz + sum(A.shape) + 64) * float(np.finfo(A.dtype).eps)


def dense(A):
    """Return the estimate at its row scale in float64, and the scale."""
    row_log = A.row_log()
    return A.block(slice(None), shift=row_log).astype(np.float64), row_log.astype(np.float64)


def hot(dtype, n=6, d=3):
    """Return Q, K whose logits reach −10⁴ and come near 10⁴."""
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((2, n, d))
    Q[0], K[0] = -K[1], K[1]  # −|k|² for two keys
    K[2] = -Q[1]
    Q *= 100 / np.linalg.norm(Q, axis=1, keepdims=True)
    K *= 100 / np.linalg.norm(K, axis=1, keepdims=True)
    logits = Q @ K.T
    assert logits.min() < -9999
    assert logits.max() > 9000
    return Q.astype(dtype), K.astype(dtype)


def truth(Q, K):
    """Return q·k in float64."""
    return np.asarray(exact.logits(np.asarray(Q, np.float64), np.asarray(K, np.float64)))


def assert_within(got, want, error, advice=""):
    """Compare entry by entry with an absolute bound of its own for each."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert (np.abs(got - want) <= error).all(), advice
