"""What every method declares: `tags` and `refusal`.

Everything after what query i sees is cut off, changed by a little, and changed by a lot, with one
key of norm 400. With the same rng, row i must stay where the method is declared autoregressive, and
must change somewhere where it is not. Likewise a row must stay, or not, if its query is alone.

Row i has the same numbers to start from each time, so that it can only change by the order of sums
and by scales: by less than `roundings` of its terms, which bounds what any order of them gives.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import ks_2samp
from small import NAMES, roundings, sizes, small

from approx import METHODS, Mask, Method
from approx.compressed_logits.normal_levels import ROTATIONS
from approx.method.tags import AUTOREGRESSIVE, DRAWS_BY_ROW, INVARIANCES, RANDOM, ROW_LOCAL
from approx.projections import PROJECTIONS
from approx.sparse.eviction_scores import SCORES

D, SEED = 3, 5
MASKS = {  # and the row that is looked at
    "causal": (Mask.causal(12, 12), 7),
    "the last queries": (Mask.causal(5, 12), 2),
    "window": (Mask.window(12, 12, 7), 8),
}
NOT_CAUSAL = {
    "full": (Mask.full(12, 12), 7),
    "full, more keys": (Mask.full(5, 12), 2),
    "full, more queries": (Mask.full(12, 7), 8),
}
LONG = {  # so that sums have chunks, from the first key on and from a later one
    "long": (Mask.causal(150, 150), 100),
    "long window": (Mask.window(200, 200, 180), 170),
}
# All three changes are made under the mask of the last queries; elsewhere some are enough.
LEFT_OUT = {
    "causal": ["by a little"],
    "window": ["by a little"],
    "long": ["by a little", "by a lot"],
    "long window": ["by a little", "cut off"],
}
# what the declaration follows from, where `small` has one side of it
MORE = (
    "generalized_exponential(m=4, a=-0.05)",
    "generalized_trigonometric(m=4, a=0.05)",
    "shifted_positive(m=4, a=None)",
    "dense_exponential(m=4, form='sderf')",
    "poisson(m=6, nonnegative=False)",
    "geometric(m=6, nonnegative=False)",
    "angular_hybrid(m=24, signs=2)",
    "positive(m=7, projection='orthogonal')",
    "trigonometric(m=8, projection='hadamard')",
    "chebyshev(degree=3, bound=4.0)",
    "random_maclaurin(m=8, exact=2)",
    "cosformer(M=300)",
    "randomized_attention(samples=3)",
    "rfa(m=12, sigma=0.8)",
    "flash(size=5)",
    "eva(size=2, sparse=chunk(size=4))",
    "eva(size=3, sparse=sliding_window(width=2))",
    "quantised(bits=2, group=3)",
    "quantised(bits=1, by='channel', group=3, recent=2)",
    "quantised(bits=1, by='channel', group=5, recent=3)",
    "projected_top_k(k=3, r=1, by='svd')",
    "centered(positive(m=3), queries=False)",
    "coreset(rank=3, tau='queries')",
    "coreset(rank=3, tau=2.0)",
    "sampled(design='multinomial', k=3, sizes='bound')",
    "sampled(design='poisson', k=3)",
    "sampled(sparse=sink_window(k=1), k=2, epsilon=0.2, delta=0.5)",
    "magicpig(sparse=sink_window(k=1), hashes=1, tables=2, collisions=1)",
    "sampled(design='lsh', hashes=1, tables=3, low_rank=trigonometric(m=4))",
    "reformer(size=2, rounds=3)",
    "reformer(size=2, rounds=3, buckets=4, cut='bucket')",
    "lsh(entries=4.0, rounds=2)",
    "lsh(hashes=1, transform='xbox')",
    "pages(k=6, size=3, by='mass')",
    "pages(k=6, size=3, current=True)",
    "pages(k=6, size=3, by='mean')",
    "columns(k=4, by='snapkv', sinks=1, recent=1, window=3)",
    "columns(k=4, by='key_norm', sinks=1, recent=1)",
    "columns(k=3, block=2)",
    "columns(k=4, by='snapkv', block=2, window=3, kernel_size=1)",
    "columns(k=4, by='expected', sinks=1, block=2)",
    "columns(k=4, by='key_diff', sinks=1, block=1)",
    "vertical_slash(k=4, queries=2, sinks=1)",
)
EVERY = [*NAMES, *MORE]
FIELDS = (  # from which invariance follows
    *(f"positive(m=32, projection={x!r})" for x in PROJECTIONS),
    *(f"columns(k=4, by={x!r})" for x in SCORES),
    *(f"turboquant(bits=1, form='product', rotation={x!r})" for x in ROTATIONS),
    "turboquant(bits=2, group=3, rotation='hadamard')",
    "dense_exponential(m=4, form='saderf')",
    "godec(budget=4.0, space='attention')",
    "coreset(rank=3, tau='radii')",
    "coreset(rank=3, pivots='uniform', weights='equal')",
    "key_pca(rank=1, centred=False)",
    "projected_top_k(k=3, r=1, centred=False)",
    "linformer(rank=3, combinations='gaussian')",
    "sampled(None, 'lsh', hashes=1, tables=2, collisions=1, transform='center')",
    "scatterbrain(shifted_positive(m=4), top_k(k=3))",
    "scatterbrain(one(), top_k(k=3))",  # a row of which only its own factor is the same
    "scatterbrain(channels(r=1), top_k(k=3))",
    "centered(channels(r=1))",
)


def method_of(name, mask):
    return small(name, mask.n, mask.l, D)


def inputs(mask, dtype=np.float64):
    """Return Q, K with logits within ±7, V (l, 2), and other ones."""
    rng = np.random.default_rng(0)
    shapes = (mask.n, D), (mask.l, D), (mask.l, 2)
    return [[rng.uniform(-1.5, 1.5, shape).astype(dtype) for shape in shapes] for _ in range(2)]


def changed(mask, i, dtype=np.float64):
    """Yield Q, K, V and the mask after a change of what query i does not see, by its name."""
    before, other = inputs(mask, dtype)
    stop = int(mask.stop[i])
    kept = i + 1, stop, stop
    cut = Mask(mask.first[: i + 1], mask.stop[: i + 1], stop, looks_back=True)
    yield "cut off", [x[:a] for x, a in zip(before, kept)], cut
    yield "by a little", [np.r_[x[:a], x[a:] + dtype(1e-3)] for x, a in zip(before, kept)], mask
    lot = [np.r_[x[:a], y[a:]] for x, y, a in zip(before, other, kept)]
    lot[1][stop] *= 400 / np.linalg.norm(lot[1][stop])
    yield "by a lot", lot, mask


class Row:
    """Row i of an estimate, of its product with V and of attention, and what each rounds to."""

    def __init__(self, method, mask, i, dtype=np.float64):
        self.method = method
        Q, K, V = inputs(mask, dtype)[0]
        A = method.approximate(Q, K, mask=mask, rng=SEED)
        self.seen, self.scale = int(mask.stop[i]), A.row_log(np.array([i]))
        self.row = self.of(A, V, i)
        size, total = sizes(A)[0][i].sum(), self.row[0].sum()
        normalised = size / total if A.space == "kernel" and total > 0 else size
        self.units = [roundings(A) * unit for unit in (size, size, normalised)]

    def of(self, A, V, i):
        entries = A.block(np.array([i]), slice(0, self.seen), shift=self.scale)[0]
        y, log = A.scaled_matmat(V)
        return entries, y[i] * np.exp(log[i] - self.scale), A.attend(V)[i]

    def change(self, Q, K, V, mask, i):
        """Return by how many times its rounding the row is another one; NaN and overflow: inf."""
        try:
            A = self.method.approximate(Q, K, mask=mask, rng=SEED)
            found = self.of(A, V, i)
        except OverflowError:
            return math.inf
        most = 0.0
        for x, y, unit in zip(self.row, found, self.units):
            gap = float(np.abs(x - y).max())
            most = max(most, gap / unit if unit and gap == gap else math.inf if gap else 0.0)
        return most


def changes(name, masks, dtype=np.float64):
    """Return by how much a row changes with what its query does not see, by what is changed."""
    found = {}
    for label, (mask, i) in masks.items():
        one = Row(method_of(name, mask), mask, i, dtype)
        for what, arrays, after in changed(mask, i, dtype):
            if what in LEFT_OUT.get(label, ()):
                continue
            found[f"{label}, {what}"] = one.change(*arrays, after, i)
    return found


def at_once(name):
    """Return whether it draws for all rows together without a mask that looks back."""
    return name.startswith("randomized_attention")


def refused(name):
    """Return why a method refuses masks, after it did so, except for one that hides nothing."""
    (mask, _) = MASKS["causal"]
    method = method_of(name, mask)
    if method.refusal is None:
        return None
    Q, K, _ = inputs(mask)[0]
    for use in (method.approximate, method.moments):
        with pytest.raises(ValueError, match=re.escape(f"used under a mask: {method.refusal}")):
            use(Q, K, mask=mask)
    full = Mask.full(*mask.shape)
    assert method.approximate(Q, K, mask=full, rng=SEED).shape == mask.shape
    return method.refusal


@pytest.mark.parametrize("name", EVERY)
def test_a_row_follows_from_the_past_if_and_only_if_this_is_declared(name):
    if refused(name):
        return
    with np.errstate(all="ignore"):  # scales that a key of norm 400 makes far apart
        found = changes(name, MASKS)
    if AUTOREGRESSIVE in method_of(name, MASKS["causal"][0]).tags:
        assert max(found.values()) <= 1, found
        found = changes(name, LONG, np.float32)
        assert max(found.values()) <= 1, found
    else:
        assert max(found.values()) > 1, "no row changes: declare it AUTOREGRESSIVE"


@pytest.mark.parametrize("name", EVERY)
def test_a_row_needs_no_other_query_if_and_only_if_this_is_declared(name):
    if refused(name):
        return
    found = {}
    for label, (mask, i) in (MASKS if at_once(name) else MASKS | NOT_CAUSAL).items():
        method = method_of(name, mask)
        one = Row(method, mask, i)
        Q, K, V = inputs(mask)[0]
        some = [np.array([i]), np.array([1, i, mask.n - 1])][: 2 if "full" in label else 1]
        for rows in [np.arange(i + 1)] if DRAWS_BY_ROW in method.tags else some:
            size = method.sized_by
            if size and size.counts == "rank" and ROW_LOCAL not in method.tags:
                continue  # a rank may be too large for so few queries
            place = int(np.flatnonzero(rows == i)[0])
            found[f"{label}, {rows}"] = one.change(Q[rows], K, V, mask.take(rows), place)
    if ROW_LOCAL in method.tags:
        assert max(found.values()) <= 1, found
    elif found:
        assert max(found.values()) > 1, "no row changes: declare it ROW_LOCAL"


# Invariance

BY_CHANCE = {  # more is invariant than their fields say
    "quantised(bits=2, by='channel', group=2, levels='normal', recent=0)": "two numbers are exact",
    "linformer(rank=1, combinations='gaussian')": "all keys are one",
    "sampled(design='multinomial', k=3, sizes='bound')": "all keys are on one page",
    "guarded(random(), tv=0.9, size=3, bits=0)": "no row is as far as that",
}
rng = np.random.default_rng(7)
POINTS = rng.standard_normal((2, 12, 4))
SHIFT, TURN = 50.0 * np.array([1, 1, -1, 1]), np.linalg.qr(rng.standard_normal((4, 4)))[0]
CHANGES = {
    "shift": lambda Q, K: [(Q, K + SHIFT)],
    "row shift": lambda Q, K: [(Q, K + SHIFT)],
    "rotation": lambda Q, K: [(Q @ TURN, K @ TURN)],
    "scale": lambda Q, K: [(Q * 2.0**e, K / 2.0**e) for e in (7, 100, -100, 200, -200)],
}


def bounded(method, Q, K, mask, seed, factor=None):
    """Return arctan of the rows of an estimate, divided by their sums or by e^factor."""
    A = method.approximate(Q, K, mask=mask, rng=seed)
    if A.space == "attention":
        return np.arctan(A.to_dense())
    log = A.row_log()
    x = A.block(slice(None), shift=log)
    total = x.sum(axis=1)
    unit = np.exp(log - factor) if factor is not None else 1 / np.where(total == 0, 1, total)
    return np.nan_to_num(np.arctan(x * unit[:, None]), nan=9)


def gap(method, change, seed=SEED):
    """Return by how much a change moves the entries of one draw, under every mask."""
    (Q, K), gaps = POINTS, []
    for mask in (None, "causal") if method.refusal is None else (None,):
        log = method.approximate(Q, K, mask=mask, rng=seed).row_log() if change == "shift" else None
        before = bounded(method, Q, K, mask, seed, log)
        for q, k in CHANGES[change](Q, K):
            try:
                after = bounded(method, q, k, mask, seed, log if log is None else log + Q @ SHIFT)
            except OverflowError:
                after = np.inf
            gaps.append(np.abs(after - before).max())
    return max(gaps)


def alike(method, draws):
    """Return a bound on the chance that draws differ so much if a rotation keeps their law."""
    near = np.tile(np.eye(4), (3, 1)) * np.linspace(-1.5, 2.1, 12)[:, None] + POINTS / 20
    Q, K = near * [[[0.3, 0.7, 1.5, 2.5]], [[2.5, 1.5, 0.7, 0.3]]]
    x, y = (  # near axes of different sizes, which laws that know axes notice
        np.stack([bounded(method, q, k, None, start + i)[::3] for i in range(draws)])
        for start, (q, k) in ((0, (Q, K)), (draws, (Q @ TURN, K @ TURN)))
    )
    x, y = (np.round(z.reshape(draws, -1), 9) for z in (x, y))
    return x.shape[1] * ks_2samp(x, y, method="asymp").pvalue.min()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # logits of 600, of what is not invariant
@pytest.mark.parametrize("name", [*EVERY, *FIELDS])
def test_attention_is_invariant_to_what_is_declared_and_to_nothing_else(name):
    """Logits are ≤ 600 and lose some 600·4 eps = 5e-13; features and fits amplify that."""
    method = small(name, 12, 12, 4)
    declared, law = method.tags & INVARIANCES, not method.deterministic
    assert not {"shift", "row shift"} <= declared
    for change in CHANGES.keys() - ({"row shift"} if "shift" in declared else set()):
        if change in declared:
            moved = gap(method, change)
            assert moved < 1e-8 or (change == "rotation" and law and alike(method, 200) > 1e-6)
        elif name in BY_CHANCE:
            continue
        elif change == "rotation" and law:
            assert any(alike(method, draws) < 1e-6 for draws in (200, 1500)), change
        else:  # of some draws
            seeds = range(SEED, SEED + (8 if law else 1))
            assert any(gap(method, change, seed) > 1e-6 for seed in seeds), f"declare {change}"


@pytest.mark.parametrize("tags", [frozenset(), frozenset({ROW_LOCAL})])
def test_a_class_may_say_in_words_that_it_draws(tags):
    said = {"name": "mine", "deterministic": False, "evaluate": Method.evaluate}
    mine = dataclass(frozen=True)(type("Mine", (Method,), said | ({"tags": tags} if tags else {})))
    mine.__abstractmethods__ = frozenset()
    assert (mine().tags, mine().deterministic) == (tags | {RANDOM}, False)


@pytest.mark.parametrize("name", ["sink_window", "random", "top_k", "scatterbrain"])
def test_a_child_may_say_that_it_draws_or_not(name):
    """Whether the tags of its parent are stated, or follow from fields or parts."""
    parent = METHODS[name]
    for draws in (True, False):
        child = dataclass(frozen=True)(type("Mine", (parent,), {"deterministic": not draws}))()
        assert child.deterministic == (not draws and name != "scatterbrain")  # its features draw
        assert child.tags - {RANDOM} == parent().tags - {RANDOM}
    with pytest.raises(TypeError, match=r"Mine\.deterministic must be True or False"):
        type("Mine", (parent,), {"deterministic": property(lambda self: True)})
