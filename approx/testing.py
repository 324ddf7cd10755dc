"""Tests of a method of one's own: what Hypothesis draws, assertions, and the checks of a class.

`heads` and `seeds` draw small inputs. An assertion compares a method with exp(q·k), with what it
states of itself (moments, tags, price), or its estimate with itself. It raises AssertionError where
the method is wrong, and `Undecided` where the sample cannot tell. `check_method` yields the checks
that apply to a class.

A statistic z is a difference divided by its standard error σ. A difference b moves z by b/σ, so
that |z| > 5 with probability Φ(b/σ − 5): ½ at b = 5σ, 0.9 at b = 6.3σ.

Examples
--------
>>> from approx import parse
>>> x = np.full((1, 4), 0.25)
>>> assert_unbiased(parse("positive(m=4096)"), x, x, rng=0)
>>> assert_unbiased(parse("taylor(degree=1)"), x, x)
Traceback (most recent call last):
    ...
AssertionError: taylor(degree=1): entry (0, 0) is 0.9735 of exp(q·k), not 1, and nothing is drawn
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, sample_moments as sample
from approx.checks import Array
from approx.decoding.cache import storage
from approx.estimate import exact, memory
from approx.estimate.approximation import Approximation
from approx.estimate.corrections import Support
from approx.estimate.low import Factors
from approx.estimate.masked import Masked
from approx.estimate.masks import ALL, Mask, MaskLike
from approx.kernels.pattern_products import coordinates
from approx.method import Method, Moments, Rng, generator, tags
from approx.method.evaluation import checked_inputs
from approx.method.filling import is_fillable, resized, with_sizes
from approx.method.prices import BITS, CURRENCIES
from approx.polynomials.elementwise import Elementwise

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

SURE = 0.1  # the most relative standard error with which a variance below the stated one fails
GROSS = 0.5  # a sample that would not show this relative bias cannot tell
TENFOLD = 0.9  # z standard errors of a variance beyond this share of it hide ten times the stated
DRAWS = 400
LARGER = 16  # times the size, at which independent features have a sixteenth of the variance
FALLEN = 0.25  # of the variance, which must be left at most
INTACT = 1e-8  # a change of arctan(weights) that is rounding, of logits of a few hundred
RARE = 1e-6  # a p-value
SEED = 5
ROUNDED = 1e-12  # relative, of a sum of prices
SHAPES = (1, 1, 1), (3, 5, 2), (6, 4, 3), (8, 8, 4)


class Undecided(AssertionError):
    """A sample that cannot tell: too small, or with too heavy a tail."""


# What Hypothesis draws


def heads(*, max_norm: float = 0.5, mask: MaskLike = None) -> SearchStrategy[tuple[Array, Array]]:
    """Return a strategy of small Q (n, d) and K (l, d) with |q|, |k| ≤ max_norm.

    n, l and d are at most 4, with n ≤ l under a causal mask; a `Mask` gives n and l. With the
    default norm |q ± k| ≤ 1, where the mean of some hundred positive features is nearly normal.
    """
    st, norm = _strategies(), checks.positive("max_norm", max_norm)
    size = st.integers(1, 4)

    @st.composite  # type: ignore[untyped-decorator]
    def pairs(draw: Callable[[Any], Any]) -> tuple[Array, Array]:
        n, l, d = draw(size), draw(size), draw(size)
        if isinstance(mask, Mask):
            n, l = mask.shape
        elif mask is not None:
            n, l = sorted((n, l))
        entry = st.floats(-1, 1, allow_subnormal=False)
        entries = draw(st.lists(entry, min_size=(n + l) * d, max_size=(n + l) * d))
        x = np.array(entries).reshape(n + l, d) * (norm / math.sqrt(d))
        return x[:n], x[n:]

    strategy: SearchStrategy[tuple[Array, Array]] = pairs()
    return strategy


def seeds() -> SearchStrategy[int]:
    """Return a strategy of seeds, for ``rng``."""
    strategy: SearchStrategy[int] = _strategies().integers(0, 2**32 - 1)
    return strategy


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError:
        raise ImportError("Hypothesis is missing: pip install pytest hypothesis") from None
    return strategies


# Bias and variance


class _RatioSample:
    """Independent draws of estimate/exact, (draws, n, l), beside what the method states of them."""

    def __init__(
        self, method: Method, Q: ArrayLike, K: ArrayLike, mask: MaskLike, draws: int, rng: Rng
    ) -> None:
        checks.instance("method", method, Method, "a method")
        q, k, self.mask = checked_inputs(method, Q, K, mask)
        self.method, self.count = method, checks.integer("draws", draws, least=1)
        memory.reserve(32 * self.count * len(q) * len(k), "the draws", "draws, n or l")
        logits = np.asarray(exact.logits(q, k), np.float64)
        source = generator(rng)
        alone = self.count == 1 or method.deterministic
        streams = [source] if alone else source.spawn(self.count)
        drawn = (method.approximate(q, k, mask=self.mask, rng=stream) for stream in streams)
        self.ratios = np.array([sample.ratio(estimate, logits, "kernel") for estimate in drawn])
        self.ratios[:, ~self.mask.visible()] = 1.0
        self.require(np.isfinite(self.ratios).all(axis=0), "is not finite")
        self.rounding = sample.rounding(q, k)
        self.known = method.moments(q, k, mask=self.mask)
        for x in self.known or ():
            if x.shape != self.mask.shape or np.isnan(x).any():
                shape = self.mask.shape
                raise AssertionError(f"{method} states moments that are NaN, or not {shape}")

    def stated(self) -> Moments:
        """Return the moments that the method states."""
        if self.known is None:
            raise ValueError(f"{self.method} states no moments: its class has no _moments for them")
        return self.known

    def tested(self, known: Moments | None) -> sample.MonteCarlo:
        """Return the moments of the sample, the mean tested against known ones or else 1."""
        x, count = self.ratios, self.count
        mean, variance = x.mean(axis=0), x.var(axis=0, ddof=min(len(x) - 1, 1))
        fourth = ((x - mean) ** 4).mean(axis=0) - variance**2 * (count - 3) / max(count - 1, 1)
        stderr = np.sqrt(np.fmax(fourth, 0.0) / count)
        entries = self.mask.entries
        return sample.statistics(mean, variance, stderr, known, count, self.rounding, entries)

    def require(self, holds: Array, message: str, raised: Any = AssertionError, **of: Any) -> None:
        """Raise an error for the first entry where something does not hold, with its numbers."""
        __tracebackhide__ = True
        for i, j in np.argwhere(~holds)[:1]:
            numbers = {name: x[i, j] if np.ndim(x) else x for name, x in of.items()}
            raise raised(f"{self.method}: entry ({i}, {j}) {message.format(**numbers)}")

    def tails(self, terms: Array, at: Array) -> Array:
        """Return Pareto k̂ of the terms of each mean; inf where they are too few, or all alike."""
        shape = np.full(at.shape, -math.inf)
        for i, j in np.argwhere(at):
            column = terms[:, i, j]
            alike = len(column) < sample.LEAST_DRAWS or np.ptp(column) == 0
            shape[i, j] = math.inf if alike else sample.pareto_k(column)
        return shape

    def require_light(self, shape: Array) -> None:
        """Raise Undecided where Pareto k̂ shows that a mean has no reliable standard error."""
        few = "cannot be judged: {count} draws, too few or all alike, have no standard error"
        few += "; try draws=400" * (self.count < sample.LEAST_DRAWS)
        self.require(shape < math.inf, few, Undecided, count=self.count)
        heavy = "cannot be judged: Pareto k̂ = {k:.2f} of {count} draws, above {limit:.2f}"
        limit = sample.reliable_k(self.count)
        self.require(shape <= limit, heavy, Undecided, k=shape, count=self.count, limit=limit)

    def compare_means(self, expected: Array, z: float) -> None:
        """Compare the mean with an expected one, by the standard error of the moments if stated."""
        known = None if self.known is None else self.known._replace(relative_bias=expected - 1.0)
        moments = self.tested(known)
        settled = np.abs(moments.mean - expected) <= self.rounding * (1 + np.abs(expected))
        message = "is {mean:.4g} of exp(q·k), not {expected:.4g}"
        numbers: dict[str, Any] = {"mean": moments.mean, "expected": expected, "z": moments.z}
        if self.method.deterministic:
            self.require(settled, message + ", and nothing is drawn", **numbers)
            return
        shape = self.tails(self.ratios - expected, ~settled & (known is None))
        narrow = settled | (z * moments.mean_stderr <= GROSS * np.maximum(np.abs(expected), 1.0))
        near = (
            settled | (np.abs(moments.z) <= z) | (shape > sample.reliable_k(self.count)) | ~narrow
        )
        of = "of the sample" if known is None else "stated"
        numbers |= {"error": moments.mean_stderr, "of": of}
        self.require(near, message + ": z = {z:.3g}, standard error {error:.2g} ({of})", **numbers)
        self.require_light(shape)
        wide = "cannot be judged: a standard error of {error:.2g} ({of}) hides a bias of one half"
        self.require(narrow, wide, Undecided, **numbers)

    def compare_variances(self, z: float) -> None:
        """Compare the sample's variance with the stated one, by its own standard error."""
        log_variance = self.stated().log_relative_variance
        moments, stated = self.tested(self.known), np.exp(log_variance)
        spread = moments.variance
        # the second: of a law of two values by half, whose fourth moment shows no error
        error = np.hypot(moments.variance_stderr, z * spread / self.count)
        settled = (log_variance <= -60) & (spread <= (2 * self.rounding) ** 2)
        narrow = settled | ((spread > 0) & (z * error <= TENFOLD * spread))
        # a sample without its rare values has too small a variance, and as small an error
        larger = np.divide(stated, spread, out=np.ones_like(spread), where=spread > 0)
        far = ~settled & (np.abs(spread - stated) > z * error * np.maximum(larger, 1.0))
        narrow &= ~far | (spread > stated) | (error <= SURE * spread)  # else a tail may be unseen
        shape = self.tails((self.ratios - moments.mean) ** 2, far)
        numbers = {"spread": spread, "stated": stated, "error": error}
        message = (
            "has variance {spread:.3g}, standard error {error:.2g}, where {stated:.3g} is stated"
        )
        self.require(~far | (shape > sample.reliable_k(self.count)) | ~narrow, message, **numbers)
        self.require_light(shape)
        wide = "cannot be judged: the standard error of its variance {spread:.2g} is {error:.2g}"
        self.require(narrow, wide, Undecided, **numbers)


