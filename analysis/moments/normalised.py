"""Bias and variance of normalised attention, a ratio, to first order."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from approx import Method, checks
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import MaskLike


class NormalisedMoments(NamedTuple):
    """Moments of normalised attention to first order in the covariance of the estimate, (n, l).

    Attributes
    ----------
    bias, variance
        Of estimate_ij/Σ_l estimate_il − a_ij, where a is the exact attention; sums are over the
        keys that the query sees, and for others both are 0.
    row_variance : (n,)
        Relative variance of the row sums: it must be ≪ 1, which is not sufficient.
    """

    bias: Array
    variance: Array
    row_variance: Array


def normalised_moments(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None
) -> NormalisedMoments | None:
    """Return bias and variance of a method's attention weights by the delta method.

    With μ_j = E estimate_j, ã = μ/Σμ and R_jl = Cov(estimate_j, estimate_l)/(μ_j μ_l),

        bias_j ≈ ã_j [ãᵀRã − (Rã)_j] + ã_j − a_j,    variance_j ≈ ã_j² [R_jj − 2(Rã)_j + ãᵀRã].

    A ratio is biased even where the estimate of exp(q·k) is not.

    Accuracy: 100 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    method : Method
        Its ``covariance`` and ``moments`` are used; None is returned where one is not known.
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        What each query sees; None is every key.

    Notes
    -----
    They are of first order in R, so their relative errors are of the order of the largest R_jj,
    which is e^{log_relative_variance} of ``moments``, and several times that where the tail is
    heavy: for positive features the true variance is up to 10 %, 30 %, 50 % lower at R_jj = 0.02,
    0.07, 0.3, where ``row_variance`` may be a tenth of it. A row in which a covariance is above
    1.8e308, whatever the weight of its key, is inf throughout.
    Cost: n covariances, O(n·l²·d) time, O(l²) memory.

    Examples
    --------
    >>> from approx import parse
    >>> normalised_moments(parse("positive(m=100)"), [[1.0]], [[0.5], [-0.5]]).bias.round(4)
    array([[-0.011,  0.011]])
    """
    checks.instance("method", method, Method, "a method")
    q, k = method.checked(Q, K)
    seen = method.masked(mask, len(q), len(k))
    known = method.moments(q, k, mask=seen)
    if known is None:
        return None
    log = np.asarray(exact.logits(q, k), np.float64)
    seen.hide(log, fill=-np.inf)
    attention = np.exp(log - logsumexp(log, axis=1, keepdims=True))
    scale = 1.0 + known.relative_bias
    with np.errstate(all="ignore"):  # what is not finite becomes inf below
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
            # Σ_l (δ_jl − a_l) = 0: what all of a row or column of R share drops out. With that of
            # the largest weight taken out, nothing cancels where this weight is almost 1.
            m = int(a.argmax())
            y = R[:, m] - R[m, m]
            D = R - R[m] - y[:, None]
            Da = D @ a
            common = a @ Da
            # the last difference is often 0, and then exactly so
            bias[i] = a * (common - Da + a @ y - y) + (a - attention[i])
            variance[i] = a**2 * np.maximum(np.diag(D) - 2 * Da + common, 0.0)
    lost = ~(np.isfinite(bias) & np.isfinite(variance)).all(axis=1)
    bias[lost] = variance[lost] = row_variance[lost] = np.inf
    for x in (bias, variance):
        seen.hide(x)
    return NormalisedMoments(bias, variance, row_variance)
