"""Scatterbrain as it must not be built: with supports that depend on the features.

Scatterbrain is unbiased because its support is independent of its features. Nothing here is a
method of the registry: `approx.combinations.scatterbrain` has the right form.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse

from approx import Approximation, Mask, Moments
from approx.checks import Array
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate.corrections import Support
from approx.kernels import pattern_products


@dataclasses.dataclass(frozen=True)
class OneStream(Scatterbrain):
    """Hashes and frequencies from one stream: their first directions are the same vectors.

    If a hyperplane w separates a query from a key, w·(q + k) is near 0 and its feature small: off
    the support the estimate is too small.
    """

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        """Return the estimate, its support and its features drawn with one seed."""
        seed = rng.integers(2**63)
        support = self.sparse.support(q, k, mask, np.random.default_rng(seed))
        low = self.low_rank.approximate(q, k, mask=mask, rng=np.random.default_rng(seed))
        return Approximation(low.low, support, mask=mask)

    def entry_moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return None: no closed form is known."""
        return None


@dataclasses.dataclass(frozen=True)
class LargestEstimates(Scatterbrain):
    """The ``sparse.k`` largest estimates of each row are made exact.

    They tend to be overestimates: where q·k is large, the estimates that stay are too small.
    """

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        """Return the features' estimate, exact where it is largest."""
        low = self.low_rank.approximate(q, k, mask=mask, rng=rng)
        estimates = low.block(slice(None), shift=low.row_log())
        mask.hide(estimates, fill=-np.inf)
        indices = _largest(estimates, self.sparse.k)  # type: ignore[attr-defined]
        n, count = indices.shape
        pattern = scipy.sparse.csr_array(
            (np.zeros(indices.size), indices.ravel(), np.arange(0, n * count + 1, count)),
            shape=(n, len(k)),
        )
        pattern.data = pattern_products.product(q, k, pattern)
        return Approximation(low.low, Support(pattern), mask=mask)

    def entry_moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return None: no closed form is known."""
        return None


def _largest(rows: Array, count: int) -> Array:
    """Return the columns of the largest entries of each row, sorted, (n, count)."""
    return np.sort(np.argpartition(-rows, count - 1, axis=1)[:, :count], axis=1)
