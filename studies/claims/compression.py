"""WildCat, Thinformer, KQ-SVD, linear attention, SATA, random features: fewer numbers a key."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from analysis import inputs
from analysis.claims.evidence import (
    TIGHT,
    Check,
    above,
    at_most,
    claim,
    equal,
    errors,
    near,
    printed,
    sampled,
    without,
)
from analysis.moments import expected_errors
from analysis.ranks import state_rank
from approx import parse
from approx.checks import Array
from approx.compressed_logits.method import CompressedLogits
from approx.estimate import exact
from approx.low_rank import pivots
from approx.low_rank.nystrom import gaussian
from approx.low_rank.thinning import thinned
from approx.polynomials import error_bounds, monomials
from studies.claims.heads import attended_heads, causal_heads

THINFORMER = "Low-rank thinning (arXiv 2502.12063)"
THINFORMER_CODE = "microsoft/thinformer f5b1f26, thinformer.py"
WILDCAT = "WildCat (arXiv 2602.10056)"
KQ_SVD = "KQ-SVD (arXiv 2512.05916)"
PERFORMER = "arXiv 2009.14794"


# WildCat


@claim("WC-1", WILDCAT + ", abstract: O(n^{−√log log n}) for bounded inputs")
def bounded_inputs() -> Iterator[Check]:
    """For bounded queries and keys, the error of a weighted coreset falls faster than any power of
    its size, and hardly grows with the length. On heads of SmolLM2, with norms up to 7, 64 keys
    leave a tv above 5 %."""
    rng = np.random.default_rng(0)
    sizes = (8, 16, 32, 64)
    tv = {}
    for length in (128, 1024):
        points = rng.standard_normal((2, length, 4))
        q, k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in points)
        head = inputs.Head("sphere", q[:64], k, scaling=1.0)
        specs = [f"coreset(rank={rank}, tau='radii')" for rank in sizes]
        tv[length] = [errors(head, spec)["attention_tv"] for spec in specs]
    for length, found in tv.items():
        steps = np.diff(np.log(found)) / np.log(2)
        yield equal(f"slopes that steepen, {length} keys", 2, int((np.diff(steps) < 0).sum()))
        yield at_most(f"tv at 64 keys, {length} keys", 1e-3, found[-1])
    growth = tv[1024][2] / tv[128][2]
    yield at_most("tv at 32 keys, 1024 over 128 keys", 8**0.5, growth)
    real = [errors(head, specs[-1])["attention_tv"] for head in causal_heads()]
    yield without(at_most("least tv at 64 keys, heads of SmolLM2", 0.05, min(real)))


@claim("WC-2", WILDCAT + "; microsoft/wildcat e0b728c, wildcat/compresskv.py")
def interpolation() -> Iterator[Check]:
    """A coreset weighted by the kernel among keys is exact at its own keys, for every query."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 32, 4)) / 2
    truth = exact.kernel(q, k)
    for rank in (8, 32):
        estimate = parse(f"coreset(rank={rank}, tau=1.0)").approximate(q, k, rng=0)
        off = np.abs(estimate.to_dense() / truth - 1).max(axis=0)
        yield equal(f"exact columns of 32, {rank} keys", rank, int((off < 1e-6).sum()))


def _factor(G: Array, picks: Sequence[pivots.Pick]) -> Array:
    return pivots.cholesky(lambda p: G[p], len(G), picks)[1]


@claim("WC-3", "randomly pivoted Cholesky (arXiv 2207.06503), which WildCat draws by")
def pivots_and_trace() -> Iterator[Check]:
    """A pivot drawn in proportion to the diagonal of a kernel matrix G takes |G|²_F/tr G of its
    trace on average. The trace that r pivots leave is at least what the best rank r leaves, and on
    average at most 2^r times as much."""
    x = np.random.default_rng(0).standard_normal((48, 4)) / 2
    G = gaussian(x, x)
    total = float(np.trace(G))
    taken = [np.square(_factor(G, [lambda _, p=p: p])).sum() for p in range(48)]  # type: ignore[misc]
    mean = float(np.mean(taken)) / float(np.square(G).sum() / total)
    yield near("mean trace taken, relative to |G|²_F/tr G", 1.0, mean, TIGHT)
    rng = np.random.default_rng(1)
    tail = float(np.linalg.eigvalsh(G)[:-8].sum())

    def drawn(rest: Array) -> int:
        return int(rng.choice(48, p=rest / rest.sum()))

    left = [(total - float(np.square(_factor(G, [drawn] * 8)).sum())) / tail for _ in range(50)]
    yield above("least trace left by 8 pivots over that of rank 8, of 50 draws", 1.0, min(left))
    yield at_most("mean of it", 2.0**8, float(np.mean(left)))


