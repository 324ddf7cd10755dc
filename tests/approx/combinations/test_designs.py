"""Sampling designs by enumeration of all that they can draw, and what is made of their weights.

A scripted generator gives a design every combination of numbers from grids so fine that each cell
of a grid leads to one draw. So expectations over the grid are those over rng, to rounding.
"""

import itertools

import naive
import numpy as np
import pytest
from refusals import refuses

from approx import Mask, parse
from approx.combinations.designs.by_size import Multinomial, PoissonSampling, Systematic, inclusion
from approx.combinations.designs.collisions import Collisions
from approx.combinations.designs.design import Rest, SimpleRandom
from approx.combinations.sampled import Sampled, Sizes

N, L = 4, 6
rng = np.random.default_rng(3)
Q, K = rng.uniform(-1, 1, (N, 2)), rng.uniform(-1, 1, (L, 2))
# rows of 6, 4, 3 and 2 keys, of which the support holds some
MASK = Mask([0, 0, 2, 4], [6, 4, 5, 6], L)
HELD = np.array([0, 1, 2, 4, 4]), np.array([2, 0, 2, 4])  # rows of 5, 3, 1 and 2 keys are left
REST = Rest(MASK, HELD)
SIZES = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 4.0])  # every partial sum a whole number
TINY = 1e-12  # some 10³ terms of size 1, each with a few roundings


