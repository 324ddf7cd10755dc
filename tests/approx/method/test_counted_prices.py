"""Prices are counted: twins that read from counted memory agree with them, to the integer."""

import math

import numpy as np
import pytest
import twins as t
from counting import Counter
from kills import kills
from small import small

from approx import METHODS, Mask, parse
from approx.sparse.support import ByPlace, SupportMethod

# What a spec's twin is, given n, l, d and sizes that suit them: h about l/2, s about l/4.
TWINS = {
    "zero()": lambda x: t.nothing,
    "one()": lambda x: t.running_sum,
    "constant()": lambda x: t.running_sum,
    "uniform()": lambda x: t.running_sum,
    "positive(m=3)": lambda x: t.state(t.linear(3)),
    "trigonometric(m=6)": lambda x: t.state(t.linear(3, 2)),
    "random_phase(m=3)": lambda x: t.state(t.linear(3)),
    "hyperbolic(m=4)": lambda x: t.state(t.linear(2, 2)),
    "generalized_exponential(m=3)": lambda x: t.state(t.linear(3)),
    "generalized_trigonometric(m=4)": lambda x: t.state(t.linear(2, 2)),
    "shifted_positive(m=3)": lambda x: t.state(t.linear(3)),
    "dense_exponential(m=3)": lambda x: t.dense(3, "aderf"),
    "dense_exponential(m=3, form='sderf')": lambda x: t.dense(3, "sderf"),
    "dense_exponential(m=3, form='saderf')": lambda x: t.state(t.linear(3)),
    "poisson(m=3)": lambda x: t.state(t.linear(3)),
    "geometric(m=3)": lambda x: t.state(t.linear(3)),
    "angular_hybrid(m=24, signs=2)": lambda x: t.state(t.hybrid(2, 2)),
    "regularized(m=3)": lambda x: t.state(t.linear(3)),
    "leverage(m=3)": lambda x: t.state(t.linear(3)),
    "random_maclaurin(m=5)": lambda x: t.state(t.maclaurin(5, 0)),
    "random_maclaurin(m=8, exact=2)": lambda x: t.state(t.maclaurin(8, 2)),
    "product_sketch(m=3, degree=3)": lambda x: t.state(t.products_of_forms(3, 3)),
    "tensor_sketch(m=5, degree=3)": lambda x: t.state(t.tensor_sketch(5, 3)),
    "squared_sketch(inner=3, degree=4)": lambda x: t.state(t.squared_forms(3, 4)),
    "truncated_svd(rank=2)": lambda x: t.state(t.by_search(2)),
    "truncated_svd(rank=2, space='attention')": lambda x: t.state(t.by_search(2), sums=False),
    "nystrom(rank=2)": lambda x: t.state(t.kernels(2), t.inverse_kernels(2), once=t.gram(2)),
    "nystrom(rank=2, block=3)": lambda x: t.state(t.kernels_of_the_past(2), once=t.gram(2)),
    "nystrom(rank=2, landmarks='kmeans')": lambda x: t.state(
        t.kernels(2), t.inverse_kernels(2), once=t.in_turn(t.gram(2), t.centroids(2))
    ),
    "nystrom(rank=2, landmarks='leverage')": lambda x: t.state(
        t.kernels(2), t.inverse_kernels(2), once=t.in_turn(t.gram(2), t.leverage(t.points))
    ),
    "coreset(rank=2, tau=1.0)": lambda x: t.state(
        t.kernels(2), t.at_hand(2), once=t.interpolation(2)
    ),
    "coreset(rank=2)": lambda x: t.state(
        t.kernels(2), t.at_hand(2), once=t.interpolation(2, tried=9, probes=32)
    ),
    "coreset(rank=2, tau=1.0, block=3)": lambda x: t.state(t.kernels_of_the_past(2)),
    "coreset(rank=2, tau=1.0, pivots='leverage')": lambda x: t.state(
        t.kernels(2),
        t.at_hand(2),
        once=t.in_turn(t.interpolation(2), t.leverage(lambda text: text.new_keys)),
    ),
    "coreset(rank=2, pivots='uniform', weights='equal')": lambda x: t.few_keys(2),
    "coreset(rank=2, pivots='thinning', weights='equal')": lambda x: t.few_keys(2, t.halvings(2)),
    "godec(rank=2, k={s})": lambda x: t.both(t.state(t.by_search(2)), t.told(x.s)),
    "logit_svd(rank=1)": lambda x: t.of_compressed("svd", 1),
    "key_pca(rank=1)": lambda x: t.of_compressed("pca", 1),
    "channels(r=1)": lambda x: t.of_compressed("channels", 1),
    "quantised(bits=2)": lambda x: t.quantised("token", None, 0),
    "quantised(bits=2, group=2, recent={s})": lambda x: t.quantised("token", 2, x.s),
    "quantised(bits=2, per='channel', group=3, recent=1)": lambda x: t.quantised("channel", 3, 1),
    "exact()": lambda x: t.exact_keys(t.told(x.l)),
    "top_k(k={h})": lambda x: t.exact_keys(t.told(x.h)),
    "true_denominator(top_k(k={h}))": lambda x: t.exact_keys(t.told(x.h)),
    "threshold(level=0.3)": lambda x: t.exact_keys(t.told(3)),
    "random(k={h})": lambda x: t.exact_keys(t.told(x.h)),
    "sliding_window(width={h})": lambda x: t.exact_keys(t.sliding_window(x.h)),
    "sink_window(k={h}, sinks=1)": lambda x: t.exact_keys(t.sink_window(x.h, 1)),
    "chunk(size={h})": lambda x: t.exact_keys(t.chunk(x.h)),
    "strided(k={h})": lambda x: t.exact_keys(t.strided(x.h)),
    "projected_top_k(k={s}, r=1)": lambda x: t.exact_keys(t.projected_top_k(x.s, 1, "pca")),
    "projected_top_k(k={s}, r=1, by='svd')": lambda x: t.exact_keys(
        t.projected_top_k(x.s, 1, "svd")
    ),
    "projected_top_k(k={s}, r=1, by='channels')": lambda x: t.exact_keys(
        t.projected_top_k(x.s, 1, "channels")
    ),
    "pages(k={h}, size=2)": lambda x: t.exact_keys(t.pages(x.h, 2, "box")),
    "pages(k={h}, size=3, by='mean')": lambda x: t.exact_keys(t.pages(x.h, 3, "mean")),
    "pages(k={h}, size=3, by='mass')": lambda x: t.exact_keys(t.pages(x.h, 3, "mass")),
    "pages(k={h}, size=3, current=True)": lambda x: t.exact_keys(t.pages(x.h, 3, "box", True)),
    "vertical_slash(k={h}, queries=3)": lambda x: t.exact_keys(t.vertical_slash(x.h, 3)),
    "vertical_slash(k={h}, by='mass')": lambda x: t.exact_keys(t.vertical_slash(x.h, 0, "mass")),
    "smyrf(size={s}, rounds=2)": lambda x: t.exact_keys(t.smyrf(x.s, 2)),
    "sorted_lsh(size={h}, hashes=2)": lambda x: t.exact_keys(t.sorted_lsh(x.h, 2)),
    "reformer(size={s}, rounds=2)": lambda x: t.exact_keys(t.reformer(x.s, 2)),
    "scatterbrain(positive(m=3), top_k(k={s}))": lambda x: t.replaced(
        t.state(t.linear(3)), t.told(x.s)
    ),
    "scatterbrain(uniform(), pages(k={h}, size=2))": lambda x: t.replaced(
        t.running_sum, t.pages(x.h, 2, "box"), entry=False
    ),
    "scatterbrain(key_pca(rank=1), random(k={s}))": lambda x: t.replaced(
        t.of_compressed("pca", 1), t.told(x.s), entry=False
    ),
    "scatterbrain(nystrom(rank=2), sink_window(k={h}, sinks=1))": lambda x: t.replaced(
        TWINS["nystrom(rank=2)"](x), t.sink_window(x.h, 1)
    ),
    "sampled(k={s})": lambda x: t.exact_keys(t.drawn_beside(t.told(0), x.s)),
    "sampled(sink_window(k=2), k={s})": lambda x: t.exact_keys(
        t.drawn_beside(t.sink_window(2, 1), x.s)
    ),
    "sampled(chunk(size={s}), 'multinomial', k=2, sizes='bound')": lambda x: t.exact_keys(
        t.drawn_beside(t.chunk(x.s), 2, "bound")
    ),
    "sampled(k={s}, low_rank=one())": lambda x: t.replaced(
        t.running_sum, t.drawn_beside(t.told(0), x.s), entry=False
    ),
    "sampled(top_k(k=1), k={s}, low_rank=positive(m=3))": lambda x: t.replaced(
        t.state(t.linear(3)), t.drawn_beside(t.told(1), x.s)
    ),
    "centered(positive(m=3))": lambda x: t.centred(t.state(t.linear(3))),
    "centered(top_k(k={h}), queries=False)": lambda x: t.centred(
        t.exact_keys(t.told(x.h)), queries=False
    ),
    "centered(taylor(degree=1))": lambda x: [
        t.centred(t.state(t.monomials(1))),
        t.centred(t.polynomial_of_logits(1)),
    ],
    "elu()": lambda x: t.state(t.coordinates(np.exp)),
    "relu()": lambda x: t.state(t.coordinates(np.exp)),
    "cosformer()": lambda x: t.state(t.coordinates(np.exp, 2)),
    "rfa(m=4)": lambda x: t.state(t.linear(2, 2)),
    "flowformer()": lambda x: t.flowformer,
    "linformer(rank=2)": lambda x: t.linformer(2, drawn=False),
    "linformer(rank=2, combinations='gaussian')": lambda x: t.linformer(2, drawn=True),
    "nystromformer(rank=2)": lambda x: t.nystromformer(2, None),
    "nystromformer(rank=2, iterations=3)": lambda x: t.nystromformer(2, 3),
    "flash(size={s})": lambda x: t.flash(x.s),
    "randomized_attention(samples=2)": lambda x: t.randomized_attention(2),
    "lara(m=3)": lambda x: t.state(t.linear(3), once=t.importance(3)),
    "eva(m=2, sparse=chunk(size={s}))": lambda x: t.eva(2, t.chunk(x.s)),
    "hierarchical(rank=1, leaf=2)": lambda x: t.hierarchical(1, 2, "svd"),
    "hierarchical(rank=1, leaf=2, space='attention')": lambda x: t.hierarchical(
        1, 2, "svd", space="attention"
    ),
    "hierarchical(rank=1, leaf=2, basis='mean', sinks=1)": lambda x: t.hierarchical(
        1, 2, "mean", sinks=1
    ),
    "hierarchical(rank=1, leaf=2, basis='pivots')": lambda x: t.hierarchical(1, 2, "pivots"),
}
BY = ("mass", "snapkv", "expected", "key_norm", "key_diff", "leverage", "cur")
POLYNOMIALS = {
    "taylor(degree=1)": 1,
    "taylor(degree=3)": 3,
    "tensor_power(n=2)": 2,
    "richardson(n=1)": 2,
    "chebyshev(degree=2)": 2,
    "minimax(degree=2)": 2,
    "least_squares(degree=2)": 2,
}
for spec, degree in POLYNOMIALS.items():  # either way, whichever is cheaper
    TWINS[spec] = lambda x, degree=degree: [
        t.state(t.monomials(degree)),
        t.polynomial_of_logits(degree),
    ]