# Thinformer

THINNED = "coreset(rank={}, pivots='thinning', weights='equal')"
UNIFORM = "coreset(rank={}, pivots='uniform', weights='equal')"


def _sphere(n: int, l: int) -> inputs.Head:
    """Return n queries and l keys of norm 1, d = 4."""
    points = np.random.default_rng(0).standard_normal((n + l, 4))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    return inputs.Head("sphere", unit[:n], unit[n:], scaling=1.0)


@claim("THIN-1", THINFORMER + "; " + THINFORMER_CODE + ":113")
def fair_halves() -> Iterator[Check]:
    """Halving keeps every key with the same probability. So the r keys that are left of l, weighted
    by l/r, are unbiased for all sums."""
    x = _sphere(1, 64)
    method = parse(THINNED.format(16))
    weights = np.array([
        method.approximate(x.Q, x.K, rng=seed).to_dense()[0] for seed in range(200)
    ]) / exact.kernel(x.Q, x.K)  # fmt: skip
    z = (weights.mean(axis=0) - 1) / math.sqrt(3 / 200)
    yield equal("keys with weight 4, of every draw", 16, int((weights > 2).sum(axis=1).max()))
    yield at_most("largest |z| of a mean weight", 5.0, float(np.abs(z).max()))


@claim(
    "THIN-2",
    THINFORMER + ", abstract: whenever the kernel or data matrix is approximately low-rank",
)
def thinning_or_uniform() -> Iterator[Check]:
    """Keys chosen by kernel halving approximate sums better than as many uniform keys if the kernel
    is nearly of low rank. On heads of SmolLM2 little of this advantage is left."""
    yield at_most("squared error over uniform, norm 1, d = 4", 0.75, _gain(_sphere(64, 256)))
    heads = inputs.sample("smollm2").heads()
    rows = [
        inputs.Head(x.name, x.q[448:512], x.k[:256], scaling=x.scaling) for x in heads
    ]  # later queries, which see all of these keys
    yield without(at_most("least of it, heads of SmolLM2", 0.75, min(map(_gain, rows))))


def _gain(x: inputs.Head) -> float:
    total = exact.log_row_sums(x.Q, x.K)
    squares = []
    for spec in (THINNED.format(64), UNIFORM.format(64)):
        draws = [
            parse(spec).approximate(x.Q, x.K, rng=seed).block(slice(None), shift=total)
            for seed in range(40)
        ]
        squares.append(float(np.mean([np.square(rows.sum(axis=1) - 1) for rows in draws])))
    return squares[0] / squares[1]