def assert_unbiased(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    mask: MaskLike = None,
    draws: int = 1,
    rng: Rng = 0,
    z: float = 5.0,
) -> None:
    """Compare the mean of the draws with exp(q·k), entry by entry.

    The standard error is that of the closed form, if the method has `moments`, else that of the
    sample; then there must be 25 draws, and Pareto k̂ of each entry at most `reliable_k`. Pareto k̂
    cannot see a tail that no draw reached. z has the normal law only if the mean nearly has it:
    at |q + k| = 1.8 the mean of 4096 positive features fails in 3 of 2000 runs.

    Notes
    -----
    Power: one draw of 4096 positive features at |q + k| = 1 has σ = 2.0 %. It shows a bias of 10 %
    in half of all runs, and of 13 % in 90 %.
    """
    x = _RatioSample(method, Q, K, mask, draws, rng)
    x.compare_means(np.ones(x.mask.shape), z)


def assert_variance(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    mask: MaskLike = None,
    draws: int = DRAWS,
    rng: Rng = 0,
    z: float = 5.0,
) -> None:
    """Compare the variance of the draws with that of the method's `moments`, entry by entry.

    Notes
    -----
    Power: 400 nearly normal draws have σ = 7.1 % of the variance. They show one that is 56 % larger
    than stated in half of all runs, and 72 % larger in 90 %. Features that share one draw have m
    times the stated variance. If not even tenfold variance would be seen, this is undecided.
    """
    _RatioSample(method, Q, K, mask, draws, rng).compare_variances(z)


