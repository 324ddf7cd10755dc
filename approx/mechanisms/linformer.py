"""Linformer: attention to a few combinations of keys."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.mechanisms import segments
from approx.method import Label, Method, Size
from approx.method.fields import one_of
from approx.method.prices import Numbers, Price, Shape, low_rank
from approx.method.tags import RANDOM, ROTATION, SCALE, SHIFT, collect

COMBINATIONS = ("mean", "gaussian")


@dataclasses.dataclass(frozen=True)
class Linformer(Method):
    """Linformer: softmax over a few combinations of the keys; biased, low rank, not sparse.

    estimate = softmax(Q (E K)ᵀ) F,  E, F (rank, l).

    Parameters
    ----------
    rank : int, optional
        Rows of E and F, 1 ≤ rank ≤ l; None is a template.
    combinations : {"mean", "gaussian"}
        ``mean``: E = F are the means of consecutive segments, the mean pooling of the paper's
        section 4. ``gaussian``: E = F = R with entries N(0, 1/rank). The proof of its theorem 2 has
        E = δR and F = e^{−δ}R for a tiny δ, so that the softmax is nearly linear. Here δ = 1,
        without that factor of F.

    Notes
    -----
    The rows are in attention space. E and F are learned in the paper; neither choice here needs
    training. With means, rows are ≥ 0 and sum to 1, and the estimate is exact where keys are
    constant on every segment and segments have equal length. With Gaussian E and F, entries are of
    either sign, and the estimate is biased because softmax is not linear; its moments are not known
    in closed form.
    Cost: 2·rank·(n + l)·d operations, rank·(n + l) numbers. E K depends on all keys, so there is no
    causal form, and a mask is refused.

    References
    ----------
    .. [1] S. Wang, B. Li, M. Khabsa, H. Fang, H. Ma, "Linformer: self-attention with linear
       complexity", 2020, arXiv 2006.04768, Eq. (7) and section 4.

    Examples
    --------
    >>> Linformer(rank=1).approximate([[1.0]], [[0.0], [4.0]]).to_dense()
    array([[0.5, 0.5]])
    """

    name = "linformer"
    label = Label("Linformer, means", {"Linformer, Gaussian": {"combinations": "gaussian"}})
    examples = (
        "linformer()",
        "linformer(rank=1, combinations='gaussian')",
    )
    space = "attention"
    refusal = "each combination of keys holds later keys, and values"
    sized_by = Size("rank", counts="rank", most=lambda n, l: l)

    rank: int | None = None
    combinations: str = one_of("mean", COMBINATIONS)

    @property
    def tags(self) -> frozenset[str]:
        mean = self.combinations == "mean"
        return collect(ROTATION, SCALE, mean and SHIFT, not mean and RANDOM)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        keys, right = self._combined(k.astype(np.float64), self.rank or 0, rng)
        left = exact.softmax(q.astype(np.float64), keys)
        scale = np.zeros(len(q), q.dtype)
        factors = Factors(left.astype(q.dtype), right.astype(q.dtype), scale)
        return Parts(factors, space="attention")

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of rank columns: combined keys map a query, combined values are a state.

        Gaussian combinations take rank·(d + c) multiply-adds for each key and its value; means take
        only sums.
        """
        if self.rank is None:
            return None
        n, l, d, c = shape
        answered = self.rank * (d + c)
        combined = 0.0 if self.deterministic else self.rank * l * (d + c) / n
        stored, numbers = low_rank(self.rank, shape).stored, Numbers(float(answered))
        work = answered + combined
        return Price.from_numbers(stored, work, numbers, entry_work=self.rank)

    def _combined(self, K: Array, rank: int, rng: np.random.Generator) -> tuple[Array, Array]:
        if not self.deterministic:
            F = rng.standard_normal((len(K), rank)) / math.sqrt(rank)
            return F.T @ K, F
        segment = segments.labels(len(K), rank)
        F = (segment[:, None] == np.arange(rank)) / np.bincount(segment)[segment, None]
        return segments.means(K, rank), F
