"""Correction weights: when drawn keys should replace a low-rank estimate, and when weigh 1/π.

Some keys of a row are exact. Each of the other keys, the *rest*, is drawn with probability π. A
low-rank part estimates the rest: low_j = exact_j·(1 + b_j + e_j), with bias b and errors e whose
covariance is C. Drawn keys correct it with a weight c:

    estimate_j = low_j + c·B_j·(exact_j − low_j),

where B_j is 1 if key j is drawn, else 0. *Replacing* is c = 1, *weighing* is c = 1/π. Let
M = b bᵀ + C be the second moments of the errors of low, and p the row's softmax weights. Sums are
over the rest.

**Theorem.** The relative squared error of the row sum is a parabola in c,

    E(c) = s₂·pᵀMp + (s₁ − s₂)·Σ p_j² M_jj,    s₁ = 1 − 2cπ + c²π,  s₂ = 1 − 2cπ + c²·π_jl.

Let N_M = pᵀMp/Σ p_j² M_jj be the *effective number of errors*. The minimum is at
c* = N_M/(1 + (N_M − 1)·π_jl/π). Weighing has the smaller error if and only if c* is above the mean
of 1 and 1/π:

    N_M > 1 + 1/π              if each key is drawn independently,
    N_M > (N + k)/(k + 1)      if k different keys of the N are drawn.

The second condition is 1 + 1/π' with π' = (k + 1)/(N − 1): π' is larger than k/N, so weighing wins
earlier. The theorem holds for all b and C.

**Corollary.** If all keys have the same b and v = C_jj, and errors of different keys are
uncorrelated, let N_eff = (Σp)²/Σp². Weighing has the smaller error if and only if

    N_eff > 1 + (1 + v/b²)/π,

with π' instead of π without replacement. Without a low-rank part (low = 0, so b = −1 and v = 0)
this is N_eff > 1 + 1/π. If low is unbiased it never holds. Random features are unbiased, but all
keys share their frequencies, so that C is not diagonal: then N_M may be as large as N, and weighing
may still win.

No such theorem holds for normalised attention. `Row.output` has its error to first order.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.inputs import Head
from approx import Method, checks
from approx.baselines import Zero
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.corrections import Support

DESIGNS = ("uniform", "coins")


class Errors(NamedTuple):
    """Mean squared errors of weighing and of replacing, and their ratio."""

    weighted: float
    replaced: float

    @property
    def ratio(self) -> float:
        """The error of weighing over the error of replacing; NaN if the latter is 0."""
        return self.weighted / self.replaced if self.replaced else math.nan


def effective_number(p: ArrayLike) -> float:
    """Return (Σp)²/Σp², the effective number of shares: N for N equal shares.

    Parameters
    ----------
    p : (N,)
        Shares ≥ 0, which need not sum to 1.

    Examples
    --------
    >>> effective_number([0.1, 0.1, 0.1]), effective_number([1.0, 0.0])
    (3.0, 1.0)
    """
    shares = _shares("p", p)
    shares = shares / shares.max()  # squares of the least shares would underflow
    return float(shares.sum() ** 2 / np.square(shares).sum())


def threshold(
    pi: float, *, bias: float = -1.0, variance: float = 0.0, keys: int | None = None
) -> float:
    """Return 1 + (1 + v/b²)/π, the effective number of keys above which weighing is better.

    Parameters
    ----------
    pi : float
        The probability that a key of the rest is drawn, 0 < pi ≤ 1.
    bias, variance : float
        b and v of the low-rank part, the same for all keys, relative to exp(q·k). By default there
        is no such part.
    keys : int, optional
        The number N of keys in the rest, if pi·N of them are drawn without replacement: π is then
        (pi·N + 1)/(N − 1). By default each key is drawn independently.

    Returns
    -------
    float
        inf without a bias: then replacing is never worse.

    Notes
    -----
    The rule is exact for the row sum, if π, b and v are the same for all keys and the errors of the
    low-rank part are uncorrelated between keys. Otherwise see `Row.effective_errors`.

    Examples
    --------
    16 keys of 1000 are drawn, without a low-rank part: independently, and without replacement:

    >>> threshold(0.016), round(threshold(0.016, keys=1000), 3)
    (63.5, 59.765)
    """
    chance = checks.positive("pi", pi, most=1.0)
    if keys is not None:
        count = checks.integer("keys", keys, least=2)
        chance = (chance * count + 1) / (count - 1)
    b = checks.number("bias", bias)
    if not (v := checks.number("variance", variance)) >= 0:
        raise ValueError(f"variance must be >= 0, got {variance!r}")
    return 1 + (1 + v / b**2) / chance if b**2 else math.inf


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One row of attention with drawn keys.

    Parameters
    ----------
    p : (l,)
        Softmax weights; 0 for invisible keys.
    rest : (l,) bool
        The keys to draw from; the others are exact or invisible.
    drawn : float
        The number of drawn keys (the mean number for design "coins"), less than the keys of the
        rest.
    bias : float or (l,)
        b of the low-rank part, relative to exp(q·k), as from `Method.moments`; by default there is
        no such part.
    covariance : float, (l,) or (l, l)
        The variances of its errors, if these are uncorrelated, or their covariance, as from
        `Method.covariance`.
    design : {"uniform", "coins"}
        "uniform" draws different keys, all sets equally likely; "coins" draws each key
        independently.

    Examples
    --------
    Two of eight equal keys are drawn. Their weighted sum is exact:

    >>> row = Row(np.full(8, 1 / 8), np.ones(8, bool), drawn=2)
    >>> row.row_sum()
    Errors(weighted=0.0, replaced=0.5625)
    >>> row.effective_number, round(row.threshold, 3)
    (8.0, 3.333)
    """

    p: Array
    rest: Array
    drawn: float
    bias: float | Array = -1.0
    covariance: float | Array = 0.0
    design: str = "uniform"

    def __post_init__(self) -> None:
        p, rest = _shares("p", self.p), np.asarray(self.rest)
        l = len(p)
        if rest.dtype != bool or rest.shape != (l,):
            raise ValueError(
                f"rest must say of each of {l} keys whether it is there, "
                f"got shape {rest.shape} of {rest.dtype}"
            )
        checks.one_of("design", self.design, DESIGNS)
        count = int(rest.sum())
        drawn = checks.positive("drawn", self.drawn)
        if drawn >= count:
            raise ValueError(f"drawn must be below the {count} keys of the rest, got {drawn:g}")
        if self.design == "uniform":
            checks.integer("drawn", self.drawn, least=1)
        b = checks.array("bias", self.bias)
        C = checks.array("covariance", self.covariance)
        if b.shape not in ((), (l,)) or C.shape not in ((), (l,), (l, l)):
            raise ValueError(
                f"bias and covariance must be of {l} keys, got shapes {b.shape} and {C.shape}"
            )
        if (least := (np.diag(C) if C.ndim == 2 else C).min()) < 0:
            raise ValueError(f"variances must be >= 0, got {least:g}")
        for name, value in (("p", p), ("rest", rest), ("bias", b), ("covariance", C)):
            object.__setattr__(self, name, value)

    @property
    def keys(self) -> int:
        """The number of keys in the rest, N."""
        return int(self.rest.sum())

    @property
    def pi(self) -> float:
        """The probability π that a key of the rest is drawn."""
        return self.drawn / self.keys

    @property
    def pair(self) -> float:
        """The probability π_jl that two keys of the rest are both drawn."""
        if self.design == "coins":
            return self.pi**2
        return self.pi * (self.drawn - 1) / (self.keys - 1)

    @functools.cached_property
    def _shares(self) -> Array:
        return np.asarray(self.p[self.rest], np.float64)

    @functools.cached_property
    def _bias(self) -> Array:
        return np.asarray(np.broadcast_to(self.bias, self.p.shape)[self.rest])

    @functools.cached_property
    def _covariance(self) -> Array:
        if self.covariance.ndim == 2:  # type: ignore[union-attr]
            return np.asarray(np.asarray(self.covariance)[np.ix_(self.rest, self.rest)])
        return np.asarray(np.broadcast_to(self.covariance, self.p.shape)[self.rest])

    @property
    def _variance(self) -> Array:
        C = self._covariance
        return np.asarray(C if C.ndim == 1 else np.diag(C))

    def _sums(self, y: Array) -> tuple[Array, float, float]:
        """Return Σ b_j y_j, Σ M_jl y_j·y_l and Σ M_jj |y_j|² of vectors y (N, c)."""
        mean = self._bias @ y
        own = float(self._variance @ np.square(y).sum(axis=1))
        together = own if self._covariance.ndim == 1 else float((y * (self._covariance @ y)).sum())
        square = float(np.square(self._bias) @ np.square(y).sum(axis=1))
        return mean, float(mean @ mean) + together, square + own

    def _moments(self, weight: float) -> tuple[float, float]:
        """Return E[(1 − cB_j)²] and E[(1 − cB_j)(1 − cB_l)]."""
        start = 1 - 2 * weight * self.pi
        return start + weight**2 * self.pi, start + weight**2 * self.pair

    @property
    def effective_number(self) -> float:
        """(Σp)²/Σp² of the rest, N_eff."""
        return effective_number(self._shares)

    @property
    def effective_errors(self) -> float:
        """pᵀMp/Σ p_j² M_jj of the rest, between 0 and N; without a low-rank part it is N_eff."""
        _, together, own = self._sums(self._shares[:, None] / self._shares.max())
        return together / own if own else math.nan

    @property
    def threshold(self) -> float:
        """The exact effective number of errors above which weighing is better."""
        return threshold(self.pi, keys=self.keys if self.design == "uniform" else None)

    @property
    def common(self) -> tuple[float, float]:
        """One bias and one variance for the whole rest, as the corollary needs them.

        The bias b is the bias of the rest's sum, Σpb/Σp. The variance treats the deviations from it
        as noise: Σp²·(C_jj + (b_j − b)²)/Σp².
        """
        p = self._shares / self._shares.max()
        b = float(p @ self._bias / p.sum())
        square = self._variance + np.square(self._bias - b)
        return b, float(np.square(p) @ square / np.square(p).sum())

    @property
    def rule(self) -> float:
        """N_eff/(1 + (1 + v/b²)/π) with the common b and v; above 1 the corollary says to weigh."""
        b, v = self.common
        keys = self.keys if self.design == "uniform" else None
        return self.effective_number / threshold(self.pi, bias=b, variance=v, keys=keys)

    @property
    def best_weight(self) -> float:
        """The weight c with the least squared error of the row sum, between 0 and 1/π."""
        n = self.effective_errors
        return n / (1 + self.pair / self.pi * (n - 1))

    def row_sum(self) -> Errors:
        """Return the mean squared errors of the row sum, relative to its square."""
        return Errors(self.row_sum_at(1 / self.pi), self.row_sum_at(1.0))

    def row_sum_at(self, weight: float) -> float:
        """Return the relative mean squared error of the row sum with any weight on drawn keys."""
        _, together, own = self._sums(self._shares[:, None])
        first, second = self._moments(weight)
        return max(0.0, second * together + (first - second) * own)

    def output(self, V: ArrayLike) -> Errors:
        """Return the absolute mean squared errors of the normalised output, to first order.

        Parameters
        ----------
        V : (l, c) or (l,)
            Values.

        Notes
        -----
        The output is a ratio. With μ the mean of the estimate and o' the output of μ,

            E|output − o|² ≈ |o' − o|² + E|Σ (estimate_j − μ_j)(v_j − o')|²/(Σμ)².

        This needs row sums whose standard deviation is well below their mean. Without exact keys
        and a low-rank part, both weights give the same output, and the same error here.
        """
        values = checks.values(V, len(self.p), np.float64).reshape(len(self.p), -1)
        values = values.astype(np.float64)
        return Errors(self._output_at(values, 1 / self.pi), self._output_at(values, 1.0))

    def _output_at(self, V: Array, weight: float) -> float:
        mean = np.array(self.p, np.float64)
        share = 1 - weight * self.pi
        mean[self.rest] *= 1 + share * self._bias
        total = mean.sum()
        centre = mean @ V / total
        y = self._shares[:, None] * (V[self.rest] - centre)
        of_mean, together, own = self._sums(y)
        first, second = self._moments(weight)
        square = second * together + (first - second) * own - share**2 * float(of_mean @ of_mean)
        gap = centre - self.p @ V / self.p.sum()
        return float(gap @ gap) + max(0.0, square) / float(total) ** 2


