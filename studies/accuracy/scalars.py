"""Functions of a few numbers: elementary, special, bounds of polynomials, collisions."""

import math
from collections.abc import Iterator

import numpy as np
from mpmath import mp

from analysis.bounds import concentration
from analysis.inputs import statistics
from analysis.moments import correction_weights
from approx.kernels import elementary as elementary
from approx.mechanisms.elu import log_elu
from approx.mechanisms.relu import log_relu
from approx.polynomials import chebyshev, error_bounds
from approx.polynomials.remez import remez
from approx.projections.rotated import log_hyp0f1
from approx.projections.summand import log_cosh
from approx.random_features.generalized_exponential import optimal_tilt
from approx.random_features.generalized_trigonometric import optimal_wave_tilt
from approx.random_features.geometric import optimal_rate
from approx.sketches.power import power_bias
from approx.supports import hashing
from approx.textbook.attention import log_length_scale
from studies.accuracy.measure import Point, measured, points

BOTH = (np.float64, np.float32)


def draws(size: int, low: float, high: float, *, signed: bool = False) -> np.ndarray:
    """Return numbers with uniform logarithms, always the same numbers."""
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(math.log(low), math.log(high), size))
    return x * rng.choice([-1.0, 1.0], size) if signed else x


def scalars(x: np.ndarray, dtype: type | None = None) -> list[tuple]:
    return [(y,) for y in np.asarray(x, dtype)]


def ones(function):
    """Return a function of vectors as a function of a number."""
    return lambda x, *more: function(np.array([x]), *more)


# Elementary


def arguments_of_exp(size: int, dtype: type) -> np.ndarray:
    """Return arguments that are hard for an exponential, and ordinary ones."""
    info = np.finfo(dtype)
    low, high = math.log(info.smallest_subnormal) + 0.5, math.log(info.max) - 1e-3
    rng = np.random.default_rng(1)
    halves = np.arange(-40, 41) * (math.log(2) / 2)  # |r| largest, and r = 0
    edges = [low, high, math.log(info.tiny), math.log(info.tiny) - 1e-3, 0.0, info.tiny]
    some = rng.choice(halves, min(size, len(halves)), replace=False)
    x = np.concatenate([edges, some, rng.uniform(low, high, size), rng.uniform(-1, 1, size)])
    return x.astype(dtype)


@measured("approx.kernels.elementary.exp", dtypes=BOTH)
def exponentials(size: int, dtype: type) -> Iterator[Point]:
    yield from points(elementary.exp, mp.exp, scalars(arguments_of_exp(size, dtype)))


@measured("approx.kernels.elementary.exp_rows", dtypes=BOTH)
def shifted_exponentials(size: int, dtype: type) -> Iterator[Point]:
    """With shift 0: the rounding of x − shift is not an error of e^x."""
    x = arguments_of_exp(size, dtype)

    def in_place(y: float) -> np.ndarray:
        out = np.full((1, 9), y, dtype)
        elementary.exp_rows(out, np.zeros(1, dtype))
        return out[0, 8:]

    yield from points(in_place, mp.exp, scalars(x, dtype))


@measured("approx.kernels.elementary.log")
def logarithms(size: int, dtype: type) -> Iterator[Point]:
    near = 1 + draws(size, 1e-15, 0.4, signed=True)
    x = np.concatenate([draws(size, 5e-324, 1.7e308), near, [5e-324, 2.0**-1022, math.sqrt(0.5)]])
    yield from points(elementary.log, mp.log, scalars(x))


@measured("approx.kernels.elementary.log_of_normal")
def logarithms_of_normal(size: int, dtype: type) -> Iterator[Point]:
    x = np.concatenate([draws(size, 3e-308, 1.7e308), 1 + draws(size, 1e-15, 0.4, signed=True)])
    yield from points(elementary.log_of_normal, mp.log, scalars(x))


