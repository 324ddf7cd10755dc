"""The expected error of an estimate, in closed form."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from approx import Method, checks
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.masks import MaskLike


def expected_error(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None
) -> float | None:
    """Return √(E‖estimate − exact‖²_F)/‖exact‖_F in closed form; None if no closed form is known.

    E‖·‖² = Σ exp(2 q·k)·(bias² + variance), with bias and variance relative to exp(q·k). This is
    exact and needs no covariance. It may be inf.

    Accuracy: 1000 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    method : Method
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        The visible keys of each query; None for all. Both norms are over visible entries.

    Examples
    --------
    >>> from approx import parse
    >>> round(expected_error(parse("positive(m=100)"), [[0.5]], [[0.5]]), 6)
    0.131083
    """
    checks.instance("method", method, Method, "a method")
    return Expectation(Q, K, mask).error(method)


class Expectation:
    """Expected errors of methods at the same Q, K and mask; the logits are computed once."""

    def __init__(self, Q: ArrayLike, K: ArrayLike, mask: MaskLike = None) -> None:
        self.Q, self.K, self.mask = Q, K, mask
        self._truth: tuple[Array, float] | None = None

    def error(self, method: Method) -> float | None:
        """Return `expected_error` of a method."""
        known = method.moments(self.Q, self.K, mask=self.mask)
        if known is None:
            return None
        if self._truth is None:  # after the method has checked Q and K
            twice = 2 * np.asarray(exact.logits(self.Q, self.K), np.float64)
            masks.as_mask(self.mask, *twice.shape).hide(twice, fill=-np.inf)
            self._truth = twice, float(logsumexp(twice))
        twice, total = self._truth
        log_square = known.log_relative_variance
        with np.errstate(divide="ignore", over="ignore"):
            if known.relative_bias.any():
                bias = 2 * np.log(np.abs(known.relative_bias))
                log_square = np.logaddexp(bias, log_square)
            return float(np.exp((logsumexp(twice + log_square) - total) / 2))
