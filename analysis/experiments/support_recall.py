"""The share of the truth in a support, which tells a bad support from bad features."""

from collections.abc import Iterable

import numpy as np

from analysis.inputs import Head
from approx import Approximation, checks
from approx.estimate import exact
from approx.estimate.corrections import Support


def recall(
    approximation: Approximation, inputs: Head, *, ks: Iterable[int] = (1, 8)
) -> dict[str, float]:
    """Return the share of the truth in the support of an approximation, a mean over query rows.

    recall_k = mean_i |S_i ∩ T_i|/|T_i|, where T_i are the k largest entries that query i sees;
    mass = mean_i Σ_{j ∈ S_i} a_ij, where a are the exact softmax rows.

    Parameters
    ----------
    approximation : Approximation
        The estimate of a support, alone or in Scatterbrain.
    inputs : Head
        The inputs for which it was made.
    ks : iterable of int
        1 ≤ k ≤ l.

    Returns
    -------
    dict
        ``entries`` per row, ``mass``, ``chance``, the mean share of what a row sees that is on the
        support (it is what as many random keys would find of any other), and ``recall_k`` for
        every k.

    Raises
    ------
    ValueError
        There is no support, or a k is out of range.

    Notes
    -----
    A support that is chosen by places, angles or the order of inner products does not depend on the
    temperature, nor does the order within a row: its recall is the same at all temperatures, but
    its mass is not. If entries have probabilities p_ij, the expected recall is the mean of p_ij
    over T.
    Cost: 2·n·l·d operations, by row stripes.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> x = gaussian(32, 8, rng=0)
    >>> measured = recall(x.approximate(parse("top_k(k=4)")), x, ks=[8])
    >>> measured["entries"], measured["recall_8"]
    (4.0, 0.5)
    """
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    checks.instance("inputs", inputs, Head, "a Head")
    if not isinstance(approximation.correction, Support):
        raise ValueError("recall needs an approximation with a support, such as top_k(k=8)")
    sizes = [checks.integer("k", k, least=1, most=inputs.l) for k in ks]
    if approximation.mask != inputs.mask:
        raise ValueError(
            f"the approximation has the mask {approximation.mask}, the inputs {inputs.mask}: "
            "use inputs.approximate(method)"
        )
    support = approximation.correction
    mass, chance, hits = 0.0, 0.0, dict.fromkeys(sizes, 0.0)
    for rows in exact.stripes(inputs.n, inputs.l):
        x = inputs.Q[rows] @ inputs.K.T
        inputs.mask.hide(x, rows, fill=-np.inf)
        on = np.zeros(x.shape, bool)
        on[support.restricted(rows, slice(None)).matrix.nonzero()] = True
        order = np.argsort(-x, axis=1, kind="stable")
        held = np.cumsum(np.take_along_axis(on, order, axis=1), axis=1)
        seen = np.isfinite(x).sum(axis=1)
        chance += float((on.sum(axis=1) / seen).sum())
        for k in sizes:
            size = np.minimum(k, seen)
            hits[k] += float((held[np.arange(len(x)), size - 1] / size).sum())
        weights = np.exp(x - x.max(axis=1, keepdims=True))
        mass += float((np.where(on, weights, 0.0).sum(axis=1) / weights.sum(axis=1)).sum())
    n = inputs.n
    found = {"entries": support.nnz / n, "mass": mass / n, "chance": chance / n}
    return found | {f"recall_{k}": hit / n for k, hit in hits.items()}
