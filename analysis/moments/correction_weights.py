"""Replace what is drawn, or weigh it: which of the two leaves the smaller squared error, and when.

Some keys of a row are exact. Of the others, the *rest*, each is drawn with probability π, and a
low-rank part stands for them: low_j = exact_j·(1 + b_j + e_j), with bias b and errors e whose
covariance is C. What is drawn corrects low by a weight c:

    estimate_j = low_j + c·B_j·(exact_j − low_j),

B_j being 1 where key j is drawn. *Replacing* is c = 1, *weighing* c = 1/π. Let M = b bᵀ + C be the
second moments of the errors of low, p the row's softmax weights, and sums go over the rest.

**Theorem.** The squared error of the row sum, relative to it, is a parabola in c,

    E(c) = s₂·pᵀMp + (s₁ − s₂)·Σ p_j² M_jj,    s₁ = 1 − 2cπ + c²π,  s₂ = 1 − 2cπ + c²·π_jl.

With N_M = pᵀMp/Σ p_j² M_jj, the *effective number of errors*, its least point is at
c* = N_M/(1 + (N_M − 1)·π_jl/π), and weighing is nearer exactly where c* is above the mean of 1 and
1/π:

    N_M > 1 + 1/π              where each key is drawn by a coin of its own,
    N_M > (N + k)/(k + 1)      where k different keys of the N are drawn.

The second is 1 + 1/π' with π' = (k + 1)/(N − 1): π' is larger than k/N, so weighing wins earlier.
Nothing is assumed of b and C.

**Corollary.** If b and v = C_jj are common to all keys, and errors of different keys uncorrelated,
then with N_eff = (Σp)²/Σp² weighing is nearer exactly where

    N_eff > 1 + (1 + v/b²)/π,

π' in place of π without replacement. Where nothing stands for the rest (low = 0, so b = −1 and
v = 0) this is N_eff > 1 + 1/π, and where low is unbiased it never holds. Random features are
unbiased, but all keys share their frequencies, so that C is not diagonal: then N_M may be as large
as N, and weighing may win all the same.

Of normalised attention nothing of the kind holds. `Row.output` has its error to first order.
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
    """Mean squared errors of the two, and their ratio: below 1, weighing is nearer."""

    weighted: float
    replaced: float

    @property
    def ratio(self) -> float:
        """The error of weighing over that of replacing; NaN where both are 0."""
        return self.weighted / self.replaced if self.replaced else math.nan


def effective_number(p: ArrayLike) -> float:
    """Return (Σp)²/Σp², how many equal shares would be as broad.

    Accuracy: 4 eps·κ, as docs/accuracy.md defines it.

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
    """Return 1 + (1 + v/b²)/π, the effective number of keys above which weighing is nearer.

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    pi : float
        Probability that a key of the rest is drawn, 0 < pi ≤ 1.
    bias, variance : float
        b and v of the low-rank part, common to all keys, relative to exp(q·k). By default there is
        no such part.
    keys : int, optional
        How many keys N the rest has, of which pi·N are drawn without replacement: π is then
        (pi·N + 1)/(N − 1). By default each key is drawn by a coin of its own.

    Returns
    -------
    float
        inf where there is no bias: then replacing is nearer, or as near.

    Notes
    -----
    The rule is exact for the row sum, one π, common b and v, and errors of the low-rank part that
    are uncorrelated among keys. See `Row.effective_errors` for any others.

    Examples
    --------
    16 keys of 1000 are drawn, without a low-rank part, by coins and without replacement:

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
    """One row of attention, some of whose keys are drawn.

    Parameters
    ----------
    p : (l,)
        Softmax weights; keys that the query does not see have 0.
    rest : (l,) bool
        Keys among which is drawn; the others are exact, or not seen.
    drawn : float
        How many are drawn, on average for design "coins": less than there are in the rest.
    bias : float or (l,)
        b of the low-rank part, relative to exp(q·k), as `Method.moments` gives it; by default
        there is no such part.
    covariance : float, (l,) or (l, l)
        Variances of its errors, where these are uncorrelated, or the covariance that
        `Method.covariance` gives.
    design : {"uniform", "coins"}
        Different keys, each set of that size alike, or a coin for each key.

    Examples
    --------
    A quarter of eight equal keys is drawn. Their weighted sum is exact:

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
        """How many keys the rest has, N."""
        return int(self.rest.sum())

    @property
    def pi(self) -> float:
        """Probability π that a key of the rest is drawn."""
        return self.drawn / self.keys

    @property
    def pair(self) -> float:
        """Probability π_jl that two keys of the rest are both drawn."""
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
        """pᵀMp/Σ p_j² M_jj of the rest, between 0 and N; N_eff where there is no low-rank part."""
        _, together, own = self._sums(self._shares[:, None] / self._shares.max())
        return together / own if own else math.nan

    @property
    def threshold(self) -> float:
        """The effective number of errors above which weighing is nearer, exactly."""
        return threshold(self.pi, keys=self.keys if self.design == "uniform" else None)

    @property
    def common(self) -> tuple[float, float]:
        """One bias and variance for the whole rest, as the corollary needs them.

        The bias is that of the rest's sum, Σpb/Σp. The variance is the mean square of what is left,
        Σp²·(C_jj + (b_j − b)²)/Σp², as if it were noise.
        """
        p = self._shares / self._shares.max()
        b = float(p @ self._bias / p.sum())
        square = self._variance + np.square(self._bias - b)
        return b, float(np.square(p) @ square / np.square(p).sum())

    @property
    def rule(self) -> float:
        """N_eff/(1 + (1 + v/b²)/π) with the common b and v: above 1 the corollary says: weigh."""
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
        """Return the mean squared error of the row sum with any weight on what is drawn."""
        _, together, own = self._sums(self._shares[:, None])
        first, second = self._moments(weight)
        return max(0.0, second * together + (first - second) * own)

    def output(self, V: ArrayLike) -> Errors:
        """Return the mean squared errors of the normalised output to first order, absolute.

        Parameters
        ----------
        V : (l, c) or (l,)
            Values.

        Notes
        -----
        The output is a ratio. With μ the mean of the estimate and o' the output of μ,

            E|output − o|² ≈ |o' − o|² + E|Σ (estimate_j − μ_j)(v_j − o')|²/(Σμ)²,

        which needs row sums whose standard deviation is well below their mean. Where nothing is
        exact and there is no low-rank part, both weights give the same output, and the same number
        here.
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
    """Yield the rows of a head, each with its query: exact on a support, the rest to be drawn.

    Parameters
    ----------
    x : Head
        One head.
    sparse : Method
        A support that draws nothing, such as top_k.
    drawn : int
    low_rank : Method, optional
        A method whose moments and covariance are known; none by default.
    queries : sequence of int, optional
        Some of the queries; all by default.
    design : {"uniform", "coins"}

    Raises
    ------
    ValueError
        The support draws, or the moments of the low-rank part are not known.

    Notes
    -----
    Queries of which at most that many keys are left are passed over: nothing is missing there.

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
