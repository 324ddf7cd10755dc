"""Prefill is decoding: every row on all tokens is the last row on the tokens up to it.

This is what a model does that decodes with a method: it knows a prefix, and the same draws. Tokens
are those of a head of a language model. Those of the last third have keys so large, or so small,
beside the others that one scale for both would make the rows before them 0.
"""

import numpy as np
import pytest
from each import each
from test_autoregressive import EVERY, SEED, method_of
from test_caches import EPS, heads

from approx import Mask
from approx.estimate.low import beside_ones
from approx.estimate.masked import Masked

CAN = [name for name in EVERY if method_of(name, Mask.causal(12, 12)).autoregressive]
# Their fields are for 3 channels, or 64 would be too many monomials.
NARROW = (
    "random_maclaurin(m=8, exact=2)",
    "fixed positive",
    "fixed waves",
    "scatterbrain(low_rank=tensor_power(n=5), sparse=sliding_window(width=1))",
)


def inputs(index, n, d, large):
    """Return Q, K, V of the first n tokens and d channels of a head, with some large keys.

    Their logits reach ±10⁴, and are positive for the query before the last third of the tokens.
    """
    x = heads()[index].first(n)
    Q, K, V = x.Q[:, :d], x.K[:, :d].copy(), x.V[:, :d]
    logits = Q @ K[large].T
    K[large] *= np.sign(logits[n - n // 3])[:, None] * 1e4 / np.abs(logits).max()
    return Q, K, V


def size_of(A, i, log):
    """Return what the entries of a row are added from at a scale, Σ_j Σ_r |left_ir right_jr|.

    An entry that has no factors has a rounding like that of the largest in its row.
    """
    factors = A.low.low.keyed() if A.rank and isinstance(A.low, Masked) else None
    entries = np.abs(A.block(slice(i, i + 1), shift=log)[0])
    size = entries.sum() + len(entries) * entries.max()
    if factors is None:
        return size
    seen = slice(A.mask.first[i], A.mask.stop[i])
    column = np.zeros(A.shape[1]) if factors.column_logs is None else factors.column_logs
    terms = np.abs(factors.right[seen]) @ np.abs(factors.left[i])
    return size + float(terms @ np.exp(factors.row_logs[i] + column[seen] - log))


def row_of(A, V, i, log):
    """Return row i of the estimate, of its product with V and 1, and of attention."""
    entries = A.block(slice(i, i + 1), shift=log)[0]
    y, own = A.scaled_matmat(beside_ones(V))
    return entries, y[i] * np.exp(own[i] - log), A.attend(V)[i]


def gaps(method, mask, places, Q, K, V):
    """Return by how many times their rounding rows on all tokens are others than on prefixes.

    Logits and exponents are sums of d products of at most |x|·|y| ≤ E, whose order is not the same
    in products of other shapes; their exponentials are off by as much, relative to themselves, and
    a sum of them by an eps for each term. What is divided by a sum is off by that sum's error, too.
    """
    A, d, found = method.approximate(Q, K, mask=mask, rng=SEED), Q.shape[1], []
    for i in places:
        q, k, v = (x[: i + 1] for x in (Q, K, V))
        prefix = Mask(mask.first[: i + 1], mask.stop[: i + 1], i + 1, looks_back=True)
        B = method.approximate(q, k, mask=prefix, rng=SEED)
        log = B.row_log()[i]
        square = max(float(np.square(x).sum(axis=1).max()) for x in (q, k))
        E = square + (np.sqrt(d) + 5) * np.sqrt(square)  # |ω| is below √d + 5
        size, largest = size_of(B, i, log), max(np.abs(v).max(), 1)
        unit = EPS * (d * E + B.rank + B.nnz / (i + 1) + 2 * (i + 1) + 64) * size
        lost = EPS ** (-1 / 3) if B.rank and B.nnz else 1.0  # in products, by subtracting on S
        whole, part = row_of(A, V, i, log), row_of(B, v, i, log)
        assert not whole[0][i + 1 :].any()
        total = part[1][-1]
        if B.space == "attention":
            normalised = unit * np.exp(log)
        else:
            normalised = 2 * unit / total * size / total if total > unit else np.inf
        errors = unit, lost * unit * largest, lost * normalised * largest
        for x, y, error in zip((whole[0][: i + 1], *whole[1:]), part, errors):
            gap = float(np.abs(x - y).max())
            found.append(gap / error if gap else 0.0)
    return found


def compared(name, index, n, places, under_window):
    """Return `gaps` where later keys are large, and under a window where earlier ones are."""
    method, d = method_of(name, Mask.causal(12, 12)), 3 if name in NARROW else heads()[0].d
    late = n - n // 3 + 1
    window = Mask.window(n, n, 2 * n // 3)
    return [
        *gaps(method, Mask.causal(n, n), places, *inputs(index, n, d, slice(late, None))),
        *gaps(method, window, under_window, *inputs(index, n, d, slice(0, late))),
    ]


@each("name", CAN)
def test_rows_on_all_tokens_are_the_last_on_prefixes(name):
    last = 16  # the row before the keys change, of 24; it begins blocks, pages and groups
    assert max(compared(name, 1, 24, (last, 23), (last,))) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", CAN)
def test_they_are_at_every_token(name):
    index = CAN.index(name) % 4
    assert max(compared(name, index, 64, range(6, 64), range(6, 64))) <= 1