class Script:
    """A generator whose numbers are given."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def random(self, size=None):
        if size is None:
            return self.numbers.pop(0)
        return np.array([self.numbers.pop(0) for _ in range(np.prod(size, dtype=int))])

    def standard_normal(self, size):
        assert size[1] == 2
        return np.array([self.numbers.pop(0) for _ in range(size[0])])


def grid(count):
    """Return the midpoints of so many equal cells of [0, 1), and the share of each."""
    return [((c + 0.5) / count, 1.0 / count) for c in range(count)]


def scripts(*grids):
    """Yield every combination of numbers, one from each grid, and its probability."""
    for numbers in itertools.product(*grids):
        yield [x for x, _ in numbers], np.prod([p for _, p in numbers])


def one_row(i):
    """Return the rest of row i alone."""
    indptr, indices = HELD
    held = indices[indptr[i] : indptr[i + 1]]
    return Rest(Mask(MASK.first[[i]], MASK.stop[[i]], L), (np.array([0, len(held)]), held))


def log_sizes(i, keys):
    return np.log(SIZES[keys])


def arcs(vectors):
    """Return directions between which no vector changes its side, and the shares of the arcs."""
    turns = np.arctan2(vectors[:, 1], vectors[:, 0])
    ends = np.sort(np.concatenate([turns + np.pi / 2, turns - np.pi / 2]) % (2 * np.pi))
    ends = np.append(ends, ends[0] + 2 * np.pi)
    middles = (ends[1:] + ends[:-1]) / 2
    directions = np.stack([np.cos(middles), np.sin(middles)], axis=1)
    shares = np.diff(ends) / (2 * np.pi)
    return [(x, share) for x, share in zip(directions, shares) if share > 1e-15]


def cells(design, rest):
    """Return grids of the numbers that a design takes for one row."""
    keys = rest.keys(0)
    count = len(keys)
    if isinstance(design, Collisions):
        both = np.vstack([design.q, design.k])
        return [arcs(both)] * (design.hashes * design.tables)
    if isinstance(design, SimpleRandom):
        k = min(design.k, count)
        return [grid(count - k + c + 1) for c in range(k)]
    sizes = np.exp(design.log_sizes(0, keys)) if design.log_sizes else np.ones(count)
    if isinstance(design, Multinomial):
        ends = np.append(0.0, np.cumsum(sizes / sizes.sum()))
        return [[((a + b) / 2, b - a) for a, b in itertools.pairwise(ends)]] * design.k
    p = naive.inclusion(sizes, design.k)
    if isinstance(design, PoissonSampling):
        return [[(x / 2, x), ((1 + x) / 2, 1 - x)] for x in p]  # below π, and above
    ends = np.sort(np.append(np.cumsum(p) % 1.0, [0.0, 1.0]))
    return [[((a + b) / 2, b - a) for a, b in itertools.pairwise(ends) if b - a > 1e-9]]


DESIGNS = {
    "uniform": SimpleRandom(2),
    "one": SimpleRandom(1),
    "comb": Systematic(2),
    "comb by size": Systematic(2, log_sizes),
    "coins": PoissonSampling(2),
    "coins by size": PoissonSampling(2, log_sizes),
    "with replacement": Multinomial(3),
    "with replacement by size": Multinomial(2, log_sizes),
}
# q and k of one table with one hash, of two tables, and of tables of two hashes
COLLISIONS = [(1, 1, 1), (1, 2, 1), (1, 2, 2), (1, 3, 2), (2, 2, 1), (2, 2, 2)]


def enumerated(design, rest):
    """Return E[W], Var[W] and Cov[W_j, W_l] of one row, from all that the design can draw."""
    mean, square, total = np.zeros(L), np.zeros((L, L)), 0.0
    for numbers, p in scripts(*cells(design, rest)):
        script = Script(numbers)
        w = design.draw(rest, script).toarray()[0]
        assert not script.numbers
        mean += p * w
        square += p * np.outer(w, w)
        total += p
    assert abs(total - 1) < TINY
    return mean, square - np.outer(mean, mean)


def assert_enumerated(design, rest, reached=True):
    mean, covariance = enumerated(design, rest)
    keys = rest.keys(0)
    want = np.zeros(L)
    want[keys] = reached
    np.testing.assert_allclose(mean, want, atol=TINY)
    variance, _ = design.variances(rest, 0)
    np.testing.assert_allclose(variance, np.diag(covariance)[keys], atol=10 * TINY)
    np.testing.assert_allclose(design.covariance(rest, 0), covariance, atol=10 * TINY)


@pytest.mark.parametrize("i", range(N))
@pytest.mark.parametrize("name", DESIGNS)
def test_weights_have_the_moments_of_all_draws(name, i):
    assert_enumerated(DESIGNS[name], one_row(i))


@pytest.mark.parametrize(("hashes", "tables", "least"), COLLISIONS)
def test_collisions_have_the_moments_of_all_hyperplanes(hashes, tables, least):
    some = slice(0, 2 if hashes * tables > 2 else L)
    rest = Rest.all_seen(Mask.full(1, L))
    k = K.copy()
    k[some.stop :] = k[0]  # fewer arcs
    design = Collisions(Q[[0]], k, hashes, tables, least)
    assert_enumerated(design, rest)


def test_a_key_that_cannot_collide_is_never_drawn():
    design = Collisions(np.array([[1.0, 0.0]]), np.array([[-2.0, 0.0], [1.0, 1.0]]), 1, 3, 1)
    variance, reached = design.variances(Rest.all_seen(Mask.full(1, 2)), 0)
    np.testing.assert_array_equal(reached, [False, True])
    assert variance[0] == 0.0


@pytest.mark.parametrize("low", ["zero()", "taylor(degree=1)"])
@pytest.mark.parametrize(
    ("design", "fields"),
    [("uniform", {}), ("systematic", {"sizes": Sizes(SIZES)}), ("multinomial", {"shared": True}),
     ("multinomial", {"sizes": "bound"}), ("uniform", {"weighted": False}),
     ("systematic", {"weighted": False, "sizes": Sizes(SIZES)}),
     ("lsh", {"k": None, "hashes": 1, "tables": 2})],
)  # fmt: skip
def test_an_estimate_has_the_mean_and_the_variance_that_it_says(design, fields, low, monkeypatch):
    method = Sampled(**{"sparse": parse("top_k(k=1)"), "design": design, "k": 2,
                        "low_rank": parse(low)} | fields)  # fmt: skip
    truth = naive.kernel(Q, K)
    for i in range(N) if low != "zero()" and design != "lsh" else [1]:
        q, mask = Q[[i]], Mask(MASK.first[[i]], MASK.stop[[i]], L)
        held = method.sparse.approximate(q, K, mask=mask).sparse
        rest = Rest(mask, (held.indptr, held.indices))
        one = Rest.all_seen(Mask.full(1, L)) if method.shared else rest
        of = method.design_of(q, K, rest, None)
        mean, square = np.zeros(L), np.zeros((L, L))
        for numbers, p in scripts(*cells(of, one)):
            rngs = [np.random.default_rng(0)] * 2 + [Script(numbers), np.random.default_rng(0)]
            monkeypatch.setattr(Sampled, "streams", lambda self, rng, rngs=rngs: rngs)
            estimate = method.approximate(q, K, mask=mask).to_dense()[0] / truth[i]
            mean += p * estimate
            square += p * np.outer(estimate, estimate)
        monkeypatch.undo()
        seen = naive.seen(mask, 1, L)[0]
        moments = method.moments(q, K, mask=mask)
        if method.weighted:
            np.testing.assert_allclose(mean, np.where(seen, 1.0, 0.0), atol=TINY)
        bias = np.where(seen, mean - 1.0, 0.0)
        np.testing.assert_allclose(moments.relative_bias[0], bias, atol=TINY)
        covariance = square - np.outer(mean, mean)
        variance = np.exp(moments.log_relative_variance[0])
        # estimates relative to exp(q·k) are below 20
        np.testing.assert_allclose(variance, np.diag(covariance), atol=400 * TINY)
        known = method.covariance(q, K, mask=mask)
        np.testing.assert_allclose(known, covariance, atol=400 * TINY)


def test_probabilities_of_the_largest_sizes_are_one():
    np.testing.assert_allclose(
        inclusion(np.array([5.0, 1.0, 1.0, 1.0]), 2), [1, 1 / 3, 1 / 3, 1 / 3]
    )
    for sizes in (SIZES, SIZES**4, np.ones(3)):
        for k in range(1, len(sizes) + 1):
            want = naive.inclusion(sizes, k)
            np.testing.assert_allclose(inclusion(sizes / sizes.sum(), k), want, rtol=1e-14)
            assert abs(want.sum() - min(k, len(sizes))) < 1e-14


@pytest.mark.parametrize("k", [1, 2, 3, 9])
@pytest.mark.parametrize("design", [Systematic, PoissonSampling, Multinomial])
def test_keys_without_sizes_are_drawn_like_keys_of_equal_sizes(design, k):
    mask = Mask.causal(40, 40)
    rest = Rest(mask, (np.minimum(np.arange(41), 8), np.arange(8)))  # eight rows hold their last
    found = design(k).draw(rest, np.random.default_rng(1)).toarray()
    want = design(k, lambda i, keys: np.zeros(len(keys))).draw(rest, np.random.default_rng(1))
    np.testing.assert_allclose(found, want.toarray(), rtol=1e-13)  # some roundings of N/k


@pytest.mark.kernel
def test_places_among_the_rest_are_keys():
    for i in range(N):
        rest = one_row(i)
        count = int(rest.counts[0])
        keys = rest.at(np.array([0, count]), np.arange(count))
        np.testing.assert_array_equal(keys, rest.keys(0))
        np.testing.assert_array_equal(np.flatnonzero(rest.visible()[0]), keys)
    indptr = np.array([0, 2, 3, 4, 6])
    keys = REST.at(indptr, np.array([0, 4, 2, 0, 1, 0]))
    np.testing.assert_array_equal(keys, [0, 5, 3, 3, 5, 4])


@pytest.mark.kernel
def test_collisions_are_those_of_every_pair():
    design = Collisions(Q, K, 1, 4, 2)
    drawn = design.draw(REST, np.random.default_rng(5)).toarray()
    again = np.random.default_rng(5)
    shared = np.zeros((N, L), int)
    for _ in range(4):
        omega = again.standard_normal((1, 2))[0]
        shared += (Q @ omega >= 0)[:, None] == (K @ omega >= 0)
    np.testing.assert_array_equal(drawn > 0, (shared >= 2) & REST.visible())


def test_a_row_draws_as_many_as_its_error_asks_for():
    """Twin of the rule for ε and δ, from the same pilot."""
    from scipy.stats import norm

    method = parse("sampled(sink_window(k=2), k=3, epsilon=0.3, delta=0.2)")
    q, k = 2 * Q, 2 * K
    mask = Mask.full(N, L)
    held = method._held(q, k, mask, None)
    rest = Rest(mask, held)
    sizes = method._enough(q, k, rest, np.random.default_rng(1))
    pilot = SimpleRandom(3).draw(rest, np.random.default_rng(1)).toarray()
    truth = naive.kernel(q, k)
    for i in range(N):
        on = pilot[i] > 0
        x, count = truth[i, on], len(rest.keys(i))
        fixed = truth[i, held[1][held[0][i] : held[0][i + 1]]].sum()
        total = fixed + count * x.mean()
        need = (norm.ppf(0.9) * count * x.std(ddof=1) / (0.3 * total)) ** 2
        assert sizes[i] == min(max(int(np.ceil(need)), 3), L)
    assert (sizes == L).any()
    assert (sizes < L).any()


def test_bounds_of_pages_are_sizes():
    """Keys of a page have one size, e to the most that q·k can be in its box."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((3, 5)), rng.standard_normal((40, 5))
    method = parse("sampled(design='poisson', k=9, sizes='bound')")
    mask = Mask([0, 3, 20], [40, 23, 32], 40)
    rest = Rest.all_seen(mask)
    design = method.design_of(q, k, rest, None)
    for i, stop in enumerate(mask.stop):
        sizes = []
        for j in range(mask.first[i], stop):
            page = k[max(mask.first[i], j // 16 * 16) : min(stop, j // 16 * 16 + 16)]
            box = zip(q[i], page.min(axis=0), page.max(axis=0))
            sizes.append(np.exp(sum(max(x * low, x * high) for x, low, high in box)))
        sizes = np.array(sizes)
        p = inclusion(design.shares(rest, i), 9)
        np.testing.assert_allclose(p, naive.inclusion(sizes, 9), rtol=1e-12)
    # a key before the window says nothing: of 17 keys, each has 1/17
    one, k = parse("sampled(design='multinomial', k=1, sizes='bound')"), np.zeros((32, 1))
    k[0] = 9.0
    found = one.moments(np.ones((1, 1)), k, mask=Mask([15], [32], 32)).log_relative_variance
    np.testing.assert_allclose(np.exp(found[0, 15:]), 16.0, rtol=1e-14)


def test_sizes_are_checked():
    with pytest.raises(TypeError, match=r'must be "bound" or approx\.combinations'):
        Sampled(k=2, design="poisson", sizes=[1.0])
    refuses("leave out shared", Sampled, k=2, design="poisson", sizes="bound", shared=True)
    refuses("sizes must be > 0, got 0", Sizes, [1.0, 0.0])
    refuses("sizes belong to systematic, poisson, multinomial", Sampled, k=2, sizes=Sizes([1.0]))
    with pytest.raises(ValueError, match="one per key, 6, got 1"):
        Sampled(k=2, design="poisson", sizes=Sizes([1.0])).approximate(Q, K)
