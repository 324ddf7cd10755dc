"""A polynomial of the logits: its coefficients, basis, interval and properties."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate.low import rescale
from approx.kernels.jit import kernel
from approx.polynomials import extrema, monomials

SMALLEST = 2.0**-126  # replaces 0, where a polynomial without a constant term has no scale
BASES = ("monomial", "chebyshev")
LANES = 256


@kernel
def _horner_rows(coefficients: Any, inverse: Any, values: Any) -> None:
    # Each coefficient is applied to a few hundred entries at once, which vectorises.
    x, y = np.empty(LANES, values.dtype), np.empty(LANES, values.dtype)
    for i in range(values.shape[0]):
        a = coefficients[i]
        for start in range(0, values.shape[1], LANES):
            row = values[i, start : start + LANES]
            for j in range(row.size):
                x[j] = row[j] * inverse[i]
                y[j] = a[a.size - 1]
            for k in range(a.size - 2, -1, -1):
                c = a[k]
                for j in range(row.size):
                    y[j] = c + x[j] * y[j]
            for j in range(row.size):
                row[j] = y[j]


@kernel
def _clenshaw_rows(coefficients: Any, inverse: Any, damping: Any, values: Any) -> None:
    # b_k = a_k + 2 (t/ρ) b_{k+1} − b_{k+2}/ρ²; x is t/ρ, y is b_{k+1}, z is b_{k+2}.
    x, y = np.empty(LANES, values.dtype), np.empty(LANES, values.dtype)
    z = np.empty(LANES, values.dtype)
    for i in range(values.shape[0]):
        a, r = coefficients[i], damping[i]
        for start in range(0, values.shape[1], LANES):
            row = values[i, start : start + LANES]
            for j in range(row.size):
                x[j] = row[j] * inverse[i]
                y[j] = a[a.size - 1]
                z[j] = a[0] * 0
            for k in range(a.size - 2, 0, -1):
                c = a[k]
                for j in range(row.size):
                    before = y[j]
                    y[j] = c + 2 * x[j] * before - r * z[j]
                    z[j] = before
            for j in range(row.size):
                row[j] = a[0] + x[j] * y[j] - r * z[j] if a.size > 1 else a[0]


class SupErrors(NamedTuple):
    """The largest errors of p against exp on [−B, B].

    Attributes
    ----------
    relative : float
        max |p(x) − e^x|/e^x.
    absolute : float
        max |p(x) − e^x|; inf above 1.8e308.
    scaled : float
        max |p(x) − e^x|/e^B.
    """

    relative: float
    absolute: float
    scaled: float


@dataclasses.dataclass(frozen=True, eq=False)
class Polynomial:
    """The polynomial p(x) = Σ_{j ≤ n} c_j φ_j(x), with φ_j(x) = x^j or Chebyshev's T_j(x/B).

    Parameters
    ----------
    mantissas : (n + 1,)
    exponents : (n + 1,)
        c_j = mantissas_j·2^exponents_j, because 1/j! and e^B leave the range of float64.
        Logarithms would lose digits that are needed when terms cancel at x < 0.
    basis : {"monomial", "chebyshev"}
    bound : float
        B of the interval [−B, B]. It is infinite if no interval is given (monomials only).

    Notes
    -----
    Evaluation rounds by about n·eps·Σ|c_j φ_j(x)|, which relative to e^x is eps·e^{2B} at x = −B.

    Examples
    --------
    >>> p = Polynomial.from_coefficients([1.0, 1.0, 0.5], bound=1.0)
    >>> p.sup_errors().scaled
    0.0803...
    >>> p.width(3)
    10
    """

    mantissas: Array
    exponents: Array
    basis: str = "monomial"
    bound: float = math.inf
    one_sided: ClassVar[bool] = False  # whether |p(−x)| ≪ p(x), so a bound by |x| is not a scale

    @classmethod
    def from_coefficients(
        cls,
        coefficients: ArrayLike,
        *,
        basis: str = "monomial",
        bound: float = math.inf,
        log_scale: ArrayLike = 0.0,
    ) -> Self:
        """Return Σ c_j e^log_scale_j φ_j."""
        checks.one_of("basis", basis, BASES)
        if basis == "chebyshev" or bound != math.inf:
            checks.positive("bound", bound)
        c = checks.array("coefficients", coefficients, ndim=1).astype(np.float64)
        if not len(c):
            raise ValueError("coefficients must not be empty")
        logs = np.broadcast_to(checks.array("log_scale", log_scale), c.shape)
        twos = np.floor(logs / math.log(2))
        rest = np.exp(logs - twos * math.log(2))  # 1 if the scale is 1
        mantissas, exponents = np.frexp(c * rest)
        return cls(mantissas, exponents + twos.astype(np.int64), basis, float(bound))

    @property
    def degree(self) -> int:
        """The degree n."""
        return len(self.mantissas) - 1

    @property
    def coefficients(self) -> Array:
        """The c_j, (n + 1,); 0 or inf beyond the range of float64."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(self.mantissas, _exponent(self.exponents)))

    @property
    def log_coefficients(self) -> Array:
        """Log |c_j|, (n + 1,); −inf where c_j = 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.abs(self.mantissas)) + self.exponents * math.log(2))

    @property
    def signs(self) -> Array:
        """The signs of c_j, ±1, (n + 1,)."""
        return np.where(self.mantissas < 0, -1.0, 1.0)

    # Evaluation

    def _ratio(self, size: Array) -> Array:
        """Return r with |φ_k(x)| ≤ r^k for |x| ≤ size: size, or ρ = s + √(s² − 1), s = size/B."""
        if self.basis == "monomial":
            return size
        s = np.maximum(size / self.bound, 1.0)
        return np.asarray(s + np.sqrt(s - 1) * np.sqrt(s + 1))  # the product could overflow

    def log_bound(self, size: Array) -> Array:
        """Return log Σ_k |c_k| r^k, a finite upper bound on log |p(x)| for |x| ≤ size."""
        ratio = self._ratio(np.maximum(size, SMALLEST))
        terms = monomials.log_powers(ratio, self.log_coefficients)
        return np.asarray(np.maximum(np.logaddexp.reduce(terms, axis=1), -1e6))  # p = 0

    def log_size(self, x: Array) -> Array:
        """Return a log scale per row of x (rows, cols), at which |p(x)| is at most 1."""
        return self.log_bound(_size(x))

    def scaled_terms(self, x: Array, shift: Array) -> tuple[Array, Array, Array]:
        """Return c_k r^k e^−shift per row, the factor from x to t/ρ, and the damping 1/ρ² or 0.

        Each term of any size has three roundings, since e^−shift is common to a row.
        """
        size = np.maximum(_size(x), SMALLEST)
        ratio = self._ratio(size)
        power, twos = _powers(ratio, self.degree)
        common = np.asarray(-shift, np.float64) / math.log(2)
        unit = np.exp2(common - np.floor(common))[:, None]
        twos = twos + self.exponents + np.floor(common).astype(np.int64)[:, None]
        with np.errstate(over="ignore", under="ignore"):
            terms = np.ldexp(self.mantissas * power * unit, _exponent(twos)).astype(x.dtype)
        rescale(terms, np.zeros(1), "a term of the polynomial")
        if self.basis == "monomial":
            return terms, (1.0 / size).astype(x.dtype), np.zeros(len(x), x.dtype)
        return terms, (1 / (self.bound * ratio)).astype(x.dtype), (ratio**-2.0).astype(x.dtype)

    def scaled(self, x: Array, shift: Array) -> Array:
        """Return p(x)·exp(−shift), (rows, cols), by Horner's or Clenshaw's rule; may reuse x.

        Raises
        ------
        OverflowError
            A coefficient at that scale is not representable.
        """
        terms, inverse, damping = self.scaled_terms(x, shift)
        if self.basis == "monomial":
            _horner_rows(terms, inverse, x)
        else:
            _clenshaw_rows(terms, inverse, damping, x)
        return x

    def __call__(self, x: ArrayLike) -> Array:
        """Return p(x) for x of any shape."""
        y = checks.array("x", x)
        flat = np.array(y, dtype=y.dtype if y.ndim else np.float64).reshape(1, -1)
        return self.scaled(flat, np.zeros(1)).reshape(y.shape)

    # Properties

    @cached_property
    def monomial(self) -> Polynomial:
        """The same polynomial in powers of x, by exact conversion of the stored coefficients.

        T_k(t) = 2t T_{k−1} − T_{k−2} is applied in integers; each coefficient is rounded once, at
        the end.
        """
        if self.basis == "monomial":
            return self
        mantissas, twos = _in_powers(self.in_integers())
        power, halves = _powers(np.array([1 / self.bound]), self.degree)
        mantissas, more = np.frexp(mantissas * power[0])
        twos = twos + halves[0] + more + self._unit
        return Polynomial(mantissas, twos, bound=self.bound)

    @property
    def _unit(self) -> int:
        return int(self.exponents[self.mantissas != 0].min(initial=0)) - 53

    def in_integers(self) -> list[int]:
        """Return all c_j exactly, as integer multiples of a common power of two."""
        pairs = zip(self.mantissas.tolist(), (self.exponents - self._unit).tolist())
        return [int(m * 2**53) << (e - 53) if m else 0 for m, e in pairs]

    @cached_property
    def log_loss(self) -> float:
        """Log of Σ|a_j| B^j over Σ|c_j|: how much larger terms in powers of x are on [−B, B]."""
        if self.basis == "monomial":
            return 0.0
        size = np.array([self.bound])
        return float((self.monomial.log_bound(size) - self.log_bound(size))[0])

    def width(self, d: int) -> int:
        """Return C(d + n, n), the number of monomials of d variables."""
        return monomials.width(d, self.degree)

    def rank(self, n: int, l: int, d: int, *, sphere: bool = False) -> int:
        """Return the rank of p(Q Kᵀ) for generic Q (n, d), K (l, d).

        The rank is min(n, l, Σ_{a_j ≠ 0} C(d + j − 1, j)); the sum is C(d + degree, degree) if no
        a_j is 0. On a sphere |q| = |k| = const., powers of x also span lower powers of the same
        parity, so spherical harmonics are counted: C(d + p − 1, p) + C(d + p − 2, p − 1) of them,
        with p = degree, if no a_j is 0.
        """
        if not sphere:
            return min(n, l, sum(_order(d, j) for j in np.flatnonzero(self._present).tolist()))
        powers = np.flatnonzero(self._present)
        reached = [
            j for j in range(self.degree + 1) if any(k >= j and (k - j) % 2 == 0 for k in powers)
        ]
        return min(n, l, sum(_order(d, j) - _order(d, j - 2) for j in reached))

    @property
    def _present(self) -> Array:
        return np.asarray(self.monomial.mantissas != 0)

    def sup_errors(self, bound: float | None = None) -> SupErrors:
        """Return the largest errors of the stored coefficients against exp on [−B, B].

        They are computed with as many digits as needed, at the critical points of p e^{−x} − 1 and
        p − e^x. Each function has at most n of these, found on a grid of 16(n + 2) points and
        refined.

        Notes
        -----
        Accuracy: 10⁻⁸ relative. Cost: O(n²) evaluations in multiprecision, 0.1 s at n = 20.
        """
        B = checks.positive("bound", self.bound if bound is None else bound)
        log_size = float(self.log_bound(np.array([B]))[0])
        relative, scaled = extrema.sup_errors(self.in_decimals, self.degree, log_size, B)
        with np.errstate(over="ignore"):
            return SupErrors(relative, float(np.exp(np.log(scaled) + B)) if scaled else 0.0, scaled)

    def in_decimals(self) -> Callable[[Any], Any]:
        """Return p as a function of arrays of decimals, at the precision of the context."""
        c = [
            Decimal(m) * Decimal(2) ** e
            for m, e in zip(self.mantissas.tolist(), self.exponents.tolist())
        ]
        if self.basis == "monomial":
            return extrema.horner(c)
        return extrema.clenshaw(c, Decimal(self.bound))

    def real_roots(self) -> Array:
        """Return all distinct real roots, ascending, isolated by Sturm's theorem.

        These are roots for the stored coefficients, as in `sup_errors`. Each coefficient is off by
        eps, and so p by up to eps·e^|x|, which is above e^x for x below about −18. Roots there are
        due to rounding: the Taylor polynomial of degree 100 has no real root, but with its
        coefficients in float64 it has two.
        """
        return extrema.real_roots(self.monomial.in_integers())


def _size(x: Array) -> Array:
    """Return the largest |x| of each row, (rows,) float64, without a copy of x."""
    largest = np.maximum(x.max(axis=1, initial=0.0), -x.min(axis=1, initial=0.0))
    return np.asarray(largest, np.float64)


def _powers(r: Array, n: int) -> tuple[Array, Array]:
    """Return mantissas (rows, n + 1) and exponents of two of r^j, j = 0…n.

    Up to n = 2000, powers of a mantissa in [½, 1]·√2 are representable, and the results are
    accurate to about an ulp; above, to n ulps.
    """
    mantissa, whole = np.frexp(r)
    low = mantissa < math.sqrt(0.5)
    mantissa, whole = np.where(low, 2 * mantissa, mantissa)[:, None], (whole - low)[:, None]
    j = np.arange(n + 1)
    if n <= 2000:
        return np.power(mantissa, j), whole * j
    logs = j * np.log2(mantissa)
    return np.exp2(logs - np.floor(logs)), whole * j + np.floor(logs).astype(np.int64)


def _exponent(twos: Array) -> Array:
    """Return exponents as int32, as ldexp needs; beyond ±4000 a float is 0 or inf anyway."""
    return np.clip(twos, -4000, 4000).astype(np.int32)


def _order(d: int, j: int) -> int:
    """Return C(d + j − 1, j), the number of monomials of degree j in d variables; 0 for j < 0."""
    return math.comb(d + j - 1, j) if j >= 0 else 0


def _in_powers(c: list[int]) -> tuple[Array, Array]:
    """Return the coefficients of Σ c_k T_k(t) in powers of t, as mantissas and powers of two."""
    before, term = [0] * len(c), [1] + [0] * (len(c) - 1)
    total = [0] * len(c)
    for k, weight in enumerate(c):
        for j in range(k + 1):
            total[j] += weight * term[j]
        raised = [0, *term[:-1]]
        factor = 1 if k == 0 else 2
        before, term = term, [factor * x - y for x, y in zip(raised, before)]
    twos = [x.bit_length() for x in total]
    return np.array([x / 2**e for x, e in zip(total, twos)]), np.array(twos)
