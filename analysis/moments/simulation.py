"""Bias and variance by Monte Carlo, with standard errors and a test of the closed form.

All moments are of the ratio estimate/exact, so that they are finite at any logit. Positive features
are lognormal. For |q + k|² above about 2 the sample variance of their estimate is unreliable:
`MonteCarlo.believable` marks the entries with a reliable sample.
"""

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from analysis.moments.ratio_samples import Point, RatioDraws, family
from approx import Method, checks
from approx.checks import Array
from approx.estimate import exact, memory
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.jit import kernel
from approx.kernels.threads import one_thread
from approx.method import Rng, generator
from approx.method.evaluation import checked_inputs
from approx.projections.summand import times
from approx.sample_moments import MonteCarlo, ratio, rounding, statistics


@overload
def monte_carlo(
    method: Method,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    draws: int,
    rng: Rng,
    mask: MaskLike = None,
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
    mask: MaskLike = None,
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
    mask: MaskLike = None,
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
    mask : None, "causal" or Mask
        The visible keys of each query; None for all.
    space : {"kernel", "attention"}
        The compared matrix: exp(q·k), or its rows divided by their own sums. The latter ratio is
        biased even if the kernel estimate is unbiased; z tests unbiasedness.
    temperatures : sequence of float, optional
        Return a list, one `MonteCarlo` for each t with logits q·k/t, all from the same draws.

    Notes
    -----
    Cost: the method and O(n·l) per draw, and four (n, l) arrays per temperature (Welford's and
    Pébay's updates). Random features by exponentials or by sines and cosines, alone or with a
    deterministic support, are drawn in blocks. Their temperatures share all products with
    frequencies, unless the method shifts or turns its inputs. A subclass of such a method makes its
    draws one by one, unless it sets `composed` itself.

    In every draw, estimate/exact depends only on q + k for plain positive features, and only on
    q − k for sines and cosines. To sample many pairs (q_i, k_i) without all combinations, use the
    query 0 with the keys q_i + k_i (or k_i − q_i).

    Examples
    --------
    >>> from approx import parse
    >>> sample = monte_carlo(parse("positive(m=8)"), [[0.1]], [[0.2]], draws=1000, rng=0)
    >>> bool(abs(sample.z[0, 0]) < 5)
    True
    """
    checks.instance("method", method, Method, "a method")
    q, k, seen = checked_inputs(method, Q, K, mask)
    draws = checks.integer("draws", draws, least=2)
    checks.one_of("space", space, ("kernel", "attention"))
    scales = [1.0]
    if temperatures is not None:
        ts = checks.array("temperatures", temperatures, ndim=1)
        scales = [1 / math.sqrt(checks.positive("temperature", t)) for t in ts]
    nbytes = 80 * len(q) * len(k) * len(scales)
    memory.reserve(nbytes, "Monte Carlo moments", "n, l or the temperatures")
    samples = [_PairMoments(method, q, k, seen, scale, space) for scale in scales]
    source = generator(rng).bit_generator
    seeds = source.seed_seq.spawn(draws)  # type: ignore[attr-defined]

    def stream(seed: np.random.SeedSequence) -> np.random.Generator:
        return np.random.Generator(type(source)(seed))  # like Generator.spawn, but repeatable

    def one(sample: _PairMoments, seed: np.random.SeedSequence) -> Array:
        estimate = method.approximate(sample.q, sample.k, mask=seen, rng=stream(seed))
        return ratio(estimate, sample.truth + sample.log_unit, space)

    many = None
    if space == "kernel" and samples and family(method) is not None:
        many = RatioDraws(method, [Point(x.q, x.k, x.scale, x.log_unit) for x in samples], seen)
    count = 1 if method.deterministic else draws
    step = 1 if many is None else many.together
    with one_thread():
        for block in (seeds[i : min(i + step, count)] for i in range(0, count, step)):
            ratios = [None] * len(samples) if many is None else many.ratios([*map(stream, block)])
            for sample, values in zip(samples, ratios):
                if values is not None:
                    sample.add(values)
                    continue
                for seed in block:
                    sample.add(one(sample, seed)[None])
    results = [sample.tested(draws) for sample in samples]
    return results if temperatures is not None else results[0]


@kernel
def _update(ratios: Any, count: int, mean: Any, m2: Any, m3: Any, m4: Any) -> None:
    # Welford's and Pébay's updates, one draw after the other, for all pairs.
    for i in range(ratios.shape[0]):
        n = 1.0 * (count + i + 1)
        for p in range(mean.size):
            x = ratios[i, p]
            delta = x - mean[p]
            step = delta / n
            term = delta * step * (n - 1.0)
            if n == 1.0:  # a mean may be inf
                mean[p], term, step = x, 0.0, 0.0
            mean[p] += step
            square = step * step
            m4[p] += term * square * (n * n - 3.0 * n + 3.0) + 6.0 * square * m2[p]
            m4[p] -= 4.0 * step * m3[p]
            m3[p] += term * step * (n - 2.0) - 3.0 * step * m2[p]
            m2[p] += term


class _PairMoments:
    """The running moments of every pair at one temperature."""

    def __init__(
        self, method: Method, Q: Array, K: Array, mask: Mask, scale: float, space: str
    ) -> None:
        self.scale, self.mask = scale, mask
        with np.errstate(over="ignore"):  # and then refused
            q, k = ((x * scale).astype(x.dtype) for x in (Q, K))
            self.q, self.k, _ = checked_inputs(method, q, k)
        logits = np.asarray(exact.logits(self.q, self.k), np.float64)
        self.known = method.moments(self.q, self.k, mask=mask) if space == "kernel" else None
        sums: Any = 0.0
        if space == "attention":
            sums = exact.log_row_sums(self.q, self.k, mask=mask)[:, None]
        self.truth = logits - sums
        self.log_unit = np.zeros(logits.shape)  # a standard deviation above 1: x⁴ stays finite
        if self.known is not None:
            self.log_unit = np.clip(self.known.log_relative_variance / 2, 0.0, None)
            self.log_unit[self.log_unit == np.inf] = 0.0  # then the ratios overflow, too
        elif space == "attention":
            self.log_unit = -self.truth  # averages the estimate's share, not its ratio
        self._count = 0
        self._sums = np.zeros((4, logits.size))

    def add(self, ratios: Array) -> None:
        """Add the ratios e^−log_unit·estimate/exact of further draws, (draws, n, l)."""
        _update(ratios.reshape(len(ratios), -1), self._count, *self._sums)
        self._count += len(ratios)

    def tested(self, draws: int) -> MonteCarlo:
        """Return the moments and tests; one draw of a deterministic method stands for all draws."""
        mean, m2, _, m4 = self._sums.reshape(4, *self.truth.shape)
        sign = 1.0 if self.known is None else 1.0 + self.known.relative_bias
        mean = np.where(np.isnan(mean), np.copysign(np.inf, sign), mean)  # inf − inf
        m2, m4 = (np.where(np.isnan(x), np.inf, x) for x in (m2, m4))
        for x in (m2, m4):
            self.mask.hide(x)
        variance = m2 / (draws - 1)
        with np.errstate(over="ignore", invalid="ignore"):
            fourth = np.fmax(m4 / draws - variance**2 * (draws - 3) / (draws - 1), 0.0)
        fourth[np.isinf(variance)] = np.inf
        log = self.log_unit
        spread = times(np.sqrt(fourth / draws), 2 * log)
        mean = times(mean, log)
        self.mask.hide(mean, fill=1.0)
        sampled = mean, times(variance, 2 * log), spread
        return statistics(*sampled, self.known, draws, rounding(self.q, self.k), self.mask.entries)
