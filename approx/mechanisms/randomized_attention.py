"""Randomized attention, unbiased for softmax rows at quadratic cost."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.distances import half_square
from approx.estimate.low import Dense
from approx.estimate.masks import Mask, MaskLike
from approx.estimate.parts import Parts
from approx.kernels.elementary import exp_rows
from approx.method import Method
from approx.method.fields import integer
from approx.method.prices import Numbers, Price, Shape, low_rank
from approx.method.tags import BY_ROW, ORACLE, POSITIONAL, RANDOM, ROTATION, SHIFT


@dataclasses.dataclass(frozen=True)
class RandomizedAttention(Method):
    """Randomized attention (RA), unbiased for softmax rows after normalisation, at quadratic cost.

    estimate_i = mean over s of softmax_j(ω_is·k_j − |k_j|²/2),
    ω_is ~ Σ_j π_ij N(q_i + k_j, I),  π_i = softmax(q_i Kᵀ).

    Parameters
    ----------
    samples : int
        Draws per query, ≥ 1.

    Notes
    -----
    The rows are in attention space. The density of ω is ∝ N(ω; q, I) Σ_j ξ_j with
    ξ_j = e^{ω·k_j − |k_j|²/2}, and ξ_j/Σξ is the posterior probability of key j, whose mean is
    exactly π_ij. So every row is a softmax and already unbiased, unlike a ratio of two estimates.
    Weights lie in [0, 1], so the variance of an entry is at most π(1 − π)/samples. Under a mask, π
    and ξ use only seen keys, and each position has its own stream of draws.
    The draws of a query need its softmax row. So there are no factors, all n·l weights are stored,
    and nothing is saved (the method needs all logits).
    Cost: 2·n·l·d operations for π and 2·samples·n·l·d for the rows; samples·n·d numbers of ω. The
    rank is counted as the trivial bound, min(n, l).

    References
    ----------
    .. [1] L. Zheng, C. Wang, L. Kong, "Linear complexity randomized self-attention mechanism",
       ICML 2022, section 3.

    Examples
    --------
    Equal keys have equal weights:

    >>> RandomizedAttention().approximate([[1.0]], [[0.5], [0.5]], rng=0).to_dense()
    array([[0.5, 0.5]])
    """

    name = "randomized_attention"
    label = "randomized attention"
    tags = BY_ROW | {ORACLE, RANDOM, POSITIONAL, SHIFT, ROTATION}  # draws by all weights
    space = "attention"

    samples: int = integer(1)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        n, d = q.shape
        if mask.looks_back:
            u, omega = self._draws_by_position(mask.positions, d, rng)
        else:
            u = rng.random((n, self.samples))
            omega = rng.standard_normal((self.samples, n, d))
        for rows in exact.stripes(n, len(k)):
            weights = np.cumsum(exact.softmax(q[rows], k, mask.take(rows)), axis=1)
            weights /= weights[:, -1:]
            for s in range(self.samples):
                chosen = np.sum(weights <= u[rows, s, None], axis=1)
                omega[s, rows] += q[rows].astype(np.float64) + k[chosen]
        weights = mean_softmax(omega.astype(q.dtype), k, mask)
        return Parts(Dense(weights, np.zeros(n, q.dtype)), space="attention")

    def _draws_by_position(
        self, positions: Array, d: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return u (n, samples) and noise (samples, n, d), drawn for each position by itself."""
        seed = int(rng.integers(2**63))
        u = np.empty((len(positions), self.samples))
        noise = np.empty((self.samples, len(positions), d))
        for i, position in enumerate(positions.tolist()):
            own = np.random.default_rng((seed, position))
            u[i], noise[:, i] = own.random(self.samples), own.standard_normal((self.samples, d))
        return u, noise

    def _price(self, shape: Shape) -> Price:
        """Return the price of min(n, l) columns, because nothing is saved.

        A query reads every key for its weights, then the keys of its draws, then every key again
        for each draw, and every value once.
        """
        n, l, d, c = shape
        keys, values = float(shape.most * d), float(shape.most * c)
        return Price.from_numbers(
            low_rank(min(n, l), shape).stored,
            shape.seen(l) * ((1 + self.samples) * d + c),
            Numbers((1 + self.samples) * keys, keys),
            Numbers(values),
            Numbers(float(self.samples * d)),
            entry_work=min(n, l),
        )

    def _workspace(self, shape: Shape) -> int:
        return 8 * shape.n * (2 * self.samples * shape.d + shape.l)


def mean_softmax(omega: Array, K: Array, mask: MaskLike = None) -> Array:
    """Return the mean over s of softmax_j(omega_is·k_j − |k_j|²/2) over the seen keys, (n, l)."""
    seen = masks.as_mask(mask, omega.shape[1], len(K))
    n = omega.shape[1]
    mean = np.zeros((n, len(K)), omega.dtype)
    for rows in exact.stripes(n, len(K)):
        for of_sample in omega:
            x = of_sample[rows] @ K.T
            x -= half_square(K)
            seen.hide(x, rows, fill=-np.inf)
            exp_rows(x, x.max(axis=1))
            x /= x.sum(axis=1, keepdims=True)
            mean[rows] += x
    mean /= len(omega)
    return mean
