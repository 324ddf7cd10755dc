"""Lower bounds on the ``attention_tv`` of each class of estimates, on one head.

`bound` takes an estimate and returns a number that no estimate of its class with equal storage can
be below, however its keys, features or states are chosen. It depends on the head only. All bounds
are for the *mean* over rows of ½ Σ_j |estimate − exact|, under the mask of the head; p_i is row i
of exact softmax.

**Supports** have at least the total variation of the attention that they lose
(`analysis.bounds.support_bounds`), or half of it if their rows need not sum to 1.

**Low rank.** If rows sum to 1, the total variation tv_i is at least ‖w_i − p_i‖/√2 in the Euclidean
norm: the positive and the negative part of the difference have the same sum, and neither is longer
than this sum. So ‖W − P‖_F bounds the root mean square of tv, not its mean. The bound of the mean
uses the nuclear norm, which is at most the sum of the lengths of the rows. If W has rank ≤ m, then
σ_j(W − P) ≥ σ_{j+m}(P) for the singular values, and

    Σ_i tv_i ≥ Σ_i ‖w_i − p_i‖/√2 ≥ Σ_j σ_j(W − P)/√2 ≥ Σ_{j > m} σ_j(P)/√2,

also if entries are negative. If rows need not sum to 1, tv_i ≥ ‖w_i − p_i‖/2. Under a mask the same
argument holds for disjoint rectangles that all of their queries see (`analysis.ranks.state_rank`).
The parts of a row in several rectangles have lengths that add to at most 2·tv_i. These bounds are
weak if attention is not peaked: a difference spread over many keys has a total variation far above
its length.

Bounds are rounded down by the possible rounding error of the weights, see `Weights.slack`.
"""

import math

from analysis.bounds import support_bounds
from analysis.ranks.attention_weights import Weights
from approx import Approximation, Method, checks
from approx.hierarchical.hierarchical import Hierarchical
from approx.hierarchical.partition import Partition
from approx.sparse.support import SupportMethod

LEAST_KEYS = 16  # keys of a rectangle; smaller ones add little, and share the decomposition


def low_rank(weights: Weights, m: int, *, sums_to_one: bool = True) -> float:
    """Return a lower bound of attention_tv for matrices of rank m or linear attention of m states.

    Without a mask it holds for all matrices of rank ≤ m. Under a mask it holds for every recurrence
    of m states (`analysis.ranks.state_rank`). Both include gates, normalised rows and negative
    entries. The rows of estimates sum to 1, unless ``sums_to_one`` is False.

    Notes
    -----
    Cost: the singular values of the matrix, or of its dyadic rectangles down to max(m, 16) keys.
    The weights cache them for other m.

    Examples
    --------
    Each of 8 queries attends to a key of its own; 4 states can represent half of them.

    >>> import numpy as np
    >>> one = Weights(900.0 * np.eye(8), np.eye(8))
    >>> [round(low_rank(one, m), 3) for m in (0, 4, 8)]
    [0.707, 0.354, 0.0]
    """
    checks.integer("m", m, least=0)
    if weights.mask.is_full:
        return _tails(weights, None, m, math.sqrt(2) if sums_to_one else 2.0)
    return _tails(weights, 1 << (max(m, LEAST_KEYS).bit_length() - 1), m, 2.0)


def levels(weights: Weights, rank: int, partition: Partition) -> float:
    """Return a lower bound of attention_tv for any hierarchical estimate with this rank per block.

    Keys that are near in the partition count as exact.

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
    """Return Σ_{j > m} σ_j of all blocks over (`share` × number of rows), rounded down."""
    left = sum(float(s[m:].sum()) for s in weights.spectra(cut))
    return max(left / (share * weights.mask.n) - 2 * weights.slack, 0.0)


def bound(
    method: Method, estimate: Approximation, weights: Weights, *, stored: int | None = None
) -> float:
    """Return a lower bound of attention_tv for the method's class at equal storage, NaN if unknown.

    Parameters
    ----------
    method, estimate : Method, Approximation
    weights : Weights
        Exact attention of the measured queries.
    stored : int, optional
        Entries of the estimate in the measured rows; by default all of its entries.

    Returns
    -------
    float
        A lower bound of ``attention_tv``:

        ===================  ==================================================================
        class                lower bound for
        ===================  ==================================================================
        one set of columns   any k − r keys for all queries plus windows of r keys, any r
        sets for blocks      any k − block earlier keys for each block, plus the block's own
        eviction             any cache of k keys
        pages                any ⌊k/size⌋ pages per row
        lines                any k lines: keys for all queries, or diagonals
        other supports       any support with as many entries in all rows together
        low rank             any matrix of the rank; any linear attention with as many states
        hierarchical         any matrices of the rank in the blocks of the method
        compressed logits    NaN: exp of a product of small rank may have any rank
        sparse + low rank    NaN: no bound is known
        ===================  ==================================================================

        It is also NaN if every matrix of this shape has at most the rank, and if more than 2^22
        entries would have to be decomposed.

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
    own = estimate.space == "kernel" or estimate.fitted  # tv divides the rows by their sums
    if not estimate.rank:
        count = estimate.nnz if stored is None else stored
        rivals = method.rivals if isinstance(method, SupportMethod) else None
        if rivals is None:
            least = support_bounds.entries(weights, count)
        else:
            least = support_bounds.BOUNDS[rivals.kind](weights, *rivals.sizes)
        return (1.0 if own else 0.5) * float(least)
    if not weights.is_stored:
        return math.nan
    if isinstance(method, Hierarchical):
        cut = method.partition(weights.mask)
        return levels(weights, method.rank or 0, cut)
    if estimate.nnz or estimate.rank >= min(weights.mask.shape):
        return math.nan
    return low_rank(weights, estimate.rank, sums_to_one=own)
