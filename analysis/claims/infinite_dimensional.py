"""'Infinite-dimensional linear attention' (ILA): three maps from softmax to linear attention."""

import functools
import math
from collections.abc import Iterator

import numpy as np

from analysis import inputs, moments
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
    rank,
    sampled,
    slope,
    without,
)
from analysis.costs import budget
from analysis.moments import squared_errors
from analysis.ranks.rank import summary
from approx import parse
from approx.checks import Array, required
from approx.estimate import exact
from approx.estimate.approximation import Approximation
from approx.polynomials.elementwise import Elementwise
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.taylor import Taylor
from approx.polynomials.tensor_power import TensorPower
from approx.projections import Fixed
from approx.random_features.positive import Positive
from approx.textbook import attention

SOURCE = "kexue.fm 8601"


def _values(n: int) -> Array:
    return np.random.default_rng(3).standard_normal((n, 3))


def _pair(d: int = 6, length: float = 1.0) -> tuple[Array, Array]:
    """Return one query and one key with |q + k| = length and generic q·k."""
    q, k = np.random.default_rng(1).standard_normal((2, 1, d))
    unit = length / float(np.linalg.norm(q + k))
    return q * unit, k * unit


def _dense(X: Array, order: int) -> Array:
    """Return ⊗^order of every row, (n, d^order)."""
    ones = np.ones((len(X), 1))
    return functools.reduce(lambda a, b: np.einsum("ni,nj->nij", a, b).reshape(len(a), -1),
                            [X] * order, ones)  # fmt: skip


@claim("ILA-1", SOURCE)
def associativity() -> Iterator[Check]:
    """Linear attention, φ(Q)(ψ(K)ᵀV) divided by its row sums, is attention with weights φ(q)·ψ(k).
    It gives the same output, at a cost linear in the length."""
    x, V = gaussian(d=5), _values(24)
    for spec in ("positive(m=16)", "taylor(degree=2)", "elu()"):
        left, right = parse(spec).approximate(x.Q, x.K, rng=0).factors()
        weights, _ = attention.simple_normalisation(left @ right.T)
        linear = attention.linear_attention(left, right, V)
        yield at_most(f"difference, {spec}", TIGHT, difference(linear, weights @ V))
    length, d, m = 4096, 64, 128
    cost, doubled = (multiply_adds(f"positive(m={m})", n, d) for n in (length, 2 * length))
    yield equal("multiply-adds 4Lmd", 4 * length * m * d, cost - length * m)  # but for row sums
    yield equal("twice the length, linear", 2.0, doubled / cost)
    once, twice = (multiply_adds("exact()", n, d) for n in (length, 2 * length))
    yield equal("twice the length, exact", 4.0, twice / once)