def assert_moments(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    mask: MaskLike = None,
    draws: int = DRAWS,
    rng: Rng = 0,
    z: float = 5.0,
) -> None:
    """Compare mean and variance of the draws with the method's `moments`, entry by entry.

    It raises what `assert_unbiased` and `assert_variance` raise; the mean may have the stated bias.

    Notes
    -----
    Power: that of `assert_variance` for the variance. The mean of 400 draws shows a bias of 0.25
    standard deviations of one draw in half of all runs, and of 0.31 in 90 %.
    """
    x = _RatioSample(method, Q, K, mask, draws, rng)
    means = partial(x.compare_means, 1.0 + x.stated().relative_bias, z)
    _decide(means, partial(x.compare_variances, z))


def _decide(*assertions: Callable[[], None]) -> None:
    """Call all assertions. One that fails goes before one that is undecided."""
    __tracebackhide__ = True
    undecided = []
    for assertion in assertions:
        try:
            assertion()
        except Undecided as error:
            undecided.append(error)
    if undecided:
        raise undecided[0]


def assert_converges(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    mask: MaskLike = None,
    draws: int = DRAWS,
    rng: Rng = 0,
    z: float = 5.0,
) -> None:
    """Compare the variance of the draws, summed over entries, with that at 16 times the size.

    The variance of independent features falls to a sixteenth. It must be z standard errors below a
    quarter, and fails if it is as many above.

    Notes
    -----
    Power: features that share one draw leave the variance as it is. At 400 nearly normal draws the
    ratio of two variances has σ = 10 %: their ratio, 1, is 7.5σ above the limit.
    """
    larger = _enlarged(method)
    both = (_RatioSample(one, Q, K, mask, draws, rng).ratios for one in (method, larger))
    squares = [((x - x.mean(axis=0)) ** 2).sum(axis=(1, 2)) for x in both]  # of each draw
    small, large = (float(x.mean()) for x in squares)
    if draws < sample.LEAST_DRAWS or small < ROUNDED**2:
        raise Undecided(f"{method}: {draws} draws are too few, or all alike")
    error = math.hypot(*(x.std() / x.mean() for x in squares if x.any())) / math.sqrt(draws)
    shape, limit = max(map(sample.pareto_k, squares)), sample.reliable_k(draws)
    if shape > limit:
        raise Undecided(f"{method}: Pareto k̂ of its variance is {shape:.2f}, above {limit:.2f}")
    message = f"{larger} has {large / small:.2g} of the variance of {method}"
    if large * (1 - z * error) > FALLEN * small:
        raise AssertionError(f"{message}: its features depend on each other")
    if large * (1 + z * error) > FALLEN * small:
        raise Undecided(f"{message}, with a standard error of {100 * error:.0f} %")


def _enlarged(method: Method) -> Method:
    size = checks.required(method.sized_by)
    return resized(method, LARGER * getattr(method, size.field))


# Tags