@measured("approx.projections.summand.log_cosh")
def logarithms_of_cosh(size: int, dtype: type) -> Iterator[Point]:
    def truth(x):
        x = abs(x)
        return mp.log1p(2 * mp.sinh(x / 2) ** 2) if x < 1 else x + mp.log1p(mp.exp(-2 * x)) - mp.ln2

    yield from points(log_cosh, truth, scalars(draws(size, 1e-9, 1e4, signed=True)))


@measured("approx.projections.rotated.log_hyp0f1", part="log")
def hypergeometric(size: int, dtype: type) -> Iterator[Point]:
    """Arguments z ≥ 0; for z < 0 the function has zeros, where its logarithm has no digits."""
    z = draws(size, 1e-6, 1e6)
    for b in (0.5, 4.0, 32.0):
        yield from points(
            lambda b, x: log_hyp0f1(b, np.array([x]))[1],
            lambda b, x: mp.log(mp.hyp0f1(b, x)),
            [(b, x) for x in z],
            given=(0,),
        )


@measured("approx.mechanisms.elu.log_elu", dtypes=BOTH)
def logarithms_of_elu(size: int, dtype: type) -> Iterator[Point]:
    x = draws(size, 1e-8, 1e4, signed=True)
    yield from points(ones(log_elu), lambda x: mp.log1p(x) if x > 0 else x, scalars(x, dtype))


@measured("approx.mechanisms.relu.log_relu", dtypes=BOTH)
def logarithms_of_relu(size: int, dtype: type) -> Iterator[Point]:
    yield from points(ones(log_relu), mp.log, scalars(draws(size, 1e-8, 1e4), dtype))


# Parameters of random features, biases, collisions


@measured("approx.random_features.generalized_exponential.optimal_tilt")
def tilts(size: int, dtype: type) -> Iterator[Point]:
    def truth(phi):
        return (1 - 2 * phi - mp.sqrt((2 * phi + 1) ** 2 + 8 * phi)) / 16

    yield from points(optimal_tilt, truth, scalars(draws(size, 1e-12, 1e6)))