@claim("ILA-2", SOURCE + ", random projection")
def positive_features() -> Iterator[Check]:
    """Positive features are unbiased: e^{q·k} = E[e^{ω·q−|q|²/2} e^{ω·k−|k|²/2}] for ω ~ N(0, I).
    With m features the variance is e^{2q·k}(e^{|q+k|²} − 1)/m."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    quadrature = Positive(projection=Fixed(nodes[:, None], weights / weights.sum()))
    integral = quadrature.approximate([[0.7]], [[-0.4]]).to_dense()
    yield at_most("Gaussian integral, difference", TIGHT, difference(integral, [[math.exp(-0.28)]]))
    q, k = _pair()
    count = 200_000
    ratio = _summands(q, k, count)
    variance = math.expm1(float(np.square(q + k).sum()))
    yield sampled("mean over exp(q·k)", 1.0, ratio.mean(), math.sqrt(variance / count))
    error = _relative_deviation(Positive(m=1), q, k) / math.sqrt(count)
    yield sampled(
        "relative variance of a feature", variance, np.square(ratio - 1).mean(), variance * error
    )


def _summands(q: Array, k: Array, count: int) -> Array:
    """Return m·φ_r(q) φ_r(k)/exp(q·k) of every feature."""
    left, right = Positive(m=count).approximate(q, k, rng=2).factors()
    return np.asarray(count * left[0] * right[0] / exact.kernel(q, k)[0, 0])


def _relative_deviation(method: Positive, q: Array, k: Array) -> float:
    """Return the standard deviation of a squared error over its mean."""
    known = required(squared_errors.squared_error(method, q, k))
    return math.exp(float(known.log_relative_variance[0, 0]) / 2)


@claim("ILA-3", SOURCE + ", random projection")
def convergence() -> Iterator[Check]:
    """As m grows, the estimate tends to e^{q·k}. Its root mean squared error falls as m^{−1/2}."""
    q, k = _pair()
    variance, draws = math.expm1(1.0), 1000
    sizes = [4, 16, 64, 256]
    squares = []
    for m in sizes:
        sample = moments.monte_carlo(Positive(m=m), q, k, draws=draws, rng=m)
        mean, spread = float(sample.mean[0, 0]), float(sample.variance[0, 0])
        squares.append((mean - 1) ** 2 + spread * (draws - 1) / draws)
        error = _relative_deviation(Positive(m=m), q, k) / math.sqrt(draws) * variance / m
        yield sampled(f"squared error, m = {m}", variance / m, squares[-1], error)
    yield near("slope of the error in m", -0.5, slope(sizes, np.sqrt(squares)), 0.05)


@claim("ILA-4", SOURCE + ", Taylor expansion")
def taylor_features() -> Iterator[Check]:
    """The Taylor sum of e^x at x = q·k, 1 + x + … + xⁿ/n!, is an inner product of features of q and
    of k."""
    x = gaussian(d=5)
    logits = exact.logits(x.Q, x.K)
    for n in range(1, 6):
        left, right = Taylor(degree=n).approximate(x.Q, x.K).factors()
        powers = [logits**j / math.factorial(j) for j in range(n + 1)]
        yield at_most(f"difference, n = {n}", TIGHT, difference(left @ right.T, sum(powers)))


@claim("ILA-5", SOURCE + ", Taylor expansion")
def tensor_powers() -> Iterator[Check]:
    """(q·k)^j is the inner product of the tensor powers ⊗^j q and ⊗^j k, of dimension d^j."""
    x = gaussian(d=5)
    power = exact.logits(x.Q, x.K) ** 4
    dense_q, dense_k = _dense(x.Q, 4), _dense(x.K, 4)
    yield equal("dense dimension 5⁴", 625, dense_q.shape[1])
    yield at_most("dense, difference", TIGHT, difference(dense_q @ dense_k.T, power))
    monomial = Approximation(Elementwise(x.Q, x.K, Polynomial.from_coefficients([0, 0, 0, 0, 1])))
    left, right = monomial.factors()
    yield at_most("compact, difference", TIGHT, difference(left @ right.T, power))


def _taylor_tensors(X: Array, n: int) -> Array:
    """Return (1, x, ⊗²x/√2, …, ⊗ⁿx/√n!)."""
    return np.concatenate(
        [_dense(X, j) / math.sqrt(math.factorial(j)) for j in range(n + 1)], axis=1
    )


@claim("ILA-6", SOURCE + ", Taylor expansion")
def taylor_widths() -> Iterator[Check]:
    """One map φ(x) = (1, x, ⊗²x/√2, …, ⊗ⁿx/√n!) serves queries and keys. Its width is (d^{n+1} −
    1)/(d − 1), or C(d+n, n) with repeated monomials merged."""
    x, n = gaussian(), 3
    phi, psi = _taylor_tensors(x.Q, n), _taylor_tensors(x.K, n)
    estimate = Taylor(degree=n).approximate(x.Q, x.K)
    yield equal("dense width, d = 4, n = 3", (4**4 - 1) // 3, phi.shape[1])
    yield equal("compact width", math.comb(7, 3), estimate.factors()[0].shape[1])
    yield at_most("difference of the two", TIGHT, difference(phi @ psi.T, estimate.to_dense()))


@claim("ILA-7", SOURCE + ", definition of exp")
def tensor_power_features() -> Iterator[Check]:
    """e^{q·k} is the limit of (1 + q·k/n)ⁿ, which is the inner product of ⊗ⁿ(1, q/√n) and ⊗ⁿ(1,
    k/√n). Their width is (d+1)ⁿ, or C(d+n, n) with repeated monomials merged."""
    # the error of the power at 1 is 1/(2n)
    x, n = gaussian(), 4
    power = (1 + exact.logits(x.Q, x.K) / n) ** n
    phi, psi = (_dense(np.column_stack([np.ones(len(X)), X / math.sqrt(n)]), n) for X in (x.Q, x.K))
    left, right = TensorPower(n=n).approximate(x.Q, x.K).factors()
    yield equal("dense width, d = 4, n = 4", 5**4, phi.shape[1])
    yield equal("compact width", math.comb(8, 4), left.shape[1])
    yield at_most("dense, difference", TIGHT, difference(phi @ psi.T, power))
    yield at_most("compact, difference", TIGHT, difference(left @ right.T, power))
    far = 10**6
    limit = float(TensorPower(n=far).approximate([[1.0]], [[1.0]]).to_dense()[0, 0])
    yield near("n(1 − p_n(1)/e), n = 10⁶", 0.5, far * (1 - limit / math.e), 1 / far)


@claim("ILA-8", SOURCE + ", on both expansions")
def feasibility() -> Iterator[Check]:
    """Polynomial features have a width of order dⁿ, usually above the length L, so they are slower
    than plain attention. This holds for dense tensors; merged monomials need one degree more to be
    slower."""
    length = 4096
    for d, dense, compact in ((64, (2, 4161), (3, 47905)), (16, (3, 4369), (4, 4845))):
        one = np.full((1, d), 0.1)
        widths = [_taylor_tensors(one, n).shape[1] for n in range(dense[0] + 1)]
        first = next(n for n, width in enumerate(widths) if width > length)
        yield equal(f"dense degree, d = {d}", dense[0], first)
        yield equal(f"dense width, d = {d}", (d ** (first + 1) - 1) // (d - 1), widths[first])
        columns = [_columns(d, n) for n in range(compact[0] + 1)]
        least = next(n for n, width in enumerate(columns) if width > length)
        yield equal(f"compact degree, d = {d}", compact[0], least)
        yield equal(f"compact width, d = {d}", math.comb(d + least, least), columns[least])
    yield without(above("compact width at d = 64, n = 2", length, _columns(64, 2)))


def _columns(d: int, n: int) -> int:
    """Return how many columns Taylor's features have; they are not built."""
    return Taylor(degree=n).approximate(np.zeros((1, d)), np.zeros((1, d))).rank


