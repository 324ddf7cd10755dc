"""TurboQuant, QJL, EDEN, KIVI: keys in few bits, and what exp makes of an unbiased logit."""

import math
from collections.abc import Iterator

import numpy as np

from analysis.claims.evidence import (
    Check,
    above,
    at_most,
    claim,
    errors,
    near,
    sampled,
    without,
)
from approx import parse
from approx.checks import Array, required
from approx.compressed_logits.coded_keys import CodedKeys
from approx.compressed_logits.normal_levels import lloyd_max
from approx.compressed_logits.turboquant import rotation_moments
from studies.claims.heads import causal_heads

TURBO = "TurboQuant (arXiv 2504.19874)"
D = 64
RUNS = 2000


def _pair() -> tuple[Array, Array]:
    """Return a query of norm 2 and a key of norm 1, as arrays of one row."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 1, D))
    return 2 * q / np.linalg.norm(q), k / np.linalg.norm(k)


def _coded(spec: str) -> CodedKeys:
    method = parse(spec)
    assert isinstance(method, CodedKeys)
    return method


def _runs(spec: str, q: Array, k: Array) -> Array:
    """Return the logit of one pair, drawn again and again."""
    method, rng = _coded(spec), np.random.default_rng(0)
    return np.array([float((q @ method.codes(k, rng).keys.T)[0, 0]) for _ in range(RUNS)])


@claim("TQ-1", TURBO + ", abstract and theorems 1 and 3")
def distortion() -> Iterator[Check]:
    """A key of norm 1, rounded after a random rotation, has a mean squared error of at most
    √3·π/2·4^−b; for 1 to 4 bits it is .36, .117, .03 and .009. In many dimensions, no code of b
    bits a number has less than 4^−b."""
    # in two dimensions one bit a number has less than 4^−1
    found = []
    for bits in range(1, 9):
        along, _, square = rotation_moments(lloyd_max(bits), D)
        found.append(1 - 2 * along + square)
    bounds = [math.sqrt(3) * math.pi / 2 * 4.0**-bits for bits in range(1, 9)]
    largest = max(x / bound for x, bound in zip(found, bounds))
    yield at_most("largest D over √3·π/2·4^−b, of 1 to 8 bits", 1.0, largest)
    yield above("least D over 4^−b", 1.0, min(x * 4.0 ** (i + 1) for i, x in enumerate(found)))
    along, _, square = rotation_moments(lloyd_max(1), 2)
    less = 4 * (1 - 2 * along + square)
    yield without(above("the same, 1 bit in 2 dimensions", 1.0, less))
    # half a unit of the last digit, and 3 % as theirs is the limit of many dimensions
    for bits, about, half in zip(range(1, 5), (0.36, 0.117, 0.03, 0.009), (5e-3, 5e-4) * 2):
        yield near(f"D at b = {bits}", about, found[bits - 1], half + 0.03 * about)


@claim("TQ-2", TURBO + ", theorem 2")
def product() -> Iterator[Check]:
    """A key rounded with one bit fewer, together with the signs of the residual, has unbiased
    products with queries. Their variance is at most √3·π²·|q|²/d·4^−b."""
    q, k = _pair()
    for bits in (2, 3, 4):
        spec = f"turboquant(bits={bits}, form='product', sketch='gaussian')"
        law = required(_coded(spec).logit_moments(q, k))
        bound = math.sqrt(3) * math.pi**2 * float((q**2).sum()) / D * 4.0**-bits
        yield at_most(
            f"variance over the bound, b = {bits}", 1.0, float(law.variance[0, 0]) / bound
        )
        x = _runs(spec, q, k)
        yield sampled(f"mean, b = {bits}", float((q @ k.T)[0, 0]), x.mean(), x.std() / RUNS**0.5)


@claim(
    "TQ-3",
    TURBO + ", section 4.3, recommends the unbiased form; users of public code found the other "
    "nearer",
)
def signs_or_not() -> Iterator[Check]:
    """At equal bits, rounded keys give attention on heads of SmolLM2 less error than unbiased
    logits from one bit fewer and signs. This holds with no key exact and with the last 63 exact.
    If, with these exact, half the variance is also taken off each logit, it holds at 3 and 4 bits,
    not at 2."""
    heads = causal_heads(512)

    def tv(spec: str) -> float:
        return float(np.mean([errors(x, spec)["attention_tv"] for x in heads]))

    windows = {"": "recent=0", ", 63 keys exact": "recent=63",
               ", corrected": "recent=63, corrected=True"}  # fmt: skip
    for bits in (2, 3, 4):
        for name, more in windows.items():
            signs = tv(f"turboquant(bits={bits}, form='product', {more})")
            ratio = signs / tv(f"turboquant(bits={bits}, {more})")
            check = above(f"tv with signs over tv without, {bits} bits{name}", 1.0, ratio)
            yield without(check) if name == ", corrected" and bits == 2 else check


@claim("QJL-1", "QJL (arXiv 2406.03482), lemmas 3.2 and 3.5")
def signs() -> Iterator[Check]:
    """The signs of m Gaussian products of a key, with its norm, give unbiased logits of variance
    (π/2·|q|²|k|² − (q·k)²)/m. With orthogonal rows the variance is smaller."""
    q, k = _pair()
    z = float((q @ k.T)[0, 0])
    for m in (64, 128):
        x = _runs(f"qjl(m={m}, sketch='gaussian')", q, k)
        want = (math.pi / 2 * 4 - z**2) / m
        yield sampled(f"mean, m = {m}", z, x.mean(), math.sqrt(want / RUNS))
        error = float(np.std((x - x.mean()) ** 2)) / math.sqrt(RUNS)
        yield sampled(f"variance, m = {m}", want, float(x.var()), error)
        other = required(_coded(f"qjl(m={m})").logit_moments(q, k)).variance[0, 0]
        yield at_most(f"variance with orthogonal rows over it, m = {m}", 1.0, float(other) / want)


@claim(
    "EDEN-1",
    "EDEN (ICML 2022), theorem 1; amitport/EDEN-Distributed-Mean-Estimation 5c7639a, "
    "torch/eden.py:55",
)
def scale() -> Iterator[Check]:
    """A rotated and rounded key has unbiased products with all queries if its scale makes its
    product with the key itself exact. The variance is D/(1 − D) times (|q|²|k|² − (q·k)²)/(d − 1):
    none for q ∥ k, and less than half of that with the signs of the residual for others."""
    q, k = _pair()
    z = float((q @ k.T)[0, 0])
    for bits in (1, 2):
        x, off = _runs(f"turboquant(bits={bits}, form='eden')", q, k), lloyd_max(bits).distortion
        yield sampled(f"mean, b = {bits}", z, x.mean(), x.std() / math.sqrt(RUNS))
        limit = off / (1 - off) * (4 - z**2) / (D - 1)
        # of order 1/d, beside the spread of a variance of RUNS numbers
        yield near(f"variance over its limit, b = {bits}", 1.0, float(x.var()) / limit, 0.2)
        along = _runs(f"turboquant(bits={bits}, form='eden')", k, k).std()
        yield at_most(f"deviation where q = k, b = {bits}", 1e-9, float(along))
        spec = f"turboquant(bits={bits}, form='product', sketch='gaussian')"
        other = float(required(_coded(spec).logit_moments(q, k)).variance[0, 0])
        yield above(f"variance with signs over it, b = {bits}", 2.0, other / float(x.var()))


@claim("JC-1", "Jensen correction (arXiv 2605.26266), abstract")
def half_the_variance() -> Iterator[Check]:
    """An unbiased logit of variance σ² makes its exp e^(σ²/2) times too large on average.
    Subtracting σ²/2 from the logit removes this, for errors of dithered rounding and of many signs.
    """
    q, k = _pair()
    for spec in ("quantised(bits=3, dither=True)", "qjl(m=512, sketch='gaussian')"):
        plain = _coded(spec)
        half = float(required(plain.logit_moments(q, k)).variance[0, 0]) / 2
        raised = float(required(plain.moments(q, k)).relative_bias[0, 0])
        yield near(f"bias of exp over e^(σ²/2) − 1, {spec}", 1.0, raised / math.expm1(half), 0.05)
        corrected = _coded(spec.replace(")", ", corrected=True)"))
        left = float(required(corrected.moments(q, k)).relative_bias[0, 0])
        yield near(f"bias of exp that is left over it, {spec}", 0.0, left / raised, 0.05)


@claim("KIVI-1", "KIVI (arXiv 2402.02750), abstract and section 3")
def channels() -> Iterator[Check]:
    """Keys have channels that are large for all tokens, so scales by channel give attention less
    error than scales by token. Values have no such channels."""
    keys, values = [], []
    for x in causal_heads(512):
        token, channel = (
            errors(x, f"quantised(bits=2, group=32{more})")["attention_tv"]
            for more in ("", ", by='channel', recent=0")
        )
        keys.append(token / channel)
        token, channel = (
            errors(x, f"rounded_values(exact(), bits=2, by='{by}', group=32)")[
                "output_relative_error"
            ]
            for by in ("token", "channel")
        )
        values.append(token / channel)
    yield above("least ratio of tv, keys by token over by channel", 1.0, min(keys))
    yield at_most(
        "mean ratio of output errors, values by token over by channel", 1.0, float(np.mean(values))
    )