@measured("approx.random_features.generalized_trigonometric.optimal_wave_tilt")
def wave_tilts(size: int, dtype: type) -> Iterator[Point]:
    def truth(square, d):
        def slope(rho):
            return mp.mpf(d) / 2 * (rho - 1) / (rho + 1) - rho * square / (
                1 + mp.exp(square * (1 + rho))
            )

        low, high = mp.mpf(1), mp.mpf(1e12)
        for _ in range(170):
            middle = mp.sqrt(low * high)
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        return (1 - 1 / low) / 8

    samples = [(float(x), d) for x in draws(max(size // 8, 2), 1e-3, 3.0) for d in (4, 64)]
    yield from points(optimal_wave_tilt, truth, samples)


@measured("approx.random_features.geometric.optimal_rate")
def rates(size: int, dtype: type) -> Iterator[Point]:
    def truth(r):
        def slope(p):  # by p, of log I₀(2r/√(1 − p)) − log p
            y = 2 * r / mp.sqrt(1 - p)
            return mp.besseli(1, y) / mp.besseli(0, y) * r * (1 - p) ** mp.mpf(-1.5) - 1 / p

        start = mp.mpf(optimal_rate(float(r)))
        return mp.findroot(slope, (start * (1 - mp.mpf(1e-9)), start), tol=1e-60, verify=False)

    yield from points(optimal_rate, truth, scalars(draws(max(size // 8, 3), 1e-2, 1e2)))


@measured("approx.sketches.power.power_bias")
def biases_of_powers(size: int, dtype: type) -> Iterator[Point]:
    samples = [(x, p) for x in draws(size, 1e-8, 10.0, signed=True) for p in (1, 2, 5)]
    yield from points(
        lambda x, p: power_bias(np.array([x]), p),
        lambda x, p: (1 + x / p) ** p * mp.exp(-x) - 1,
        samples,
    )


@measured("approx.supports.hashing.sign_collision")
def collisions_of_signs(size: int, dtype: type) -> Iterator[Point]:
    x = np.concatenate([draws(size, 1e-9, 3.14), math.pi - draws(size, 1e-9, 1.0)])
    yield from points(hashing.sign_collision, lambda t: 1 - t / mp.pi, scalars(x))


@measured("approx.supports.hashing.e2_collision")
def collisions_of_shifted_projections(size: int, dtype: type) -> Iterator[Point]:
    def truth(c, r):
        x = mp.mpf(r) / c
        tail = 2 / mp.sqrt(2 * mp.pi) * -mp.expm1(-x * x / 2) / x
        return mp.erf(x / mp.sqrt(2)) - tail

    yield from points(hashing.e2_collision, truth, [(x, 1.0) for x in draws(size, 1e-2, 1e6)])


@measured("approx.supports.hashing.cross_polytope_collision")
def collisions_of_cross_polytopes(size: int, dtype: type) -> Iterator[Point]:
    """Two and four buckets, with a closed form; more buckets only at θ = π/2."""
    for buckets in (2, 4):
        yield from points(
            lambda t, b: hashing.cross_polytope_collision(np.array([t]), b),
            lambda t, b: (1 - t / mp.pi) ** (b // 2),
            [(x, buckets) for x in np.linspace(0.01, 3.13, 3)],
        )
    for buckets in (8, 64)[: 1 + (size > 100)]:
        value = hashing.cross_polytope_collision(np.array([math.pi / 2]), buckets)[0]
        yield Point(f"π/2, {buckets}", value, 1 / mp.mpf(buckets))


# Bessel functions, bounds and errors of polynomials


def orders(size: int) -> list[tuple]:
    """Return pairs of a degree and a bound on logits."""
    rng = np.random.default_rng(2)
    n = np.unique(np.exp(rng.uniform(0, math.log(200), size)).astype(int))
    return [(int(m), float(B)) for m, B in zip(n, np.exp(rng.uniform(-2, 4, len(n))))]


def _scaled_bessel(k, B):
    return mp.besseli(k, B) * mp.exp(-B)


@measured("approx.polynomials.chebyshev.bessel")
def bessels(size: int, dtype: type) -> Iterator[Point]:
    few = [(k, B) for k, B in orders(size) if k < 4 * B + 20]
    yield from points(lambda k, B: chebyshev.bessel(np.array([k]), B), _scaled_bessel, few)


@measured("approx.polynomials.chebyshev.log_bessel")
def logarithms_of_bessels(size: int, dtype: type) -> Iterator[Point]:
    far = [(k, B) for k, B in [*orders(size), (400, 2.0), (900, 50.0), (3000, 1.0)]]
    yield from points(
        lambda k, B: chebyshev.log_bessel(np.array([k]), B),
        lambda k, B: mp.log(mp.besseli(k, B)) - B,
        far,
    )


def _tail(n, B):
    return mp.fsum(2 * mp.besseli(k, B) for k in range(n + 1, n + 60 + int(B))) * mp.exp(-B)


@measured("approx.polynomials.chebyshev.log_tail")
def logarithms_of_tails(size: int, dtype: type) -> Iterator[Point]:
    few = [(n, B) for n, B in orders(max(size // 8, 2)) if B < 20]
    yield from points(chebyshev.log_tail, lambda n, B: mp.log(_tail(n, B)), few)


def _relative(value, B):
    return value * mp.exp(B)


@measured("approx.polynomials.error_bounds.lagrange", part="relative")
def of_lagrange(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lambda n, B: error_bounds.lagrange(n, B, "relative"),
        lambda n, B: B ** (n + 1) / mp.factorial(n + 1) * mp.exp(B),
        orders(size),
    )


@measured("approx.polynomials.error_bounds.power", part="relative")
def of_powers(size: int, dtype: type) -> Iterator[Point]:
    few = [(n, B) for n, B in orders(size) if n >= B]
    yield from points(
        lambda n, B: error_bounds.power(n, B, "relative"), lambda n, B: B * B / n, few
    )


@measured("approx.polynomials.error_bounds.peano", part="relative")
def of_peano(size: int, dtype: type) -> Iterator[Point]:
    def truth(n, B):
        q = 1 / (1 - B / n)
        first, second = (B * q) ** 2 / 2, 2 * (B * q) ** 3 / 3
        return (second + first**2) / (4 * mp.mpf(n) ** 2)

    few = [(n, B) for n, B in orders(size) if n > B]
    yield from points(lambda n, B: error_bounds.peano(n, B, "relative"), truth, few)


@measured(
    "approx.polynomials.error_bounds.bessel_tail",
    "approx.polynomials.error_bounds.aliasing",
    part="scaled",
)
def of_tails(size: int, dtype: type) -> Iterator[Point]:
    few = [(n, B) for n, B in orders(max(size // 8, 2)) if B < 20]
    yield from points(lambda n, B: error_bounds.bessel_tail(n, B, "scaled"), _tail, few)
    yield from points(
        lambda n, B: error_bounds.aliasing(n, B, "scaled"), lambda n, B: 2 * _tail(n, B), few
    )


def taylor_truth(n, B, norm):
    rest = mp.gammainc(n + 1, 0, B, regularized=True)  # at B, over e^B
    if norm == "scaled":
        return rest
    return B ** (n + 1) / mp.factorial(n + 1) * mp.exp(B) * mp.hyp1f1(1, n + 2, -B)


def power_truth(n, B, norm):
    def at(x):
        return abs(mp.exp(n * mp.log1p(x / n) - x) - 1) if x > -n else mp.mpf(1)

    if norm == "scaled":
        return at(B)
    below = abs((1 - B / n) ** n * mp.exp(B) - 1)
    return max(at(B), below, mp.mpf(n <= B))


def _of_norms(function, truth, samples):
    for norm in ("relative", "scaled"):
        yield from points(
            lambda n, B, norm=norm: function(n, B, norm),
            lambda n, B, norm=norm: truth(n, B, norm),
            samples,
        )


@measured("approx.polynomials.error_bounds.taylor_error")
def errors_of_taylor(size: int, dtype: type) -> Iterator[Point]:
    yield from _of_norms(error_bounds.taylor_error, taylor_truth, orders(max(size // 2, 4)))


@measured("approx.polynomials.error_bounds.power_error")
def errors_of_powers(size: int, dtype: type) -> Iterator[Point]:
    large = [(10**k, B) for k in (3, 6, 9, 15) for B in (0.01, 1.0, 8.0)]
    yield from _of_norms(error_bounds.power_error, power_truth, [*orders(size), *large])


@measured("approx.polynomials.error_bounds.richardson_error")
def errors_of_richardson(size: int, dtype: type) -> Iterator[Point]:
    """At x = B, at which the scaled error is largest for B < n."""

    def truth(n, B):
        p = [(1 + B / m) ** m * mp.exp(-B) for m in (n, 2 * n)]
        return abs(2 * p[1] - p[0] - 1)

    few = [(n, B) for n, B in orders(max(size // 4, 4)) if n > 4 * B]
    yield from points(lambda n, B: error_bounds.richardson_error(n, B, "scaled"), truth, few)


@measured(
    "approx.polynomials.error_bounds.truncation_error",
    "approx.polynomials.error_bounds.interpolation_error",
)
def errors_of_chebyshev(size: int, dtype: type) -> Iterator[Point]:
    """At x = B, at which the scaled error is largest; both sums have terms of one sign there."""

    def interpolation(n, B):
        x = [B * mp.cos(mp.pi * (2 * i + 1) / (2 * n + 2)) for i in range(n + 1)]
        y = [mp.exp(a - B) for a in x]
        at, found = B, mp.mpf(0)
        for i in range(n + 1):
            w = mp.mpf(1)
            for j in range(n + 1):
                w *= 1 if i == j else (at - x[j]) / (x[i] - x[j])
            found += w * y[i]
        return abs(found - 1)

    few = [(n, B) for n, B in [(1, 0.5), (4, 1.0), (9, 6.0), (16, 12.0)]]
    yield from points(lambda n, B: error_bounds.truncation_error(n, B, "scaled"), _tail, few)
    yield from points(
        lambda n, B: error_bounds.interpolation_error(n, B, "scaled"), interpolation, few[:3]
    )


@measured("approx.polynomials.remez.remez", "approx.polynomials.error_bounds.level", part="level")
def levels(size: int, dtype: type) -> Iterator[Point]:
    """Degree 0, in closed form: (e^2B − 1)/(e^2B + 1) relative, sinh B absolute, over e^B."""
    for B in draws(max(size // 8, 2), 0.05, 6.0):
        yield from points(lambda B: remez(0, B).level, mp.tanh, [(float(B),)])
        yield from points(
            lambda B: error_bounds.level(0, B, "scaled"),
            lambda B: mp.sinh(B) * mp.exp(-B),
            [(float(B),)],
        )


@measured("approx.polynomials.error_bounds.error_bound", part="taylor")
def bounds_by_name(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lambda n, B: error_bounds.error_bound("taylor", n, B),
        lambda n, B: B ** (n + 1) / mp.factorial(n + 1) * mp.exp(B),
        orders(size),
    )


@measured("approx.polynomials.error_bounds.sup_error", part="taylor")
def errors_by_name(size: int, dtype: type) -> Iterator[Point]:
    few = orders(max(size // 2, 4))
    yield from points(
        lambda n, B: error_bounds.sup_error("taylor", n, B),
        lambda n, B: taylor_truth(n, B, "relative"),
        few,
    )


# Numbers of a sample


@measured("analysis.bounds.concentration.upper", part="hoeffding, Bernstein")
def bounds_of_means(size: int, dtype: type) -> Iterator[Point]:
    def hoeffding(x, delta):
        return min(1, sum(x) / len(x) + mp.sqrt(mp.log(1 / delta) / (2 * len(x))))

    def bernstein(x, delta):
        b, mean = len(x), sum(x) / len(x)
        s2, L = sum((y - mean) ** 2 for y in x) / (b - 1), mp.log(2 / delta)
        return min(mp.mpf(1), mean + mp.sqrt(2 * s2 * L / b) + 7 * L / (3 * (b - 1)))

    rng = np.random.default_rng(3)
    samples = [(rng.uniform(size=b) ** 4, 0.05) for b in ((40, 90) if size >= 20 else (12,))]
    for kind, truth in (("hoeffding", hoeffding), ("empirical_bernstein", bernstein)):
        yield from points(
            lambda x, delta, kind=kind: concentration.upper(x, delta, kind=kind), truth, samples
        )


@measured("analysis.moments.correction_weights.effective_number")
def effective_numbers(size: int, dtype: type) -> Iterator[Point]:
    rng = np.random.default_rng(4)
    yield from points(
        correction_weights.effective_number,
        lambda p: sum(p) ** 2 / sum(x * x for x in p),
        [(np.exp(s * rng.standard_normal(40)),) for s in (0.1, 1.0, 5.0)],
    )


@measured("analysis.moments.correction_weights.threshold")
def thresholds(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lambda pi, b, v: correction_weights.threshold(pi, bias=b, variance=v),
        lambda pi, b, v: 1 + (1 + v / b**2) / pi,
        [(float(x), -float(y), 0.3) for x, y in zip(draws(8, 1e-6, 0.9), draws(8, 1e-3, 2))],
    )


@measured("analysis.inputs.statistics.gaussian_entropy")
def entropies_of_gaussian_logits(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        statistics.gaussian_entropy,
        lambda n, beta: mp.log(n) - beta**2 / 2,
        [(n, float(b)) for n in (7, 512, 2**20) for b in (0.1, 1.0, 1.9)],
    )


@measured("analysis.inputs.statistics.dot_product_variance")
def variances_of_products(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        statistics.dot_product_variance,
        lambda d, rho: d + d * (d - 1) * rho**2,
        [(d, float(r)) for d in (3, 64) for r in (0.1, -0.7)],
    )


@measured("approx.textbook.attention.log_length_scale")
def scales_by_length(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        log_length_scale,
        lambda n, d: mp.log(n) / (mp.log(512) * mp.sqrt(d)),
        [(n, d) for n in (2, 700, 10**6) for d in (64, 100)],
    )
