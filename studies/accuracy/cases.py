"""The cases: a function by its name, its exact value by mpmath, and arguments."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np
import scipy.sparse
from mpmath import mp

from analysis.errors import metrics
from analysis.inputs import sample, statistics
from analysis.moments.expected_errors import expected_error
from analysis.moments.normalised import normalised_moments
from analysis.moments.squared_errors import squared_error
from analysis.ranks import rank
from approx import Approximation, Mask, parse, projections
from approx.estimate import exact
from approx.kernels import elementary, pattern_products
from approx.polynomials import chebyshev, error_bounds
from approx.polynomials.remez import remez
from approx.projections.rotated import log_hyp0f1
from approx.random_features.geometric import optimal_rate
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from approx.sketches.power import power_bias
from studies.accuracy.measure import Case, Point, exact as digits, points

ONE, BOTH = (np.float64,), (np.float64, np.float32)
SCALES = 0.01, 1.0, 5.0, 30.0  # of q and k: logits up to about 3000
SMALL = 1e-3, 0.05, 0.4, 2.0  # of q and k for variances
METRICS = (
    "attention_tv", "attention_kl", "attention_kl_reverse", "attention_relative_frobenius",
    "kernel_relative_frobenius", "kernel_relative_max", "output_relative_error",
)  # fmt: skip
RANKS = (
    "stable_rank", "intrinsic_dimension", "nuclear_ratio", "effective_rank",
    "energy_effective_rank", "participation_ratio",
)  # fmt: skip
Samples = Callable[[int, type], Iterable[tuple]]
CASES: list[Case] = []


def case(
    names: str,
    truth: Callable[..., Any],
    samples: Samples,
    call: Callable[..., Any] | None = None,
    *,
    dtypes: Sequence[type] = ONE,
    part: str = "",
    **how: Any,
) -> None:
    """Add the case of each of some functions; ``call`` takes the arguments of ``truth``, too."""
    for name in names.split():
        function = call or resolve_name(name)
        for dtype in dtypes:
            CASES.append(
                Case(
                    name, part, dtype,
                    lambda size, dtype, f=function: points(f, truth, samples(size, dtype), **how),
                )
            )  # fmt: skip


# Arguments


def gaussian(*shapes: tuple[int, ...], scales: Any = SCALES, change: Any = None) -> Samples:
    """Return Gaussian arrays at several scales; a larger size gives more."""

    def samples(size: int, dtype: type) -> list[tuple]:
        rng = np.random.default_rng(5)
        some = scales if size >= 20 else sorted({scales[0], scales[-1]})
        found = [
            tuple((s * rng.standard_normal(shape)).astype(dtype) for shape in shapes)
            for s in some
            for _ in range(max(1, size // 100))
        ]
        return [change(*x) for x in found] if change else found

    return samples


def draws(size: int, low: float, high: float, *, signed: bool = False) -> np.ndarray:
    """Return numbers with uniform logarithms, always the same numbers."""
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(math.log(low), math.log(high), size))
    return x * rng.choice([-1.0, 1.0], size) if signed else x


def numbers(
    low: float, high: float, *, signed: bool = False, plus: float = 0, more: Any = (), of: int = 1
) -> Samples:
    """Return numbers from a range, and ``more``; ``of``: the size is divided by it."""

    def samples(size: int, dtype: type) -> list[tuple]:
        drawn = plus + draws(size if of == 1 else max(size // of, 3), low, high, signed=signed)
        return [(x,) for x in np.concatenate([drawn, more]).astype(dtype)]

    return samples


def given(*tuples: Any) -> Samples:
    """Return these arguments at any size."""
    return lambda size, dtype: [x if isinstance(x, tuple) else (x,) for x in tuples]


def orders(of: int = 1, keep: Callable[[int, float], bool] = lambda n, B: True) -> Samples:
    """Return pairs of a degree and a bound on logits."""

    def samples(size: int, dtype: type) -> list[tuple]:
        rng, few = np.random.default_rng(2), size if of == 1 else max(size // of, 4)
        n = np.unique(np.exp(rng.uniform(0, math.log(200), few)).astype(int))
        pairs = [(int(m), float(B)) for m, B in zip(n, np.exp(rng.uniform(-2, 4, len(n))))]
        return [pair for pair in pairs if keep(*pair)]

    return samples


def in_norms(of: Samples) -> Samples:
    return lambda size, dtype: [
        (*x, norm) for norm in ("relative", "scaled") for x in of(size, dtype)
    ]


def positives(a: Any, b: Any, *more: Any) -> tuple:
    """Return arrays with the first two positive."""
    return (abs(a), abs(b), *more)


def both(*several: Samples) -> Samples:
    return lambda size, dtype: [x for some in several for x in some(size, dtype)]


def near(gaps: Sequence[float]) -> Samples:
    """Return rows (x, y) at distances relative to their norm; also nearly opposite."""

    def samples(size: int, dtype: type) -> list[tuple]:
        rng, found = np.random.default_rng(6), []
        for gap in gaps if size >= 20 else gaps[-1:]:
            for sign in (1, -1):
                x, g = rng.standard_normal((2, 1, 8))
                found.append((x.astype(dtype), (sign * x + gap * g).astype(dtype)))
        return found

    return samples


def pairs(n: int = 1, l: int = 2, d: int = 4) -> Samples:
    """Return Q and K; also nearly opposite q and k, with small q + k."""
    away = gaussian((n, d), (l, d), scales=(1.0,), change=lambda q, k: (
        q, -np.repeat(q[:1], l, axis=0) + 1e-2 * k,
    ))  # fmt: skip
    return both(gaussian((n, d), (l, d), scales=SMALL), lambda size, dtype: away(1, dtype))


def hard_for_exp(size: int, dtype: type) -> list[tuple]:
    """Return arguments that are hard for an exponential, and ordinary ones."""
    info, rng = np.finfo(dtype), np.random.default_rng(1)
    low, high = math.log(info.smallest_subnormal) + 0.5, math.log(info.max) - 1e-3
    halves = np.arange(-40, 41) * (math.log(2) / 2)  # |r| largest, and r = 0
    edges = [low, high, math.log(info.tiny), math.log(info.tiny) - 1e-3, 0.0, info.tiny]
    some = rng.choice(halves, min(size, len(halves)), replace=False)
    x = np.concatenate([edges, some, rng.uniform(low, high, size), rng.uniform(-1, 1, size)])
    return [(y,) for y in x.astype(dtype)]


def estimates(size: int, dtype: type) -> list[tuple]:
    """Return Q, K, an estimate with given relative errors of its entries, and V."""
    shapes = (2, 3), (5, 3), (2, 5), (5, 2)
    return [
        (q, k, (1 + distance * np.tanh(noise)) * np.exp(q @ k.T), v)
        for q, k, noise, v in gaussian(*shapes, scales=(0.3, 1.5))(size, dtype)
        for distance in (0.3, 1e-3, 1e-6, 1e-10)
    ]


# Exact values


def dot(x: Any, y: Any) -> Any:
    return mp.fdot(x, y)


def square(q: Any, k: Any, sign: int = 1) -> Any:
    return mp.fsum((a + sign * b) ** 2 for a, b in zip(q, k))


def half(x: Any) -> Any:
    return dot(x, x) / 2


def products(q: Any, k: Any) -> list:
    return [[dot(x, y) for y in k] for x in q]


def times(p: Any, v: Any) -> list:
    return [[dot(row, column) for column in zip(*v)] for row in p]


def softmax(x: Any) -> list:
    top = max(x)
    return shares([mp.exp(y - top) for y in x])


def shares(x: Any) -> list:
    total = mp.fsum(x)
    return [y / total for y in x]


def log_sum(x: Any) -> Any:
    return max(x) + mp.log(mp.fsum(mp.exp(y - max(x)) for y in x))


def each(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function of logits or rows, (rows of q, rows of k) → row by row."""
    return lambda q, k: [function(row) for row in products(q, k)]


