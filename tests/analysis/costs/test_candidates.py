"""What is called a bound has less error than anything of its class; what is not may be beaten."""

import numpy as np
import pytest

from analysis.costs.candidates import BOUND, FOUND, NEEDS, standing
from analysis.inputs import gaussian
from approx import Mask, parse
from approx.low_rank.total_variation import nearest

TV, KERNEL, ATTENTION = "attention_tv", "kernel_relative_frobenius", "attention_relative_frobenius"
X = gaussian(16, 4, rng=0)
# methods, most of which need all logits, by their standing in tv, in the Frobenius norm of the
# kernel, and in that of attention
WANT = {
    (BOUND, BOUND, NEEDS): ("top_k(k=3)", "top_p()"),
    (BOUND, NEEDS, NEEDS): (
        "top_k(k=3, per='head')", "threshold(level=0.1)", "pages(k=4, size=2, by='mass')",
    ),
    (NEEDS, NEEDS, NEEDS): (
        "columns(k=3)", "robust_pca()", "acc_alt_proj()", "stable_pca()", "leverage(m=4)",
        "true_denominator(top_k(k=3))", "randomized_attention()",
        "scatterbrain(positive(m=2), top_k(k=3))",
    ),
    (FOUND, NEEDS, NEEDS): (
        "vertical_slash(k=3, by='mass')", "truncated_svd(rank=2, space='attention', refine='tv')",
    ),
    (NEEDS, BOUND, NEEDS): (
        "godec(rank=0, k=3)", "truncated_svd(rank=2)", "hierarchical(rank=1, leaf=2)", "constant()",
    ),
    (BOUND, NEEDS, BOUND): ("godec(rank=0, k=3, space='attention')",),
    (NEEDS, NEEDS, FOUND): ("godec(rank=2, k=3, space='attention')",),
    (NEEDS, FOUND, NEEDS): ("godec(budget=9)",),
    (NEEDS, NEEDS, BOUND): (
        "truncated_svd(rank=2, space='attention')",
        "hierarchical(rank=1, leaf=2, space='attention')",
    ),
    ("", "", ""): ("positive(m=4)",),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "want"), [(s, want) for want in WANT for s in WANT[want]])
def test_the_rule(spec, want):
    method = parse(spec)
    assert tuple(standing(method, name) for name in (TV, KERNEL, ATTENTION)) == want
    assert standing(method, "attention_kl") in ("", NEEDS)


def test_under_a_mask_a_truncated_svd_is_the_best_found():
    method, causal = parse("truncated_svd(rank=2)"), Mask.causal(4, 4)
    assert standing(method, KERNEL, causal) == FOUND
    assert standing(method, KERNEL, Mask.full(4, 4)) == BOUND
    for spec in ("top_k(k=1)", "godec(rank=0, k=1, space='attention')"):
        assert standing(parse(spec), TV, causal) == BOUND


def error(spec, metric, rng=None):
    return X.compare(X.approximate(parse(spec), rng=rng))[metric]


@pytest.mark.parametrize("metric", [TV, KERNEL])
def test_random_supports_are_never_below_a_bound(metric):
    per_row, per_head = error("top_k(k=3)", metric), error("top_k(k=3, per='head')", metric)
    some = [error("random(k=3)", metric, rng=seed) for seed in range(20)]
    assert per_row < min(some)
    assert per_head < per_row or metric == KERNEL
    assert error("pages(k=4, size=2, by='mass')", TV) < error("quest(k=4, size=2)", TV)


def test_what_is_no_bound_is_beaten():
    # the truncated SVD in total variation, by a matrix of its rank
    P = X.at_temperature(0.5)
    svd = P.compare(P.approximate(parse("truncated_svd(rank=4, space='attention')")))[TV]
    weights = parse("exact()").approximate(P.Q, P.K).to_dense()
    assert nearest(weights / weights.sum(axis=1, keepdims=True), 4).tv < 0.9 * svd
    # the largest entries of rows in the Frobenius norm of attention, by those of the matrix
    of_rows = error("top_k(k=3)", ATTENTION)
    assert error("godec(rank=0, k=3, space='attention')", ATTENTION) < of_rows < np.inf
