"""The attention weights above a level, in rows of varying length."""

import dataclasses
import math
from typing import Self

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.method import TV, Size
from approx.method.fields import real
from approx.method.prices import Shape, entries
from approx.method.tags import BY_ROW, ORACLE, SUPPORT
from approx.sparse.support import SupportMethod
from approx.supports.patterns import Pattern, by_stripes


@dataclasses.dataclass(frozen=True)
class Threshold(SupportMethod):
    """The entries whose attention weight reaches a level, exact.

    estimate_ij = exp(q_i·k_j) where exp(q_i·k_j) ≥ level·Σ_c exp(q_i·k_c), else 0; the sum is over
    the keys c that query i sees.

    Parameters
    ----------
    level : float, optional
        Least weight, 0 < level ≤ 1; None is a template, which a budget fills to 1/budget.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Weights
    sum to 1, so a row has at most min(seen, 1/level) entries; it has none if no weight reaches the
    level. A weight within rounding of the level counts as reaching it. No support with as many
    entries in all holds more attention.
    Cost: 2·n·l·d operations to find the support, by row stripes.
    Source: a definition.

    Examples
    --------
    >>> Threshold(level=0.5).approximate([[1.0]], [[0.0], [2.0]]).to_dense().round(3)
    array([[0.   , 7.389]])
    """

    name = "threshold"
    label = "weights above a level"
    examples = ("threshold(level=0.2)",)

    sized_by = Size("level", counts="entries", integer=False)
    tags = SUPPORT | BY_ROW | {ORACLE}

    level: float | None = real(most=1)

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return total variation, over supports with as many entries in all rows."""
        return {TV}

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        smallest = exact.log_row_sums(Q, K, mask=mask)
        smallest += np.log(checks.positive("level", self.level))
        smallest -= 64 * np.finfo(Q.dtype).eps * np.maximum(1.0, np.abs(smallest))  # keeps ties
        return by_stripes(Q, K, mask, lambda x, rows: x >= smallest[rows, None])

    def held(self, mask: Mask) -> Array | None:
        """Return the most entries that a row can have, min(seen, ⌊1/level⌋)."""
        if self.level is None:
            return None
        return np.minimum(mask.counts, math.floor(1.0 / self.level + 1e-9))

    def _fill(self, budget: float, shape: Shape, currency: str) -> Self | None:
        """Return this method at the least level whose rows always fit the budget."""
        full = dataclasses.replace(shape, mask=None)
        none, one = (getattr(entries(k, full), currency) for k in (0, 1))
        most = (budget - none) / (one - none)
        return dataclasses.replace(self, level=1.0 / most) if most >= 1 else None