class _Row:
    """A row of an estimate, of its product with V and of attention, and what each rounds to."""

    def __init__(self, method: Method, Q: ArrayLike, K: ArrayLike, mask: MaskLike, i: int) -> None:
        self.method, self.i = method, i
        self.q, self.k, self.mask = checked_inputs(method, Q, K, mask)
        self.v = _some_values(self.k)
        self.stop = int(self.mask.stop[self.i])
        A = method.approximate(self.q, self.k, mask=self.mask, rng=SEED, V=self.v)
        self.scale = A.row_log(np.array([self.i]))
        self.values = self._values(A, self.v, self.i)
        size, total = term_sizes(A)[0][self.i].sum(), self.values[0].sum()
        share = size / total if A.space == "kernel" and total > 0 else size
        self.units = [roundings(A) * unit for unit in (size, size, share)]

    def _values(self, A: Approximation, V: Array, i: int) -> tuple[Array, Array, Array]:
        entries = A.block(np.array([i]), slice(0, self.stop), shift=self.scale)[0]
        y, log = A.scaled_matmat(V)
        return entries, y[i] * np.exp(log[i] - self.scale), A.attend(V)[i]

    def require_same(self, change: str, arrays: Sequence[Array], mask: Mask, i: int) -> None:
        """Raise AssertionError if the row, now the i-th, changes by more than rounding."""
        gaps = [math.inf]
        with np.errstate(all="ignore"), contextlib.suppress(OverflowError):
            Q, K, V = arrays
            A = self.method.approximate(Q, K, mask=mask, rng=SEED, V=V)
            after = self._values(A, V, i)
            gaps = [float(np.abs(x - y).max()) for x, y in zip(self.values, after)]
        for gap, unit in zip(gaps, self.units):
            if not gap <= unit:
                raise AssertionError(
                    f"{self.method}: row {self.i} changes by {gap:.2g} {change}; rounding explains "
                    f"{unit:.2g}"
                )


def _some_values(K: ArrayLike) -> Array:
    keys = np.asarray(K)
    return np.random.default_rng(1).uniform(-1, 1, (len(keys), 2)).astype(keys.dtype)


def _rows(method: Method, Q: ArrayLike, K: ArrayLike, mask: MaskLike) -> Iterator[_Row]:
    """Yield two neighbours, two thirds down: a method may work by blocks."""
    middle = 2 * len(np.atleast_1d(Q)) // 3
    for i in range(max(middle - 1, 0), middle + 1):
        yield _Row(method, Q, K, mask, i)


def assert_autoregressive(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = "causal"
) -> None:
    """Change what a query does not see, with the same seed: its row must stay, but for rounding.

    This is done for two queries, two thirds down. All tokens that they do not see are cut off, then
    moved by 10⁻³, then replaced, with one key of norm 400. It is undecided if they see all keys.

    Notes
    -----
    Power: without chance. At 12 keys and 64 features, rounding is 3·10⁻¹⁴ of a row's terms.
    """
    rows = [row for row in _rows(method, Q, K, mask) if row.stop < len(row.k)]
    if not rows:
        raise Undecided(f"{method}: the queries see all keys, so that nothing can be changed")
    for row in rows:
        before, at, seen = (row.q, row.k, row.v), (row.i + 1, row.stop, row.stop), row.mask
        cut = Mask(seen.first[: row.i + 1], seen.stop[: row.i + 1], row.stop, looks_back=True)
        shorter = [x[:a] for x, a in zip(before, at)]
        row.require_same("if later tokens are cut off", shorter, cut, row.i)
        moved = [np.r_[x[:a], x[a:] + x.dtype.type(1e-3)] for x, a in zip(before, at)]
        row.require_same("if later tokens move", moved, seen, row.i)
        draw = np.random.default_rng(2).uniform
        other = [np.r_[x[:a], draw(-1.5, 1.5, x[a:].shape)] for x, a in zip(before, at)]
        other[1][row.stop] *= 400 / np.linalg.norm(other[1][row.stop])
        other = [x.astype(row.k.dtype) for x in other]
        row.require_same("if later tokens are replaced", other, seen, row.i)


def assert_row_local(method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None) -> None:
    """Leave out other queries, with the same seed: a row must stay, but for rounding.

    Notes
    -----
    Power: without chance, as `assert_autoregressive`.
    """
    for row in _rows(method, Q, K, mask):
        some = np.array([row.i]), np.unique([0, row.i, len(row.q) - 1])
        for rows in (np.arange(row.i + 1),) if tags.DRAWS_BY_ROW in method.tags else some:
            at = int(np.flatnonzero(rows == row.i)[0])
            left = row.q[rows], row.k, row.v
            row.require_same("without other queries", left, row.mask.take(rows), at)


