"""What follows from a few lines: noisy logits, means of groups, small formats, aligned features."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import scipy.optimize
import scipy.special

from analysis import inputs
from analysis.claims.evidence import Check, above, at_most, claim, near, sampled
from analysis.inputs import Head
from analysis.moments import features_needed
from approx import parse
from approx.checks import Array, required
from approx.compressed_logits.coded_keys import CodedKeys
from approx.compressed_logits.normal_levels import lloyd_max

D = 64
DRAWS = 40
E4M3 = 3, -6  # bits of the fraction, and the least exponent of a normal number


def _coded(spec: str) -> CodedKeys:
    method = parse(spec)
    assert isinstance(method, CodedKeys)
    return method


@claim("MASS-1", "derived from the law of a noisy logit, which JC-1 checks")
def noisy_mass() -> Iterator[Check]:
    """Coded keys whose logits have errors of variance σ² take mass from exact keys. If exp(q·k)
    sums to Z over many coded keys and to e^s over the exact ones, the share of the coded keys
    becomes Z·e^(σ²/2)/(Z·e^(σ²/2) + e^s): .622 in place of ½ at σ = 1. Subtracting σ²/2 gives the
    mass back."""
    rng = np.random.default_rng(0)
    q, K = rng.standard_normal((1, D)), rng.standard_normal((1000, D))
    spec = "quantised(bits=1, dither=True{})"
    q /= math.sqrt(required(_coded(spec.format("")).logit_moments(q, K)).variance.mean())
    s = float(scipy.special.logsumexp(q @ K.T))  # the exact keys have as much mass
    for more, variance in (("", 1.0), (", corrected=True", 0.0)):
        method = _coded(spec.format(more))
        raised = np.exp(q @ K.T - s) @ (1 + required(method.moments(q, K)).relative_bias[0])
        mean = float(raised[0] / (raised[0] + 1))
        shares = [
            float(method.approximate(q, K, rng=i, sink=s).attend(np.ones((1000, 1)))[0, 0])
            for i in range(DRAWS)
        ]
        # the closed form of the errors, which are not normal, and have σ² = 1 on average
        yield near(f"share by the mean of exp{more}", scipy.special.expit(variance / 2), mean, 0.01)
        error = float(np.std(shares)) / math.sqrt(DRAWS)
        yield sampled(f"share, {DRAWS} draws{more}", mean, float(np.mean(shares)), error)


@claim("ROPE-1", "derived: a sum of g turns by one angle")
def turned_means() -> Iterator[Check]:
    """If a bias of keys turns by an angle θ from key to key, the mean over g keys keeps the share
    |sin(gθ/2)/(g·sin(θ/2))| of it. So keys without this mean keep the rest, and coding them has the
    variance of the rest."""
    bias, D1 = 100.0, lloyd_max(2).distortion
    for g, theta in itertools.product((16, 64), (1.0, 0.03, 0.001)):
        angles = theta * np.arange(g)
        keys = bias * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        codes = _coded(f"turboquant(bits=2, group={g})").codes(keys, np.random.default_rng(0))
        rest = float(codes.error_variance.mean()) * 2 / (D1 * (1 - D1) * bias**2)
        share = abs(math.sin(g * theta / 2) / (g * math.sin(theta / 2)))
        yield near(f"share of the variance, g = {g}, θ = {theta}", 1 - share**2, rest, 1e-9)


def rounded_to(x: Array, fraction: int, least: int) -> Array:
    """Return x ≥ 0 as the nearest numbers of a small format, ties to even, without an upper end."""
    exponent = np.maximum(np.floor(np.log2(x)), least)
    return np.asarray(
        np.ldexp(
            np.rint(np.ldexp(x, fraction - exponent.astype(int))), (exponent.astype(int) - fraction)
        )
    )


@claim("FP8-1", "derived from the format e4m3; small formats inside attention: arXiv 2510.04212")
def small_weights() -> Iterator[Check]:
    """If weights e^(z − max) are rounded to e4m3 with scale 1, and the sum that divides is not, the
    output of values 1 is not 1. The least number is 2⁻⁹, and 2⁻¹⁰ rounds to 0. So one key and 4095
    keys whose logit is Δ smaller give 1/(1 + 4095e^(−Δ)) for Δ > 10·ln 2: .211 at 7, but 1.755 at
    6.9. If the sum is rounded, too, the output is 1."""
    for gap, want in ((7.0, 1 / (1 + 4095 * math.exp(-7.0))), (6.9, 1.755)):
        weights = np.exp(-np.append(0.0, np.full(4095, gap)))
        rounded = rounded_to(weights, *E4M3)
        yield near(f"output at Δ = {gap}", want, float(rounded.sum() / weights.sum()), 5e-4)
    below, over = (rounded_to(np.exp([-10 * math.log(2) + x]), *E4M3)[0] for x in (-1e-9, 1e-9))
    yield near("weight just below and above 2⁻¹⁰", 2.0**-9, float(below + over), 0.0)


@claim("SCALE-1", "derived; arXiv 2604.18555 and TheTom/turboquant_plus ba52ad1 discuss scales")
def three_scales() -> Iterator[Check]:
    """Which scale of a rotated code c of u = k/|k| gives exp the least bias depends on the query:
    1/(u·c) (EDEN) for q ∥ k, where its logit is exact; u·c/|c|² (least squares) for q ⟂ k, where it
    has the least variance; and 1/|c| on average over queries of all directions, where it has no
    bias, whatever the code is."""
    K = np.random.default_rng(0).standard_normal((400, D))
    K /= np.linalg.norm(K, axis=1, keepdims=True)
    for bits in (1, 2, 4):
        mse, *keys = (
            _coded(f"turboquant(bits={bits}, form='{form}')").compressed(K, K)[1]
            for form in ("mse", "eden", "norm")
        )
        squares = np.einsum("ld,ld->l", mse, K) / np.einsum("ld,ld->l", mse, mse)
        least, eden, norm = (
            [abs(scale_bias(4.0, K, x, cosine)) for cosine in (1.0, 0.0, None)]
            for x in (squares[:, None] * mse, *keys)
        )
        yield at_most(f"bias of 1/(u·c), q ∥ k, {bits} bits", 1e-9, eden[0])
        yield at_most(f"bias of 1/|c|, all directions, {bits} bits", 1e-9, norm[2])
        for name, others in (("1/|c|", norm), ("1/(u·c)", eden)):
            yield above(f"its bias over that of least squares, {name}, q ⟂ k, {bits} bits", 1.0,
                        others[1] / least[1])  # fmt: skip
        yield above(f"least bias of the others, q ∥ k, {bits} bits", 0.005, min(least[0], norm[0]))
        of_all = min(least[2], eden[2])
        yield above(f"least bias of the others, all directions, {bits} bits", 0.0005, of_all)


def scale_bias(size: float, K: Array, coded: Array, cosine: float | None) -> float:
    """Return E exp(q·k̂)/E exp(q·k) − 1 over rotations about unit keys k, and their mean.

    The size is |q|, and cosine that of q and k; None: over all directions of q.
    """
    norms, along = np.linalg.norm(coded, axis=1), np.einsum("ld,ld->l", K, coded)
    if cosine is None:
        ratio = _sphere(size * norms, D) / _sphere(size, D)
    else:
        across = np.sqrt(np.maximum(norms**2 - along**2, 0) * (1 - cosine**2))
        ratio = np.exp(size * cosine * (along - 1)) * _sphere(size * across, D - 1)
    return float(ratio.mean() - 1)


def _sphere(size: Array | float, d: int) -> Array:
    """Return the mean of exp(size·w) over a coordinate w of the unit sphere in d dimensions."""
    return np.asarray(scipy.special.hyp0f1(d / 2, np.square(size) / 4))


@claim("ALIGN-1", "derived; data-aligned features: arXiv 2603.04127, abstract")
def aligned_features() -> Iterator[Check]:
    """exp(q·k) = exp((Aᵀq)·(A⁻¹k)) for every invertible A, and the log of the summed second moments
    of positive features is convex in S = AAᵀ. On the tokens that A is fitted to, the features for
    an error of 10 % fall from 10^13.1 to 10^8.6 (MiniLM easy) and from 10^62.9 to 10^39.5 (SmolLM2
    retrieval). On fresh tokens they rise from 10^16.3 to 10^17.9 (Gaussian) and from 10^9.5 to
    10^10.3 (the other half of MiniLM easy), and fall from 10^63.5 to 10^54.1 (of SmolLM2
    retrieval)."""
    easy, *_ = inputs.sample("minilm").heads()
    *_, retrieval = inputs.sample("smollm2").heads()
    A, B = aligned(easy), np.diag(np.linspace(0.5, 2.0, easy.d))
    middle = np.linalg.cholesky((A @ A.T + B @ B.T) / 2)
    one, other, between = (second_moments(easy, x)[0] for x in (A, B, middle))
    yield above("mean at two S less the value between", 0.0, (one + other) / 2 - between)
    one_text, fresh = (inputs.gaussian(512, 128, rng=i).at_temperature(1.0) for i in (0, 1))
    cases: list[tuple[str, Head, Head, float, float]] = [
        ("MiniLM easy", easy, easy, 13.1, 8.6),
        ("SmolLM2 retrieval", retrieval, retrieval, 62.9, 39.5),
        ("fresh Gaussian", one_text, fresh, 16.3, 17.9),
        ("other half of MiniLM easy", *_halves(easy), 9.5, 10.3),
        ("other half of SmolLM2 retrieval", *_halves(retrieval), 63.5, 54.1),
    ]
    for name, fitted, x, before, after in cases:
        found = aligned(fitted)
        for which, want, Z in (("I", before, np.eye(x.d)), ("fitted", after, found)):
            m = features_needed(
                parse("positive"), 0.1, x.Q @ Z, np.linalg.solve(Z, x.K.T).T, mask=x.mask
            )
            yield near(f"log10 of features, {name}, A {which}", want, math.log10(m), 0.05)


def _halves(x: Head) -> tuple[Head, Head]:
    mask, half = None if x.mask.is_full else "causal", x.n // 2
    return (
        Head(x.name, x.q[:half], x.k[:half], mask=mask),
        Head(x.name, x.q[half:], x.k[half:], mask=mask),
    )


def second_moments(x: Head, A: Array) -> tuple[float, Array]:
    """Return log Σ exp(|Aᵀq|² + |A⁻¹k|² + 4 q·k) over seen pairs, and its gradient at A·I."""
    Q, K = x.Q @ A, np.linalg.solve(A, x.K.T).T
    z = 4 * (Q @ K.T) + np.square(Q).sum(axis=1)[:, None] + np.square(K).sum(axis=1)
    z[~x.mask.visible()] = -np.inf
    log = float(scipy.special.logsumexp(z))
    p = np.exp(z - log)
    return log, 2 * ((Q.T * p.sum(axis=1)) @ Q - (K.T * p.sum(axis=0)) @ K)


def aligned(x: Head, rounds: int = 4, steps: int = 60) -> Array:
    """Return a lower triangular A of the least `second_moments`, by L-BFGS over A·L from L = I."""
    A, places = np.eye(x.d), np.tril_indices(x.d)
    for _ in range(rounds):  # each round starts at L = I, where all directions are alike
        L = np.zeros((x.d, x.d))

        def objective(v: Array, A: Array = A, L: Array = L) -> tuple[float, Array]:
            L[places] = v
            log, gradient = second_moments(x, A @ L)
            return log, np.linalg.solve(L.T, gradient)[places]

        start = np.eye(x.d)[places]
        L[places], *_ = scipy.optimize.fmin_l_bfgs_b(objective, start, m=30, maxiter=steps)
        A = A @ L
    return A
