"""'DIET note' (DIET): positions at the input and at the logits, by the rank of the logits."""

from collections.abc import Iterator

import numpy as np

from analysis.claims.evidence import (
    Check,
    above,
    at_most,
    claim,
    equal,
    printed,
    rank,
)
from analysis.ranks import position_rank
from analysis.ranks.position_rank import PositionedHead

SOURCE = "DIET note"
N, D, D_H, D_P = 32, 16, 4, 6  # tokens, width of the input, of a head, of positions


def _generic(n: int = N, d_p: int = D_P, heads: int | None = None, seed: int = 0) -> PositionedHead:
    rng = np.random.default_rng(seed)
    return position_rank.generic(n, D, D_H, d_p, rng=rng, heads=heads)


@claim("DIET-1", SOURCE + ", theorem")
def rank_at_input() -> Iterator[Check]:
    """If positions are added at the input, the logits of a head have rank ≤ d_h, whatever the
    positions are."""
    x = _generic()
    yield equal("rank of X + P", D, rank(x.X + x.P))
    yield equal("rank of the logits", D_H, rank(x.at_input()))
    construction = position_rank.construction(N, D, D_H, D_P)
    yield equal("rank, construction", D_H, rank(construction.at_input()))


@claim("DIET-2", SOURCE + ", theorem and construction")
def rank_at_logits() -> Iterator[Check]:
    """If positions are added at the logits, the rank can reach min(d_h + d_p, n), which is above
    d_h."""
    yield equal("rank, generic", min(D_H + D_P, N), rank(_generic().at_logits()))
    construction = position_rank.construction(N, D, D_H, D_P).at_logits()
    yield equal("rank, construction", D_H + D_P, rank(construction))
    diagonal = [1] * D_H + [0] * (N - D_H - D_P) + [1] * D_P
    ones = int((np.diag(construction) == diagonal).sum())
    yield equal("diagonal entries as constructed", N, ones)
    yield equal("non-zeros", D_H + D_P, int(np.count_nonzero(construction)))
    yield equal("rank, n = 8", 8, rank(_generic(8).at_logits()))


@claim("DIET-3", SOURCE)
def rank_of_heads() -> Iterator[Check]:
    """Each head of multi-head attention is a bottleneck: its logits have rank ≤ d_h. The sum of the
    logits of h heads has rank ≤ h·d_h."""
    logits = _generic(heads=3).at_input()
    each = [rank(head) for head in logits]
    yield equal("largest rank of a head", D_H, max(each))
    yield equal("smallest", D_H, min(each))
    yield equal("rank of the sum of 3", 3 * D_H, rank(logits.sum(axis=0)))


@claim("DIET-4", "not in the source; with ILA-10")
def rank_after_exp() -> Iterator[Check]:
    """Taking exp of each entry can raise the rank of the logits to any value. The theorem is about
    the logits."""
    ranks = position_rank.ranks(_generic().at_input())
    yield equal("rank of the logits", D_H, ranks["logits"])
    yield equal("rank after exp", N, ranks["exp"])
    yield equal("rank of the rows of softmax", N, ranks["softmax"])


# Errata


@claim("DIET-Ea", SOURCE + ", construction")
def block_of_x() -> Iterator[Check]:
    """Use a d × (n−d) block of zeros in Xᵀ = [I_d, 0]. The printed block is (n−d) × d, whose rows
    do not fit beside I_d."""
    X = position_rank.construction(N, D, D_H, D_P).X
    want = np.hstack([np.eye(D), np.zeros((D, N - D))])
    yield equal("shape of Xᵀ", (D, N), X.T.shape)
    yield equal("entries that differ", 0, int((want != X.T).sum()))
    n = len(position_rank.construction(N + 8, D, D_H, D_P).X)
    yield printed(equal("rows of the printed block beside I_d, n = 40", D, n - D))


@claim("DIET-Eb", SOURCE + ", construction")
def block_of_positions() -> Iterator[Check]:
    """Use a d_p × (n−d_p) block of zeros in P̂ᵀ = [0, I_{d_p}]. The printed block has d rows, the
    identity beside it d_p."""
    P = position_rank.construction(N, D, D_H, D_P).relative
    want = np.hstack([np.zeros((D_P, N - D_P)), np.eye(D_P)])
    yield equal("shape of P̂ᵀ", (D_P, N), P.T.shape)
    yield equal("entries that differ", 0, int((want != P.T).sum()))
    d = position_rank.construction(N, D, D_H, D_P).X.shape[1]
    yield printed(equal("rows of the printed block beside I", D_P, d))


@claim("DIET-Ec", SOURCE + ", theorem")
def strict() -> Iterator[Check]:
    """Require n > d_h and d_p ≥ 1 for min(d_h + d_p, n) > d_h: otherwise the inequality fails."""
    yield above("rank, n = 32, d_p = 6", D_H, rank(_generic().at_logits()))
    yield printed(above("rank, d_p = 0", D_H, rank(_generic(d_p=0).at_logits())))
    yield printed(above("rank, n = d_h", D_H, rank(_generic(D_H, d_p=D_H).at_logits())))


@claim("DIET-Ed", SOURCE)
def direction_of_the_bound() -> Iterator[Check]:
    """Read min(d_h + d_p, n) as an upper bound, which generic inputs attain. It is printed as a
    lower bound, which P̂ = 0 violates."""
    bound = min(D_H + D_P, N)
    ranks = [rank(_generic(seed=seed).at_logits()) for seed in range(20)]
    yield at_most("largest rank of 20", bound, max(ranks))
    yield equal("how many attain it", 20, ranks.count(bound))
    x = _generic()
    least = rank(x._replace(relative=0 * x.relative).at_logits())
    yield printed(above("rank with P̂ = 0, against bound − 1", bound - 1, least))


@claim("DIET-Ee", SOURCE + ", title")
def which_matrix() -> Iterator[Check]:
    """Apply the theorem to the logits, not to the attention matrix: after softmax the rank can be
    higher."""
    ranks = position_rank.ranks(_generic().at_input())
    yield at_most("rank of the logits", D_H, ranks["logits"])
    yield printed(at_most("rank of the attention matrix", D_H, ranks["softmax"]))


@claim("DIET-Ef", SOURCE + ", construction")
def disjoint_blocks() -> Iterator[Check]:
    """Require n ≥ max(d, d_h + d_p) in the construction: for a smaller n the blocks overlap."""
    # the largest entry of the sum of two identity blocks is 1 where they are disjoint
    wide = position_rank.construction(max(D, D_H + D_P), D, D_H, D_P).at_logits()
    yield equal("largest entry, n = 16", 1.0, float(wide.max()))
    narrow = position_rank.construction(8, D, D_H, D_P).at_logits()
    yield printed(equal("largest entry, n = 8", 1.0, float(narrow.max())))