for by in BY:
    last = ", window=3" if by == "snapkv" else ""
    TWINS[f"columns(k={{h}}, by='{by}'{last})"] = lambda x, by=by: t.exact_keys(
        t.columns(x.h, by, 3)
    )
    TWINS[f"columns(k={{h}}, by='{by}', block=2{last})"] = lambda x, by=by: t.exact_keys(
        t.evicted(x.h, by, 2, 3)
    )
TWINS["columns(k={h}, by='h2o')"] = lambda x: t.exact_keys(t.evicted(x.h, "h2o"))


# How much these read, or how it is divided, follows from the inputs, so that no price is known.
UNKNOWN = {
    "lsh(hashes=2)": "pairs share a bucket, or do not",
    "lsh(entries=4.0)": "the number of hashes, though not that of the entries",
    "top_k(k=3, per='head')": "how rows share the entries of a head",
    "top_p(p=0.6)": "a row has as many keys as hold the share",
    "random_maclaurin(m=5, law='poisson')": "the mean degree",
    "truncated_svd(epsilon=0.01)": "the rank",
    "robust_pca()": "rank and entries",
    "stable_pca()": "rank and entries",
    "acc_alt_proj(rank=1)": "entries",
    "godec(budget=4)": "how the budget is divided",
    "sampled(k=2, epsilon=0.1, delta=0.1)": "a row draws as many keys as its sum needs",
    "sampled(design='lsh', hashes=2, tables=3)": "keys share buckets, or do not",
    "scatterbrain(positive(m=2), top_p(p=0.6))": "those of its support",
    "sampled(lsh(hashes=2), k=2)": "those of its support",
    "centered(top_p(p=0.6))": "those of its method",
    "true_denominator(top_p(p=0.6))": "those of its support",
    "eva(m=2, sparse=lsh(hashes=2))": "those of its support",
}
# Supports of which each row holds as many keys as it may; of others inputs or draws decide.
AS_MANY = "top_k", "projected_top_k", "random"