def _shares(name: str, p: ArrayLike) -> Array:
    shares = checks.array(name, p, ndim=1).astype(np.float64)
    if not ((shares >= 0).all() and shares.any()):
        raise ValueError(f"{name} must be shares >= 0, not all 0, got least {shares.min():g}")
    return shares


def rows(
    x: Head,
    sparse: Method,
    drawn: int,
    *,
    low_rank: Method | None = None,
    queries: Sequence[int] | None = None,
    design: str = "uniform",
) -> Iterator[tuple[int, Row]]:
    """Yield each query of a head with its `Row`: exact on a support, and a rest to draw from.

    Parameters
    ----------
    x : Head
    sparse : Method
        A deterministic support, such as top_k.
    drawn : int
    low_rank : Method, optional
        A method whose moments and covariance are known; by default there is no low-rank part.
    queries : sequence of int, optional
        The indices of queries; by default all.
    design : {"uniform", "coins"}

    Raises
    ------
    ValueError
        The support is random, or the moments of the low-rank part are not known.

    Notes
    -----
    A query whose rest has at most `drawn` keys is skipped, because it could read all of them.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> from approx import parse
    >>> x = gaussian(64, 8, rng=0)
    >>> [(i, row.keys, row.row_sum().ratio < 1) for i, row in rows(x, parse("top_k(k=4)"), 4,
    ...     queries=[0, 9])]
    [(0, 60, True), (9, 60, True)]
    """
    low = low_rank or Zero()
    if sparse.uses_rng:
        raise ValueError(f"sparse must draw nothing, got {sparse}")
    support = x.approximate(sparse).correction
    if not isinstance(support, Support):
        raise TypeError(f"sparse must be a support, got {sparse}")
    known = low.moments(x.Q, x.K, mask=x.mask)
    if known is None:
        raise ValueError(f"the moments of {low} are not known in closed form")
    indptr, indices = support.matrix.indptr, support.matrix.indices
    for i in range(x.n) if queries is None else queries:
        rest = x.mask.visible(slice(i, i + 1))[0]
        rest[indices[indptr[i] : indptr[i + 1]]] = False
        if rest.sum() <= drawn:
            continue
        covariance: float | Array = 0.0
        if low.uses_rng:
            found = low.covariance(x.Q, x.K, row=i, mask=x.mask)
            if found is None:
                raise ValueError(f"the covariance of {low} is not known in closed form")
            covariance = found
        p = exact.softmax(x.Q[i : i + 1], x.K, x.mask.take(slice(i, i + 1)))[0]
        yield int(i), Row(p, rest, drawn, known.relative_bias[i], covariance, design)
