"""What makes an input easy or hard, before any method is run."""

from __future__ import annotations

import numpy as np

from analysis.inputs import Inputs
from approx import exact
from approx.checks import Array


def describe(inputs: Inputs) -> dict[str, float]:
    """Return the spread of the logits, the entropy of attention and the size of q + k.

    Parameters
    ----------
    inputs : Inputs
        One head, at its temperature.

    Returns
    -------
    dict
        logit_min, logit_max, logit_std : of the logits a query sees
        row_entropy : mean over rows of the entropy of softmax, over its largest value
            log(keys seen); rows that see one key are left out
        median_squared_sum : median of |q + k|², the logarithm of what random features cost

    Notes
    -----
    Cost: 2·n·l·d operations and the (n, l) logits.

    Examples
    --------
    >>> from analysis.inputs import Inputs
    >>> found = describe(Inputs("same", np.zeros((2, 1)), np.zeros((2, 1))))
    >>> found["row_entropy"], found["logit_std"]
    (1.0, 0.0)
    """
    Q, K = (np.asarray(x, np.float64) for x in (inputs.Q, inputs.K))
    logits = exact.logits(Q, K)
    seen = np.tri(inputs.n, inputs.l, dtype=bool) if inputs.causal else np.ones(logits.shape, bool)
    visible = logits[seen]
    squares = np.square(Q).sum(axis=1)[:, None] + np.square(K).sum(axis=1) + 2 * logits
    exact.mask(logits, 0, inputs.n, inputs.causal)
    return {
        "logit_min": float(visible.min()),
        "logit_max": float(visible.max()),
        "logit_std": float(visible.std()),
        "row_entropy": _entropy(logits, seen.sum(axis=1)),
        "median_squared_sum": float(np.median(squares[seen])),
    }


def _entropy(logits: Array, keys: Array) -> float:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = -(weights * logs).sum(axis=1)
    several = keys > 1
    return float(np.mean(entropy[several] / np.log(keys[several]))) if several.any() else 0.0
