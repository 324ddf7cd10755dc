"""What makes an input easy or hard, before any method is run."""

from __future__ import annotations

import math

import numpy as np
import scipy.optimize

from analysis.inputs import Inputs
from approx import checks, exact
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


def row_entropy(inputs: Inputs) -> float:
    """Return the mean row entropy of exact attention over its largest value, as in `describe`."""
    logits = exact.logits(inputs.Q, inputs.K).astype(np.float64, copy=False)
    exact.mask(logits, 0, inputs.n, inputs.causal)
    keys = np.arange(1, inputs.n + 1) if inputs.causal else np.full(inputs.n, inputs.l)
    return _entropy(logits, keys)


def temperature_at(inputs: Inputs, entropy: float) -> float:
    """Return the temperature at which exact attention has a given row entropy.

    Entropy of a row grows with t: dH/d log t is the variance of its logits under its own weights.

    Parameters
    ----------
    entropy : float
        As in `row_entropy`, 0 < entropy < 1.

    Raises
    ------
    ValueError
        No temperature between 10⁻⁶ and 10⁶ has it: equal keys have entropy at any temperature.

    Examples
    --------
    Two keys whose logits differ by x = log 9 have weights 0.9 and 0.1:

    >>> x = Inputs("two", np.ones((1, 1)), np.array([[math.log(9)], [0.0]]))
    >>> p = np.array([0.9, 0.1])
    >>> round(temperature_at(x, float(-(p * np.log2(p)).sum())), 9)
    1.0
    """
    target = checks.positive("entropy", entropy)
    if not target < 1:
        raise ValueError(f"entropy must be between 0 and 1, got {entropy}")

    def above(log_t: float) -> float:
        return row_entropy(inputs.at_temperature(math.exp(log_t))) - target

    ends = math.log(1e-6), math.log(1e6)
    if not above(ends[0]) < 0 < above(ends[1]):
        raise ValueError(
            f"no temperature of {inputs.name} between 1e-06 and 1e+06 has row entropy {entropy}"
        )
    return math.exp(scipy.optimize.brentq(above, *ends, xtol=1e-12))


def _entropy(logits: Array, keys: Array) -> float:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = -(weights * logs).sum(axis=1)
    several = keys > 1
    return float(np.mean(entropy[several] / np.log(keys[several]))) if several.any() else 0.0
