"""Positive features from the proposal with the least Frobenius error of the whole matrix."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.distances import half_square
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method, Size
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import ORACLE, RANDOM, ROTATION, SPECTRAL

PROPOSALS = 4096  # draws that estimate the normalising constant


@dataclasses.dataclass(frozen=True)
class Leverage(Method):
    """Positive features from the Frobenius-optimal proposal, unbiased for exp(q·k).

    With φ_w(x) = exp(w·x − |x|²/2) and p the density of N(0, I_d):
    w ~ p̃(w) = p(w) ‖φ_w(Q)‖ ‖φ_w(K)‖ / Z,  φ(q_i)_r = (Ẑ/m)^{1/2} φ_w(q_i)/‖φ_w(Q)‖.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.

    Notes
    -----
    The estimate is unbiased. Of all iid proposals p̃ has the least expected Frobenius error:
    E‖estimate − exact‖²_F = (Z² − ‖exact‖²_F)/m. With norms Σ instead of √Σ² the proposal is the
    mixture of N(q_i + k_j, I) with weights exp(q_i·k_j). Draws are taken from this mixture, and a
    draw is accepted with the ratio of the norms, at least (n·l)^{−1/2}. Ẑ is an unbiased estimate
    of Z from 4096 other draws; it adds at most E[estimate²]·√(n·l)/4096 to a variance. The variance
    of an entry has no known closed form.
    Every entry is ≥ 0. The method needs the whole kernel matrix.
    Cost: n·l·d operations, and 2(n + l)·d per proposal.

    References
    ----------
    .. [1] H. Avron et al., "Random Fourier Features for Kernel Ridge Regression: Approximation
       Bounds and Statistical Guarantees", ICML 2017: sampling by leverage.

    Examples
    --------
    For one query and one key the proposal is N(q + k, I), and the estimate has no variance.

    >>> Leverage(m=1).approximate([[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "leverage"
    label = "leverage-score features"
    tags = frozenset({ORACLE, RANDOM, SPECTRAL, ROTATION})  # proposed by exp(q·k) of all pairs
    sized_by = Size("m")

    m: int | None = None

    def _price(self, shape: Shape) -> Price | None:
        return None if self.m is None else low_rank(self.m, shape, mapped=self.m * shape.d)

    def _workspace(self, shape: Shape) -> int:
        n, l = shape.n, shape.l
        return 24 * n * l + 16 * (n + l) * (self.m or 0)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        a, b = (x.astype(np.float64) for x in (q, k))
        logits = exact.logits(a, b)
        top = float(logits.max())
        weights = np.exp(logits - top)
        log_total = top + math.log(weights.sum())
        cumulative = np.cumsum(weights)

        def propose(count: int) -> tuple[Array, Array, Array]:
            """Return log φ_w(Q)/‖·‖₂, log φ_w(K)/‖·‖₂ and the probability to accept w."""
            place = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], "right")
            i, j = np.unravel_index(np.minimum(place, weights.size - 1), weights.shape)
            w = a[i] + b[j] + rng.standard_normal((count, a.shape[1]))
            sides, log_accept = [], np.zeros(count)
            for x in (a, b):
                log_phi = x @ w.T - half_square(x)[:, None]
                log_phi -= log_phi.max(axis=0)
                phi = np.exp(log_phi)
                norm = np.log(np.square(phi).sum(axis=0)) / 2
                log_accept += norm - np.log(phi.sum(axis=0))
                sides.append(log_phi - norm)
            return sides[0], sides[1], np.exp(np.minimum(log_accept, 0.0))

        batches = [propose(PROPOSALS // 8)[2] for _ in range(8)]
        log_Z = log_total + math.log(float(np.mean(batches)))
        left, right = np.empty((len(a), self.m or 0)), np.empty((len(b), self.m or 0))
        filled = 0
        while filled < left.shape[1]:
            phi_q, phi_k, accept = propose(PROPOSALS // 8)
            kept = np.flatnonzero(rng.random(len(accept)) < accept)[: left.shape[1] - filled]
            left[:, filled : filled + len(kept)] = phi_q[:, kept]
            right[:, filled : filled + len(kept)] = phi_k[:, kept]
            filled += len(kept)
        top_q = left.max(axis=1)  # a query far below the others must not become 0
        top_k = np.zeros(len(b)) if mask.is_full else right.max(axis=1)
        left, right = np.exp(left - top_q[:, None]), np.exp(right - top_k[:, None])
        log = top_q + log_Z - math.log(left.shape[1])
        if mask.is_full:
            return Parts(Factors(left, right, log).astype(q.dtype))
        return Parts(Factors.by_key(left, right, log, top_k, q.dtype).astype(q.dtype))
