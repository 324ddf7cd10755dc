"""'Attention mechanism note' (ATT): kernel regression, scores, and the scale 1/√d."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import iti0k0

from analysis import inputs
from analysis.claims.evidence import (
    TEMPERATURES,
    TIGHT,
    Check,
    above,
    at_most,
    claim,
    difference,
    equal,
    near,
    printed,
    rank,
    sampled,
    without,
)
from analysis.inputs import statistics as input_statistics
from approx.checks import Array
from approx.estimate import exact
from approx.textbook import attention

SOURCE = "Attention mechanism note"
PAIRS = 100_000  # how many pairs of q and k are drawn


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _weights() -> tuple[Array, Array, Array, Array]:
    """Return X (10, 6), W_q and W_k (6, 4), W_v (6, 3)."""
    rng = _rng()
    return (
        rng.standard_normal((10, 6)), *rng.standard_normal((2, 6, 4)), rng.standard_normal((6, 3)),
    )  # fmt: skip


@claim("ATT-1", SOURCE + ", kernel regression")
def kernel_regression() -> Iterator[Check]:
    """Nadaraya–Watson regression with a Gaussian kernel has weights softmax(−½(q − k)²), because
    1/√(2π) cancels. With a parameter w the weights are softmax(−½(q − k)²w)."""
    q, k = _rng().standard_normal((2, 12, 1))
    u = q - k.T
    for w in (1.0, 0.25, 4.0):
        kernel = np.exp(-0.5 * (math.sqrt(w) * u) ** 2) / math.sqrt(2 * math.pi)
        want, _ = attention.simple_normalisation(kernel)
        weights = attention.nadaraya_watson(q, k, w=w)
        yield at_most(f"difference, w = {w:g}", TIGHT, difference(weights, want))


@claim("ATT-2", "not in the source: the bridge from kernel regression to dot products")
def bridge() -> Iterator[Check]:
    """softmax(−½|q − k|²) equals softmax(q·k − ½|k|²). This is softmax(q·k) only where |k| is
    constant."""
    x, ball = inputs.gaussian(24, 4, rng=0), inputs.sphere(24, 4, rng=0)
    regression = attention.nadaraya_watson(x.q, x.k)
    logits = attention.regression_logits(x.q, x.k)
    yield at_most("difference", TIGHT, difference(attention.softmax(logits), regression))
    on = attention.nadaraya_watson(ball.q, ball.k)
    yield at_most("of softmax(q·k), |k| = 2", TIGHT, difference(exact.softmax(ball.q, ball.k), on))
    off = float(np.abs(exact.softmax(x.q, x.k) - regression).max())
    yield without(at_most("of softmax(q·k), any |k|", TIGHT, off))


@claim("ATT-3", SOURCE + ", scores")
def additive_score() -> Iterator[Check]:
    """The additive score w_vᵀ tanh(W_q q + W_k k) allows queries and keys of different widths. The
    widths do not bound its rank."""
    rng = _rng()
    Q, K = rng.standard_normal((24, 3)), rng.standard_normal((20, 5))
    W_q, W_k, w = rng.standard_normal((8, 3)), rng.standard_normal((8, 5)), rng.standard_normal(8)
    scores = attention.additive_scores(Q, K, W_q, W_k, w)
    loop = [[float(w @ np.tanh(W_q @ q + W_k @ k)) for k in K] for q in Q]
    yield equal("shape", (24, 20), tuple(scores.shape))
    yield at_most("difference from the loop", TIGHT, difference(scores, loop))
    bilinear = exact.logits(Q, K[:, :3])
    yield equal("rank of q·k", 3, rank(bilinear))
    yield above("rank of the additive score", 3, rank(scores))


@claim("ATT-4", SOURCE + ", dot-product, self- and multi-head attention")
def dot_product() -> Iterator[Check]:
    """Scaled dot-product attention is softmax(QKᵀ/√d)V. Self-attention computes Q, K and V from one
    X; multi-head attention concatenates several heads."""
    X, W_q, W_k, W_v = _weights()
    q, k, v = X[:7] @ W_q, X @ W_k, X @ W_v
    output = attention.dot_product_attention(q, k, v)
    yield equal("shape, m = 7, n = 10, v = 3", (7, 3), tuple(output.shape))
    formula = attention.softmax(q @ k.T / math.sqrt(4)) @ v
    yield at_most("difference from softmax(QKᵀ/√d)V", TIGHT, difference(output, formula))
    alone = attention.dot_product_attention(q[:1], k, v)
    yield at_most("of one query alone", TIGHT, difference(output[:1], alone))
    order = _rng().permutation(10)
    whole = attention.self_attention(X, W_q, W_k, W_v)
    permuted = attention.self_attention(X[order], W_q, W_k, W_v)
    yield at_most("of permuted tokens", TIGHT, difference(permuted, whole[order]))
    second = attention.self_attention(X, W_k, W_q, W_v)
    heads = attention.multi_head_attention(
        X, np.stack([W_q, W_k]), np.stack([W_k, W_q]), np.stack([W_v, W_v]), np.eye(6)
    )
    yield at_most("of two heads", TIGHT, difference(heads, np.hstack([whole, second])))


def _logits(d: int) -> Array:
    """Return q·k of independent pairs of N(0, I_d)."""
    x = inputs.gaussian(PAIRS, d, rng=d)
    return np.asarray(np.einsum("id,id->i", x.q, x.k))


def _fourth_error(d: int) -> float:
    """Return the standard error of the mean of (q·k)⁴, by E(q·k)^{2r} = (2r−1)!!·E|k|^{2r}."""
    fourth = 3 * d * (d + 2)
    eighth = 105 * d * (d + 2) * (d + 4) * (d + 6)
    return math.sqrt((eighth - fourth**2) / PAIRS)


@claim("ATT-5", SOURCE + ", the scale")
def variance_of_logits() -> Iterator[Check]:
    """If the components of q and k are independent, of mean 0 and variance 1, then q·k has mean 0
    and variance d. Its kurtosis is 3 + 6/d if they are normal."""
    for d in (1, 16, 64):
        x = _logits(d)
        yield sampled(f"mean, d = {d}", 0.0, float(x.mean()), math.sqrt(d / PAIRS))
        error = math.sqrt((3 * d * (d + 2) - d**2) / PAIRS)
        yield sampled(f"variance, d = {d}", d, float(np.mean(x**2)), error)
        fourth = float(np.mean(x**4)) / d**2
        yield sampled(f"kurtosis, d = {d}", 3 + 6 / d, fourth, _fourth_error(d) / d**2)
    head = inputs.gaussian(1000, 64, rng=0).at_temperature(1.0)
    pairs = np.einsum("id,id->i", head.Q, head.K)
    error = math.sqrt((2 + 6 / 64) / 1000)
    yield sampled("variance over d, t = 1", 1.0, float(np.mean(pairs**2)), error)


@claim("ATT-6", SOURCE + ", the scale")
def saturation() -> Iterator[Check]:
    """Unless d is small, q·k lies within ±3√d, and within ±3 after division by √d. Without this
    scale, softmax saturates and its gradient vanishes."""
    normal = math.erfc(3 / math.sqrt(2))
    # to first order, the excess kurtosis 6/d adds 2 φ(3) He₃(3)/24 times itself to the tails
    tails = normal + 2 * math.exp(-4.5) / math.sqrt(2 * math.pi) * 18 / 24 * 6 / 64
    error = math.sqrt(tails / PAIRS)
    beyond = {d: float(np.mean(np.abs(_logits(d)) > 3 * math.sqrt(d))) for d in (1, 64)}
    yield sampled("share beyond 3√d, d = 64", tails, beyond[64], error)
    yield without(sampled("share beyond 3√d, d = 1", normal, beyond[1], error))
    g = np.random.default_rng(0).standard_normal((256, 64))
    statistics = [input_statistics.weight_statistics(g / t) for t in TEMPERATURES[::-1]]
    largest = [float(x["largest_weight"].mean()) for x in statistics]
    yield equal(
        "steps down in τ at which the largest weight grows", 5, int(np.sum(np.diff(largest) > 0))
    )
    peak = max(float(np.median(x["jacobian_norm"])) for x in statistics)
    raw = input_statistics.weight_statistics(g * math.sqrt(4096))["jacobian_norm"]
    shrunk = peak / float(np.median(raw))
    yield above("median Jacobian at its best τ over unscaled, d = 4096", 100.0, shrunk)
    flat = float(attention.jacobian_norm(np.full(64, 1 / 64)))
    yield near("Jacobian of 64 equal weights", math.sqrt(1 / 64 - 1 / 64**2), flat, TIGHT)


@claim("ATT-7", SOURCE + ", normalisation")
def simple_normalisation() -> Iterator[Check]:
    """Scores divided by their sum, s = a/Σa, are weights only if all a ≥ 0 and the sum
    is positive."""
    rng, rows = _rng(), 20_000
    scores = rng.standard_normal((rows, 3))
    weights, bad = attention.simple_normalisation(np.exp(scores))
    yield equal("violations, exp of the scores", 0.0, bad)
    yield at_most("row sums off 1", TIGHT, float(np.abs(weights.sum(axis=1) - 1).max()))
    _, share = attention.simple_normalisation(scores)
    yield sampled("violations, signed scores", 7 / 8, share, math.sqrt(7 / 64 / rows))
    yield without(equal("and none, as if for any score", 0.0, share))


# Errata


@claim("ATT-Ea", SOURCE + ", the scale")
def variance_formula() -> Iterator[Check]:
    """Use Var(q·k) = Σ_i E[q_i²]E[k_i²] = d: the printed sum of E[q_i]²E[k_i]² is 0."""
    d = 16
    x = inputs.gaussian(PAIRS, d, rng=0)
    right = float(np.mean(x.q**2, axis=0) @ np.mean(x.k**2, axis=0))
    error = math.sqrt(4 * d / PAIRS)
    yield sampled("Σ E[q_i²]E[k_i²]", d, right, error)
    literal = float(np.sum(x.q.mean(axis=0) ** 2) * np.sum(x.k.mean(axis=0) ** 2))
    yield printed(sampled("Σ E[q_i]²E[k_i]²", d, literal, error))


@claim("ATT-Eb", SOURCE + ", the scale")
def correlation() -> Iterator[Check]:
    """Require uncorrelated components, and q independent of k, for Var(q·k) = d. The mean and the
    variance of the components are not enough."""
    d = 16
    x = inputs.gaussian(PAIRS, 1, rng=0)
    same = np.einsum("id,id->i", np.tile(x.q, d), np.tile(x.k, d))
    whole = float(np.trace(np.ones((d, d)) @ np.ones((d, d))))  # tr C² for the covariance C
    yield equal("d + d(d − 1)ρ² at ρ = 1", float(d**2), whole)
    yield sampled(
        "variance, equal components", whole, float(same.var()), whole * math.sqrt(8 / PAIRS)
    )
    yield printed(
        sampled("the same against d", d, float(same.var()), math.sqrt((2 + 6 / d) / PAIRS) * d)
    )
    y = inputs.gaussian(PAIRS, d, rng=1)
    norms = np.einsum("id,id->i", y.q, y.q)
    yield printed(sampled("mean, q = k, against 0", 0.0, norms.mean(), math.sqrt(2 * d / PAIRS)))


@claim("ATT-Ec", SOURCE + ", the scale")
def three_sigma() -> Iterator[Check]:
    """Apply the 3σ rule only to normal variables: at small d, q·k is not normal."""
    # P(|q·k| > 3) is 1 − (2/π)∫₀³K₀ at d = 1, and the kurtosis is 9
    x = _logits(1)
    product = 1 - 2 / math.pi * float(iti0k0(3.0)[1])
    normal = math.erfc(3 / math.sqrt(2))
    share = float(np.mean(np.abs(x) > 3))
    error = math.sqrt(product * (1 - product) / PAIRS)
    yield sampled("share beyond 3σ, d = 1", product, share, error)
    yield printed(sampled("share beyond 3σ, as printed", normal, share, error))
    yield sampled("kurtosis, d = 1", 9.0, float(np.mean(x**4)), _fourth_error(1))


@claim("ATT-Ed", SOURCE + ", self-attention")
def width_of_the_head() -> Iterator[Check]:
    """Divide by √b, where b is the width of the projected queries, if W ∈ ℝ^{d×b}. The printed √d
    uses the width of the input."""
    X, W_q, W_k, W_v = _weights()
    attended = attention.self_attention(X, W_q, W_k, W_v)
    logits = (X @ W_q) @ (X @ W_k).T
    right, literal = (attention.softmax(logits / math.sqrt(x)) @ X @ W_v for x in (4, 6))
    yield at_most("difference, √b", TIGHT, difference(attended, right))
    yield printed(at_most("difference, √d", TIGHT, difference(attended, literal)))
    output = tuple(attention.self_attention(X, W_q, W_k, W_q).shape)
    yield equal("shape for W_v ∈ ℝ^{d×b}, m = 10", (10, 4), output)
    yield printed(equal("shape as printed, m × d", (10, 6), output))


@claim("ATT-Ee", SOURCE + ", kernel regression")
def bandwidth() -> Iterator[Check]:
    """Write w² for a parameter that is moved out of the square ((q − k)w)²: w alone gives another
    bandwidth."""
    q, k = _rng().standard_normal((2, 12, 1))
    textbook = attention.softmax(-0.5 * ((q - k.T) * 3) ** 2)
    inside = difference(attention.nadaraya_watson(q, k, w=9.0), textbook)
    yield at_most("difference, w² outside", TIGHT, inside)
    outside = difference(attention.nadaraya_watson(q, k, w=3.0), textbook)
    yield printed(at_most("difference, w outside", TIGHT, outside))


@claim("ATT-Ef", SOURCE + ", normalisation")
def any_score() -> Iterator[Check]:
    """Require a ≥ 0 for the weights a/Σa: with scores of both signs, a weight can be of
    any size."""
    x = inputs.gaussian(1000, 4, rng=0)
    scores = exact.logits(x.q, x.k[:8])
    weights, _ = attention.simple_normalisation(np.exp(scores))
    yield at_most("largest weight, exp", 1.0, float(np.abs(weights).max()))
    signed, _ = attention.simple_normalisation(scores)
    yield printed(at_most("largest weight, q·k", 1.0, float(np.abs(signed).max())))


@claim("ATT-Eg", SOURCE + ", notation")
def shapes() -> Iterator[Check]:
    """Take m queries, n keys and the weight matrices W_q, W_k, W_v. Attention times V is then a
    product of matrices, of shape m × v."""
    X, W_q, W_k, W_v = _weights()
    output = attention.dot_product_attention(X[:7] @ W_q, X @ W_k, X @ W_v)
    yield equal("shape of the output", (7, 3), tuple(output.shape))
    yield printed(equal("shape with n queries", (10, 3), tuple(output.shape)))
    yield printed(equal("numbers, of a dot product with V", 1, int(output.size)))