@claim("ILA-9", SOURCE + ", the low-rank problem")
def rank_of_linear_attention() -> Iterator[Check]:
    """Linear attention with m features has rank at most m, before and after its rows are
    normalised. The bound is d only where φ keeps the width d."""
    x, d = gaussian(32), 4
    for m, wrap in ((d, None), (12, without)):
        left, right = Positive(m=m).approximate(x.Q, x.K, rng=0).factors()
        found = rank(left @ right.T)
        yield equal(f"rank, m = {m}", m, found)
        rows = attention.linear_weights(left, right)
        yield equal(f"rank of the rows over their sums, m = {m}", m, rank(rows))
        if wrap:
            yield wrap(at_most(f"rank against d = {d}, m = {m}", d, found))


@claim("ILA-10", SOURCE + ", the low-rank problem")
def rank_of_softmax() -> Iterator[Check]:
    """The width d does not limit the rank of softmax attention. At high temperature d limits the
    numerical rank, because exp(x/τ) ≈ 1 + x/τ has rank d + 1."""
    x = gaussian(32)
    yield equal("rank of the logits, d = 4, L = 32", 4, rank(exact.logits(x.Q, x.K)))
    yield equal("rank of exp(logits)", 32, rank(exact.kernel(x.Q, x.K)))
    whole = inputs.gaussian(256, 8, rng=0)
    heads = [whole.at_temperature(t) for t in TEMPERATURES]
    ranks = [summary(exact.softmax(h.Q, h.K))["epsilon_rank"] for h in heads]
    yield above("rows of softmax, d = 8: ε-rank at τ = 1", 8, ranks[TEMPERATURES.index(1.0)])
    falls = np.diff(ranks)[1:] < 0
    yield equal("steps up from τ = ½ at which it falls", 4, int(falls.sum()))
    yield without(above("ε-rank of rows at τ = 8", 9, ranks[-1]))
    kernel = [summary(exact.kernel(h.Q, h.K))["epsilon_rank"] for h in heads]
    yield equal("τ where the ε-rank of exp is largest", 1.0, TEMPERATURES[int(np.argmax(kernel))])


