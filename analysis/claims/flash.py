"""'FLASH note' and its comments (FL): the gated unit, mixed chunks, and scales with length."""

import math
from collections.abc import Iterator

import numpy as np

from analysis import inputs
from analysis.claims.evidence import (
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
    rank,
    sampled,
    slope,
    without,
)
from analysis.inputs import statistics as input_statistics
from approx import parse
from approx.checks import Array, required
from approx.estimate import exact
from approx.estimate.approximation import Approximation
from approx.textbook import attention, flash
from approx.textbook.flash import GatedUnit, Projections

SOURCE = "FLASH note (kexue.fm 8934)"
COMMENTS = SOURCE + ", comments"
N, C = 1024, 256  # tokens, and tokens of a chunk
LENGTHS = (128, 512, 2048, 8192, 32768)
ENTRIES = 2**18  # entries of all rows of one length together
# n times the variance of log(m₁/√m₂), m_r the mean of e^{rg}: that of e^g/μ₁ − e^{2g}/(2μ₂)
SPREAD = math.expm1(1.0) + math.expm1(4.0) / 4 - math.expm1(2.0)


def _unit() -> tuple[GatedUnit, Array]:
    """Return a unit of widths d = 6, e = 5, s = 3, and 12 tokens."""
    rng = np.random.default_rng(0)
    return GatedUnit.random(6, 5, 3, rng), rng.standard_normal((12, 6))


def _parts(n: int, s: int) -> Projections:
    return Projections(*np.random.default_rng(1).standard_normal((4, n, s)))


def _gains(size: int = C, *, causal: bool, normaliser: str | None = None) -> list[float]:
    """Return the output of the global part for Q = K = V = 1, one number per chunk; s = 1."""
    one = np.ones((N, 1))
    parts = Projections(0 * one, one, one, one)
    output = flash.mixed_chunk_output(parts, one, size, causal=causal, normaliser=normaliser)
    return [float(x) for x in output[::size, 0]]


@claim("FL-1", SOURCE)
def limits_of_the_unit() -> Iterator[Check]:
    """The gated unit O = (U ⊙ AV)W_o is the gated linear unit for A = I, and attention for U
    = 1."""
    unit, X = _unit()
    U, V = (x / (1 + np.exp(-x)) for x in (X @ unit.W_u, X @ unit.W_v))
    linear = (U * V) @ unit.W_o
    yield at_most("difference, A = I", TIGHT, difference(unit.combine(X, np.eye(12)), linear))
    q, k, _, _ = unit.projections(X)
    A = attention.softmax(q @ k.T)
    plain = A @ V @ unit.W_o
    yield at_most("difference, U = 1", TIGHT, difference(unit.combine(X, A, gate=False), plain))
    full = (U * (A @ V)) @ unit.W_o
    yield at_most("difference, both", TIGHT, difference(unit.combine(X, A), full))


@claim("FL-2", SOURCE)
def homogeneity() -> Iterator[Check]:
    """A = (1/n) relu²(QKᵀ/√s) equals (1/(ns)) relu²(QKᵀ)."""
    q, k, _, _ = _parts(12, 3)
    want = np.maximum(q @ k.T / math.sqrt(3), 0) ** 2 / 12
    yield at_most("difference", TIGHT, difference(attention.relu_squared(q, k), want))


@claim("FL-3", SOURCE)
def scaling() -> Iterator[Check]:
    """The row sums of relu²(QKᵀ)/(ns) do not depend on n. The row sums of the code's relu²(QKᵀ/n)
    fall as 1/n. Softmax divides by a sum that is O(n)."""
    s, span = 4, math.log(LENGTHS[-1] / LENGTHS[0])
    rng = np.random.default_rng(0)
    q, keys = rng.standard_normal((64, s)), rng.standard_normal((LENGTHS[-1], s))
    # relu² of N(0, 1) has mean ½ and variance 5/4, so a row sum has a relative error of √5/√n; the
    # 64 rows share their keys and count as one
    error = math.sqrt(5 / LENGTHS[0]) / span
    for kind, want in (("ns", 0.0), ("n2", -1.0)):
        sums = [
            attention.relu_squared(q, keys[:n], scaling=kind).sum(axis=1).mean() for n in LENGTHS
        ]
        name = {"ns": "1/(ns)", "n2": "1/n²"}[kind]
        yield sampled(f"slope, {name}", want, slope(LENGTHS, sums), error)
    unit = q / np.linalg.norm(q, axis=1, keepdims=True)
    totals = [np.exp(exact.log_row_sums(unit, keys[:n])).mean() for n in LENGTHS]
    error = math.sqrt(math.expm1(1.0) / LENGTHS[0]) / span
    yield sampled("slope, softmax's denominator", 1.0, slope(LENGTHS, totals), error)


