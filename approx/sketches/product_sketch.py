"""A sketch of the tensor power by products of random linear forms."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from approx.checks import Array
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Label
from approx.method.fields import one_of
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM, ROTATION, collect
from approx.sketches.power import PowerSketch
from approx.sketches.products import CUMULANTS, LAWS, augmented, forms, products
from approx.sketches.signed import Signed, excess, scaled


@dataclasses.dataclass(frozen=True)
class ProductSketch(PowerSketch):
    """Product sketch, unbiased for (1 + q·k/p)^p, of either sign.

    φ(x)_r = m^{−1/2} Π_{i ≤ p} w_ri·(x/√p, 1),  w_ri of independent signs (or Gaussians).

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1: the columns of the factors; None: a budget fills it.
    degree : int
        p ≥ 1.
    law : {"rademacher", "gaussian"}
        Distribution of the entries of w.

    Notes
    -----
    The estimate is biased for exp(q·k), by the factor (1 + q·k/p)^p e^{−q·k}. Its variance is
    (M^p − c^{2p})/m with a = (q/√p, 1), b = (k/√p, 1), c = a·b and
    M = |a|²|b|² + 2c² − 2Σ a_i² b_i², without the last term for Gaussians. In the covariance of two
    keys b, b', |a|² b·b' + 2 c c' − 2Σ a_i² b_i b'_i replaces M, and c c' replaces c². Since
    M ≥ |a|²|b|², the relative variance grows exponentially with p. Row sums may be ≤ 0.
    Cost: 2(n + l)·m·p·(d + 1) operations, (n + l)·m numbers.
    Features are computed as sign and logarithm, with one shift per query row and one for all keys,
    so no logit overflows.

    References
    ----------
    .. [1] P. Kar, H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012.
    .. [2] J. Wacker, M. Kanagawa, M. Filippone, "Improved Random Features for Dot Product Kernels",
       2022: the variances.

    Examples
    --------
    At q = k = 0 only the coordinate 1 contributes, and its signs cancel:

    >>> ProductSketch(m=3).approximate([[0.0]], [[0.0]], rng=0).to_dense().round(12)
    array([[1.]])
    """

    name = "product_sketch"
    label = Label("product sketch", {"Gaussian product sketch": {"law": "gaussian"}})
    examples = (
        "product_sketch(m=4, degree=3)",
        "product_sketch(m=4, law='gaussian')",
    )

    law: str = one_of("rademacher", LAWS)

    @property
    def tags(self) -> frozenset[str]:
        return BY_ROW | collect(RANDOM, self.law == "gaussian" and ROTATION)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        shape = self.m or 0, q.shape[1] + 1
        levels = (forms(self.law, shape, rng) for _ in range(self.degree))
        return Parts(self.features(q, k, levels, mask))

    def _price(self, shape: Shape) -> Price | None:
        if self.m is None:
            return None
        return low_rank(self.m, shape, mapped=self.degree * self.m * (shape.d + 1))

    def _workspace(self, shape: Shape) -> int:
        return 32 * (shape.n + shape.l + shape.d) * (self.m or 0)

    def features(
        self, q: Array, k: Array, levels: Iterable[Array], mask: Mask | None = None
    ) -> Factors:
        """Return the factors for given w, one (m, d + 1) matrix per degree."""
        a, b = augmented(q, self.degree), augmented(k, self.degree)
        m = self.m or 0
        return products(a, b, levels, np.full(m, -0.5 * math.log(m)), q.dtype, mask)

    def sketch_covariance(self, C: Array, U: Array, W: Array, S: Array) -> Signed:
        """Return (M^p − C^p)/m, M = C + U + W + (2 + κ₄) S."""
        more = U + W + (2 + CUMULANTS[self.law][0]) * S
        return scaled(excess(C, more, self.degree), -math.log(self.m or 1))
