"""'Scatterbrain note' (SB): sparse + low-rank, unbiased before normalisation."""

import math
from collections.abc import Iterator

import numpy as np

from analysis import inputs, moments
from analysis.advice import pitfalls
from analysis.claims.evidence import (
    TEMPERATURES,
    TIGHT,
    Check,
    above,
    at_most,
    claim,
    difference,
    equal,
    errors,
    gaussian,
    multiply_adds,
    near,
    printed,
    sampled,
    without,
)
from analysis.costs.budget import stored
from analysis.errors import metrics
from analysis.moments import squared_errors
from analysis.sweeps import crossovers
from approx import parse
from approx.checks import Array, required
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import exact
from approx.estimate.approximation import Approximation
from approx.method import Method
from approx.projections import Fixed
from approx.random_features.positive import Positive
from approx.sparse.lsh import LSH
from approx.sparse.random import Random
from approx.supports import hashing

SOURCE = "Scatterbrain note (arXiv 2110.15343)"
MAPS = (
    "positive(m=16)", "trigonometric(m=16)", "taylor(degree=2)", "tensor_sketch(m=16, degree=2)",
    "truncated_svd(rank=4)",
)  # fmt: skip
SUPPORTS = ("sliding_window(width=5)", "lsh(hashes=2)", "top_k(k=4)", "random(k=4)")
L, D, M, S = 4096, 64, 128, 64  # its experiment: length, head width, features, entries per row


def _short(n: int = 10, d: int = 3, length: float = 1.0) -> tuple[Array, Array]:
    """Return one query and n keys with |q + k| = length, so that sample variances are reliable."""
    rng = np.random.default_rng(0)
    q = 0.2 * rng.standard_normal((1, d))
    directions = rng.standard_normal((n, d))
    return q, length * directions / np.linalg.norm(directions, axis=1, keepdims=True) - q


def _parts(estimate: Approximation) -> tuple[Array, Array]:
    """Return the dense low-rank part, and where the support is."""
    pattern = required(estimate.sparse).copy()
    pattern.data = np.ones_like(pattern.data)
    return Approximation(estimate.low).to_dense(), pattern.toarray() > 0


@claim("SB-1", SOURCE)
def cost_of_attention() -> Iterator[Check]:
    """Full attention costs 2L²d multiply-adds, which is O(L²d)."""
    once, twice = (multiply_adds("exact()", n, D) for n in (L, 2 * L))
    yield equal("multiply-adds", 2 * L**2 * D, once)
    yield equal("times as many at twice the length", 4.0, twice / once)


@claim("SB-2", SOURCE)
def two_objectives() -> Iterator[Check]:
    """Approximating attention is a trade-off between error and cost: no method has both the least
    error and the least cost."""
    x = gaussian(64, 8)
    features = [f"{name}(m={m})" for name in ("positive", "hyperbolic") for m in (4, 16, 64)]
    specs = ["uniform()", *features, "top_k(k=4)", "top_k(k=16)", "sliding_window(width=16)"]
    points = []
    for spec in specs:
        estimate = parse(spec).approximate(x.Q, x.K, rng=0)
        error = metrics.compare(estimate, x.Q, x.K)["attention_tv"]
        points.append((stored(estimate), error))
    beaten = [any(a < c and b < e for a, b in points) for c, e in points]
    yield above("methods on the front", 1, beaten.count(False))
    cheapest, best = min(points), min(points, key=lambda point: point[1])
    yield above("values a row, the most accurate over the cheapest", 1.0, best[0] / cheapest[0])
    yield above("error, the cheapest over the most accurate", 1.0, cheapest[1] / best[1])


@claim("SB-3", SOURCE + ", figure")
def complementarity() -> Iterator[Check]:
    """Sparse approximations are better at low temperature, low-rank approximations at high
    temperature. At equal budget, their sum is at no temperature worse than either."""
    # GoDec stands for both, because Robust PCA chooses its own price
    x = inputs.gaussian(64, 8, rng=0)
    table = crossovers.oracles(x, TEMPERATURES, [16.0])
    found = table[table.metric == "attention_relative_frobenius"].pivot(
        index="temperature", columns="method", values="value"
    )
    gap = found["sparse"] / found["low-rank"]
    yield at_most("sparse over low-rank error, τ = 0.25", 1.0, float(gap.iloc[0]))
    yield above("sparse over low-rank error, τ = 8", 1.0, float(gap.iloc[-1]))
    gain = found[["sparse", "low-rank"]].min(axis=1) / found["both"]
    yield equal("temperatures of 6 at which both are no worse", 6, int((gain >= 1 - 1e-9).sum()))
    yield above("largest gain of both", 1.0, float(gain.max()))