@claim("FL-4", SOURCE)
def parameters() -> Iterator[Check]:
    """A gated unit has about 3de parameters; attention and feed-forward together have 12d². Two
    units with e = 2d therefore have as many parameters as one layer."""
    d = 512
    yield equal("attention and feed-forward", 12 * d**2, 4 * d**2 + 2 * d * 4 * d)
    yield equal("two gated units", 12 * d**2, 2 * 3 * d * 2 * d)
    unit, _ = _unit()
    yield equal("a unit, d = 6, e = 5, s = 3", 3 * 6 * 5 + 6 * 3 + 8 * 3, unit.parameters)


@claim("FL-5", SOURCE)
def local_part() -> Iterator[Check]:
    """The local part has (n/c)·c² = nc entries and costs O(nc)."""
    n, c, s = 64, 16, 3
    estimate = flash.mixed_chunk(_parts(n, s), c)
    yield equal("non-zeros", n // c * c * c, estimate.nnz)
    yield equal("which are nc", n * c, estimate.nnz)
    assert estimate.sparse is not None
    rows, columns = estimate.sparse.nonzero()
    yield equal("entries between chunks", 0, int(np.sum(rows // c != columns // c)))
    q, k, _, _ = _parts(n, s)
    block = np.maximum(q[:c] @ k[:c].T, 0) ** 2 / (c * s)
    first = estimate.sparse.toarray()[:c, :c]
    yield at_most("difference of the first block", TIGHT, difference(first, block))
    cost = [multiply_adds(f"flash(size={C})", x * N, 128, 256) for x in (1, 2)]
    yield equal("multiply-adds, twice the length", 2.0, cost[1] / cost[0])


@claim("FL-6", SOURCE)
def global_part() -> Iterator[Check]:
    """The bidirectional global part is linear attention, whatever the size of the chunks."""
    parts, V = _parts(24, 3), np.random.default_rng(2).standard_normal((24, 2))
    zero = parts._replace(local_queries=0 * parts.local_queries)
    linear = attention.linear_attention(parts.global_queries, parts.global_keys, V, normalise=False)
    for size in (1, 4, 24):
        output = flash.mixed_chunk_output(zero, V, size)
        yield at_most(f"difference, c = {size}", TIGHT, difference(output, linear / 24))


@claim("FL-7", SOURCE + ", causal form")
def running_sum() -> Iterator[Check]:
    """The causal global part is a running sum over previous chunks. Divided by the number of tokens
    summed, it has gain 1 for a constant signal, and 0 in the first chunk."""
    gains = _gains(causal=True)
    yield equal("gain of the first chunk", 0.0, gains[0])
    yield equal("least gain of the others", 1.0, min(gains[1:]))
    yield equal("largest gain of the others", 1.0, max(gains[1:]))
    parts, V = _parts(24, 3), np.random.default_rng(2).standard_normal((24, 2))
    operator = flash.mixed_chunk(parts, 6, causal=True) @ V
    running = flash.mixed_chunk_output(parts, V, 6, causal=True)
    yield at_most("difference, operator and running sum", TIGHT, difference(operator, running))
    literal = max(_gains(causal=True, normaliser="printed"))
    yield without(equal("gain, another normaliser: the printed one", 1.0, literal))


@claim("FL-8", SOURCE)
def memory() -> Iterator[Check]:
    """Causal linear attention in parallel holds bhns² numbers, quadratic attention bhn²: linear
    holds fewer only where n > s². In chunks it holds b(n/c)se numbers instead of bns²: fewer where
    e/c < s."""
    s, b, h = 64, 2, 3

    def ratio(n: int) -> float:
        return (b * h * n * s**2) / (b * h * n**2)

    yield equal("linear over quadratic, n = s²", 1.0, ratio(s * s))
    yield equal("n = 4s²", 0.25, ratio(4 * s * s))
    yield without(at_most("n = s²/4", 1.0, ratio(s * s // 4)))
    chunked = b * 4096 // C * 128 * 1536
    whole = b * 4096 * 128**2
    yield equal("chunked over unchunked: (e/c)/s = 6/128", 6 / 128, chunked / whole)
    fine = b * 4096 // 8 * 128 * 1536
    yield without(at_most("chunked over unchunked, c = 8", 1.0, fine / whole))


@claim("FL-9", SOURCE)
def sparse_and_low_rank() -> Iterator[Check]:
    """Local plus global is sparse plus low-rank: a block-diagonal matrix of full rank and a matrix
    of rank s. Their sum does not tend to softmax attention."""
    n, s = 256, 8
    estimate = flash.mixed_chunk(_parts(n, s), 32)
    yield equal("rank of the global part", s, rank(Approximation(estimate.low).to_dense()))
    yield equal("rank of the local part", n, rank(required(estimate.sparse).toarray()))
    x = gaussian(n, s)
    tv = [errors(x, f"flash(size={size})")["attention_tv"] for size in (2, 8, 32, 128, 256)]
    uniform = errors(x, "uniform()")["attention_tv"]
    yield above("least total variation from softmax", uniform, min(tv))


@claim("FL-10", "not in the source")
def square_and_relu() -> Iterator[Check]:
    """The matrix (QKᵀ)² has rank C(s+1, 2); relu²(QKᵀ) can have any rank."""
    q, k, _, _ = _parts(256, 8)
    yield equal("rank of (QKᵀ)²", math.comb(9, 2), rank(exact.logits(q, k) ** 2))
    yield equal("rank of relu²(QKᵀ)", 256, rank(attention.relu_squared(q, k)))


def _logits(n: int) -> Array:
    return np.random.default_rng(n).standard_normal(n)


def _sparsity(x: Array, p: float) -> Array:
    """Return S*_{1,p} of every row."""
    one, other = (np.linalg.norm(x, r, axis=-1) for r in (1, p))
    return np.asarray(x.shape[-1] ** (1 / p - 1) * one / other)


@claim("FL-11", COMMENTS)
def sparsity_index() -> Iterator[Check]:
    """The sparsity index S*_{q,p}(x) = n^{1/p−1/q} l_q(x)/l_p(x) of n weights exp(N(0, 1)) tends to
    e^{−1/2} for q = 1, p = 2."""
    # by the delta method, m₁/√m₂ has relative variance SPREAD/n and a relative bias of at most
    # (3(e⁴ − 1)/8 − (e² − 1)/2)/n
    limit, bias = math.exp(-0.5), 0.375 * math.expm1(4.0) - 0.5 * math.expm1(2.0)
    for n in LENGTHS:
        x = np.random.default_rng(n).standard_normal((ENTRIES // n, n))
        index = float(_sparsity(np.exp(x), 2).mean())
        margin = 5 * math.sqrt(SPREAD / ENTRIES) + bias / n
        yield near(f"n = {n}", limit, index, limit * margin)
    yield near("of 9 equal entries", 1.0, float(_sparsity(np.ones(9), 2)), TIGHT)
    yield near("of one in 9", 9 ** (-1 / 2), float(_sparsity(np.eye(9)[0], 2)), TIGHT)


def _entropy(n: int, beta: float) -> tuple[float, float, float]:
    """Return expected entropy, mean entropy and its standard error, for softmax of n N(0, β²).

    The expectation is log n − β²/2 + ((β² − ½)e^{β²} + ½)/n, whose last term is of second order in
    the delta method.
    """
    rows = max(16, ENTRIES // n)
    statistics = input_statistics.gaussian_logits(n, beta, rows=rows, rng=np.random.default_rng(n))
    square = beta**2
    second = ((square - 0.5) * math.exp(square) + 0.5) / n
    mean, error = statistics["entropy"]
    return input_statistics.gaussian_entropy(n, beta) + second, mean, error


@claim("FL-12", COMMENTS)
def entropy_deficit() -> Iterator[Check]:
    """The softmax of iid logits does not get sparser with length, as the author replies. The gap
    log n − H stays ½, though the largest weight falls."""
    for n in LENGTHS:
        want, mean, error = _entropy(n, 1.0)
        yield sampled(f"H − log n, n = {n}", want - math.log(n), mean - math.log(n), error)
    top = [float(attention.softmax(_logits(n)).max()) for n in LENGTHS]
    yield equal(
        "steps in length at which the largest weight falls", 4, int(np.sum(np.diff(top) < 0))
    )


@claim("FL-13", COMMENTS)
def log_length_scale() -> Iterator[Check]:
    """The scale κ log n/d of softmax(κ log n/d · QKᵀ) is 1/√d at n = 512. With it the entropy still
    grows with length, more slowly than at a fixed scale; it is not claimed to be invariant."""
    scale = attention.log_length_scale(512, 64)
    yield near("scale at n = 512, d = 64", 1 / math.sqrt(64), scale, TIGHT)
    grown = {}
    for name in ("1", "∝ √log n", "∝ log n"):
        ends = []
        for n in (LENGTHS[0], LENGTHS[-1]):
            want, mean, error = _entropy(n, _beta(name, n))
            yield sampled(f"H, β {name}, n = {n}", want, mean, error)
            ends.append(mean)
        grown[name] = ends[1] - ends[0]
    yield above("growth of H, β ∝ log n", 0.0, grown["∝ log n"])
    yield at_most("over that at β = 1", 1.0, grown["∝ log n"] / grown["1"])


def _beta(kind: str, n: int) -> float:
    """Return the standard deviation of logits that has log-n scaling, its root, or none."""
    whole = attention.log_length_scale(n, 1)
    return {"1": 1.0, "∝ √log n": math.sqrt(whole), "∝ log n": whole}[kind]


@claim("FL-14", COMMENTS)
def length_or_chunk() -> Iterator[Check]:
    """The bidirectional global part must be divided by the full length: a constant signal then has
    gain 1. Divided by the length of a chunk, it has gain n/c."""
    yield equal("gain, length", 1.0, max(_gains(causal=False, normaliser="length")))
    yield equal("gain, as it is by default", 1.0, max(_gains(causal=False)))
    yield equal("gain, chunk", N / C, max(_gains(causal=False, normaliser="chunk")))


def _rescaled(x: Array) -> Array:
    """Return x″ = x′·l_∞(x)/l_∞(x′), where x′ = x/l₀(x)."""
    first = x / np.count_nonzero(x)
    return np.asarray(first * (x.max() / first.max()))


@claim("FL-15", COMMENTS)
def rescaling() -> Iterator[Check]:
    """Do not rely on the comment's rescaling for robustness to length: it gives x″ = x, as the
    author replies. So l₁/l₂ is unchanged and grows as √n for iid data."""
    x = np.exp(_logits(512))
    yield equal("largest |x″ − x|", 0.0, float(np.abs(_rescaled(x) - x).max()))
    ratios = [_ratio(np.exp(_logits(n))) for n in LENGTHS]
    error = math.sqrt(SPREAD / LENGTHS[0]) / math.log(LENGTHS[-1] / LENGTHS[0])
    yield sampled("slope of l₁/l₂ in n", 0.5, slope(LENGTHS, ratios), error)
    yield printed(sampled("slope, if robust to length", 0.0, slope(LENGTHS, ratios), error))


def _ratio(x: Array) -> float:
    return float(np.linalg.norm(_rescaled(x), 1) / np.linalg.norm(_rescaled(x), 2))


# Errata


@claim("FL-Ea", SOURCE + ", causal form")
def normaliser() -> Iterator[Check]:
    """Divide the causal global part by (g−1)c, the number of tokens that are summed. The printed
    (g−1)n/c gives a gain of c²/n, which is right only at c = √n."""
    yield equal("gain with (g−1)c", 1.0, max(_gains(causal=True)))
    literal = max(_gains(causal=True, normaliser="printed"))
    yield printed(equal("gain with the printed normaliser", 1.0, literal))
    yield equal("which is c²/n", C**2 / N, literal)
    root = max(_gains(32, causal=True, normaliser="printed"))
    yield equal("printed, c = √n", 1.0, root)


@claim("FL-Eb", SOURCE + ", causal form")
def first_chunk() -> Iterator[Check]:
    """Define the global part of the first chunk as 0: at g = 1 the printed formula divides by 0."""
    gains = _gains(causal=True)
    yield equal("gain of the first chunk", 0.0, gains[0])
    yield equal("outputs that are not finite", 0, int(np.sum(~np.isfinite(gains))))
    by = flash.normalisers(N, C, causal=True, normaliser="printed")
    steps = float(by[2] - by[1])  # (g−1)n/c, continued to g = 1
    yield printed(above("what is divided by at g = 1, as printed", 0.0, float(by[1]) - steps))


@claim("FL-Ec", SOURCE + ", causal form")
def division_by_token() -> Iterator[Check]:
    """Divide running sums by t to average over the first t tokens. Division per chunk does not:
    within a chunk the local weights of a constant signal sum to (r+1)/c."""
    one = np.ones((N, 1))
    local = Projections(one, one, 0 * one, one)
    sums = flash.mixed_chunk_output(local, one, C, causal=True)[:C, 0]
    yield at_most("difference from (r+1)/c", TIGHT, difference(sums, np.arange(1, C + 1) / C))
    yield printed(equal("row sum of the first token", 1.0, float(sums[0])))
    running = attention.linear_attention(one, one, one, causal=True, normalise=False)[:, 0]
    by_token = running / np.arange(1, N + 1)
    yield equal("running sums over t: least gain", 1.0, float(by_token.min()))
    yield equal("running sums over t: largest gain", 1.0, float(by_token.max()))


@claim("FL-Ed", COMMENTS)
def no_factor_of_length() -> Iterator[Check]:
    """Put no factor n into q·k, because q and k have width s. The index S*_{1,p} has the factor
    n^{1/p−1}, which is 1/n only at p = ∞."""
    s = 16
    for n in (128, 2048):
        x = inputs.gaussian(n, s, rng=0)
        pairs = np.einsum("id,id->i", x.q, x.k)
        error = math.sqrt((2 + 6 / s) / n) * s
        yield sampled(f"variance of q·k, n = {n}", s, float(np.mean(pairs**2)), error)
    yield printed(sampled("the last, with a factor n", 2048 * s, float(np.mean(pairs**2)), error))
    same = np.ones(512)  # equal keys have the index 1
    factor = {p: float(np.linalg.norm(same, p) / np.linalg.norm(same, 1)) for p in (2.0, math.inf)}
    yield near("factor at p = ∞ times n", 1.0, 512 * factor[math.inf], 1e-9)
    yield near("factor at p = 2 times √n", 1.0, math.sqrt(512) * factor[2.0], 1e-9)
    yield printed(near("factor at p = 2 times n", 1.0, 512 * factor[2.0], 1e-9))


@claim("FL-Ee", SOURCE)
def linformer() -> Iterator[Check]:
    """Call Linformer low-rank, not sparse: most of its weights are not zero."""
    x = gaussian(64, 16)
    weights = parse("linformer(rank=8)").approximate(x.Q, x.K).to_dense()
    yield equal("rank", 8, rank(weights))
    yield printed(at_most("share of non-zeros, if sparse", 0.5, float(np.mean(weights != 0))))


@claim("FL-Ef", COMMENTS + "; kexue.fm 8823, 9034")
def no_invariance() -> Iterator[Check]:
    """Do not call log-n scaling entropy-invariant: for iid Gaussian logits, H = log n − β²/2 grows
    while β < √(2 log n). Constant H needs β² = 2(log n − H₀)."""
    entropies = [_entropy(n, _beta("∝ log n", n)) for n in LENGTHS]
    logs = [math.log(n) for n in LENGTHS]
    for i in range(len(LENGTHS) - 1):
        step = logs[i + 1] - logs[i]
        want, mean = ((entropies[i + 1][j] - entropies[i][j]) / step for j in (0, 1))
        error = math.hypot(entropies[i][2], entropies[i + 1][2]) / step
        between = f"n = {LENGTHS[i]} to {LENGTHS[i + 1]}"
        yield sampled(f"slope of H, {between}", want, mean, error)
        if i == 0:
            yield printed(sampled(f"slope if invariant, {between}", 0.0, mean, error))
    level, ends = 6.0, []
    for n in (512, 2048):
        want, mean, error = _entropy(n, math.sqrt(2 * (math.log(n) - level)))
        yield sampled(f"H for β² = 2(log n − 6), n = {n}", want, mean, error)
        ends.append((mean, error))
    (short, first), (long, second) = ends
    margin = 5 * math.hypot(first, second) + want - level  # and the O(1/n) term, larger at 2048
    yield near("its growth", 0.0, long - short, margin)
