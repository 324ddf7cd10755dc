"""Bias and variance by Monte Carlo, with standard errors, beside the closed form.

Everything is relative to the truth, estimate/exact, so it is finite at any logit. For exp(q·k) by
positive features the estimate is lognormal, and for |q + k|² > 2 or so its sample variance says
nothing: `MonteCarlo.believable` flags the entries where a sample may be believed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr

from analysis.draws import Draws, Point, family
from approx import checks, exact, memory
from approx._jit import kernel
from approx.approximation import Approximation
from approx.checks import Array
from approx.method import Method, Moments, Rng, generator
from approx.projections import named
from approx.projections.summand import times
from approx.threads import one_thread

DIGITS = 1e-11  # of a number of features that no one will ever draw


class MonteCarlo(NamedTuple):
    """Sample moments of estimate/exact over independent draws, entry by entry, (n, l).

    Attributes
    ----------
    mean, variance
        Of estimate/exact: 1 and the relative variance, if the estimate is unbiased.
    mean_stderr
        From the closed-form variance where it is known, else from the sample.
    variance_stderr
        From the sample's fourth moment.
    z
        (mean − 1 − relative bias)/mean_stderr: standard normal if the closed form (or, where
        there is none, unbiasedness) holds; 0 where there is no variance and no difference.
    p_value : float
        Of the largest |z|, corrected for the number of entries (Bonferroni).
    believable
        The relative variance, known or sampled, over the number of draws is at most 0.01, and the
        squared relative standard error of the sample variance at most 0.1. A heavy tail that was
        never drawn cannot be seen in a sample: so where the closed form is known, the sample
        variance must also be within three of its standard errors of it.
    """

    mean: Array
    variance: Array
    mean_stderr: Array
    variance_stderr: Array
    z: Array
    p_value: float
    believable: Array


@overload
def monte_carlo(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    draws: int,
    rng: Rng,
    space: str = "kernel",
    temperatures: None = None,
) -> MonteCarlo: ...


@overload
def monte_carlo(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    draws: int,
    rng: Rng,
    space: str = "kernel",
    temperatures: Sequence[float],
) -> list[MonteCarlo]: ...


def monte_carlo(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    draws: int,
    rng: Rng,
    space: str = "kernel",
    temperatures: Sequence[float] | None = None,
) -> MonteCarlo | list[MonteCarlo]:
    """Return sample moments of estimate/exact over independent draws of a method.

    Parameters
    ----------
    method : Method
    Q, K : (n, d), (l, d)
    draws : int
        ≥ 2.
    rng : int, SeedSequence or Generator
    space : {"kernel", "attention"}
        Compare exp(q·k), or rows divided by their own sums: there the ratio is biased even where
        the kernel estimate is not, and z tests unbiasedness.
    temperatures : sequence of float, optional
        Return a list, one `MonteCarlo` for each t with logits q·k/t, all from the same draws.

    Notes
    -----
    Cost: draws times the method and O(n·l); four (n, l) arrays (Welford's and Pébay's updates) a
    temperature. Random features that are exponentials, sines and cosines, alone or beside a
    support that is not drawn, are drawn in blocks; their temperatures share all products with
    frequencies, unless the method shifts or turns its inputs. The first draw is also made by
    `approximate`: where the two differ, it makes all of them.

    estimate/exact of plain positive features depends on q + k alone, draw by draw, and that of
    sines and cosines on q − k: many pairs (q_i, k_i), without every query with every key, are the
    query 0 with the keys q_i + k_i (or k_i − q_i).

    Examples
    --------
    >>> from approx import parse
    >>> found = monte_carlo(parse("positive(m=8)"), [[0.1]], [[0.2]], draws=1000, rng=0)
    >>> bool(abs(found.z[0, 0]) < 5)
    True
    """
    checks.instance("method", method, Method, "a method")
    q, k = method.checked(Q, K)
    draws = checks.integer("draws", draws, least=2)
    checks.one_of("space", space, ("kernel", "attention"))
    scales = [1.0]
    if temperatures is not None:
        ts = checks.array("temperatures", temperatures, ndim=1)
        scales = [1 / math.sqrt(checks.positive("temperature", t)) for t in ts]
    nbytes = 80 * len(q) * len(k) * len(scales)
    memory.reserve(nbytes, "Monte Carlo moments", "n, l or the temperatures")
    samples = [_Sample(method, q, k, scale, space) for scale in scales]
    source = generator(rng).bit_generator
    seeds = source.seed_seq.spawn(draws)  # type: ignore[attr-defined]

    def stream(seed: np.random.SeedSequence) -> np.random.Generator:
        return np.random.Generator(type(source)(seed))  # as Generator.spawn, any number of times

    def one(sample: _Sample, seed: np.random.SeedSequence) -> Array:
        estimate = method.approximate(sample.q, sample.k, rng=stream(seed))
        return _ratio(estimate, sample.truth + sample.log_unit, space)

    many = None
    if space == "kernel" and samples and family(method) is not None:
        many = Draws(method, [Point(x.q, x.k, x.scale, x.log_unit) for x in samples])
    count = draws if method.uses_rng else 1
    step = 1 if many is None else many.together
    with one_thread():
        for block in (seeds[i : min(i + step, count)] for i in range(0, count, step)):
            ratios = [None] * len(samples) if many is None else many.ratios([*map(stream, block)])
            if block[0] is seeds[0] and not all(
                values is None or _alike(values[0], one(sample, block[0]), q.dtype)
                for sample, values in zip(samples, ratios)
            ):  # what is sampled is what approximate does
                many, ratios = None, [None] * len(samples)
            for sample, values in zip(samples, ratios):
                if values is not None:
                    sample.add(values)
                    continue
                for seed in block:
                    sample.add(one(sample, seed)[None])
    found = [sample.tested(draws) for sample in samples]
    return found if temperatures is not None else found[0]


def _alike(a: Array, b: Array, dtype: np.dtype[Any]) -> bool:
    """Whether two ratios of one draw are the same up to roundings of exponents of some hundreds."""
    tolerance = 1e4 * float(np.finfo(dtype).eps)
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))


@kernel
def _update(ratios: Any, count: int, mean: Any, m2: Any, m3: Any, m4: Any) -> None:
    # Welford's and Pébay's updates by one draw after the other; lanes are pairs.
    for i in range(ratios.shape[0]):
        n = float(count + i + 1)
        for p in range(mean.size):
            x = ratios[i, p]
            delta = x - mean[p]
            step = delta / n
            term = delta * step * (n - 1.0)
            if n == 1.0:  # inf is a mean too
                mean[p], term, step = x, 0.0, 0.0
            mean[p] += step
            square = step * step
            m4[p] += term * square * (n * n - 3.0 * n + 3.0) + 6.0 * square * m2[p]
            m4[p] -= 4.0 * step * m3[p]
            m3[p] += term * step * (n - 2.0) - 3.0 * step * m2[p]
            m2[p] += term


class _Sample:
    """The running moments of every pair at one temperature."""

    def __init__(self, method: Method, Q: Array, K: Array, scale: float, space: str) -> None:
        self.scale = scale
        with np.errstate(over="ignore"):  # and then refused
            self.q, self.k = method.checked(*((x * scale).astype(x.dtype) for x in (Q, K)))
        logits = np.asarray(exact.logits(self.q, self.k), np.float64)
        self.known = method.moments(self.q, self.k) if space == "kernel" else None
        sums = 0.0 if space == "kernel" else exact.log_row_sums(self.q, self.k)[:, None]
        self.truth = logits - sums
        self.log_unit = np.zeros(logits.shape)  # a standard deviation above 1: x⁴ stays finite
        if self.known is not None:
            self.log_unit = np.clip(self.known.log_relative_variance / 2, 0.0, None)
        elif space == "attention":
            self.log_unit = -self.truth  # averaged is the estimate's own share, not its ratio
        self._count = 0
        self._sums = np.zeros((4, logits.size))

    def add(self, ratios: Array) -> None:
        """Take e^−log_unit·estimate/exact of further draws, (draws, n, l)."""
        _update(ratios.reshape(len(ratios), -1), self._count, *self._sums)
        self._count += len(ratios)

    def tested(self, draws: int) -> MonteCarlo:
        """Return the moments; a sample of one stands for any number of the same."""
        mean, m2, _, m4 = self._sums.reshape(4, *self.truth.shape)
        mean, m2, m4 = (np.where(np.isnan(x), np.inf, x) for x in (mean, m2, m4))  # inf − inf
        variance = m2 / (draws - 1)
        with np.errstate(over="ignore", invalid="ignore"):
            fourth = np.fmax(m4 / draws - variance**2 * (draws - 3) / (draws - 1), 0.0)
        log = self.log_unit
        spread = times(np.sqrt(fourth / draws), 2 * log)
        lengths = np.linalg.norm(self.q, axis=1)[:, None] * np.linalg.norm(self.k, axis=1)
        eps = np.finfo(self.q.dtype).eps
        rounding = 1024 * eps * (1.0 + lengths)  # of exponents, and of long sums
        sampled = times(mean, log), times(variance, 2 * log), spread
        return _tested(*sampled, self.known, draws, rounding)


def expected_error(method: Method, Q: ArrayLike, K: ArrayLike) -> float | None:
    """Return √(E‖estimate − exact‖²_F)/‖exact‖_F in closed form; None where none is known.

    E‖·‖² = Σ exp(2 q·k)·(bias² + variance), relative to exp(q·k): exact, with no covariance needed.
    May be inf.

    Examples
    --------
    >>> from approx import parse
    >>> round(expected_error(parse("positive(m=100)"), [[0.5]], [[0.5]]), 6)
    0.131083
    """
    checks.instance("method", method, Method, "a method")
    return _Expectation(Q, K).error(method)


class _Expectation:
    """What the expected errors of all methods at the same Q and K have in common."""

    def __init__(self, Q: ArrayLike, K: ArrayLike) -> None:
        self.Q, self.K = Q, K
        self._truth: tuple[Array, float] | None = None

    def error(self, method: Method) -> float | None:
        """Return `expected_error`."""
        known = method.moments(self.Q, self.K)
        if known is None:
            return None
        if self._truth is None:  # once inputs are checked, by the method
            twice = 2 * np.asarray(exact.logits(self.Q, self.K), np.float64)
            self._truth = twice, float(logsumexp(twice))
        twice, total = self._truth
        log_square = known.log_relative_variance
        with np.errstate(divide="ignore", over="ignore"):
            if known.relative_bias.any():
                bias = 2 * np.log(np.abs(known.relative_bias))
                log_square = np.logaddexp(bias, log_square)
            return float(np.exp((logsumexp(twice + log_square) - total) / 2))


class NormalisedMoments(NamedTuple):
    """Moments of normalised attention to first order in the covariance of the estimate, (n, l).

    Attributes
    ----------
    bias, variance
        Of estimate_ij/Σ_l estimate_il − a_ij, a the exact attention.
    row_variance : (n,)
        Relative variance of the row sums: that this is ≪ 1 is necessary, not sufficient.
    """

    bias: Array
    variance: Array
    row_variance: Array


def normalised_moments(method: Method, Q: ArrayLike, K: ArrayLike) -> NormalisedMoments | None:
    """Return bias and variance of a method's attention weights by the delta method.

    With μ_j = E estimate_j, ã = μ/Σμ and R_jl = Cov(estimate_j, estimate_l)/(μ_j μ_l),

        bias_j ≈ ã_j [ãᵀRã − (Rã)_j] + ã_j − a_j,    variance_j ≈ ã_j² [R_jj − 2(Rã)_j + ãᵀRã].

    A ratio is biased even where the estimate of exp(q·k) is not.

    Parameters
    ----------
    method : Method
        Its ``covariance`` and ``moments`` are used; None is returned where one is not known.
    Q, K : (n, d), (l, d)

    Notes
    -----
    First order in R, so bias and variance have relative errors of the order of the largest R_jj,
    e^{log_relative_variance} of ``moments``, several times that where the tail is heavy: for
    positive features the true variance is up to 10 %, 30 %, 50 % lower at R_jj = 0.02, 0.07, 0.3,
    where ``row_variance`` may be a tenth of it. A row of which a covariance is above 1.8e308,
    whatever the weight of its key, is inf throughout.
    Cost: n covariances, O(n·l²·d) time, O(l²) memory.

    Examples
    --------
    >>> from approx import parse
    >>> found = normalised_moments(parse("positive(m=100)"), [[1.0]], [[0.5], [-0.5]])
    >>> found.bias.round(4)
    array([[-0.011,  0.011]])
    """
    checks.instance("method", method, Method, "a method")
    q, k = method.checked(Q, K)
    known = method.moments(q, k)
    if known is None:
        return None
    log = np.asarray(exact.logits(q, k), np.float64)
    attention = np.exp(log - logsumexp(log, axis=1, keepdims=True))
    scale = 1.0 + known.relative_bias
    with np.errstate(all="ignore"):  # what is not finite becomes inf below
        log_mean = log + np.log(np.maximum(scale, 0.0))
        mean = np.exp(log_mean - logsumexp(log_mean, axis=1, keepdims=True))
        bias, variance = np.empty_like(log), np.empty_like(log)
        row_variance = np.empty(len(log))
        for i, a in enumerate(mean):
            R = method.covariance(q, k, row=i)
            if R is None:
                return None
            R = R / np.outer(scale[i], scale[i])
            Ra = R @ a
            row_variance[i] = a @ Ra
            bias[i] = a * (row_variance[i] - Ra) + a - attention[i]
            variance[i] = a**2 * np.maximum(np.diag(R) - 2 * Ra + row_variance[i], 0.0)
    lost = ~(np.isfinite(bias) & np.isfinite(variance)).all(axis=1)
    bias[lost] = variance[lost] = row_variance[lost] = np.inf
    return NormalisedMoments(bias, variance, row_variance)


def features_needed(
    method: Method, error: float, Q: ArrayLike, K: ArrayLike, *, most: int = 2**60
) -> int | None:
    """Return the least m for which the expected relative Frobenius error is at most ``error``.

    Parameters
    ----------
    method : Method
        An unbiased method of size m, or one that has such a part (``centered``, ``scatterbrain``),
        whose m it then is; m, given or not, does not matter.
    error : float
        √(E‖estimate − exact‖²_F)/‖exact‖_F, > 0.
    Q, K : (n, d), (l, d)
    most : int
        Give up beyond.

    Returns
    -------
    int or None
        None where no variance is known in closed form, or ``most`` features are not enough.

    Notes
    -----
    By bisection on the closed form: over whole blocks of coupled frequencies, where it falls like
    the root of their number, then within the last, where it may rise before it falls but meets
    ``error`` once. Exact below 10¹¹, to 11 digits beyond; enough but up to two blocks more than
    the least for cosh or cosines of `simplex` directions, whose covariance depends on their number.
    For iid frequencies four evaluations, each O(n·l·d).

    Examples
    --------
    One pair, |q + k|² = 1: (e − 1)/m ≤ 0.01.

    >>> from approx import parse
    >>> features_needed(parse("positive"), 0.1, [[0.5]], [[0.5]])
    172
    """
    checks.instance("method", method, Method, "a method")
    error, most = checks.positive("error", error), checks.integer("most", most, least=1)
    Q, K = checks.queries_keys(Q, K)
    path = _size_path(method)
    if path is None:
        raise ValueError(f"{method} has no size m")
    part = method
    for name in path:
        part = getattr(part, name)
    d, step = Q.shape[1], part.step
    projection = getattr(part, "projection", None)
    block = 1 if projection is None else named(projection).block(d) or 1
    at = _Expectation(Q, K)

    def fits(count: int) -> bool:
        found = at.error(_resized(method, path, count * step))
        return found is not None and found <= error

    fewest = -(-part.fewest(d) // step)
    whole = -(-fewest // block) * block
    first = at.error(_resized(method, path, whole * step))
    if first is None:
        return None
    if fits(fewest):
        return fewest * step if fewest * step <= most else None
    guess = whole / block * (first / error) * (first / error)  # may be inf; exact if unbiased
    if not guess * block * step <= most:
        return None
    low, high = (fewest - 1) // block, max(whole // block, math.ceil(guess * (1 - 1e-12)))
    stride = max(1, int(high * DIGITS))
    while not fits(high * block):
        if high * block * step > most:
            return None
        low, high, stride = high, high + stride, 2 * stride
    low, high = _bisected(lambda blocks: fits(blocks * block), low, high)
    low, high = _bisected(fits, max(low * block, fewest - 1), high * block)
    return high * step if high * step <= most else None


def _bisected(fits: Callable[[int], bool], low: int, high: int) -> tuple[int, int]:
    """Return low < high at most 1, or 11 digits, apart, of which high fits; first close to high."""
    middle = high - max(1, int(high * DIGITS))
    while high - low > max(1, int(high * DIGITS)):
        low, high = (low, middle) if fits(middle) else (middle, high)
        middle = (low + high) // 2
    return low, high


def _size_path(method: Method) -> list[str] | None:
    """Return the fields that lead to the part that has a size m; None if there is none."""
    names = [f.name for f in dataclasses.fields(method)]  # type: ignore[arg-type]
    if "m" in names:
        return []
    for name in names:
        part = getattr(method, name)
        if isinstance(part, Method) and (path := _size_path(part)) is not None:
            return [name, *path]
    return None


def _resized(method: Method, path: list[str], m: int) -> Method:
    """Return the method with the m of its part at that path."""
    if not path:
        return dataclasses.replace(method, m=m)  # type: ignore[type-var]
    part = _resized(getattr(method, path[0]), path[1:], m)
    return dataclasses.replace(method, **{path[0]: part})  # type: ignore[type-var]


def _ratio(estimate: Approximation, truth: Array, space: str) -> Array:
    """Return estimate/exp(truth), after row normalisation in attention space."""
    if space == "kernel" and estimate.space == "attention":
        raise ValueError("the method estimates softmax rows: use space='attention'")
    shift = np.asarray(estimate.row_log(), np.float64)
    x = np.asarray(estimate.block(slice(None), shift=shift), np.float64)
    if space == "attention" and estimate.space == "kernel":
        total = x.sum(axis=1)
        x = np.divide(x, total[:, None], out=np.zeros_like(x), where=total[:, None] > 0)
        shift = np.zeros_like(shift)
    return times(x, shift[:, None] - truth)


def _tested(
    mean: Array,
    variance: Array,
    variance_stderr: Array,
    known: Moments | None,
    draws: int,
    rounding: Array,
) -> MonteCarlo:
    expected = 1.0 + (known.relative_bias if known else np.zeros_like(mean))
    with np.errstate(over="ignore"):
        spread = np.exp(known.log_relative_variance) if known else variance
    stderr = np.sqrt(spread / draws)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        difference = mean - expected
        alike = np.abs(difference) <= rounding * (1.0 + np.abs(expected))
        z = np.where(alike | (stderr == np.inf), 0.0, difference / stderr)
        z[np.isinf(mean) & np.isinf(expected)] = 0.0
        relative = np.where((variance > 0) & (spread > 0), variance_stderr / variance, 0.0)
        agrees = np.abs(variance - spread) <= 3 * variance_stderr + rounding**2
    largest = float(np.abs(z).max())
    p_value = min(1.0, 2.0 * float(ndtr(-largest)) * z.size)
    believable = spread <= 0.01 * draws * np.maximum(expected, 1.0) ** 2
    believable &= agrees & (relative**2 <= 0.1)
    return MonteCarlo(mean, variance, stderr, variance_stderr, z, p_value, believable)
