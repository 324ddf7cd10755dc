"""Small examples of every method, the strategy of their inputs, the error bound of their sums."""

import itertools
import math
import tracemalloc

import numpy as np
from hypothesis import settings, strategies as st

from approx import METHODS, Mask, parse
from approx.estimate import exact
from approx.projections import Fixed
from approx.projections.summand import Entries
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from approx.testing import sized

# Parts of other kinds together
MIXED = (
    "scatterbrain(low_rank=taylor(degree=2), sparse=top_k())",
    "scatterbrain(low_rank=tensor_power(n=5), sparse=sliding_window(width=1))",
    "scatterbrain(low_rank=chebyshev(degree=3), sparse=top_k())",
    "scatterbrain(low_rank=truncated_svd(rank=1), sparse=top_k(k=1))",
    "scatterbrain(low_rank=taylor(degree=1), sparse=lsh(hashes=1))",
    "scatterbrain(low_rank=positive(m=3), sparse=smyrf(size=1))",
    "scatterbrain(low_rank=tensor_sketch(m=4), sparse=top_k())",
    "scatterbrain(low_rank=logit_svd(rank=1), sparse=top_k())",
    "scatterbrain(low_rank=zero(), sparse=top_k())",
)
# A share of the usual examples where there are many methods, or an example is dear. What methods
# have in common is seen by them all; `make study` draws five times as many.
few, very_few = (settings(max_examples=max(1, settings().max_examples // n)) for n in (12, 25))
FIXED = {"fixed positive": Positive, "fixed waves": Trigonometric}
EXAMPLES = {name: vars(kind).get("examples") or (f"{name}()",) for name, kind in METHODS.items()}
SPECS = [*itertools.chain(*EXAMPLES.values()), *MIXED]  # methods with Fixed have no spec
NAMES = [*SPECS, *FIXED]
# Families of random features, which tests of their laws take as they are
FEATURES = {name: kind for name, kind in METHODS.items() if issubclass(kind, RandomFeatures)}
# The size of every method that has one size, a whole number.
SIZED = {
    name: size.field
    for name, method in METHODS.items()
    if (size := method().sized_by) is not None and size.integer and not method().parts
}


def small(name, n, l, d):
    """Return a method of `NAMES`, or the first example of a registered one, for n, l and d.

    Sizes that are open are half of the keys where they count entries, or keys of a variant, else
    what a small budget buys.
    """
    if name in FIXED:
        omega = np.random.default_rng(7).standard_normal((3, d))
        return FIXED[name](projection=Fixed(omega, [0.5, 0.3, 0.2]))
    return sized(parse(EXAMPLES[name][0] if name in EXAMPLES else name), n, l, d)


# Sized by default, and larger than the matrices of tests
TEMPLATES = {
    "scatterbrain": "scatterbrain(low_rank=positive(), sparse=top_k())",
    "centered": "centered(positive())",
    "pages": "pages(size=2)",
}


# Of each kind of parts that an estimate may have, by names for `member`.
ONE_OF_EACH = (
    "zero", "trigonometric", "truncated_svd", "projection", "coreset", "positive",
    "shifted_positive", "taylor", "chebyshev", "channels", "quantised", "exact", "top_k", "random",
    "hierarchical", "guarded", "godec", "stable_pca", "scatterbrain", "sampled",
)  # fmt: skip


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


def drawn(n, l, d, seed=0, scale=0.7, dtype=np.float64):
    """Return normal Q (n, d) and K (l, d)."""
    rng = np.random.default_rng(seed)
    return tuple((scale * rng.standard_normal((rows, d))).astype(dtype) for rows in (n, l))


def nodes(d, count):
    """Return Gauss–Hermite nodes of N(0, I_d), (count^d, d), and their weights."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = np.array(list(itertools.product(x, repeat=d)))
    weights = np.array([math.prod(c) for c in itertools.product(w / w.sum(), repeat=d)])
    return grid, weights / weights.sum()


def summand(x, d, *, paired=False, A=0.0, imaginary=False):
    """Return the summand of one pair with u·u = ±x."""
    a = np.zeros((1, d))
    a[0, 0] = math.sqrt(x)
    return Entries(np.full(d, A), paired, imaginary, a, np.zeros((1, d)))


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


def dense(A):
    """Return the estimate at its row scale in float64, and the scale."""
    row_log = A.row_log()
    return A.block(slice(None), shift=row_log).astype(np.float64), row_log.astype(np.float64)


def assert_covariance(method, Q, K, row, mask=None, draws=500):
    """Compare the covariance of a row of draws with what a method says of itself: |z| ≤ 5."""
    x = [method.approximate(Q, K, mask=mask, rng=t).to_dense()[row] for t in range(draws)]
    x = np.array(x) / np.exp(truth(Q, K))[row]
    x -= x.mean(axis=0)
    products = np.einsum("tj,tl->tjl", x, x)
    off = products.sum(axis=0) / (draws - 1) - method.covariance(Q, K, row=row, mask=mask)
    assert (np.abs(off) <= 5 * products.std(axis=0) / math.sqrt(draws) + 1e-14).all()


def peak(function):
    """Return the most bytes NumPy and Python held at once during a call."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def truth(Q, K):
    """Return q·k in float64."""
    return np.asarray(exact.logits(np.asarray(Q, np.float64), np.asarray(K, np.float64)))


def assert_within(got, want, error, advice=""):
    """Compare entry by entry with an absolute bound of its own for each."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert (np.abs(got - want) <= error).all(), advice