def _places(length: int) -> Array:
    """Return the keys that the code chooses from, with n the largest power of four ≤ length."""
    n = 4 ** ((length.bit_length() - 1) // 2)
    return np.asarray(np.arange(n) * (length // n))


@claim("THIN-Ea", THINFORMER_CODE + ":251")
def powers_of_four() -> Iterator[Check]:
    """Let a coreset of 2^g√l keys stand for all l keys. The code first takes every ⌊l/n⌋-th key,
    with n the largest power of four ≤ l, and returns 2^g√n. Of 1023 keys it returns half as many,
    and never reads a quarter of the text."""
    l, g = 1023, 2
    places = _places(l)
    size = 2**g * math.isqrt(len(places))
    yield printed(near("size of the coreset, as coded", 2**g * math.sqrt(l), float(size), 1.0))
    yield near("it is that of 4⁴ keys", 2**g * math.sqrt(256), float(size), 0.0)
    yield printed(at_most("last keys that are never read", 0, l - 1 - int(places.max())))
    points = np.random.default_rng(0).standard_normal((l, 2)) / 2
    last = max(int(thinned(points, size, np.random.default_rng(s)).max()) for s in range(5))
    yield above("last place that thinning reaches, of 5 draws", int(places.max()), last)


# KQ-SVD


@claim("KQ-1", KQ_SVD + ", abstract; DamienLesens/KQ-SVD e51b440, process_cache.py:313")
def best_logits() -> Iterator[Check]:
    """No map of queries and keys to r numbers, key PCA included, approximates all logits better
    than the SVD of K Qᵀ. For the logits that a causal mask shows, the SVD need not be the best."""
    all_pairs = seen_pairs = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        q, k = rng.standard_normal((2, 24, 6))
        k = k * rng.uniform(0.3, 1.5, 6)
        off = [_errors_of_logits(spec, q, k) for spec in _compressions(3)]
        all_pairs += off[1][0] < off[0][0] * (1 - TIGHT)
        seen_pairs += off[1][1] < off[0][1]
    on_heads = 0
    for x in causal_heads():
        for rank in (4, 8, 16, 32):
            off = [_errors_of_logits(spec, x.Q, x.K) for spec in _compressions(rank)]
            on_heads += off[1][0] < off[0][0]
    yield equal("of 200 Gaussian Q and K, where PCA is nearer, all logits", 0, all_pairs)
    yield equal("of 16 heads and ranks, where PCA is nearer, all logits", 0, on_heads)
    yield without(equal("of 200 Gaussian Q and K, where PCA is nearer, seen logits", 0, seen_pairs))


def _compressions(rank: int) -> tuple[str, str]:
    return f"logit_svd(rank={rank})", f"key_pca(rank={rank}, centred=False)"


def _errors_of_logits(spec: str, Q: Array, K: Array) -> tuple[float, float]:
    """Return the Frobenius errors of compressed logits, of all and of those on or below."""
    method = parse(spec)
    assert isinstance(method, CompressedLogits)
    left, right = method.compressed(Q, K)
    off = left @ right.T - exact.logits(Q, K)
    return float(np.linalg.norm(off)), float(np.linalg.norm(np.tril(off)))


@claim("KQ-2", KQ_SVD + ", abstract: higher fidelity of attention outputs")
def fidelity() -> Iterator[Check]:
    """Better logits give better attention: on heads of SmolLM2 the SVD beats key PCA at ranks 16
    and 32. At ranks 4 and 8, key PCA with centred keys may give better attention."""
    high = low = 0
    farther = []
    for x in causal_heads():
        for rank in (4, 8, 16, 32):
            specs = f"logit_svd(rank={rank})", f"key_pca(rank={rank})"
            tv = [errors(x, spec)["attention_tv"] for spec in specs]
            if rank > 8:
                high += tv[0] < tv[1]
            elif tv[1] < tv[0]:
                low += 1
                off = [_errors_of_logits(spec, x.Q, x.K)[1] for spec in specs]
                farther.append(off[1] / off[0])
    yield equal("of 8 heads and ranks 16 and 32, where the SVD has less tv", 8, high)
    yield without(equal("of 8 heads and ranks 4 and 8, where PCA has less tv", 0, low))
    yield above("its logits are off by more than those of the SVD, times", 1.0, min(farther))


# Linear attention on real heads


@claim("LIN-1", PERFORMER + ", abstract; its theorem 4 as it is cited")
def features_on_realcausal_heads() -> Iterator[Check]:
    """For queries and keys of norm 1, about d·ln d/ε² positive features suffice for an error ε of
    exp(q·k), whatever the length. On heads of SmolLM2 no number of features that can be drawn
    suffices."""
    d, method = 64, parse("positive")
    limit = d * math.log(d) / 0.1**2
    q, k = np.random.default_rng(0).standard_normal((2, 128, d))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k)]
    needed = expected_errors.features_needed(method, 0.1, *unit)
    yield at_most("features for 10 %, norm 1", limit, needed)
    found = [
        expected_errors.features_needed(method, 0.1, x.Q, x.K, mask=x.mask)
        for x in causal_heads(128)
    ]
    yield without(at_most("features for 10 %, SmolLM2's easiest head", limit, min(found)))


@claim("LIN-2", PERFORMER + ", lemma 2")
def positive_or_trigonometric() -> Iterator[Check]:
    """On real heads, positive features have less total variation from attention than sines and
    cosines. For exp(q·k) in the Frobenius norm, which large entries dominate, sines and cosines
    have less error."""
    near_attention = near_kernel = 0
    for x in causal_heads():
        tv, needed = [], []
        for name in ("positive", "trigonometric"):
            tv.append(errors(x, f"{name}(m=64)")["attention_tv"])
            needed.append(expected_errors.features_needed(parse(name), 0.1, x.Q, x.K, mask=x.mask))
        near_attention += tv[0] < tv[1]
        near_kernel += needed[0] < needed[1]
    yield equal("heads of 4 where they have less tv, m = 64", 4, near_attention)
    yield without(above("heads of 4 where they need fewer features for 10 %", 0, near_kernel))


@claim("LIN-3", "the low-rank problem, kexue.fm 8601; the bound: analysis.state_rank")
def states_or_features() -> Iterator[Check]:
    """It is not the size of the state that limits linear attention on heads of SmolLM2. The lower
    bound for any state of 64 allows an error below 1 %; 64 positive features have above 30 %."""
    bounds, off = [], []
    for x, weights in attended_heads(256):
        bounds.append(state_rank.lower_bound(weights, 64))
        off.append(errors(x, "positive(m=64)")["attention_relative_frobenius"])
    yield at_most("largest lower bound, 64 states", 0.01, max(bounds))
    yield above("least error, 64 positive features", 0.3, min(off))


# Polynomials of the logits, and all random features


@claim("SATA-1", "SATA (arXiv 2602.00294), abstract")
def constant_cost() -> Iterator[Check]:
    """Self-attention can be computed to any precision at constant cost per token. A Taylor
    polynomial of degree p has C(d + p, p) columns, however many tokens there are. For heads of
    SmolLM2 and an error of 1 %, this constant is above 10¹⁹."""
    rng = np.random.default_rng(0)
    q, k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.standard_normal((2, 64, 4)))
    degree = error_bounds.minimum_degree("taylor", 1.0, 0.01)
    columns = monomials.width(4, degree)
    estimate = parse(f"taylor(degree={degree})").approximate(q, k)
    yield equal("columns of the polynomial", math.comb(4 + degree, degree), columns)
    yield equal("columns of the estimate", columns, estimate.scaled_factors().left.shape[1])
    yield at_most("its largest relative error", 0.01, _farthest(estimate.to_dense(), q, k))
    least = math.inf
    for head in causal_heads():
        most = float(np.abs(exact.logits(head.Q, head.K)).max())
        degree = error_bounds.minimum_degree("taylor", most, 0.01, exact=False)
        least = min(least, float(monomials.width(head.d, degree)))
    yield without(at_most("columns for 1 %, least of the heads", 1024, least))