@claim("ILA-11", SOURCE + ", conclusion")
def widths_and_errors() -> Iterator[Check]:
    """Random projection is the most practical of the three maps, because its width can be chosen
    freely. At equal width, a polynomial map is more accurate."""
    long = inputs.gaussian(128, 64, rng=0)
    names = ("positive", "taylor", "tensor_power", "random_maclaurin", "tensor_sketch")
    fit = budget.match([parse(name) for name in names], 64, long).fitting
    drawn = [m for m in fit if not m.deterministic]
    yield equal("random maps that fit 64 values a row", 3, len(drawn))
    above_one = [m for m in fit if m.deterministic and _degree(m) >= 1]
    yield equal("polynomials of degree ≥ 1 that fit", 0, len(above_one))
    whole, ahead, random_wins = inputs.gaussian(128, 8, rng=0), 0, 0
    for t in TEMPERATURES[1:5]:
        x = whole.at_temperature(t)
        specs = "taylor(degree=2)", "tensor_power(n=2)"
        fixed = [errors(x, spec)["attention_tv"] for spec in specs]
        maps = "positive(m=45)", "random_maclaurin(m=45)", "tensor_sketch(m=45, degree=2)"
        random = [errors(x, spec)["attention_tv"] for spec in maps]
        ahead += max(fixed) < min(random)
        random_wins += min(random) < min(fixed)
    yield equal("temperatures of 4 at which both polynomials are ahead, 45 columns", 4, ahead)
    yield without(above("temperatures of 4 at which a random map is", 0, random_wins))


def _degree(method: object) -> int:
    return int(getattr(method, "degree", None) or getattr(method, "n", None) or 0)


@claim("ILA-12", SOURCE + ", conclusion")
def features_needed() -> Iterator[Check]:
    """Linear attention needs a larger width to match softmax attention: a relative error ε of one
    entry takes (e^{|q+k|²} − 1)/ε² positive features."""
    for length in (1.0, 2.0, 3.0):
        q, k = _pair(length=length)
        needed = moments.features_needed(Positive(), 0.1, q, k)
        yield near(
            f"features for 10 %, |q+k|² = {length**2:.0f}",
            math.ceil(math.expm1(length**2) / 0.01 - 1e-6), needed, 0.0,
        )  # fmt: skip


# Errata


@claim("ILA-Ea", SOURCE + ", Taylor expansion")
def first_index() -> Iterator[Check]:
    """Start the Taylor sum at index 0: from index 1 it gives e^x − 1."""
    # what twenty terms at x = ½ leave is below 10⁻²⁵
    q, k = [[0.5]], [[1.0]]
    whole = Taylor(degree=20).approximate(q, k).to_dense()[0, 0]
    constant = Taylor(degree=0).approximate(q, k).to_dense()[0, 0]
    yield near("sum from 0, x = ½", math.exp(0.5), float(whole), TIGHT)
    yield printed(near("sum from 1", math.exp(0.5), float(whole - constant), TIGHT))
    yield near("sum from 1 against e^x − 1", math.expm1(0.5), float(whole - constant), TIGHT)


@claim("ILA-Eb", SOURCE + ", on both expansions")
def width_of_all_orders() -> Iterator[Check]:
    """Count all orders: the width is Σ d^j or (d+1)ⁿ, or C(d+n, n) with repeated monomials merged.
    The printed dⁿ counts one order only."""
    dense = _taylor_tensors(np.full((1, 64), 0.1), 2).shape[1]
    yield equal("dense width", 1 + 64 + 64**2, dense)
    yield equal("compact width", math.comb(66, 2), _columns(64, 2))
    yield printed(equal("dense width as printed, dⁿ", 64**2, dense))


@claim("ILA-Ec", SOURCE + ", first equation")
def missing_scale() -> Iterator[Check]:
    """Multiply q·k by 1/√d in the first equation. As printed, the equation is scaled attention only
    for q and k that already contain this factor."""
    x, V = inputs.gaussian(24, 16, rng=0), _values(24)
    scaled = attention.dot_product_attention(x.q, x.k, V)
    absorbed = exact.attention(x.q / 2, x.k / 2, V)  # √√16 = 2
    yield at_most("difference, q and k over √√d", TIGHT, difference(scaled, absorbed))
    plain = exact.attention(x.q, x.k, V)
    yield printed(at_most("difference, as printed", TIGHT, difference(scaled, plain)))


