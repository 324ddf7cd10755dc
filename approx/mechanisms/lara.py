"""LARA: randomized attention whose draws all queries share."""

import dataclasses

import numpy as np
import scipy

from approx.checks import Array
from approx.estimate import memory
from approx.estimate.distances import half_square
from approx.estimate.masks import Mask
from approx.mechanisms import segments
from approx.mechanisms.feature_map import FeatureMap
from approx.method import Size
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import POSITIONAL, RANDOM, ROTATION, SHIFT


@dataclasses.dataclass(frozen=True)
class Lara(FeatureMap):
    """Linear randomized attention (LARA): softmax rows, biased, consistent.

    estimate_ij ∝ Σ_r e^{−s_r} ξ(q_i, ω_r) ξ(k_j, ω_r),  ξ(x, ω) = e^{ω·x − |x|²/2},
    ω_r ~ N(μ_r, I),  μ_r = q̄_c + k̄_c,  e^{s_r} = Σ_p ξ(μ_p, ω_r).

    Parameters
    ----------
    m : int, optional
        Draws, ≥ 1; None is a template.

    Notes
    -----
    The rows are in attention space. q̄_c, k̄_c are means of the c-th of min(m, n, l) consecutive
    segments of queries and of keys; draw r takes c = r modulo their number. Before normalisation
    the sum is multiple importance sampling with the balance heuristic, with ω drawn from the
    mixture of the N(μ_p, I). It is unbiased for exp(q·k), with entries > 0, and bounded where some
    μ_p is near q + k (the best proposal for one pair). Rows are then divided by their sums; this
    ratio has a bias of order 1/m and is consistent as m → ∞. The moments are not known in closed
    form. Two parts of the paper are left out: its learned maps of q̄, k̄, and its weights that
    depend on the query. These can be negative, and public code clamps them, which biases the sum.
    Cost: 2(n + l)·m·d operations and m·min(m, n, l)·d, (n + l)·m numbers. Draws depend on all
    queries and keys, future ones included; under a causal mask only the row sums are restricted to
    seen keys.

    References
    ----------
    .. [1] L. Zheng, C. Wang, L. Kong, "Linear complexity randomized self-attention mechanism",
       ICML 2022, section 3.
    .. [2] E. Veach, L. Guibas, "Optimally combining sampling techniques for Monte Carlo
       rendering", SIGGRAPH 1995: the balance heuristic.

    Examples
    --------
    Equal keys have equal weights:

    >>> Lara(m=3).approximate([[1.0]], [[0.5], [0.5]], rng=0).to_dense()
    array([[0.5, 0.5]])
    """

    name = "lara"
    label = "LARA"
    tags = frozenset({RANDOM, POSITIONAL, SHIFT, ROTATION})  # centred at means of all tokens
    sized_by = Size("m")

    m: int | None = None

    def width(self, d: int) -> int | None:
        return self.m

    def _price(self, shape: Shape) -> Price | None:
        if self.m is None:
            return None
        once = self.m * min(self.m, shape.n, shape.l) * shape.d
        return low_rank(self.m, shape, mapped=self.m * shape.d, once=once)

    def log_features(
        self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return log(ξ(q, ω_r) e^{−s_r}) and log ξ(k, ω_r), unbiased before normalisation."""
        m = self.m or 0
        count = min(m, len(Q), len(K))
        memory.reserve(16 * m * count, self, "m")
        mu = segments.means(Q, count) + segments.means(K, count)
        chosen = np.arange(m) % count
        omega = mu[chosen] + rng.standard_normal((m, Q.shape[1]))
        times = np.bincount(chosen, minlength=count)
        s = scipy.special.logsumexp(omega @ mu.T - half_square(mu), axis=1, b=times)
        return log_xi(Q, omega) - s, log_xi(K, omega)


def log_xi(X: Array, omega: Array) -> Array:
    """Return ω_r·x − |x|²/2, (rows, m)."""
    return np.asarray(X @ omega.T - half_square(X)[:, None])
