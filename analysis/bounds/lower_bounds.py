"""The least error of a class of estimates on a head: what no choice of its parts is below.

A support keeps some keys for every query, a linear attention has some states. How near any of them
can come to a head follows from the head alone. `bound` takes it from what an estimate stores: no
estimate of its class that stores as much has a smaller ``attention_tv``, whoever chose its keys or
its features, and however. All bounds are of the *mean* over rows of ½ Σ_j |estimate − exact|, under
the mask of the head, with exact rows of softmax p_i.

**Supports** have at least the total variation of the attention that they lose
(`analysis.bounds.support_bounds`), or half of it where their rows need not sum to 1.

**Low rank.** Where rows sum to 1, a total variation tv_i is at least ‖w_i − p_i‖/√2 in the
Euclidean norm: the positive and the negative part of the difference have the same sum, and neither
is longer than it. So ‖W − P‖_F bounds the root mean square of tv, not its mean. For the mean the
nuclear norm serves, which is never above the sum of the lengths of the rows. If W has rank ≤ m,
then σ_j(W − P) ≥ σ_{j+m}(P) for the singular values, and

    Σ_i tv_i ≥ Σ_i ‖w_i − p_i‖/√2 ≥ Σ_j σ_j(W − P)/√2 ≥ Σ_{j > m} σ_j(P)/√2,

whatever the signs. Where rows need not sum to 1, tv_i ≥ ‖w_i − p_i‖/2. Under a mask the same is
said of disjoint rectangles that all of their queries see (`analysis.ranks.state_rank`); a row has a
part in several of them, whose lengths add to at most 2·tv_i. A difference that is spread over many
keys has a total variation far above its length, so that these bounds are weak where attention is
not peaked.

Bounds are rounded down by what rounding can do to the weights, see `Weights.slack`.
"""

import math

from analysis.bounds import support_bounds
from analysis.ranks.attention_weights import Weights
from approx import Approximation, Method, checks
from approx.hierarchical.hierarchical import Hierarchical
from approx.hierarchical.partition import Partition

LEAST = 16  # keys of a rectangle; smaller ones add little, and share what is decomposed


def low_rank(weights: Weights, m: int, *, sums_to_one: bool = True) -> float:
    """Return a bound of attention_tv for any matrix of rank m, or linear attention of m states.

    Without a mask it is that of all matrices of rank ≤ m, under one that of everything that passes
    through m states (`analysis.ranks.state_rank`); gates, normalised rows and negative entries
    included.

    Parameters
    ----------
    weights : Weights
        Of at most 2^22 entries.
    m : int
        Rank, features or states.
    sums_to_one : bool
        Whether the rows of the estimates sum to 1.

    Notes
    -----
    Cost: the singular values of the matrix, or of its dyadic rectangles down to max(m, 16) keys,
    which the weights keep for other m.

    Examples
    --------
    Each of 8 queries attends to a key of its own; half of them can be had by 4 states.

    >>> import numpy as np
    >>> one = Weights(900.0 * np.eye(8), np.eye(8))
    >>> [round(low_rank(one, m), 3) for m in (0, 4, 8)]
    [0.707, 0.354, 0.0]
    """
    checks.integer("m", m, least=0)
    if weights.mask.is_full:
        return _tails(weights, None, m, math.sqrt(2) if sums_to_one else 2.0)
    return _tails(weights, 1 << (max(m, LEAST).bit_length() - 1), m, 2.0)


def levels(weights: Weights, rank: int, partition: Partition) -> float:
    """Return a bound of attention_tv for any terms of this rank in each block of a hierarchy.

    Parameters
    ----------
    weights : Weights
        Of at most 2^22 entries.
    rank : int
        Terms per block.
    partition : Partition
        Which queries take which blocks; near keys may be as good as they like.

    Examples
    --------
    >>> import numpy as np
    >>> from approx.hierarchical.partition import partition
    >>> one = Weights(900.0 * np.eye(8), np.eye(8)[[4, 5, 6, 7, 0, 1, 2, 3]])
    >>> [round(levels(one, r, partition(one.mask, 1, 0)), 3) for r in (1, 4)]
    [0.375, 0.0]
    """
    return _tails(weights, partition, checks.integer("rank", rank, least=0), 2.0)


def _tails(weights: Weights, cut: Partition | int | None, m: int, share: float) -> float:
    """Return what is left of the singular values of blocks, over `share`, per row, rounded down."""
    left = sum(float(s[m:].sum()) for s in weights.spectra(cut))
    return max(left / (share * weights.mask.n) - 2 * weights.slack, 0.0)


def bound(
    method: Method, estimate: Approximation, weights: Weights, *, stored: int | None = None
) -> float:
    """Return what no estimate of a method's class is below that stores as much; NaN if unknown.

    Parameters
    ----------
    method : Method
    estimate : Approximation
        What the method made of this head.
    weights : Weights
        Of the queries that are measured.
    stored : int, optional
        Entries of the estimate in the rows that are measured; by default its own.

    Returns
    -------
    float
        A lower bound of ``attention_tv``:

        ===================  ==================================================================
        class                bound over
        ===================  ==================================================================
        one set of columns   any k − r keys for all queries beside windows of r keys, any r
        sets for blocks      any k − block earlier keys for each block, and those of the block
        eviction             any cache of k keys
        pages                any ⌊k/size⌋ pages a row
        lines                any k keys for all queries and diagonals
        other supports       any support of as many entries in all rows together
        low rank             any matrix of the rank; any linear attention with as many states
        hierarchical         any terms of the rank in the blocks of the method
        compressed logits    NaN: exp of a product of small rank may have any rank
        sparse + low rank    NaN: none is known
        ===================  ==================================================================

        It is NaN, too, where a rank is that of all matrices, and where more than 2^22 entries would
        have to be decomposed.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> x = gaussian(16, 4, rng=0)
    >>> method = parse("top_k(k=2)")
    >>> estimate = x.approximate(method)
    >>> least = bound(method, estimate, Weights.from_head(x))
    >>> round(least, 3), round(x.compare(estimate)["attention_tv"], 3)
    (0.64, 0.655)
    """
    own = estimate.space == "kernel"
    if not estimate.rank:
        count = estimate.nnz if stored is None else stored
        kind, *sizes = method.rivals or ("entries", count)
        return (1.0 if own else 0.5) * float(getattr(support_bounds, kind)(weights, *sizes))
    if not weights.is_stored:
        return math.nan
    if isinstance(method, Hierarchical):
        cut = method.partition(weights.mask)
        return levels(weights, method.rank or 0, cut)
    if estimate.nnz or estimate.rank >= min(weights.mask.shape):
        return math.nan
    return low_rank(weights, estimate.rank, sums_to_one=own)
