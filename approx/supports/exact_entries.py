"""exp(q·k) on the entries of a pattern, and patterns from a rule on logits."""

from collections.abc import Callable

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.corrections import Support
from approx.estimate.masks import Mask
from approx.kernels import pattern_products
from approx.supports.patterns import Pattern


def exact_on(pattern: Pattern, q: Array, k: Array, mask: Mask) -> Support:
    """Return exp(q·k) on the entries of a pattern inside the mask."""
    indptr, indices = pattern
    n, l = len(q), len(k)
    index = scipy.sparse.get_index_dtype(maxval=max(len(indices), l))
    indptr, indices = (x.astype(index, copy=False) for x in (indptr, indices))
    logits = np.zeros(len(indices), q.dtype)
    asked = scipy.sparse.csr_array((logits, indices, indptr), shape=(n, l))
    asked.sort_indices()
    asked = masks.cut(asked, mask)
    asked.data = pattern_products.product(q, k, asked)
    return Support(asked)


def by_stripes(Q: Array, K: Array, mask: Mask, chosen: Callable[[Array, slice], Array]) -> Pattern:
    """Return the pattern that a rule on logits chooses, computed stripe by stripe.

    Parameters
    ----------
    Q, K : (n, d), (l, d)
    mask : Mask
    chosen : callable
        (logits, rows) → whether each entry is in the support. Logits are −inf outside the mask.
    """
    counts, keys = [], []
    for rows in exact.stripes(len(Q), len(K)):
        found = chosen(exact.seen_logits(Q, K, mask, rows), rows)
        counts.append(np.count_nonzero(found, axis=1))
        before = np.arange(len(found)) * found.shape[1] - mask.span(rows).start
        keys.append(np.flatnonzero(found) - np.repeat(before, counts[-1]))
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))]), np.concatenate(keys)