def assert_invariant(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    to: str,
    *,
    mask: MaskLike = None,
    draws: int = 200,
    rng: Rng = 0,
) -> None:
    """Change queries and keys so that exp(q·k) keeps its value: the estimate must keep its own.

    Parameters
    ----------
    to : {"shift", "row shift", "rotation", "scale"}
        ``shift``: a vector is added to all keys, which multiplies row i of the estimate by
        e^{q_i·b}; ``row shift``: by any number. ``rotation``: both are rotated; a random estimate
        keeps its law. ``scale``: queries grow by a factor, keys shrink by it.
    draws : int
        Of each law, where one seed gives another estimate after a rotation.

    Notes
    -----
    Power: without chance, but for a law. There, 200 draws show in half of all runs that the
    distribution functions of an entry differ by 0.27, or by 0.31 if it is one of 144.
    """
    checks.one_of("to", to, tuple(sorted(tags.INVARIANCES)))
    q, k, seen = checked_inputs(method, Q, K, mask)
    source = np.random.default_rng(4)
    turn = np.linalg.qr(source.standard_normal((q.shape[1],) * 2))[0].astype(q.dtype)
    b = source.uniform(-50.0, 50.0, k.shape[1:]).astype(k.dtype)
    changes = [(q, k + b)] if "shift" in to else [(q @ turn, k @ turn)]
    if to == "scale":
        powers = (7, 100, -100, 200, -200) if q.dtype == np.float64 else (7, 20, -20)
        changes = [(np.ldexp(q, e), np.ldexp(k, -e)) for e in powers]
    seed: Any = generator(rng).bit_generator.seed_seq
    log = None
    if to == tags.SHIFT:
        log = method.approximate(q, k, mask=seen, rng=seed, V=_some_values(k)).row_log()
    before, moved = _bounded(method, q, k, seen, seed, log), 0.0
    for x, y in changes:
        unit = log if log is None else log + q @ b
        try:
            gap = np.abs(_bounded(method, x, y, seen, seed, unit) - before)
        except OverflowError:
            gap = np.array(math.inf)
        moved = max(moved, float(gap.max()))
    if moved < INTACT:
        return
    if to != tags.ROTATION or method.deterministic:
        raise AssertionError(f"{method} is not invariant to a {to}: an entry moves by {moved:.2g}")
    (q, k), streams = changes[0], generator(rng).spawn(2 * draws)
    laws = [(Q, K, streams[:draws]), (q, k, streams[draws:])]
    if (p := _alike(method, laws, seen)) < RARE:
        raise AssertionError(f"{method} has another law after a rotation: p = {p:.1g}")


def _bounded(
    method: Method, Q: ArrayLike, K: ArrayLike, mask: Mask, rng: Rng, log: Array | None = None
) -> Array:
    """Return arctan of the rows of an estimate, divided by their sums or by e^log."""
    A = method.approximate(Q, K, mask=mask, rng=rng, V=_some_values(K))
    if A.space == "attention":
        return np.arctan(A.to_dense())
    own = A.row_log()
    x = A.block(slice(None), shift=own)
    total = x.sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # of what is not invariant
        unit = 1 / np.where(total == 0, 1, total) if log is None else np.exp(own - log)
        return np.nan_to_num(np.arctan(x * unit[:, None]), nan=9)


def _alike(method: Method, laws: list[tuple[Any, Any, Any]], mask: Mask) -> float:
    """Return a bound on the chance that draws of one law differ so much."""
    from scipy.stats import ks_2samp

    x, y = (
        np.array([_bounded(method, Q, K, mask, stream).ravel() for stream in streams]).round(9)
        for Q, K, streams in laws
    )
    return float(x.shape[1] * ks_2samp(x, y, method="asymp").pvalue.min())


# One estimate


def term_sizes(estimate: Approximation) -> tuple[Array, Array]:
    """Return Σ_r |left_ir right_jr| + |S_ij| at the row scale, (n, l), and that scale, (n,).

    Each way of adding the terms of an entry differs from their true sum by at most `roundings`
    times this.
    """
    A = estimate
    left, right, log = (np.asarray(x, np.float64) for x in A.scaled_factors())
    row_log = np.asarray(A.row_log(), np.float64)
    size = np.abs(left) @ np.abs(right).T * np.exp(log - row_log)[:, None]
    size += np.finfo(A.dtype).tiny / np.finfo(A.dtype).eps  # products below it have fewer digits
    low = A.low.low if isinstance(A.low, Masked) else A.low
    if isinstance(low, Elementwise) and low.polynomial.basis == "chebyshev":
        # Clenshaw's rule adds c_k T_k(x/B), which need not be small where x is
        size += np.exp(low.row_log().astype(np.float64) - row_log)[:, None]
    size[~A.mask.visible()] = 0.0
    if isinstance(A.correction, Support) and A.correction.weights is not None:
        size[coordinates(A.correction.matrix)] *= 1.0 + A.correction.weights
    if A.correction is not None:
        size += np.abs(A.correction.scaled(row_log.astype(A.dtype)).toarray())
    return size, row_log


def roundings(estimate: Approximation) -> float:
    """Return the relative rounding error of an entry of an estimate, for entries of Q, K near 1.

    It is one eps for each term of the sum, and 64 for each term: a product of at most four
    exponentials e^y with |y| ≤ 16 (|ω·x| + |x|²/2, scales, logits), which carry |y| eps each.
    """
    A = estimate
    return float((A.rank + A.nnz + sum(A.shape) + 64) * np.finfo(A.dtype).eps)


