"""Prices are counted: twins that read from counted memory agree with them, to the integer."""

import math

import naive
import numpy as np
import pytest
import twins as t
from counting import Counter
from hypothesis import given, strategies as st
from small import hiding, problems, small

from approx import METHODS, Mask, Price, parse
from approx.method.prices import CURRENCIES
from approx.sparse.support import ByPlace, SupportMethod

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
        reads, work = counted(t.TWINS[spec](sizes), n, l, d, c, word)
        where = f"{method} at n={n}, l={l}, d={d}, c={c}, {word}"
        assert price.reads == reads, where
        # the price is a quotient by n, and of keys by n: two roundings
        assert math.isclose(n * price.multiply_adds, work, rel_tol=1e-14), where


@pytest.mark.parametrize("spec", t.TWINS)
def test_prices_are_counted(spec):
    for shape in ((7, 7, 2, 4), (4, 9, 3, 2), (7, 5, 3, 2)):
        assert_counted(spec, *shape)


@pytest.mark.listed
def test_every_price_is_counted():
    """A method has a twin in `t.TWINS`, unless its price follows from the inputs."""
    counted = {parse(spec.format(h=4, s=2)).name for spec in t.TWINS}
    for name in METHODS.keys() - counted:
        price = small(name, 8, 8, 3).price(n=8, l=8, d=3)
        assert price is None or price.reads is None, f"add a twin of {name} to t.TWINS"


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


@pytest.mark.parametrize("spec", t.TWINS)
def test_what_is_stored_is_the_price(spec):
    for n, l, d, c in ((7, 7, 2, 4), (4, 9, 3, 2)):
        method = Sizes(l).method(spec)
        Q, K, V = t.arrays(n, l, d, c)
        for _, mask in masks(n, l, method):
            stored = method.price(n=n, l=l, d=d, c=c, mask=mask).stored
            found = method.approximate(Q, K, mask=mask, rng=0, V=V).parameters / n
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
        twin = t.TWINS[spec](sizes)
        if spec in FEATURES:
            twin = t.state(t.coordinates(feature=FEATURES[spec]))
        text = t.Text(Q, K, V, t.rows_of(word, n, l), Counter())
        answer = twin(text)
        for row in text.rows:
            answer(row)
        found = np.array([np.asarray(row.y) for row in text.rows])
        want = method.approximate(Q, K, mask=mask).attend(V)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-13)


N, L, D, C = 6, 10, 4, 3
SHAPE = {"n": N, "l": L, "d": D, "c": C}


def price(spec):
    return parse(spec).price(**SHAPE)


def test_prices_of_parts_add():
    both = price("scatterbrain(low_rank=positive(m=5), sparse=top_k(k=2))")
    taken_off = Price(0.0, 0.0, 2 * 5.0, 0.0)  # the products of features where keys are exact
    assert both == price("positive(m=5)") + price("top_k(k=2)") + taken_off
    assert price("true_denominator(top_k(k=2))") == price("top_k(k=2)")
    assert price("scatterbrain(low_rank=zero(), sparse=top_k(k=2))") == price("top_k(k=2)")
    held = price("sampled(k=2, low_rank=one())").reads
    assert held == price("one").reads + price("sampled(k=2)").reads
    for queries, mean in ((True, D), (False, 0)):
        spec = f"centered(positive(m=5), queries={queries})"
        assert price(spec).reads - price("positive(m=5)").reads == mean
    one = Price(1.0, 2.0, 3.0, 4.0)
    assert one + one == Price(2.0, 4.0, 6.0, 8.0)
    assert one + Price(1.0, None, 0.0, 0.0) == Price(2.0, None, 3.0, 4.0)


def test_a_baseline_fits_any_budget_by_itself():
    for name in ("zero", "one", "constant", "uniform"):
        for currency in CURRENCIES:
            assert parse(name).within(0.01, currency=currency, **SHAPE) == parse(name)
    # in another method it counts: c + 1 = 4 numbers are left for a key of 7
    assert parse("sampled(low_rank=one())").within(10.9, currency="reads", **SHAPE) is None
    assert parse("sampled(low_rank=one())").within(11, currency="reads", **SHAPE).k == 1


@given(problems(dtypes=[np.float64]), st.integers(0, 99))
def test_means_are_over_what_is_seen(problem, seed):
    Q, K, V, _ = problem
    mask = hiding(len(Q), len(K), seed)
    on, D = naive.seen(mask, len(Q), len(K)), naive.kernel(Q, K)
    means = [D[i, row].mean() for i, row in enumerate(on)]
    wanted = {
        "zero": np.zeros_like(D),
        "one": on,
        "constant": D[on].mean() * on,
        "uniform": np.array(means)[:, None] * on,
    }
    for name, want in wanted.items():
        A = parse(name).approximate(Q, K, mask=mask)
        np.testing.assert_allclose(A.to_dense(), want, rtol=1e-13)  # sums of ≤ 64 exponentials
        if name != "zero":
            past = np.array([V[row].mean(axis=0) for row in on])
            np.testing.assert_allclose(A.attend(V), past, rtol=1e-12, atol=1e-13)