@claim("ILA-Ed", SOURCE + ", the low-rank problem")
def bound_of_the_rank() -> Iterator[Check]:
    """Bound the rank of linear attention by m, the number of features. The printed d is a bound
    only where φ keeps the width."""
    x = gaussian(32)
    found = rank(Positive(m=12).approximate(x.Q, x.K, rng=0).to_dense())
    yield equal("rank, m = 12", 12, found)
    yield printed(at_most("rank against d", 4, found))


@claim("ILA-Ee", SOURCE + ", first equation")
def summation_index() -> Iterator[Check]:
    """Give the sum in the denominator of a_ij an index of its own: j cannot be both free and summed
    over."""
    # if j is also summed over, each weight is e/e
    x = gaussian(l := 24)
    kernel = exact.kernel(x.Q, x.K)
    rows, _ = attention.simple_normalisation(kernel)
    yield near("row sum, an index of its own", 1.0, float(rows.sum(axis=1).max()), TIGHT)
    literal, _ = attention.simple_normalisation(kernel[..., None])
    total = float(literal.sum(axis=(1, 2)).max())
    yield printed(near("row sum, j in both places", 1.0, total, TIGHT))
    yield near("which is L", l, total, TIGHT)


@claim("ILA-Ef", SOURCE + ", random projection")
def kind_of_convergence() -> Iterator[Check]:
    """Read the equation as convergence in probability, with relative variance (e^{|q+k|²} − 1)/m.
    The two sides are equal at no m."""
    q, k = _pair()
    method = Positive(m=10_000)
    known = required(method.moments(q, k))
    variance = math.exp(float(known.log_relative_variance[0, 0]))
    yield near("relative variance times m", math.expm1(1.0), variance * 10_000, 1e-9)
    one = difference(method.approximate(q, k, rng=0).to_dense(), exact.kernel(q, k))
    yield printed(at_most("relative error of one draw, m = 10⁴", TIGHT, one))
    yield at_most("in standard deviations", 5.0, one / math.sqrt(variance))


@claim("ILA-Eg", SOURCE + ", Taylor expansion")
def sign_of_taylor() -> Iterator[Check]:
    """Truncate the series at an even n: the sum is then nowhere negative. At n = 1, 3 and 5 it is
    negative below −1, −1.596 and −2.181."""
    roots = {n: Taylor(degree=n).polynomial().real_roots().tolist() for n in range(1, 7)}
    cardano = -1 + math.cbrt(math.sqrt(2) - 1) - math.cbrt(math.sqrt(2) + 1)
    yield near("root, n = 1", -1.0, roots[1][0], TIGHT)
    yield near("root, n = 3", cardano, roots[3][0], TIGHT)
    rest = sum(roots[5][0] ** j / math.factorial(j) for j in range(6))
    yield near("T₅ at its root", 0.0, rest, 1e-14)
    yield equal("roots at n = 2, 4, 6", 0, sum(len(roots[n]) for n in (2, 4, 6)))
    x = gaussian(256, 8)
    negative = errors(x, "taylor(degree=3)")["negative_fraction"]
    below = float(np.mean(exact.logits(x.Q, x.K) < cardano))
    yield near("negative entries, n = 3", below, negative, TIGHT)
    yield printed(near("negative entries as printed", 0.0, negative, 0.0))


@claim("ILA-Eh", SOURCE + ", definition of exp")
def sign_of_the_power() -> Iterator[Check]:
    """Use an even n in (1 + x/n)ⁿ: only then is it ≥ 0 everywhere. At odd n it is negative below
    −n."""
    x = gaussian(256, 8, t=0.25)
    below = float(np.mean(exact.logits(x.Q, x.K) < -3))
    negative, even = (errors(x, f"tensor_power(n={n})")["negative_fraction"] for n in (3, 4))
    yield near("negative entries, n = 3: logits < −3", below, negative, TIGHT)
    yield near("negative entries, n = 4", 0.0, even, 0.0)
    yield printed(near("negative entries, n = 3, as printed", 0.0, negative, 0.0))