def assert_consistent(estimate: Approximation, V: Array, *, rng: Rng = 0) -> None:
    """Compare blocks, products and attention of an estimate with its dense matrix.

    Entries outside the mask must be 0, and all results must have the dtype of the estimate.

    Notes
    -----
    Power: without chance; it shows what exceeds `roundings` times `term_sizes`.
    """
    A, draw, (n, l) = estimate, generator(rng), estimate.shape
    log = A.row_log()
    x, D, size = A.block(ALL, shift=log), A.to_dense(), roundings(A) * term_sizes(A)[0]
    scale = np.exp(log.astype(np.float64))[:, None]
    entries, error, dense = x.astype(np.float64), size * scale, D.astype(np.float64)

    def near(what: str, got: Array, want: Array, bound: ArrayLike) -> None:
        alike = got.shape == want.shape and bool((np.abs(got - want) <= bound).all())
        if not alike or got.dtype != A.dtype:
            raise AssertionError(f"{A!r}: {what} differs from that of its dense matrix")

    near("what is outside the mask", x[~A.mask.visible()], 0 * x[~A.mask.visible()], 0.0)
    near("the unshifted block", A.block(ALL), D, 0.0)
    near("the block at its scale", D, entries * scale, error)
    for _ in range(2):
        rows, cols = (draw.integers(0, count, draw.integers(0, 7)) for count in (n, l))
        shift, at = draw.uniform(-3, 3), np.ix_(rows, cols)
        block = A.block(rows, cols, shift=A.row_log(rows) + A.dtype.type(shift))
        near("a block", block, entries[at] * math.exp(-shift), 2 * size[at] * math.exp(-shift))
    W = draw.uniform(-1, 1, (n, 3)).astype(A.dtype)  # a support adds its own roundings
    near("the product", A @ V, dense @ V, 3 * error @ np.abs(V))
    near("the product of the adjoint", A.T @ W, dense.T @ W, 3 * error.T @ np.abs(W))
    values, total = V if A.values is None else A.values(V.astype(A.dtype)), np.ones((n, 1))
    if A.space == "kernel":
        total = entries.sum(axis=1, keepdims=True)
        dense, error = entries, size
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.where(total > 0, dense @ values / total, 0.0)
        # (y + δy)/(t + δt) for |δt| ≤ t/2
        doubt = error.sum(axis=1, keepdims=True) * (A.space == "kernel")
        bound = np.where(total > 0, 8 * (error @ np.abs(values) + np.abs(want) * doubt) / total, 0)
    sure = (np.abs(total) >= 8 * doubt)[:, 0]
    near("attention", A.attend(V)[sure], want[sure], bound[sure])


def extreme_inputs(dtype: Any, n: int = 6, d: int = 3) -> tuple[Array, Array]:
    """Return Q, K (n, d) whose logits reach −10⁴ and come near 10⁴."""
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((2, n, d))
    Q[0], K[0] = -K[1], K[1]  # −|k|² for two keys
    K[2] = -Q[1]
    Q, K = (100 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (Q, K))
    return Q.astype(dtype), K.astype(dtype)


def assert_finite(method: Method, *, mask: MaskLike = None, dtype: Any = np.float64) -> None:
    """Check that entries, factors and attention are finite at logits of ±10⁴, and moments no NaN.

    No entry may be far above the scale of its row.

    Notes
    -----
    Power: without chance. A method whose entries are all 0 there in float64 fails, too.
    """
    Q, K = extreme_inputs(dtype)
    method = sized(method, *Q.shape[:1], *K.shape)
    A = method.approximate(Q, K, mask=mask, rng=0)
    V = np.random.default_rng(0).standard_normal((len(K), 2)).astype(dtype)
    log, given = A.row_log(), A.row_log(logits=Q @ K.T)
    values, product = A.block(ALL, shift=log), A.scaled_matmat(V)
    shifted = A.block(ALL, shift=given, logits=Q @ K.T)
    for x in (values, log, shifted, A.attend(V), *A.scaled_factors(), *product):
        if not np.isfinite(x).all():
            raise AssertionError(f"{method} is not finite at logits of 10⁴ in {np.dtype(dtype)}")
    if A.rank > 0 and A.dtype == np.float64 and not values.any():
        raise AssertionError(f"{method}: all entries underflow at logits of 10⁴: return row_log")
    if np.abs(values).max() > 4 * max(A.rank, 1):
        raise AssertionError(f"{method}: row_log is far below the largest entry of its row")
    covariance = method.covariance(Q, K, row=1, mask=mask)
    for x in (*(method.moments(Q, K, mask=mask) or ()), covariance):
        if x is not None and np.isnan(x).any():
            raise AssertionError(f"{method} states moments that are NaN at logits of 10⁴")


def assert_seeded(method: Method, Q: ArrayLike, K: ArrayLike) -> None:
    """Check that the estimate follows from rng: one seed one estimate, another seed another one.

    Queries and keys must stay as they are.

    Notes
    -----
    Power: a random estimate that takes one of two values by half passes for one that ignores rng in
    1 of 10⁶ runs, for 20 seeds.
    """

    def bits(rng: Rng) -> bytes:
        A = method.approximate(Q, K, rng=rng)
        return A.block(ALL, shift=A.row_log()).tobytes()

    kept = np.array(Q), np.array(K)
    first, sequence = bits(5), np.random.SeedSequence(5)
    if not all(map(np.array_equal, kept, (Q, K))):
        raise AssertionError(f"{method} writes into its queries or keys")
    if any(bits(rng) != first for rng in (5, np.random.default_rng(5), sequence, sequence)):
        raise AssertionError(f"{method}: one seed gives two estimates: draw from rng alone")
    alike = all(bits(seed) == first for seed in range(20)) and bits(None) == first
    if alike != method.deterministic:
        wrong = "is RANDOM, and 20 seeds give one estimate" if alike else "draws: tag it RANDOM"
        raise AssertionError(f"{method} {wrong}")


# Price


