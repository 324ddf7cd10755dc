"""What every method declares: `tags` and `refusal`, no less and no more than what holds."""

import itertools
import re
from dataclasses import dataclass

import numpy as np
import pytest
from small import NAMES, small

from approx import METHODS, Mask, Method
from approx.compressed_logits.normal_levels import ROTATIONS
from approx.method.tags import AUTOREGRESSIVE, INVARIANCES, RANDOM, ROW_LOCAL
from approx.projections import PROJECTIONS
from approx.sparse.eviction_scores import SCORES
from approx.testing import assert_autoregressive, assert_invariant, assert_row_local

D, SEED = 3, 5
MASKS = {
    "causal": Mask.causal(12, 12),
    "the last queries": Mask.causal(5, 12),
    "window": Mask.window(12, 12, 7),
}
NOT_CAUSAL = {
    "full": Mask.full(12, 12),
    "full, more keys": Mask.full(5, 12),
    "full, more queries": Mask.full(12, 7),
}
LONG = {  # so that sums have chunks, from the first key on and from a later one
    "long": Mask.causal(150, 150),
    "long window": Mask.window(200, 200, 130),
}
# what the declaration follows from, where `small` has one side of it
MORE = (
    "generalized_exponential(m=4, a=-0.05)",
    "generalized_trigonometric(m=4, a=0.05)",
    "shifted_positive(m=4, a=None)",
    "dense_exponential(m=4, form='sderf')",
    "poisson(m=6, nonnegative=False)",
    "geometric(m=6, nonnegative=False)",
    "positive(m=7, projection='orthogonal')",
    "trigonometric(m=8, projection='hadamard')",
    "cosformer(M=300)",
    "flash(size=5)",
    "eva(size=2, sparse=chunk(size=4))",
    "eva(size=3, sparse=sliding_window(width=2))",
    "quantised(bits=2, group=3)",
    "quantised(bits=1, by='channel', group=3, recent=2)",
    "quantised(bits=1, by='channel', group=5, recent=3)",
    "projected_top_k(k=3, r=1, by='svd')",
    "key_channels(r=1, window=2, group=6, recent=1)",
    "centered(positive(m=3), queries=False)",
    "coreset(rank=3, tau='queries')",
    "coreset(rank=3, tau=2.0)",
    "sampled(design='multinomial', k=3, sizes='bound')",
    "sampled(design='poisson', k=3)",
    "sampled(sparse=sink_window(k=1), k=2, epsilon=0.2, delta=0.5)",
    "magicpig(sparse=sink_window(k=1), hashes=1, tables=2, collisions=1)",
    "sampled(design='lsh', hashes=1, tables=3, low_rank=trigonometric(m=4))",
    "reformer(size=2, rounds=3)",
    "lsh(entries=4.0, rounds=2)",
    "lsh(hashes=1, transform='xbox')",
    "pages(k=6, size=3, by='mass')",
    "pages(k=6, size=3, current=True)",
    "pages(k=6, size=3, by='mean')",
    "pages(k=6, size=3, by='deviation')",
    "columns(k=4, by='snapkv', sinks=1, recent=1, window=3)",
    "columns(k=4, by='key_norm', sinks=1, recent=1)",
    "columns(k=3, block=2)",
    "columns(k=4, by='snapkv', block=2, window=3, kernel_size=1)",
    "columns(k=4, by='critical', block=2, window=3, kernel_size=1)",
    "columns(k=4, by='tova')",
    "columns(k=5, by='output', block=2)",
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
    """Return Q, K with logits within ±7."""
    rng = np.random.default_rng(0)
    return [rng.uniform(-1.5, 1.5, (rows, D)).astype(dtype) for rows in mask.shape]


def broken(assertion, name, masks, dtype=np.float64):
    """Return the masks under which an assertion on a method does not hold."""
    found = []
    for label, mask in masks.items():
        try:
            assertion(method_of(name, mask), *inputs(mask, dtype), mask=mask)
        except AssertionError:
            found.append(label)
    return found


def at_once(name):
    """Return whether it draws for all rows together without a mask that looks back."""
    return name.startswith("randomized_attention")


def refused(name):
    """Return why a method refuses masks, after it did so, except for one that hides nothing."""
    mask = MASKS["causal"]
    method = method_of(name, mask)
    if method.refusal is None:
        return None
    Q, K = inputs(mask)
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
    found = broken(assert_autoregressive, name, MASKS)
    if AUTOREGRESSIVE in method_of(name, MASKS["causal"]).tags:
        long = {} if name.startswith("projection") else LONG  # a fit for each block
        assert not found + broken(assert_autoregressive, name, long, np.float32)
    else:
        assert found, "no row changes: declare it AUTOREGRESSIVE"


@pytest.mark.parametrize("name", EVERY)
def test_a_row_needs_no_other_query_if_and_only_if_this_is_declared(name):
    if refused(name):
        return
    method, masks = method_of(name, MASKS["causal"]), MASKS if at_once(name) else MASKS | NOT_CAUSAL
    size = method.sized_by
    if ROW_LOCAL in method.tags:
        assert not broken(assert_row_local, name, masks)
    elif not (size and size.counts == "rank"):  # a rank may be too large for so few queries
        assert broken(assert_row_local, name, masks), "no row changes: declare it ROW_LOCAL"


# Invariance

BY_CHANCE = {  # more is invariant than their fields say
    "quantised(bits=2, by='channel', group=2, levels='normal', recent=0)": "two numbers are exact",
    "linformer(rank=1, combinations='gaussian')": "all keys are one",
    "sampled(design='multinomial', k=3, sizes='bound')": "all keys are on one page",
    "guarded(random(), tv=0.9, size=3, bits=0)": "no row is as far as that",
}
SLIGHT = re.compile("sobol|halton")  # laws that only 900 draws tell from rotated ones
rng = np.random.default_rng(7)
POINTS = rng.standard_normal((2, 12, 4))
NEAR = np.tile(np.eye(4), (3, 1)) * np.linspace(-1.5, 2.1, 12)[:, None] + POINTS / 20
NEAR = NEAR * [[[0.4, 1.0, 2.1, 3.5]], [[3.5, 2.1, 1.0, 0.4]]]  # axes that a law may notice


def moves(method, change, mask=None, seed=SEED):
    """Return whether a change moves an estimate, or its law: near axes of different sizes."""
    law = change == "rotation" and not method.deterministic
    draws = 400 if "tensor_sketch" in str(method) else 100
    Q, K = (NEAR[0, ::3], NEAR[1]) if law else POINTS
    try:
        assert_invariant(method, Q, K, change, mask=mask, draws=draws, rng=seed)
    except AssertionError:
        return True
    return False


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # logits of 600, of what is not invariant
@pytest.mark.parametrize("name", [*EVERY, *FIELDS])
def test_attention_is_invariant_to_what_is_declared_and_to_nothing_else(name):
    """Logits are ≤ 600 and lose some 600·4 eps = 5e-13; features and fits amplify that."""
    method = small(name, 12, 12, 4)
    declared, law = method.tags & INVARIANCES, not method.deterministic
    assert not {"shift", "row shift"} <= declared
    for change in INVARIANCES - ({"row shift"} if "shift" in declared else set()):
        if change in declared:
            assert not moves(method, change), change
            if method.refusal is None and not (law and change == "rotation"):
                assert not moves(method, change, "causal"), change
        elif name in BY_CHANCE:
            continue
        elif change == "rotation" and law:
            assert SLIGHT.search(name) or moves(method, change), change
        else:  # of some draws
            seeds = range(SEED, SEED + (8 if law else 1))
            cases = itertools.product((None, "causal")[: 2 - bool(method.refusal)], seeds)
            assert any(moves(method, change, mask, seed=seed) for mask, seed in cases), change


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
