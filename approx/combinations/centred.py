"""Any method on queries and keys from which their means are subtracted."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method, Moments
from approx.method.evaluation import evaluated
from approx.method.fields import flag, instance
from approx.method.prices import OWN, Numbers, Price, Shape, price_at
from approx.method.tags import AUTOREGRESSIVE, ROW_LOCAL, ROW_SHIFT, SHIFT, collect
from approx.random_features.positive import Positive


@dataclasses.dataclass(frozen=True)
class Centered(Method):
    """A method on centred inputs, scaled back: q·k = (q − q̄)·(k − k̄) + q·k̄ + q̄·(k − k̄).

    estimate_ij = e^{q_i·k̄} · method(q − q̄, k − k̄)_ij · e^{q̄·(k_j − k̄)}.

    Parameters
    ----------
    method : Method
        The method for the centred inputs.
    queries : bool
        Whether q̄ is subtracted as well; otherwise q̄ = 0 above.

    Notes
    -----
    Softmax attention does not depend on the scale of a query, so with ``queries=False`` normalised
    attention is that of the method on shifted keys. Bias and variance relative to exp(q·k), and the
    sign, are those of the method at the centred inputs. For `positive` the variance is that of
    `shifted_positive`; for polynomials the logits get smaller. A support stays exact.
    Where q̄ = k̄ = 0 nothing changes. Under a mask the means are still over all tokens, so the
    method is not autoregressive.
    Cost: that of the method; the scales are merged into its factors.
    Source: the identity above.

    Examples
    --------
    One query and one key are their own mean, so the centred inputs are 0.

    >>> from approx import parse
    >>> parse("centered(taylor(degree=1))").approximate([[1.0]], [[1.0]]).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "centered"
    label = "centred features"
    examples = (
        "centered(positive(m=3))",
        "centered(taylor(degree=2))",
        "centered(scatterbrain(positive(m=3), top_k(k=1)), queries=False)",
        "centered(key_pca(rank=1, centred=False))",
    )

    method: Method = instance(Positive(m=64), Method, "a method")
    queries: bool = flag(True)

    @property
    def tags(self) -> frozenset[str]:
        # the means, which are of all keys, undo a shift and change with every token
        kept = super().tags - collect(AUTOREGRESSIVE, ROW_SHIFT, self.queries and ROW_LOCAL)
        return kept | {SHIFT}

    @property
    def space(self) -> str:
        return self.method.space

    def means(self, Q: Array, K: Array) -> tuple[Array, Array]:
        """Return q̄, which is 0 where queries are not centred, and k̄."""
        q_mean = Q.mean(axis=0) if self.queries else np.zeros(Q.shape[1], Q.dtype)
        return q_mean, K.mean(axis=0)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        q_mean, k_mean = self.means(q, k)
        inner = evaluated(self.method, q - q_mean, k - k_mean, mask, rng)
        row, column = q @ k_mean, (k - k_mean) @ q_mean
        if inner.space == "attention":
            if self.queries:
                raise ValueError(
                    f"{self.method} gives softmax rows, which have no scale of queries: "
                    "use queries=False"
                )
            return inner
        sparse = inner.sparse and inner.sparse.rescaled(q, k, row, column)
        return Parts(inner.low.rescaled(row, column), sparse)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        q_mean, k_mean = self.means(q, k)
        return self.method.moments(q - q_mean, k - k_mean, mask=mask)

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        q_mean, k_mean = self.means(Q, K)
        return self.method.covariance(Q - q_mean, K - k_mean, row=i, mask=mask)

    def _price(self, shape: Shape) -> Price | None:
        price = price_at(self.method, shape)
        return None if price is None else price + self._beside("method", shape)

    def _beside(self, name: str, shape: Shape) -> Price:
        """Return the price of the means: a query reads q̄, and each key is multiplied with it.

        The mean of the keys scales whole rows, which cancels in attention, so it has no price.
        """
        mean = float(shape.d if self.queries else 0)
        return Price.from_numbers(0.0, mean * shape.l / shape.n, Numbers(mean, most=OWN))
