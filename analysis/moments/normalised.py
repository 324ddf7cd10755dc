"""Bias and variance of normalised attention, to first order."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from approx import Method, checks
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import MaskLike
from approx.method.evaluation import checked_inputs


class NormalisedMoments(NamedTuple):
    """Moments of normalised attention to first order in the covariance of the estimate, (n, l).

    Attributes
    ----------
    bias, variance
        Bias and variance of estimate_ij/Σ_l estimate_il as an estimate of the exact attention a_ij.
        Sums are over visible keys; both are 0 for invisible keys.
    row_variance : (n,)
        The relative variance of the row sums. It must be ≪ 1; this is necessary, not sufficient.
    """

    bias: Array
    variance: Array
    row_variance: Array


def normalised_moments(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None
) -> NormalisedMoments | None:
    """Return the bias and variance of a method's attention weights by the delta method.

    With μ_j = E estimate_j, ã = μ/Σμ and R_jl = Cov(estimate_j, estimate_l)/(μ_j μ_l),

        bias_j ≈ ã_j [ãᵀRã − (Rã)_j] + ã_j − a_j,    variance_j ≈ ã_j² [R_jj − 2(Rã)_j + ãᵀRã].

    A ratio is biased even if the estimate of exp(q·k) is unbiased.

    Accuracy: 100 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    method : Method
        The result is None if its ``covariance`` or its ``moments`` are not known.
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        The visible keys of each query; None for all.

    Notes
    -----
    Both are of first order in R, with relative errors of the order of the largest R_jj, which is
    e^{log_relative_variance} of ``moments``, but no bound of them is known. With positive features,
    d = 1 and R_jj = 0.02, 0.07, 0.3 the true variance is 14, 31, 56 % lower for q = 0.6 and keys
    0.4, 0.3, and 36, 58, 79 % lower for q = 1.2 and keys 0.36, 0.3. With trigonometric features,
    whose row sums may be near 0, it is higher. A bias is off by more where its two terms cancel.
    ``row_variance`` may be only a tenth of R_jj. A row with a covariance above 1.8e308 is inf in
    all entries, whatever the weight of that key.
    Cost: n covariances, O(n·l²·d) time, O(l²) memory.

    Examples
    --------
    >>> from approx import parse
    >>> normalised_moments(parse("positive(m=100)"), [[1.0]], [[0.5], [-0.5]]).bias.round(4)
    array([[-0.011,  0.011]])
    """
    checks.instance("method", method, Method, "a method")
    q, k, seen = checked_inputs(method, Q, K, mask)
    known = method.moments(q, k, mask=seen)
    if known is None:
        return None
    log = np.asarray(exact.logits(q, k), np.float64)
    seen.hide(log, fill=-np.inf)
    attention = np.exp(log - logsumexp(log, axis=1, keepdims=True))
    scale = 1.0 + known.relative_bias
    with np.errstate(all="ignore"):  # numbers that are not finite become inf below
        log_mean = log + np.log(np.maximum(scale, 0.0))
        mean = np.exp(log_mean - logsumexp(log_mean, axis=1, keepdims=True))
        bias, variance = np.empty_like(log), np.empty_like(log)
        row_variance = np.empty(len(log))
        for i, a in enumerate(mean):
            R = method.covariance(q, k, row=i, mask=seen)
            if R is None:
                return None
            R = R / np.outer(scale[i], scale[i])
            row_variance[i] = a @ R @ a
            # Σ_l (δ_jl − a_l) = 0: a number added to a row or column of R drops out. We subtract
            # the row and column of the largest weight: nothing cancels then if it is almost 1.
            m = int(a.argmax())
            y = R[:, m] - R[m, m]
            D = R - R[m] - y[:, None]
            Da = D @ a
            common = a @ Da
            # the last difference is exactly 0 for an unbiased estimate
            bias[i] = a * (common - Da + a @ y - y) + (a - attention[i])
            variance[i] = a**2 * np.maximum(np.diag(D) - 2 * Da + common, 0.0)
    lost = ~(np.isfinite(bias) & np.isfinite(variance)).all(axis=1)
    bias[lost] = variance[lost] = row_variance[lost] = np.inf
    for x in (bias, variance):
        seen.hide(x)
    return NormalisedMoments(bias, variance, row_variance)
