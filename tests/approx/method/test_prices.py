"""Prices are counted: twins that read from counted memory agree with them, to the integer."""

import dataclasses
import math

import naive
import numpy as np
import pytest
import twins as t
from counting import Counter
from hypothesis import given, strategies as st
from small import hiding, problems, small

from approx import METHODS, Mask, Price, parse
from approx.combinations.rounded_values import RoundedValues
from approx.method.prices import CURRENCIES
from approx.method.tags import ROW_LOCAL
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


HELD = {  # numbers that a cache holds: k keys, or all keys and what is kept of each
    "pages(k=4, size=2, by='mass')": lambda l, d: 2 * l * d,
    "smyrf(size=2, rounds=3)": lambda l, d: 2 * l * d + 3 * (l + d + 2),
    "sorted_lsh(size=2)": lambda l, d: 2 * l * d + l + 7 * d,
    "reformer(size=2, rounds=3)": lambda l, d: 2 * l * d + 3 * (l + d * round(l / 4)),
    "projected_top_k(k=2, r=1)": lambda l, d: 2 * l * d + l + d,
    "channels(r=1)": lambda l, d: 2 * l * d,
    "columns(k=4)": lambda l, d: 4 * 2 * d,
    "columns(k=4, by='key_norm', block=2)": lambda l, d: 4 * (2 * d + 1),
    "columns(k=4, by='key_diff', block=2)": lambda l, d: 4 * 2 * d,
    "columns(k=4, by='snapkv', window=2, block=2)": lambda l, d: 4 * 2 * d + 2 * d,
    "sampled(k=2, design='systematic', sizes='bound')": lambda l, d: (
        2 * l * d + 2 * d * math.ceil(l / 16)
    ),
    "sampled(sink_window(k=2), k=3)": lambda l, d: 2 * l * d,
    "top_k(k=4)": lambda l, d: 2 * l * d,
    "strided(k=4)": lambda l, d: 2 * l * d,
    "scatterbrain(positive(m=2), random(k=2))": lambda l, d: 2 * l * d + 2 * (d + 1) + 2 * d,
    "scatterbrain(one(), pages(k=4, size=2))": lambda l, d: 2 * l * d + 2 * d * 10 + d + 1,
    "guarded(sink_window(k=2), size=5, bits=0)": lambda l, d: 2 * l * d + 2 * d * 4,
}


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("spec", HELD)
def test_bytes_are_those_of_a_cache_at_16_bits(spec, mask):
    n, l, d = 7, 20, 3
    price = parse(spec).price(n=n, l=l, d=d, mask=mask)
    assert price.bytes == 2 * HELD[spec](l, d)


def test_heads_of_a_group_hold_all_keys_once_and_kept_keys_each():
    shape = {"n": 40, "l": 40, "d": 3, "mask": "causal"}
    for spec, group, keys, more in (
        ("top_k(k=4)", 3, 40, 0), ("sink_window(k=4)", 3, 4, 0), ("strided(k=4)", 3, 40, 0),
        ("columns(k=4, by='h2o')", 3, 12, 12), ("columns(k=16, by='h2o')", 3, 40, 48),
        ("columns(k=4, by='key_norm', block=2)", 3, 4, 4),
        ("scatterbrain(nystrom(rank=2), top_k(k=4))", 2, 40, 2 * 2 * (3 + 4)),
    ):  # fmt: skip
        price = parse(spec).price(**shape, group=group)
        assert price.bytes == 2 * (keys * 6 + more), spec


def test_a_users_price_of_four_amounts_is_shared_by_its_tags():
    @dataclasses.dataclass(frozen=True)
    class Own(METHODS["sink_window"]):
        local: bool = True

        @property
        def tags(self):
            return super().tags - (set() if self.local else {ROW_LOCAL})

        def _price(self, shape):
            return Price(1.0, 100.0 + 8 * shape.c, 10.0, 500.0)

    shape = {"n": 40, "l": 40, "d": 3, "c": 2}
    one = Own(k=4).price(**shape, group=1)
    assert (one.reads, one.bytes, one.bytes_read) == (116, 500, 232)
    for local, times in ((True, 1), (False, 5)):
        group = Own(k=4, local=local).price(**shape, group=5)
        assert (group.reads, group.bytes, group.multiply_adds) == (116 * times, 500 * times, 10)
    # eight values of two numbers, in four bits, with two scales each
    coded = RoundedValues(Own(k=4), bits=4).price(**shape)
    assert (coded.reads, coded.bytes_read) == (116 + 16, 2 * 100 + 16 / 2 + 2 * 16)


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