def _farthest(estimate: Array, q: Array, k: Array) -> float:
    return float(np.abs(estimate / exact.kernel(q, k) - 1).max())


@claim("ERF-1", "All random features representations are equivalent (arXiv 2406.18802), abstract")
def equivalent_features() -> Iterator[Check]:
    """If each kind of random features is drawn by its best policy, all kinds have the same error,
    the lowest possible. Where queries are keys it is (Z² − |exact|²_F)/m, with Z the trace. For
    other queries Z depends on the features."""
    # Z = ∫ p(w)|φ_w(Q)||φ_w(K)| dw at d = 1, by quadrature
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 12, 1))
    gram = exact.kernel(q, q)
    trace = float(np.trace(gram))
    for name, imaginary in (("positive", False), ("trigonometric", True)):
        yield near(f"Z of {name} features over the trace", 1.0, _z(q, q, imaginary) / trace, TIGHT)
    square = trace**2 - float(np.square(gram).sum())
    draws = [parse("leverage(m=4)").approximate(q, q, rng=s).to_dense() for s in range(400)]
    off = np.array([np.square(x - gram).sum() for x in draws]) * 4 / square
    yield sampled("error of 4 features times 4", 1.0, float(off.mean()), float(off.std()) / 20)
    cross = exact.kernel(q, k)
    least = float(np.linalg.svd(cross, compute_uv=False).sum())
    yield at_most("nuclear norm over Z, other queries", 1.0, least / _z(q, k, False))
    ratio = _z(q, k, True) / _z(q, k, False)
    yield without(near("Z of trigonometric over positive features, other queries", 1.0, ratio, 0.1))


def _z(q: Array, k: Array, imaginary: bool) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)

    def norms(x: Array) -> Array:
        size = np.square(x) if imaginary else 2 * x * nodes - np.square(x)
        return np.asarray(np.sqrt(np.exp(np.broadcast_to(size, (len(x), 120))).sum(axis=0)))

    return float((weights * norms(q) * norms(k)).sum() / weights.sum())