def assert_price(
    method: Method, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None, rng: Rng = 0
) -> None:
    """Compare the method's price with what its estimate stores, and fill it to budgets.

    Stored values must not exceed the price, and must be the price if there is no sparse part. In
    every currency, `within` must find a size that fits and of which the next one does not. Reads
    and multiply-adds are not counted; `assert_decodes` counts the bytes of a cache.

    Notes
    -----
    Power: without chance. One stored value too few is seen, and one too many if nothing is sparse.
    """
    q, k, seen = checked_inputs(method, Q, K, mask)
    shape = {"n": len(q), "l": len(k), "d": q.shape[1], "mask": seen}
    price = method.price(**shape)
    if price is None:
        raise ValueError(f"{method} states no price: its class has no _price")
    costs = {name: getattr(price, name) for name in CURRENCIES}
    if bad := [name for name, x in costs.items() if x is not None and not 0 <= x < math.inf]:
        raise AssertionError(f"{method}: a price of {costs[bad[0]]} {bad[0]}")
    A = method.approximate(q, k, mask=seen, rng=rng)
    stored = A.parameters / len(q)
    low = A.low.low if isinstance(A.low, Masked) else A.low
    as_many = A.correction is None and isinstance(low, Factors)
    if stored > price.stored * (1 + ROUNDED) or (as_many and stored < price.stored * (1 - ROUNDED)):
        raise AssertionError(f"{method} stores {stored:g} values per row, not {price.stored:g}")
    size = method.sized_by
    if size is None or method.parts or not size.integer or size.instead:
        return
    template = dataclasses.replace(method, **{size.field: None})  # type: ignore[type-var]
    for name, cost in costs.items():
        for budget in (cost, 2.5 * cost) if cost else ():
            _require_filled(template, budget, name, shape)


def _require_filled(template: Any, budget: float, name: str, shape: dict[str, Any]) -> None:
    """Raise AssertionError if the template is not filled to the largest size that fits."""
    filled, size = template.within(budget, currency=name, **shape), template.sized_by
    if filled is None:
        raise AssertionError(f"{template}: a size costs {budget:g} {name}, and no size fits this")
    count = getattr(filled, size.field)
    most = size.largest(shape["n"], shape["l"])
    if (paid := getattr(filled.price(**shape), name)) > budget * (1 + ROUNDED):
        raise AssertionError(f"{filled} costs {paid:g} {name}, above the budget of {budget:g}")
    with contextlib.suppress(ValueError):  # where the next size is too large
        larger = resized(filled, count + size.step)
        larger._check(np.ones((shape["n"], shape["d"])), np.ones((shape["l"], shape["d"])))
        over = most is not None and count + size.step > most
        if over or getattr(larger.price(**shape), name) > budget:
            return
        raise AssertionError(f"{filled} is not the largest that {budget:g} {name} pay for")