class Sizes:
    """The sizes in a spec: about half and a quarter of l, and all of it."""

    def __init__(self, l):
        self.l, self.h, self.s = l, (l + 1) // 2, max((l + 1) // 4, 1)

    def method(self, spec):
        return parse(spec.format(h=self.h, s=self.s))


def shapes():
    """Return 20 shapes n ≤ l, d, c, of which a quarter has n = l, and one with n > l."""
    rng = np.random.default_rng(24)
    for i in range(20):
        l = int(rng.integers(5, 17))
        n = l if i % 4 == 0 else int(rng.integers(3, l + 1))
        yield n, l, int(rng.integers(1, 5)), int(rng.integers(1, 5))
    yield 9, 6, 3, 2


def masks(n, l, method):
    """Yield the masks that a method has, as words and as they are given."""
    yield "full", None
    if n <= l and method.refusal is None:
        yield "causal", "causal"
        width = max(l // 3, 2)
        yield f"window {width}", Mask.window(n, l, width)


def counted(twins, *shape):
    """Return the counts of a twin, or the lesser of those of its ways."""
    ways = twins if isinstance(twins, list) else [twins]
    return np.min([t.count(way, *shape) for way in ways], axis=0)


def assert_counted(spec, n, l, d, c):
    sizes = Sizes(l)
    method = sizes.method(spec)
    for word, mask in masks(n, l, method):
        price = method.price(n=n, l=l, d=d, c=c, mask=mask)
        reads, work = counted(TWINS[spec](sizes), n, l, d, c, word)
        where = f"{method} at n={n}, l={l}, d={d}, c={c}, {word}"
        assert price.reads == reads, where
        # the price is a quotient by n, and of keys by n: two roundings
        assert math.isclose(n * price.multiply_adds, work, rel_tol=1e-14), where


@kills("prices.py", "int(self.mask.counts.max())", "self.l", only="exact")
@kills("smyrf.py", "Price(0.0, directions + places,", "Price(0.0, directions,", only="smyrf")
@kills("prices.py", "state = columns * (c + sums)", "state = columns * c", only="positive")
@kills("prices.py", "of_keys = columns * c +", "of_keys = state +", only="elu")
@kills(
    "features.py",
    "mapped=self.count * shape.d)",
    "mapped=self.count * shape.d, read=0.0)",
    only="hyperbolic",
)
@kills(
    "combinations/scatterbrain.py",
    "self.low_rank.entry_work(shape) * sparse.stored",
    "0.0",
    only="scatterbrain",
)
@pytest.mark.parametrize("spec", TWINS)
def test_prices_are_counted(spec):
    for shape in ((7, 7, 2, 4), (4, 9, 3, 2), (7, 5, 3, 2)):
        assert_counted(spec, *shape)


@pytest.mark.slow
@pytest.mark.parametrize("spec", TWINS)
def test_prices_are_counted_at_many_shapes(spec):
    for shape in shapes():
        assert_counted(spec, *shape)


@pytest.mark.listed
def test_every_price_is_counted():
    """A method has a twin in `TWINS`, unless its price follows from the inputs."""
    counted = {parse(spec.format(h=4, s=2)).name for spec in TWINS}
    for name in METHODS.keys() - counted:
        price = small(name, 8, 8, 3).price(n=8, l=8, d=3)
        assert price is None or price.reads is None, f"add a twin of {name} to TWINS"


@pytest.mark.parametrize("spec", UNKNOWN)
def test_what_follows_from_the_inputs_has_no_price(spec):
    price = parse(spec).price(n=8, l=10, d=3)
    assert price is None or price.reads is None
    assert price is None or price.multiply_adds is None


def at_most(method):
    """Return whether a method may store less than its price."""
    sparse = [m for m in (method, *method.parts.values()) if isinstance(m, SupportMethod)]
    sure = all(isinstance(m, ByPlace) or m.name in AS_MANY for m in sparse)
    return not sure or method.name in ("sampled", "godec")


@pytest.mark.parametrize("spec", TWINS)
def test_what_is_stored_is_the_price(spec):
    for n, l, d, c in ((7, 7, 2, 4), (4, 9, 3, 2)):
        method = Sizes(l).method(spec)
        Q, K, _ = t.arrays(n, l, d, c)
        for _, mask in masks(n, l, method):
            stored = method.price(n=n, l=l, d=d, c=c, mask=mask).stored
            found = method.approximate(Q, K, mask=mask, rng=0).parameters / n
            if at_most(method):
                assert found <= stored * (1 + 1e-14)
            else:
                assert math.isclose(found, stored, rel_tol=1e-14)


# Bytes that are kept of every key for a selection, beside the estimate.
KEPT = {
    "pages(k=4, size=2)": lambda l, d: 8 * 2 * d * math.ceil(l / 2),
    "pages(k=4, size=2, by='mean')": lambda l, d: 8 * d * math.ceil(l / 2),
    "pages(k=4, size=2, by='mass')": lambda l, d: 0,
    "smyrf(size=2, rounds=3)": lambda l, d: 8 * 3 * l,
    "sorted_lsh(size=2)": lambda l, d: 4 * l,
    "reformer(size=2, rounds=3)": lambda l, d: 4 * 3 * l,
    "projected_top_k(k=2, r=1)": lambda l, d: 8 * l,
    "projected_top_k(k=2, r=1, by='channels')": lambda l, d: 0,
    "columns(k=4, by='h2o')": lambda l, d: 8 * 4,
    "columns(k=4, by='key_norm', block=2)": lambda l, d: 8 * 4,
    "columns(k=4, by='key_diff', block=2)": lambda l, d: 0,
    "sampled(k=2, design='systematic', sizes='bound')": lambda l, d: 8 * 2 * d * math.ceil(l / 16),
    "top_k(k=4)": lambda l, d: 0,
    "sink_window(k=4)": lambda l, d: 0,
    "scatterbrain(positive(m=2), random(k=2))": lambda l, d: 0,
    "scatterbrain(one(), pages(k=4, size=2))": lambda l, d: 8 * 2 * d * math.ceil(l / 2),
}


@kills("sparse/pages.py", "NUMBER * numbers * self.pages(shape.l) / shape.n", "0.0", only="pages")
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("spec", KEPT)
def test_bytes_are_those_of_the_estimate_and_of_what_is_kept_of_the_keys(spec, mask):
    n, l, d = 7, 20, 3
    Q, K, _ = t.arrays(n, l, d, d)
    method = parse(spec)
    estimate = method.approximate(Q, K, mask=mask, rng=0)
    low, entries = estimate.maskable.prepare(), estimate.correction.matrix
    assert entries.indices.dtype == np.int32
    found = 12 * entries.nnz + 4 * n + (8 * entries.nnz if method.name == "sampled" else 0)
    if low.rank:
        found += 8 * (low.rank * (n + l) + n)
    kept = KEPT[spec](l, d)
    price = method.price(n=n, l=l, d=d, mask=mask)
    missing = price.stored * n - estimate.parameters  # entries that it might have
    each = 20 if method.name == "sampled" else 12
    assert math.isclose(price.bytes * n, found + kept + each * missing, rel_tol=1e-14)


# Twins that give the answer itself: what they read is enough.
FAITHFUL = (
    "uniform()", "exact()", "sliding_window(width={h})", "sink_window(k={h}, sinks=1)",
    "chunk(size={h})", "strided(k={h})", "elu()", "relu()", "channels(r=1)",
)  # fmt: skip
FEATURES = {
    "elu()": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    "relu()": lambda x: np.maximum(x, 0),
}


@pytest.mark.parametrize("spec", FAITHFUL)
def test_what_a_twin_reads_is_enough_for_the_answer(spec):
    n, l, d, c = 5, 11, 3, 2
    sizes = Sizes(l)
    method = sizes.method(spec)
    Q, K, V = t.arrays(n, l, d, c)
    for word, mask in masks(n, l, method):
        twin = TWINS[spec](sizes)
        if spec in FEATURES:
            twin = t.state(t.coordinates(FEATURES[spec]))
        text = t.Text(Q, K, V, t.rows_of(word, n, l), Counter())
        answer = twin(text)
        for row in text.rows:
            answer(row)
        found = np.array([np.asarray(row.y) for row in text.rows])
        want = method.approximate(Q, K, mask=mask).attend(V)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-13)