@claim("SB-4", SOURCE)
def low_rank_part() -> Iterator[Check]:
    """The low-rank part applies φ(x) = m^{−1/2} exp(Wx − |x|²/2) to the rows of Q and K. It is the
    estimator of ILA-2."""
    x = gaussian()
    W = np.random.default_rng(0).standard_normal((16, 4))
    features = Positive(projection=Fixed(W))
    left, right = features.approximate(x.Q, x.K).factors()
    phi, psi = (np.exp(X @ W.T - np.square(X).sum(axis=1)[:, None] / 2) / 4 for X in (x.Q, x.K))
    yield at_most("difference of φ(Q)φ(K)ᵀ", TIGHT, difference(left @ right.T, phi @ psi.T))
    both = Scatterbrain(low_rank=features, sparse=parse("sliding_window(width=3)"))  # type: ignore[arg-type]
    estimate = both.approximate(x.Q, x.K)
    _, on = _parts(estimate)
    off = difference(estimate.to_dense()[~on], (phi @ psi.T)[~on])
    yield at_most("difference off the support", TIGHT, off)
    q, k = _short()
    known = required(Positive(m=16).moments(q, k))
    variance = np.expm1(np.square(q + k).sum(axis=1)) / 16
    gap = difference(np.exp(known.log_relative_variance[0]), variance)
    yield at_most("difference of its variance and (e^{|q+k|²} − 1)/m", TIGHT, gap)


@claim("SB-5", SOURCE)
def correction() -> Iterator[Check]:
    """Let M be exp(q·k) − φ(q)·φ(k) on S and zero elsewhere. Then Q̃(K̃ᵀV) + MV multiplies V by the
    matrix that is exact on S and low-rank elsewhere."""
    x = gaussian()
    assert x.v is not None
    estimate = parse("scatterbrain(positive(m=16), lsh(hashes=2))").approximate(x.Q, x.K, rng=0)
    low, on = _parts(estimate)
    kernel = exact.kernel(x.Q, x.K)
    dense = np.where(on, kernel, low) @ x.v
    yield at_most("difference, the operator", TIGHT, difference(estimate @ x.v, dense))
    M = np.where(on, kernel - low, 0.0)
    yield at_most("difference, with M", TIGHT, difference(low @ x.v + M @ x.v, dense))
    yield above("entries of S", 0, int(on.sum()))


