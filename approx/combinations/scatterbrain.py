"""Scatterbrain: any low-rank method, made exact on any support."""

import dataclasses

import numpy as np

from approx.baselines import Uniform
from approx.checks import Array
from approx.estimate.low import Low
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Label, Method, Moments, Rng, generator
from approx.method.evaluation import evaluated
from approx.method.fields import instance, real
from approx.method.prices import Price, Shape, price_at
from approx.method.tags import ORACLE, collect
from approx.random_features.positive import Positive
from approx.sparse.support import SupportMethod, a_support
from approx.sparse.top_k import TopK


@dataclasses.dataclass(frozen=True)
class Scatterbrain(Method):
    """Sparse + low-rank: a low-rank estimate, replaced by exp(q·k) on a support.

    estimate_ij = exp(q_i·k_j) on the support S, φ(q_i)·ψ(k_j) off it.

    Parameters
    ----------
    low_rank : Method
        Any method without a sparse part, such as random features, Taylor or truncated SVD.
    sparse : Method
        Any support, such as top_k or sliding_window.
    share : float
        Share of a budget that goes to entries, 0 < share < 1.

    Notes
    -----
    The estimate is unbiased where the low-rank estimate is, *because* support and features use
    independent children of rng. With p = P[(i, j) ∈ S], and b, v the bias and variance of the
    low-rank part, its bias is (1 − p)·b and its variance (1 − p)·v + p·(1 − p)·b². Normalised by
    its row sums it is biased, like every ratio.
    Cost: that of both parts, and 2·nnz·(d + rank) operations for the correction.

    References
    ----------
    .. [1] B. Chen, T. Dao, E. Winsor, Z. Song, A. Rudra, C. Ré, "Scatterbrain: Unifying Sparse and
       Low-rank Attention Approximation", NeurIPS 2021, Theorem 2.

    Examples
    --------
    >>> from approx import parse
    >>> parse("scatterbrain(low_rank=taylor(degree=0), sparse=top_k(k=1))").approximate(
    ...     [[1.0]], [[0.5], [2.0]]).to_dense().round(3)
    array([[1.   , 7.389]])
    """

    name = "scatterbrain"
    label = Label(
        "Scatterbrain ({low_rank.name} + {sparse.name})",
        {
            "Scatterbrain (Performer + top-k)": {"low_rank": "positive", "sparse": "top_k"},
            "Scatterbrain (Performer + window)": {
                "low_rank": "positive",
                "sparse": "sliding_window",
            },
            "Scatterbrain (Performer + sink)": {"low_rank": "positive", "sparse": "sink_window"},
            "Scatterbrain (shifted + SMYRF)": {"low_rank": "shifted_positive", "sparse": "smyrf"},
        },
    )
    examples = (
        "scatterbrain(low_rank=positive(m=3), sparse=top_k())",
        "scatterbrain(low_rank=trigonometric(m=4), sparse=sliding_window(width=1))",
        "scatterbrain(low_rank=zero(), sparse=random())",
    )
    class_name = "sparse + low rank"

    low_rank: Method = instance(Positive(m=64), Method, "a method")
    sparse: SupportMethod = a_support(TopK(k=32))
    share: float = real(0.5, below=1)

    @property
    def tags(self) -> frozenset[str]:
        means = isinstance(self.low_rank, Uniform)  # row means of exp(q·k) need all logits
        return super().tags | collect(means and ORACLE)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        """Return the low-rank estimate, exact on the support; the two draw independently."""
        for_support, for_features = self.streams(rng)
        support = self.sparse.support(q, k, mask, for_support)
        return Parts(beneath(self.low_rank, q, k, mask, for_features), support)

    def streams(self, rng: Rng) -> tuple[np.random.Generator, np.random.Generator]:
        """Return the generators of the support and of the low-rank part."""
        # Spawning from the caller's seed would change it, and a second run would differ.
        support, low = generator(rng).integers(2**63, size=(2, 2))
        return np.random.default_rng(support), np.random.default_rng(low)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return the moments of the low-rank part off the support.

        They are (1 − p)·b and (1 − p)·v + p·(1 − p)·b², where p, b and v are known.
        """
        low = self.low_rank.moments(q, k, mask=mask)
        p = self.sparse.probability(q, k, mask=mask)
        return None if low is None or p is None else replaced(p, low)

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        """Return the covariance of the low-rank part, 0 for keys on a deterministic support."""
        low = self.low_rank.covariance(Q, K, row=i, mask=mask)
        if low is None or not self.sparse.deterministic:
            return None
        support = self.sparse.support(Q, K, mask, None).matrix
        on = support.indices[support.indptr[i] : support.indptr[i + 1]]
        low[on] = low[:, on] = 0.0
        return low

    def _price(self, shape: Shape) -> Price | None:
        low, sparse = price_at(self.low_rank, shape), price_at(self.sparse, shape)
        if low is None or sparse is None:
            return None
        taken_off = low.entry_work * sparse.stored
        return low + sparse + Price(0.0, 0.0, taken_off, 0.0)


def beneath(low_rank: Method, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Low:
    """Return the low-rank estimate of a method; ValueError unless it is purely low-rank."""
    parts = evaluated(low_rank, q, k, mask, rng)
    if parts.sparse is not None or parts.space != "kernel":
        raise ValueError(f"low_rank must be a purely low-rank method of exp(q·k), got {low_rank}")
    return parts.low


def replaced(p: Array, low: Moments) -> Moments:
    """Return the moments of an estimate that exp(q·k) replaces with probability p, independently.

    They are (1 − p)·b and (1 − p)·v + p·(1 − p)·b², with b and v those of the estimate.
    """
    b, v = low
    with np.errstate(divide="ignore", invalid="ignore"):  # p is 0 or 1, b is 0 or inf
        off = np.where(p < 1.0, np.log1p(-p) + v, -np.inf)
        of_support = np.log(p) + np.log1p(-p) + 2.0 * np.log(np.abs(b))
    of_support = np.where((p > 0.0) & (p < 1.0), of_support, -np.inf)
    return Moments(np.where(p < 1.0, b, 0.0) * (1.0 - p), np.logaddexp(off, of_support))
