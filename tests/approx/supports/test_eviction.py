"""Columns: every rule against a slow twin, what eviction means, and what scores are."""

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from test_masked_supports import masked
from test_supports import support

from analysis import inputs
from approx import Mask, parse
from approx.sparse import eviction_scores
from approx.sparse.columns import Columns
from approx.sparse.eviction_scores import SCORES

some = settings(max_examples=max(1, settings().max_examples // 5))


@st.composite
def settled(draw, by, evicts, least=1):
    """Draw Q, K, a mask, and columns that suit them."""
    Q, K, mask, seed = draw(masked(most=14))
    if by not in ("mass", "key_norm"):  # ties of what is rounded have no order
        n, l = mask.shape
        Q, K = np.split(np.random.default_rng(seed).uniform(-1.5, 1.5, (n + l, 3)), [n])
    l = mask.l
    block = draw(st.integers(1, 3)) if evicts else None
    sinks, recent = draw(st.integers(0, 2)), draw(st.integers(0, 3))
    few = sinks + max(recent, 1) + block - 1 if evicts else sinks + recent
    assume(max(few, 1) <= l)
    fields = {"sinks": sinks, "recent": recent, "block": block}
    if by in ("snapkv", "critical"):
        fields["window"] = draw(st.integers(1, 4))
        fields["kernel_size"] = draw(st.sampled_from([1, 3, 5]))
        fields["pooling"] = draw(st.sampled_from(["average", "max"]))
    return Q, K, mask, Columns(draw(st.integers(max(few, 1), l)), by, **fields)


RUNNING = [by for by, score in SCORES.items() if score.running]


def values(l):
    return np.random.default_rng(9).uniform(-1, 1, (l, 2))


def twin(Q, K, mask, method):
    """Return the support of columns, by loops; None where scores tie but for rounding."""
    pool = "max" if method.pooling == "max" else "mean"
    return naive.columns(
        Q, K, mask, method.k, method.by, method.sinks, method.recent, method.block,
        method.window, method.kernel_size, pool, values(len(K)), method.prompt,
    )  # fmt: skip


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("by", "evicts"),
    [(by, evicts) for by in SCORES for evicts in (False, True) if evicts or by not in RUNNING],
)
@some
@given(data=st.data())
def test_one_set_and_eviction_by_their_definition(by, evicts, data):
    Q, K, mask, method = data.draw(settled(by, evicts))
    want = twin(Q, K, mask, method)
    assume(want is not None)
    on = support(method.approximate(Q, K, mask=mask, V=values(len(K))))
    np.testing.assert_array_equal(on, want)
    assert on.sum(axis=1).max() <= method.k


@pytest.mark.parametrize("by", SCORES)
def test_a_longer_text_by_its_definition(by):
    """So that groups of 16 keys, queries before the last ones and keys between cuts are several."""
    rng = np.random.default_rng(8)
    Q, K = rng.standard_normal((30, 4)), rng.standard_normal((50, 4))
    last = {"window": 6} if by in ("snapkv", "critical") else {}
    for block, prompt in ((None, 0), (1, 0), (4, 0), (None, 33), (1, 35), (4, 10)):
        method = Columns(24, by, sinks=2, recent=3, block=block, prompt=prompt, **last)
        for mask in (Mask.causal(30, 50), Mask.window(30, 50, 29)):
            on = support(method.approximate(Q, K, mask=mask, V=values(50)))
            np.testing.assert_array_equal(on, twin(Q, K, mask, method))


# What eviction means


# Scores


def test_the_expected_score_is_the_mean_over_gaussian_queries():
    """Monte Carlo with the closed-form standard error: relative variance exp(kᵀΣk) − 1."""
    rng = np.random.default_rng(11)
    d, draws = 4, 40_000
    root = 0.5 * rng.standard_normal((d, d))
    mean, covariance = 0.5 * rng.standard_normal(d), root @ root.T
    K = 0.5 * rng.standard_normal((6, d))
    queries = rng.standard_normal((draws, d)) @ root.T + mean
    found = np.exp(queries @ K.T).mean(axis=0)
    want = np.exp(eviction_scores.expected(K, mean, covariance))
    spread = np.einsum("ja,ab,jb->j", K, covariance, K)
    assert spread.max() < 1  # so that a sample of this size has a variance to be believed
    z = (found / want - 1) / np.sqrt(np.expm1(spread) / draws)
    assert np.abs(z).max() < 5
    low = np.exp(K @ mean)  # without the covariance it is another number
    assert np.abs((found / low - 1) / np.sqrt(np.expm1(spread) / draws)).max() > 20


@pytest.mark.parametrize("score", [x for x in SCORES.values() if x.keys_alone])
def test_keys_of_zeros_have_scores(score):
    assert np.isfinite(score().of_keys(np.zeros((20, 3)))).all()


def test_the_output_change_of_one_key_is_that_of_a_softmax_without_it():
    rng = np.random.default_rng(4)
    logits, V = 2 * rng.standard_normal(9), rng.standard_normal((9, 3))

    def output(keys):
        weights = np.exp(logits[keys])
        return weights @ V[keys] / weights.sum()

    every = np.arange(9)
    want = [np.linalg.norm(output(np.delete(every, j)) - output(every)) for j in every]
    found = np.exp(SCORES["output"](V).of_logits(logits, V, output(every)))
    # outputs near 1, times p/(1 − p) ≤ 4: some ten roundings on each side
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-13)
    one = SCORES["output"](V).of_logits(np.array([0.0, -np.inf]), V[:2], V[0])
    assert one.tolist() == [np.inf, -np.inf]  # nothing would be left


def test_values_reach_the_scores_of_parts_and_of_heads_or_are_asked_for():
    x = next(inputs.sample("smollm2").heads()).first(80)
    method = parse("columns(k=8, by='output')")
    V = np.random.default_rng(0).standard_normal((80, 3))
    alone = support(method.approximate(x.Q, x.K, mask="causal", V=V))
    both = parse(f"scatterbrain(low_rank=zero(), sparse={method})")
    np.testing.assert_array_equal(support(both.approximate(x.Q, x.K, mask="causal", V=V)), alone)
    assert (support(x.approximate(method)) != alone).any()  # by its own values
    assert str(Columns(8, "output", values=V)) == str(method)
    for wrong, message in ((None, "give V to approximate"), (V[1:], "one row for each of the 80")):
        with pytest.raises(ValueError, match=message):
            both.approximate(x.Q, x.K, mask="causal", V=wrong)


# Fields and prices


def test_what_k_counts():
    template = parse("columns(by='h2o', sinks=2, recent=3)")
    # rows of 1, 2, 3, 4 and five times 5 keys: 35/9
    assert template.within(3.8, n=9, l=9, d=2) is None
    assert template.within(3.9, n=9, l=9, d=2).k == 5