@claim("SB-6", SOURCE)
def supports() -> Iterator[Check]:
    """The support S is a sliding window, or the pairs that share an LSH bucket. Near pairs share
    one with probability ≥ p₁, far pairs with probability ≤ p₂."""
    x, n, width = gaussian(), 24, 5
    window = parse(f"sliding_window(width={width})").approximate(x.Q, x.K)
    cut = 2 * sum(range(1, width // 2 + 1))
    yield equal("entries of a window of 5, n = 24", n * width - cut, window.nnz)
    theta = np.linspace(0.3, 2.8, 6)
    q, keys = np.array([[1.0, 0.0]]), np.column_stack([np.cos(theta), np.sin(theta)])
    draws, p = 500, 1 - theta / np.pi
    means = moments.monte_carlo(LSH(hashes=1), q, keys, draws=draws, rng=0).mean[0]
    z = np.abs(means - p) / np.sqrt(p * (1 - p) / draws)
    yield at_most("largest |z| of collisions, 6 angles", 4.0, float(z.max()))
    distances = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    falls = np.diff(hashing.e2_collision(distances, 1.0)) < 0
    yield equal("steps in distance at which E2 collisions fall", 4, int(falls.sum()))


def _both(m: int = 16, k: int = 3) -> Scatterbrain:
    """Return Scatterbrain that is exact on k random keys of ten, so that p = k/10."""
    return Scatterbrain(low_rank=Positive(m=m), sparse=Random(k=k))


@claim("SB-7", SOURCE)
def unbiased() -> Iterator[Check]:
    """Scatterbrain is unbiased for exp(q·k), like its low-rank part, if S does not depend on the
    features."""
    q, k = _short()
    draws = 400
    error = math.sqrt(0.7 * math.expm1(1.0) / 16 / draws)
    means = moments.monte_carlo(_both(), q, k, draws=draws, rng=0).mean[0]
    yield sampled("mean of the entry farthest off", 1.0, _farthest(means), error)
    chosen = pitfalls.LargestEstimates(low_rank=Positive(m=16), sparse=Random(k=3))
    wrong = moments.monte_carlo(chosen, q, k, draws=draws, rng=0).mean[0]
    yield without(sampled("mean, S from the estimates", 1.0, _farthest(wrong), error))


def _farthest(mean: Array) -> float:
    return float(mean[np.abs(mean - 1).argmax()])


@claim("SB-8", SOURCE)
def variance() -> Iterator[Check]:
    """The variance of Scatterbrain is 1 − p times the variance of its low-rank part, with p = P[(i,
    j) ∈ S]. It is never larger."""
    q, k = _short()
    draws, low = 2000, math.expm1(1.0) / 16
    sample = moments.monte_carlo(_both(), q, k, draws=draws, rng=0)
    known = required(squared_errors.squared_error(_both(), q, k))
    error = 0.7 * low * math.exp(float(known.log_relative_variance[0, 0]) / 2) / math.sqrt(draws)
    yield sampled("relative variance, m = 16", 0.7 * low, float(sample.variance[0, 0]), error)
    closed = required(_both().moments(q, k))
    share = math.exp(float(closed.log_relative_variance[0, 0])) / low
    yield near("closed form over that of features", 0.7, share, TIGHT)


def _correction(s: int) -> int:
    """Return the multiply-adds of s entries a row beside features."""
    features = f"positive(m={M})"
    both = f"scatterbrain({features}, top_k(k={s}))"
    return multiply_adds(both, L, D) - multiply_adds(features, L, D)


@claim("SB-9", SOURCE)
def cost() -> Iterator[Check]:
    """Features and their products cost 4Lmd, the correction Ls(m + 2d), and full attention 2L²d.
    Scatterbrain is linear in L; its cost is O(Lmd) where s is O(d)."""
    low_rank = multiply_adds(f"positive(m={M})", L, D) - L * M  # but for row sums
    correction, wide = (_correction(s) for s in (S, 8 * D))
    yield equal("features and products", 4 * L * M * D, low_rank)
    yield equal("correction", L * S * (M + 2 * D), correction)
    full = multiply_adds("exact()", L, D)
    yield equal("attention", 2 * L**2 * D, full)
    yield at_most("total over attention", 0.1, (low_rank + correction) / full)
    yield at_most("correction over 4Lmd, s = d", 1.0, correction / (4 * L * M * D))
    yield without(at_most("correction over 4Lmd, s = 8d", 1.0, wide / (4 * L * M * D)))


@claim("SB-10", SOURCE)
def combinations() -> Iterator[Check]:
    """Any sparse support can be combined with any low-rank map."""
    x = gaussian()
    assert x.v is not None
    kernel, worst, count = exact.kernel(x.Q, x.K), 0.0, 0
    for sparse in SUPPORTS:
        for low_rank in MAPS:
            method = parse(f"scatterbrain({low_rank}, {sparse})")
            estimate = method.approximate(x.Q, x.K, rng=0)
            low, on = _parts(estimate)
            dense = np.where(on, kernel, low) @ x.v
            worst = max(worst, difference(estimate @ x.v, dense))
            count += 1
    yield equal("combinations", 20, count)
    yield at_most("largest difference", TIGHT, worst)


# Errata


@claim("SB-Ea", SOURCE)
def correction_term() -> Iterator[Check]:
    """Add exp(q·k) − φ(q)·φ(k) to the low-rank part on S, so that the sum is exp(q·k). The
    correction is printed with q·k instead of exp(q·k)."""
    x = gaussian()
    estimate = parse("scatterbrain(positive(m=16), sliding_window(width=5))")
    low, on = _parts(made := estimate.approximate(x.Q, x.K, rng=0))
    logits, kernel = exact.logits(x.Q, x.K)[on], exact.kernel(x.Q, x.K)[on]
    gap = difference(made.to_dense()[on], kernel)
    yield at_most("difference on S", TIGHT, gap)
    literal = difference(low[on] + logits - low[on], kernel)
    yield printed(at_most("difference on S, as printed", TIGHT, literal))


@claim("SB-Eb", SOURCE)
def dropped_term() -> Iterator[Check]:
    """Drop Var(E[A | S]) from the total variance only where S does not depend on the features. Only
    then do both branches have mean exp(q·k), which makes this term 0."""
    q, k = _short()
    count = 500
    free = _off(_both(), q, k, count)
    # standard error of one entry; all entries share their features
    error = math.sqrt(math.expm1(1.0) / 16 / count)
    yield sampled("mean off S", 1.0, free, error)
    chosen = pitfalls.LargestEstimates(low_rank=Positive(m=16), sparse=Random(k=3))
    yield printed(
        sampled("mean off S, S from the estimates", 1.0, _off(chosen, q, k, count), error)
    )


def _off(method: Method, q: Array, k: Array, draws: int) -> float:
    """Return the mean of estimate/exact over entries off the support."""
    truth, total, count = exact.kernel(q, k), 0.0, 0
    for child in np.random.default_rng(0).spawn(draws):
        low, on = _parts(method.approximate(q, k, rng=child))
        total += float((low / truth)[~on].sum())
        count += int((~on).sum())
    return total / count


@claim("SB-Ec", SOURCE)
def shapes() -> Iterator[Check]:
    """Take one q and one k in ℝ^d: the estimate is then a number. The text prints ℝ^{L×d}, for
    which it is a matrix."""
    x = gaussian()
    one = Positive(m=8).approximate(x.Q[:1], x.K[:1], rng=0)
    yield equal("shape for q, k in ℝ^d", (1, 1), tuple(one.shape))
    whole = Positive(m=8).approximate(x.Q, x.K, rng=0)
    yield printed(equal("shape for ℝ^{L×d}", (1, 1), tuple(whole.shape)))


@claim("SB-Ed", SOURCE)
def bucket_sizes() -> Iterator[Check]:
    """Use sorted buckets of equal size if a row must have at most s entries. Raw LSH buckets have
    random sizes."""
    x, s = gaussian(128, 8), 16
    ordered, raw = (
        np.diff(required(x.approximate(parse(spec), rng=0).sparse).indptr)
        for spec in (f"smyrf(size={s})", "lsh(hashes=3)")
    )
    yield equal("entries a row, sorted: most", s, int(ordered.max()))
    yield equal("entries a row, sorted: least", s, int(ordered.min()))
    yield printed(at_most("entries a row, raw: most", s, int(raw.max())))


@claim("SB-Ee", SOURCE)
def cost_of_correction() -> Iterator[Check]:
    """Count Ls(m + 2d) for the correction, so that O(Lmd) needs s = O(d). The printed Lsd leaves
    out the Lsm of φ(q)·φ(k) on S."""
    count = _correction(S)
    yield equal("correction", L * S * (M + 2 * D), count)
    yield printed(equal("correction as printed, q·k and V only", 2 * L * S * D, count))


@claim("SB-Ef", SOURCE)
def bias_after_normalisation() -> Iterator[Check]:
    """Call the estimate unbiased only before normalisation: after division by its row sums it has a
    bias of order 1/m."""
    q, k = _short(length=1.2)
    k = k * np.linspace(0.4, 1.4, 10)[:, None]
    bias = {m: _bias(m, q, k) for m in (8, 64)}
    place = int(np.abs(bias[8]).argmax())
    yield near("bias at m = 8 over m = 64", 8.0, float(bias[8][place] / bias[64][place]), 1e-9)
    for m, draws in ((8, 2400), (64, 1500)):
        sample = moments.monte_carlo(Positive(m=m), q, k, draws=draws, rng=0, space="attention")
        mean, error = float(sample.mean[0, place]), float(sample.mean_stderr[0, place])
        if m == 8:
            yield printed(sampled("mean weight over exact, m = 8", 1.0, mean, error))
        else:
            predicted = 1 + float(bias[m][place])
            yield sampled("mean weight over exact, m = 64", predicted, mean, error)


def _bias(m: int, q: Array, k: Array) -> Array:
    """Return the relative bias of normalised weights, to order 1/m."""
    known = required(moments.normalised_moments(Positive(m=m), q, k))
    return np.asarray((known.bias / exact.softmax(q, k))[0])


@claim("SB-Eg", SOURCE)
def overflow() -> Iterator[Check]:
    """Take the scales out of M before forming it: for logits up to B its entries reach e^B, which
    overflows."""
    x = gaussian(16)
    scale = math.sqrt(1e4 / float(np.abs(exact.logits(x.Q, x.K)).max()))
    Q, K = scale * x.Q, scale * x.K
    assert x.v is not None
    method = parse("scatterbrain(positive(m=16), chunk(size=16))")
    output = method.approximate(Q, K, rng=0).attend(x.v)
    yield at_most("difference of the output", 1e-9, difference(output, exact.attention(Q, K, x.v)))
    yield printed(
        at_most("largest logit for exp in float64", 709.78, float(exact.logits(Q, K).max()))
    )
    refused = 0
    try:
        exact.kernel(Q, K)
    except OverflowError:
        refused = 1
    yield equal("exp refused as not representable", 1, refused)


@claim("SB-Eh", SOURCE)
def row_sums() -> Iterator[Check]:
    """Use positive features if rows are normalised. Sines and cosines are unbiased too, but their
    row sums may be ≤ 0."""
    x = gaussian(64, 8, t=0.25)
    features, waves = (
        errors(x, f"{name}(m=8)")["nonpositive_rows"] for name in ("positive", "trigonometric")
    )
    yield equal("such rows, positive features", 0.0, features)
    yield printed(equal("such rows, sines and cosines", 0.0, waves))