def each_logit(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return each(lambda row: [function(x) for x in row])


def attended(q: Any, k: Any, v: Any, scale: Any = 1) -> list:
    return times([softmax([scale * x for x in row]) for row in products(q, k)], v)


def entropy(p: Any) -> Any:
    return -mp.fsum(x * mp.log(x) for x in p if x)


def frobenius(rows: Any) -> Any:
    return mp.sqrt(mp.fsum(x * x for row in rows for x in row))


def gap(one: Any, two: Any) -> list:
    return [[a - b for a, b in zip(x, y)] for x, y in zip(one, two)]


def in_place(y: Any) -> np.ndarray:
    """With shift 0: the rounding of x − shift is not an error of e^x."""
    out = np.full((1, 9), y)
    elementary.exp_rows(out, np.zeros(1, out.dtype))
    return out[0, 8:]


def log_cosh(x: Any) -> Any:
    x = abs(x)
    return mp.log1p(2 * mp.sinh(x / 2) ** 2) if x < 1 else x + mp.log1p(mp.exp(-2 * x)) - mp.ln2


def rate(r: Any) -> Any:
    def slope(p: Any) -> Any:  # by p, of log I₀(2r/√(1 − p)) − log p
        y = 2 * r / mp.sqrt(1 - p)
        return mp.besseli(1, y) / mp.besseli(0, y) * r * (1 - p) ** mp.mpf(-1.5) - 1 / p

    start = mp.mpf(optimal_rate(float(r)))
    return mp.findroot(slope, (start * (1 - mp.mpf(1e-9)), start), tol=1e-60, verify=False)


def lagrange(n: int, B: Any) -> Any:
    return B ** (n + 1) / mp.factorial(n + 1) * mp.exp(B)


def bessel_tail(n: int, B: Any) -> Any:
    return mp.fsum(2 * mp.besseli(k, B) for k in range(n + 1, n + 60 + int(B))) * mp.exp(-B)


def taylor(n: int, B: Any, norm: str = "relative") -> Any:
    if norm == "scaled":
        return mp.gammainc(n + 1, 0, B, regularized=True)
    return lagrange(n, B) * mp.hyp1f1(1, n + 2, -B)


def power(n: int, B: Any, norm: str) -> Any:
    above = abs(mp.exp(n * mp.log1p(B / n) - B) - 1)
    if norm == "scaled":
        return above
    return max(above, abs((1 - B / n) ** n * mp.exp(B) - 1), mp.mpf(n <= B))


def angle(x: Any, y: Any) -> Any:
    x, y = ([z / mp.sqrt(dot(v, v)) for z in v] for v in (x, y))
    return 2 * mp.atan2(*(mp.sqrt(square(x, y, s)) for s in (-1, 1)))


def metric(name: str) -> Callable[..., Any]:
    """Return a metric by its definition."""

    def truth(q: Any, k: Any, e: Any, v: Any) -> Any:
        kernel = each_logit(mp.exp)(q, k)
        p, w = list(map(shares, kernel)), list(map(shares, e))
        both = [(a, b) for one, two in zip(p, w) for a, b in zip(one, two)]
        if name == "attention_tv":
            return mp.fsum(abs(a - b) for a, b in both) / 2 / len(p)
        if name == "attention_kl":
            return mp.fsum(a * mp.log(a / b) for a, b in both) / len(p)
        if name == "attention_kl_reverse":
            return mp.fsum(b * mp.log(b / a) for a, b in both) / len(p)
        if name == "kernel_relative_max":
            return max(max(map(abs, row)) for row in gap(kernel, e)) / max(map(max, kernel))
        one, two = {"attention": (p, w), "kernel": (kernel, e), "output": (times(p, v), times(w, v))
                    }[name.partition("_")[0]]  # fmt: skip
        return frobenius(gap(one, two)) / frobenius(one)

    return truth


def rank_measures(s: Any) -> list:
    x = [y / s[0] for y in s]
    energy = [y * y for y in x]
    total, fourth = mp.fsum(energy), dot(energy, energy)
    perplexity = [mp.exp(entropy(shares(w))) for w in (x, energy)]
    return [total, mp.fsum(x), mp.fsum(x) ** 2 / total, *perplexity, total**2 / fourth]


def positive(q: Any, k: Any, w: Any) -> list:
    """Four given frequencies, each with weight 1/4."""
    return [
        [mp.fsum(mp.exp(dot(v, x) + dot(v, y) - half(x) - half(y)) for v in w) / 4 for y in k]
        for x in q
    ]


def waves(q: Any, k: Any, w: Any) -> list:
    return [
        [mp.exp(half(x) + half(y)) * mp.fsum(mp.cos(dot(v, x) - dot(v, y)) for v in w) / 4
         for y in k]
        for x in q
    ]  # fmt: skip


# Variances: of one frequency e^x − 1 at x = |q + k|², of a pair cosh x − 1.


def even(x: Any) -> Any:
    return 2 * mp.sinh(x / 2) ** 2


def tilted(x: Any, a: float, d: int = 4) -> Any:
    r = 1 / (1 - 8 * mp.mpf(a))
    return mp.exp(r * x) * ((1 + r) ** 2 / (4 * r)) ** (mp.mpf(d) / 2) - 1


def orthogonal(x: Any, d: int = 4) -> Any:
    """Return the variance of a block of d orthogonal frequencies times d."""
    return mp.expm1(x) + (d - 1) * (mp.exp(-x) * mp.hyp1f1(d, mp.mpf(d) / 2, x / 2) - 1)


def of_pairs(function: Callable[[Any], Any], sign: int = 1) -> Callable[..., Any]:
    return lambda q, k: [[function(square(x, y, sign)) for y in k] for x in q]


def covariance(q: Any, k: Any) -> list:
    u = [[a + b for a, b in zip(q[0], y)] for y in k]
    return [[mp.expm1(dot(a, b)) / 8 for b in u] for a in u]


def lognormal(x: Any) -> Any:
    """One positive feature, whose square has the moments of a lognormal distribution."""
    fourth = mp.exp(6 * x) - 4 * mp.exp(3 * x) + 6 * mp.exp(x) - 3
    return mp.log(fourth / mp.expm1(x) ** 2 - 1)


def expected(q: Any, k: Any) -> Any:
    squares = [[mp.exp(2 * y) for y in row] for row in products(q, k)]
    ours = of_pairs(mp.expm1)(q, k)
    over = mp.fsum(a * b for one, two in zip(squares, ours) for a, b in zip(one, two)) / 8
    return over / mp.fsum(map(mp.fsum, squares))


def normalised(q: Any, k: Any) -> list:
    p, R = softmax(products(q, k)[0]), covariance(q, k)
    Rp = [dot(row, p) for row in R]
    total = dot(p, Rp)
    bias = [a * (total - x) for a, x in zip(p, Rp)]
    return bias + [a * a * (R[j][j] - 2 * x + total) for j, (a, x) in enumerate(zip(p, Rp))]


# What is called where a function takes or returns more than numbers and arrays


def compared(q: Any, k: Any, e: Any, v: Any) -> dict[str, float]:
    return metrics.compare(Approximation.from_factors(e, np.eye(len(k), dtype=e.dtype)), q, k, v)


def measures(s: Any) -> list:
    found = rank.measures(s, (len(s), len(s)))
    return [found[name] for name in RANKS]


def moments(q: Any, k: Any) -> Any:
    found = normalised_moments(parse("positive(m=8)"), q, k)
    return np.concatenate([found.bias[0], found.variance[0]])


# fmt: off
# Elementary functions, parameters, collisions. For z < 0 hyp0f1 has zeros, where its logarithm has
# no digits.
M = "approx.kernels.elementary."
case(f"{M}exp", mp.exp, hard_for_exp, dtypes=BOTH)
case(f"{M}exp_rows", mp.exp, hard_for_exp, in_place, dtypes=BOTH)
case(f"{M}log", mp.log, both(numbers(5e-324, 1.7e308, more=[5e-324, 2.0**-1022, 0.5**0.5]),
                             numbers(1e-15, 0.4, signed=True, plus=1)))
case(f"{M}log_of_normal", mp.log, both(numbers(3e-308, 1.7e308),
                                       numbers(1e-15, 0.4, signed=True, plus=1)))
case("approx.projections.summand.log_cosh", log_cosh, numbers(1e-9, 1e4, signed=True))
case("approx.projections.rotated.log_hyp0f1", lambda b, x: mp.log(mp.hyp0f1(b, x)),
     lambda size, dtype: [(b, x) for b in (0.5, 4.0, 32.0) for x in draws(size, 1e-6, 1e6)],
     lambda b, x: log_hyp0f1(b, np.array([x]))[1], part="log", given=(0,))
M = "approx.random_features."
case(f"{M}generalized_exponential.optimal_tilt",
     lambda x: (1 - 2 * x - mp.sqrt((2 * x + 1) ** 2 + 8 * x)) / 16, numbers(1e-12, 1e6))
case(f"{M}geometric.optimal_rate", rate, numbers(1e-2, 1e2, of=8))
case("approx.sketches.power.power_bias", lambda x, p: (1 + x / p) ** p * mp.exp(-x) - 1,
     lambda size, dtype: [(x, p) for x in draws(size, 1e-8, 10, signed=True) for p in (1, 2, 5)],
     lambda x, p: power_bias(np.array([x]), p))

# Polynomials. At x = B, at which scaled errors are largest, sums have terms of one sign. The
# level of degree 0 is (e^2B − 1)/(e^2B + 1).
M, few = "approx.polynomials.chebyshev.", orders(8, lambda n, B: B < 20)
case(f"{M}bessel", lambda k, B: mp.besseli(k, B) * mp.exp(-B),
     orders(keep=lambda k, B: k < 4 * B + 20), lambda k, B: chebyshev.bessel(np.array([k]), B))
case(f"{M}log_bessel", lambda k, B: mp.log(mp.besseli(k, B)) - B,
     both(orders(), given((400, 2.0), (900, 50.0), (3000, 1.0))),
     lambda k, B: chebyshev.log_bessel(np.array([k]), B))
case(f"{M}log_tail", lambda n, B: mp.log(bessel_tail(n, B)), few)
case("approx.polynomials.remez.remez", mp.tanh, numbers(0.05, 6.0, of=8),
     lambda B: remez(0, B).level, part="level")
M = "approx.polynomials.error_bounds."
for name, norm, truth, samples in (
    ("lagrange", "relative", lagrange, orders()),
    ("bessel_tail", "scaled", bessel_tail, few),
    ("truncation_error", "scaled", bessel_tail, given((1, 0.5), (4, 1.0), (9, 6.0), (16, 12.0))),
):
    case(M + name, truth, samples, lambda n, B, name=name, norm=norm:
         getattr(error_bounds, name)(n, B, norm), part=norm)
case(f"{M}taylor_error", taylor, in_norms(orders(2)))
case(f"{M}power_error", power, in_norms(both(
    orders(), given(*((10**k, B) for k in (3, 6, 9, 15) for B in (0.01, 1.0, 8.0))))))

# Logits, softmax, attention
M, rows = "approx.estimate.exact.", ((2, 4), (5, 4))
case(f"{M}logits", products, gaussian((2, 64), (3, 64)), dtypes=BOTH)
case(f"{M}seen_logits", products, gaussian((2, 64), (3, 64)),
     lambda q, k: exact.seen_logits(q, k, Mask.full(2, 3), slice(0, 2)), dtypes=BOTH)
case(f"{M}kernel", each_logit(mp.exp), gaussian(*rows, scales=(0.01, 1.0, 4.0)), dtypes=BOTH)
case(f"{M}softmax", each(softmax), gaussian(*rows, scales=(0.01, 1.0, 8.0)), dtypes=BOTH)
case(f"{M}log_row_sums", each(log_sum), gaussian(*rows))
case(f"{M}attention", attended, gaussian(*rows, (5, 2), scales=SCALES[:3]), dtypes=BOTH)
case("approx.textbook.attention.softmax approx.decoding.cache.softmax", softmax,
     gaussian((9,), scales=(0.01, 1.0, 100.0)), dtypes=BOTH)
M = "approx.textbook.attention."
case(f"{M}dot_product_attention", lambda q, k, v: attended(q, k, v, 1 / mp.sqrt(len(q[0]))),
     gaussian(*rows, (5, 2), scales=SCALES[:3]), dtypes=BOTH)

# Distances, angles, parts of methods. Above 1e-6 of |x|² + |y|², squares of distances are expanded,
# which loses up to six more digits.
case("approx.estimate.distances.squared_distances", lambda x, y: of_pairs(lambda z: z, -1)(x, y),
     near((1.0, 1e-2, 2e-3, 1e-3)), dtypes=BOTH)
for dtype, gaps in ((np.float64, (1.0, 1e-2, 1e-5)), (np.float32, (1.0, 1e-2))):
    case("approx.supports.hashing.angles approx.random_features.angular_hybrid.angles",
         lambda x, y: [[angle(r, s) for s in y] for r in x], near(gaps), dtypes=(dtype,))
case("approx.kernels.pattern_products.product", products, gaussian((2, 17), (5, 17)), lambda q, k:
     pattern_products.product(q, k, scipy.sparse.csr_array(np.ones((2, 5), q.dtype))), dtypes=BOTH)
case("approx.kernels.pattern_products.matmat", times, gaussian((2, 5), (5, 3)),
     lambda s, v: pattern_products.matmat(scipy.sparse.csr_array(s), v), dtypes=BOTH)
M, shapes = "approx.estimate.approximation.Approximation.", ((2, 3), (5, 3), (5, 2))
case(f"{M}attend", lambda a, b, v: times(each(shares)(a, b), v), both(
    gaussian(*shapes, scales=(0.01, 1.0), change=positives),
    gaussian(*shapes, scales=(0.01,), change=lambda a, b, v: (abs(a), b + b.dtype.type(0.1), v))),
     lambda a, b, v: Approximation.from_factors(a, b).attend(v), dtypes=BOTH)
three = gaussian((2, 3), (3, 3), (4, 3), scales=(0.1, 1.0, 2.5))
case(f"{M}to_dense", positive, three, lambda q, k, w:
     Positive(projection=projections.Fixed(w)).approximate(q, k).to_dense(), dtypes=BOTH,
     part="positive features")
case(f"{M}to_dense", waves, three, lambda q, k, w:
     Trigonometric(projection=projections.Fixed(w)).approximate(q, k).to_dense(), dtypes=BOTH,
     part="sines and cosines")
for spec, truth in (
    ("taylor(degree=4)", lambda x: mp.fsum(x**j / mp.factorial(j) for j in range(5))),
    ("tensor_power(n=3)", lambda x: (1 + x / 3) ** 3),
    ("top_k(k=3)", mp.exp),
):
    case(f"{M}to_dense", each_logit(truth), gaussian((2, 3), (3, 3), scales=(0.1, 1.0)),
         lambda q, k, spec=spec: parse(spec).approximate(q, k).to_dense(), dtypes=BOTH, part=spec)

# Errors, ranks, statistics
for name in METRICS:
    case("analysis.errors.metrics.compare", metric(name), estimates, lambda *x, name=name:
         compared(*x)[name], part=name)
case("analysis.ranks.rank.measures", rank_measures,
     given(*(np.exp(-fall * np.arange(12.0)) for fall in (0.2, 1.0, 2.5))), measures)
case("analysis.inputs.statistics.weight_statistics", lambda x: entropy(softmax(x)), both(
    gaussian((9,), scales=(0.01, 1.0, 10.0)),
    given(*(np.array([off, 0.0, -1.0]) for off in (1.0, 8.0, 20.0, 40.0)))),
     lambda x: statistics.weight_statistics(x)["entropy"], part="entropy")

# Bias and variance of random features in closed form
M = "approx.random_features.features.RandomFeatures."
for spec, variance, sign, count in (
    ("positive(m=8)", mp.expm1, 1, 8),
    ("trigonometric(m=8)", even, -1, 4),
    ("hyperbolic(m=8)", even, 1, 4),
    ("generalized_exponential(m=8, a=-0.1)", lambda x: tilted(x, -0.1), 1, 8),
    ("positive(m=4, projection='orthogonal')", orthogonal, 1, 4),
):
    case(f"{M}_moments", of_pairs(
        lambda x, v=variance, c=count: mp.log(v(x) / c), sign), pairs(), lambda q, k, spec=spec:
         parse(spec).moments(q, k).log_relative_variance, part=spec.partition("(m")[0])
CASES[-1] = CASES[-1]._replace(part="orthogonal")
case(f"{M}_covariance", covariance, lambda size, dtype: pairs()(size, dtype)[:3],
     lambda q, k: parse("positive(m=8)").covariance(q, k, row=0))
M = "analysis.moments."
case(f"{M}squared_errors.squared_error", lambda q, k: of_pairs(lognormal)(q, k), pairs(),
     lambda q, k: squared_error(parse("positive(m=1)"), q, k).log_relative_variance,
     part="log_relative_variance")
case(f"{M}expected_errors.expected_error", lambda q, k: mp.sqrt(expected(q, k)), pairs(2, 3),
     lambda q, k: expected_error(parse("positive(m=8)"), q, k))
case(f"{M}normalised.normalised_moments", normalised,
     lambda size, dtype: pairs()(size, dtype)[:3], moments, part="bias, variance")
# fmt: on


def long_attention(size: int, dtype: type) -> Iterator[Point]:
    """Causal rows of a head: the derivatives by a formula."""
    x = next(iter(sample("smollm2").heads()))
    Q, K, V = (np.asarray(y, dtype) for y in (x.Q, x.K, x.V))
    for i in np.linspace(5, x.n - 1, 12).astype(int) if size >= 100 else (5, 40):
        value = exact.attention(Q[i : i + 1], K[: i + 1], V[: i + 1])[0]
        q, k = digits(Q[i]), digits(K[: i + 1])
        p = softmax([dot(q, y) for y in k])
        moves = [2 * mp.fsum(abs(a * b) for a, b in zip(q, y)) for y in k]
        for c in range(0, V.shape[1], 16):
            v = digits(V[: i + 1, c])
            out = dot(p, v)
            reach = mp.fsum(a * (abs(b) + abs(b - out) * m) for a, b, m in zip(p, v, moves))
            yield Point(f"row {i}, value {c}", value[c], out, reach)


CASES += [Case("approx.estimate.exact.attention", "SmolLM2", x, long_attention) for x in BOTH]