def assert_decodes(method: Method, Q: Array, K: Array, *, rng: Rng = 0) -> None:
    """Compare the answers of the method's cache, token by token, with rows of `approximate`.

    The price in bytes must be at most what the cache holds at 16 bits a number, and at least half
    of it: a cache may also hold scales, and fill up the last byte of codes.

    Notes
    -----
    Power: without chance, as `assert_consistent`.
    """
    A = method.approximate(Q, K, mask="causal", rng=rng)
    cache = method.cache(d=K.shape[1], c=K.shape[1], rng=rng)
    rows, size, total = A.attend(K), term_sizes(A)[0], np.ones(len(Q))
    if A.space == "kernel":
        total = A.block(ALL, shift=A.row_log()).sum(axis=1)
    price, held = method.price(n=len(Q), l=len(K), d=K.shape[1], mask="causal"), 0
    for i, (q, k) in enumerate(zip(Q, K)):
        cache.append(k, k)
        numbers, code_bytes = storage([cache])
        held = max(held, BITS // 8 * numbers + code_bytes)
        gap = np.abs(cache.attend(q) - rows[i]).max()
        if total[i] > 0 and gap > 8 * roundings(A) * size[i].sum() / total[i]:
            raise AssertionError(f"{method}: token {i} of the cache is off by {gap:.2g}")
    stated = None if price is None else price.bytes
    if stated is not None and not held / 2 <= stated <= held * (1 + ROUNDED):
        raise AssertionError(f"{method}: a price of {stated:g} bytes, and its cache holds {held}")


# All of it


def sized(method: Any, n: int, l: int, d: int) -> Any:
    """Return the method at a small size, if its own is open or does not fit n, l and d."""
    parts = {name: sized(part, n, l, d) for name, part in method.parts.items() if part.is_template}
    if parts:
        return sized(dataclasses.replace(method, **parts), n, l, d)
    size = method.sized_by
    if size is not None and size.integer and not method.is_template:
        most, count = size.limit(n, l), getattr(method, size.field)
        return method if most is None or count is None or count <= most else resized(method, most)
    if not method.is_template:
        return method
    most = size is not None and size.most and method != type(method)()
    if size is not None and size.integer and (size.counts == "entries" or most):
        return resized(method, (l + 1) // 2)
    budgets = (x * (n + l) / n for x in (2, 4, 8, 16, 64))
    filled = (method.within(x, n=n, l=l, d=d) for x in budgets)
    return next(filter(None, filled), None) or with_sizes(method)


def check_method(method: type[Method] | Method) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield (name, check) for what a method must keep, and for what it states of itself.

    Parameters
    ----------
    method : a class with a default for each field, or a method
        An open size is filled with a small one.

    Notes
    -----
    Power: n and l are at most 12, d at most 4, norms below 2. ``unbiased`` is there if the moments
    state no bias: it takes 400 draws at 16 times the size. The means of 256 positive features have
    σ = 0.56 % or less, at one entry 0.14 %, where a factor of 1.01 is 7σ. If no moments are
    stated, no bias is looked for.

    Examples
    --------
    >>> from approx import METHODS
    >>> for name, check in check_method(METHODS["elu"]):
    ...     check()

    With pytest: ``@pytest.mark.parametrize("name, check", list(check_method(Mine)))``, above
    ``def test_mine(name, check): check()``.
    """
    one = method() if isinstance(method, type) else method
    masks: list[Any] = [None] if one.refusal else [None, "causal"]
    small, (Q, K) = sized(one, 12, 12, 3), _head(12, 12, 3)
    yield "refuses bad input", partial(_assert_refuses, small, Q, K)
    yield "one matrix, however it is used", partial(_assert_one_matrix, one)
    yield "draws from rng alone", partial(assert_seeded, small, Q, K)
    for dtype in ("float64", "float32"):
        finite = partial(_each, assert_finite, one, masks, dtype=dtype)
        yield f"finite at logits of 10⁴, {dtype}", finite
    if tags.AUTOREGRESSIVE in one.tags and not one.refusal:
        yield "autoregressive", partial(assert_autoregressive, small, Q, K)
    if tags.ROW_LOCAL in one.tags:
        at = masks[-1:] if one.tags & {tags.DRAWS_BY_ROW, tags.POSITIONAL} else masks
        yield "row local", partial(_each, assert_row_local, small, at, Q, K)
    for tag in sorted(one.tags & tags.INVARIANCES):
        yield f"invariant to a {tag}", partial(assert_invariant, small, Q, K, tag)
    if small.price(n=12, l=12, d=3) is not None:
        yield "price", partial(_each, assert_price, small, masks, Q, K)
    if tags.AUTOREGRESSIVE in one.tags and small._cache(3, 3, generator(0), 0) is not None:
        yield "cache", partial(assert_decodes, small, Q, K)
    if one.deterministic or one.space != "kernel":
        return
    columns = one.sized_by is not None and one.sized_by.counts == "columns"
    small = sized(with_sizes(one) if columns and is_fillable(one) else one, 3, 4, 4)
    Q, K = _head(3, 4, 4, 0.2)  # where 400 draws are nearly normal
    known = small.moments(Q, K)
    unbiased = known is not None and np.abs(known.relative_bias).max() < ROUNDED
    if known is not None:
        yield "moments", partial(_each, assert_moments, small, masks[: 2 - unbiased], Q, K)
    if unbiased:
        many = _enlarged(small) if columns else small
        far = _head(3, 4, 4, 0.5)
        yield "unbiased", partial(assert_unbiased, many, *far, mask=masks[-1], draws=DRAWS)
    if known is None and columns:
        yield "variance falls with the size", partial(assert_converges, small, Q, K)


def verdict(check: Callable[[], None]) -> tuple[str, str]:
    """Return "passed", "failed" or "cannot tell", and why, "" if it passed."""
    try:
        check()
    except Undecided as error:
        return "cannot tell", str(error)
    except AssertionError as error:
        return "failed", str(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def verdicts(method: type[Method] | Method) -> list[tuple[str, str, str]]:
    """Return name, verdict and reason of all checks, and that no bias is looked for, if none is."""
    one = method() if isinstance(method, type) else method
    judged = [(name, *verdict(check)) for name, check in check_method(one)]
    known = one.deterministic or "moments" in {name for name, *_ in judged}
    if one.space == "kernel" and not known:
        judged.append(("moments", "cannot tell", "none are stated, so no bias is looked for"))
    return judged


def _head(n: int, l: int, d: int, most: float = 1.0) -> tuple[Array, Array]:
    """Return Q, K with entries in [−most, most]."""
    x = np.random.default_rng(0).uniform(-most, most, (n + l, d))
    return x[:n], x[n:]


def _each(check: Any, method: Method, masks: list[Any], *inputs: Any, **options: Any) -> None:
    _decide(*(partial(check, method, *inputs, mask=mask, **options) for mask in masks))


def _assert_refuses(method: Method, Q: Array, K: Array) -> None:
    bad = Q * np.nan, Q[None], Q[:, 1:], Q[:0], Q.astype(str)
    for x in bad:
        try:
            method.approximate(x, K, rng=0)
        except (TypeError, ValueError):
            continue
        raise AssertionError(f"{method} accepts queries that are {checks.display(x)}")


def _assert_one_matrix(method: Method) -> None:
    for (n, l, d), dtype in itertools.product(SHAPES, (np.float64, np.float32)):
        Q, K = (x.astype(dtype) for x in _head(n, l, d))
        first, last = np.sort(np.random.default_rng(n).integers(0, l, (n, 2)), axis=1).T
        masks = None, *(["causal"] if n <= l else []), Mask(first, last + 1, l)
        for mask in masks[: 1 if method.refusal else 3]:
            A = sized(method, n, l, d).approximate(Q, K, mask=mask, rng=0)
            if A.shape != (n, l) or A.dtype != dtype:
                raise AssertionError(f"{method}: {A!r} of {n} × {l} entries in {np.dtype(dtype)}")
            assert_consistent(A, K[:, :2])
