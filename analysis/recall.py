"""What a support finds: a bad support told from bad features."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analysis.inputs import Inputs
from approx import checks, exact
from approx.approximation import Approximation
from approx.parts import Support


def recall(
    approximation: Approximation, inputs: Inputs, *, ks: Iterable[int] = (1, 8)
) -> dict[str, float]:
    """Return what the support of an approximation holds of the truth, means over query rows.

    recall_k = mean_i |S_i ∩ T_i|/|T_i|, T_i the k largest of the entries that query i sees;
    mass = mean_i Σ_{j ∈ S_i} a_ij, a the exact softmax rows.

    Parameters
    ----------
    approximation : Approximation
        Of a support, alone or in Scatterbrain.
    inputs : Inputs
        Those it was made for.
    ks : iterable of int
        1 ≤ k ≤ l.

    Returns
    -------
    dict
        ``entries`` a row, ``mass``, and ``recall_k`` for every k.

    Raises
    ------
    ValueError
        There is no support; a k out of range.

    Notes
    -----
    A support that goes by places, angles or the order of inner products does not see the
    temperature, nor does the order within a row: its recall is the same at all of them. Its mass
    is not. The expected recall where entries have probabilities p_ij is the mean of p_ij over T.
    Cost: 2·n·l·d operations, by row stripes.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> x = gaussian(32, 8, rng=0)
    >>> measured = recall(parse("top_k(k=4)").approximate(x.Q, x.K), x, ks=[8])
    >>> measured["entries"], measured["recall_8"]
    (4.0, 0.5)
    """
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    checks.instance("inputs", inputs, Inputs, "an Inputs")
    if not isinstance(approximation.correction, Support):
        raise ValueError("recall needs an approximation with a support, such as top_k(k=8)")
    sizes = [checks.integer("k", k, least=1, most=inputs.l) for k in ks]
    support = (approximation.seen() if inputs.causal else approximation).correction
    assert isinstance(support, Support)
    mass, hits = 0.0, dict.fromkeys(sizes, 0.0)
    for rows in exact.stripes(inputs.n, inputs.l):
        x = inputs.Q[rows] @ inputs.K.T
        exact.mask(x, rows.start, inputs.n, inputs.causal)
        on = np.zeros(x.shape, bool)
        on[support.restricted(rows, slice(None)).matrix.nonzero()] = True
        order = np.argsort(-x, axis=1, kind="stable")
        held = np.cumsum(np.take_along_axis(on, order, axis=1), axis=1)
        seen = np.isfinite(x).sum(axis=1)
        for k in sizes:
            size = np.minimum(k, seen)
            hits[k] += float((held[np.arange(len(x)), size - 1] / size).sum())
        weights = np.exp(x - x.max(axis=1, keepdims=True))
        mass += float((np.where(on, weights, 0.0).sum(axis=1) / weights.sum(axis=1)).sum())
    n = inputs.n
    return {"entries": support.nnz / n, "mass": mass / n} | {
        f"recall_{k}": hit / n for k, hit in hits.items()
    }
