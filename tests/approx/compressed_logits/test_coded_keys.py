"""Keys in few bits: codes, the law of their logits and of exp, corrections, values, bytes."""

import dataclasses
import itertools
import math

import naive
import numpy as np
import pytest
from scipy import integrate, stats
from small import assert_covariance

from analysis.errors.metrics import compare
from approx import Mask, parse
from approx.compressed_logits.normal_levels import lloyd_max, rotated
from approx.compressed_logits.sign_sketch import SignSketch, _quadrant
from approx.compressed_logits.turboquant import rotation_moments
from approx.method.tags import AUTOREGRESSIVE
from approx.testing import assert_moments

RUNS = 2500  # where a variance that is 23 % larger is 8 standard errors away
SURE = 5.0


def drawn(n=3, l=4, d=5, seed=0, size=0.8):
    """Return queries and keys, of logits of about size²·√d."""
    rng = np.random.default_rng(seed)
    return size * rng.standard_normal((n, d)), size * rng.standard_normal((l, d))


def runs(spec, Q, K, count=RUNS):
    """Return logits of codes that are drawn again and again, (count, n, l)."""
    method, rng = parse(spec), np.random.default_rng(1)
    return np.array([Q @ method.codes(K, rng).keys.T for _ in range(count)])


# Levels


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_no_levels_have_less_distortion(bits):
    levels, _, want = lloyd_max(bits)
    np.testing.assert_allclose(distortion(levels), want, rtol=1e-9)
    rng = np.random.default_rng(bits)
    for _ in range(3):
        assert distortion(levels + want * rng.standard_normal(2**bits)) > want


def distortion(levels):
    """Return E (x − nearest level)², an integral between borders."""
    ends = [-12.0, *((levels[1:] + levels[:-1]) / 2), 12.0]
    parts = (
        integrate.quad(lambda x: (x - level) ** 2 * math.exp(-x * x / 2), a, b)[0]  # noqa: B023
        for level, a, b in zip(levels, ends, ends[1:])
    )
    return sum(parts) / math.sqrt(2 * math.pi)


# Codes


@pytest.mark.parametrize("rotation", ["none", "hadamard", "orthogonal"])
@pytest.mark.parametrize("form", ["mse", "eden", "norm"])
def test_codes_are_those_of_the_formula(rotation, form):
    _, K = drawn(l=6)
    K[2] = 0
    method = parse(f"turboquant(bits=2, form='{form}', rotation='{rotation}')")
    R = rotated(5, rotation, np.random.default_rng(3))
    np.testing.assert_allclose(R.T @ R, np.eye(5), atol=1e-14)
    want = [naive.coded_by_norm(k, lloyd_max(2).levels, R, form) for k in K]
    # sums of eight products
    np.testing.assert_allclose(
        method.codes(K, np.random.default_rng(3)).keys, want, rtol=0, atol=1e-13
    )


def test_means_of_groups_are_kept():
    _, K = drawn(l=5)
    method = parse("turboquant(bits=2, rotation='none', group=3)")
    levels = lloyd_max(2).levels
    for part in (slice(0, 3), slice(3, 5)):
        mean = K[part].mean(axis=0)
        want = [mean + naive.coded_by_norm(k - mean, levels, np.eye(5), "mse") for k in K[part]]
        found = method.codes(K, np.random.default_rng(0)).keys[part]
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("sketch", "unit"), [("gaussian", math.sqrt(2 / math.pi)), ("orthogonal", None)]
)
def test_logits_of_signs_are_those_of_the_formula(sketch, unit):
    Q, K = drawn()
    S = SignSketch(7, sketch).draw(5, np.random.default_rng(2))
    if unit is None:  # E |√5 w| of a coordinate of the unit sphere, with density ∝ (1 − w²)
        unit = math.sqrt(5) * integrate.quad(lambda w: 0.75 * abs(w) * (1 - w * w), -1, 1)[0]
        np.testing.assert_allclose(S[:5] @ S[:5].T, 5 * np.eye(5), atol=1e-13)
    want = [[naive.logit_of_signs(q, k, S, unit) for k in K] for q in Q]
    spec = f"qjl(m=7, sketch='{sketch}')"
    found = Q @ parse(spec).codes(K, np.random.default_rng(2)).keys.T
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-13)


def test_normal_levels_have_the_mean_and_deviation_of_a_channel():
    K = np.random.default_rng(0).standard_normal((4000, 2)) * [1.0, 30.0] + [0.0, 7.0]
    method = parse("quantised(bits=2, by='channel', group=9999, levels='normal', recent=0)")
    keys = method.codes(K, np.random.default_rng(0)).keys
    off = np.square(keys - K).mean(axis=0) / K.var(axis=0)
    np.testing.assert_allclose(off, 0.1175, rtol=0.1)  # the spread of 4000 squares is 3 %
    assert [len(np.unique(channel)) for channel in keys.T] == [4, 4]


# The law of logits

LAWS = (
    "qjl(m=3)", "qjl(m=5)", "qjl(m=12)", "qjl(m=12, sketch='gaussian')", "turboquant(bits=1)",
    "turboquant(bits=3)", "turboquant(bits=2, form='product')",
    "turboquant(bits=2, form='product', sketch='gaussian')",
    "turboquant(bits=1, form='product', sketch='gaussian')", "quantised(bits=2, dither=True)",
    "quantised(bits=1, by='channel', group=2, dither=True)",
)  # fmt: skip


@pytest.mark.parametrize("spec", LAWS)
def test_mean_and_variance_of_logits(spec):
    Q, K = drawn()
    x, want = runs(spec, Q, K), parse(spec).logit_moments(Q, K)
    mean, variance, error = naive.two_pass(x)
    assert (np.abs(mean - want.mean) <= SURE * np.sqrt(want.variance / RUNS)).all()
    assert (np.abs(variance - want.variance) <= SURE * error).all()


@pytest.mark.parametrize(
    "spec", ["turboquant(bits=1, form='eden')", "turboquant(bits=3, form='eden')"]
)
def test_the_scale_of_eden_makes_logits_unbiased_at_nearly_the_least_variance(spec):
    Q, K = drawn(d=32)
    keys = parse(spec).codes(K, np.random.default_rng(0)).keys
    np.testing.assert_allclose(np.sum(keys * K, axis=1), np.sum(K * K, axis=1))
    x = runs(spec, Q, K, count=1500)
    assert (np.abs(x.mean(axis=0) - Q @ K.T) <= SURE * x.std(axis=0) / math.sqrt(len(x))).all()
    D = lloyd_max(parse(spec).bits).distortion
    across = np.outer((Q**2).sum(axis=1), (K**2).sum(axis=1)) - (Q @ K.T) ** 2
    # of order 1/d, and the spread of 1500 squares
    np.testing.assert_allclose(x.var(axis=0), D / (1 - D) * across / 31, rtol=0.2)


@pytest.mark.parametrize("rotation", ["none", "hadamard", "orthogonal"])
def test_a_kept_norm_leaves_exp_unbiased_over_directions_of_queries(rotation):
    """In three dimensions the mean of exp(q·k) over directions of q is sinh(r)/r, r = |q||k|."""
    _, K = drawn(d=3)
    K[1] = 0
    nodes, weights = np.polynomial.legendre.leggauss(24)  # of the cosine of q and k
    for form, same in (("norm", True), ("mse", False), ("eden", False)):
        method = parse(f"turboquant(bits=1, form='{form}', rotation='{rotation}')")
        for k, coded in zip(K, method.codes(K, np.random.default_rng(1)).keys):
            means = [
                weights @ np.exp(2 * math.sqrt(sum(x * x for x in key)) * nodes) / 2
                for key in (k, coded)
            ]
            assert (means[1] == pytest.approx(means[0], rel=1e-13)) == (same or not k.any())


def test_moments_of_rotations_in_two_dimensions_are_integrals_over_a_circle():
    levels = lloyd_max(2)

    def over(f):
        points = np.pi * np.arange(1, 4) / 4
        kinks = [math.acos(b / math.sqrt(2)) for b in levels.borders if abs(b) < math.sqrt(2)]
        kinks += [math.asin(abs(b) / math.sqrt(2)) for b in levels.borders if abs(b) < math.sqrt(2)]
        kinks = sorted({*points, *kinks, *(np.pi - x for x in kinks)})
        return integrate.quad(f, 0, np.pi, points=kinks)[0] / np.pi

    def code(t):
        x = math.sqrt(2) * np.array([math.cos(t), math.sin(t)])
        return x, levels.nearest(x)

    want = (
        over(lambda t: code(t)[0] @ code(t)[1] / 2),
        over(lambda t: (code(t)[0] @ code(t)[1] / 2) ** 2),
        over(lambda t: code(t)[1] @ code(t)[1] / 2),
    )
    np.testing.assert_allclose(rotation_moments(levels, 2), want, rtol=1e-9)
    far = rotation_moments(levels, 10**4)  # there a coordinate is normal
    D = levels.distortion
    np.testing.assert_allclose(far, (1 - D, (1 - D) ** 2, 1 - D), atol=1e-3)
    assert rotation_moments(lloyd_max(1), 1) == pytest.approx(
        (math.sqrt(2 / math.pi), 2 / math.pi, 2 / math.pi)
    )


# The law of exp

KERNELS = {  # with the size of Q and K at which a mean without its bias is 6 standard errors away
    "qjl(m=9, sketch='gaussian')": 0.5,
    "qjl(m=9, sketch='gaussian', corrected=True)": 0.65,
    "turboquant(bits=2, form='product', sketch='gaussian', rotation='none', corrected=True)": 0.7,
    "turboquant(bits=1, form='product', sketch='gaussian')": 0.5,
    "quantised(bits=2, dither=True)": 0.9,
    "quantised(bits=2, by='channel', group=2, recent=1, dither=True, corrected=True)": 1.8,
}


@pytest.mark.parametrize("spec", KERNELS)
def test_mean_variance_and_covariance_of_exp(spec):
    (Q, K), method, mask = drawn(size=KERNELS[spec]), parse(spec), Mask.causal(3, 4)
    assert_moments(method, Q, K, mask=mask, draws=1500)
    assert_covariance(method, Q, K, 2, mask)


def test_means_of_exp_are_integrals():
    """Given h the other normal number is N(ρh, 1 − ρ²), so that one integral is left."""
    q, k, m = np.array([1.2, -0.4]), np.array([0.3, 0.9]), 3
    z, size = q @ k, np.linalg.norm(q) * np.linalg.norm(k)
    rho, t = z / size, size * math.sqrt(math.pi / 2) / m
    for p, found in zip((1, 2), SignSketch(m, "gaussian").log_means(z, size)):
        a = p * t

        def given(h):
            return stats.norm.pdf(h) * math.exp(a * rho * abs(h) + a**2 * (1 - rho**2) / 2)  # noqa: B023

        one = integrate.quad(given, -12, 12, points=[0])[0]
        np.testing.assert_allclose(found, m * math.log(one), rtol=1e-9)


def test_the_quadrant_of_two_normal_numbers():
    rng = np.random.default_rng(0)
    points = [
        *rng.standard_normal((12, 2)).tolist(),
        [0, 0],
        [0, 1],
        [-1, 0],
        [0, -0.5],
        [1, 1],
        [-1, 1],
    ]
    for (x, y), r in itertools.product(points, (-1.0, -0.9, 0.0, 0.4, 1.0)):
        want = stats.multivariate_normal([0, 0], [[1, r], [r, 1]], allow_singular=True).cdf([x, y])
        found = float(_quadrant(*map(np.asarray, (float(x), float(y), r))))
        np.testing.assert_allclose(found, want, atol=1e-6)  # that of SciPy's quadrature


# What is subtracted, and what stays exact


@pytest.mark.parametrize(
    "spec",
    [
        "quantised(bits=2)",
        "quantised(bits=2, by='channel', group=9999, levels='normal', recent=0)",
        "turboquant(bits=2, rotation='none')",
        "turboquant(bits=2, form='eden', rotation='none')",
        "turboquant(bits=2, form='norm', rotation='none')",
        "qjl(m=5)",
    ],
)
def test_half_the_variance_that_is_stored_is_subtracted(spec):
    Q, K = drawn()
    plain = parse(spec)
    codes = plain.codes(K, np.random.default_rng(0))
    spread = codes.error_variance
    spread = spread[:, None] * np.ones(5) if spread.ndim == 1 else spread
    want = Q @ codes.keys.T - Q**2 @ spread.T / 2
    estimate = dataclasses.replace(plain, corrected=True).approximate(Q, K, rng=0)
    np.testing.assert_allclose(np.log(estimate.to_dense()), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "spec",
    [
        "turboquant(bits=2)", "turboquant(bits=2, form='eden')", "turboquant(bits=2, form='norm')",
        "quantised(bits=2, by='channel', group=99, levels='normal', recent=0)",
    ],
)  # fmt: skip
def test_the_variance_that_is_stored_is_that_of_logits(spec):
    """Over rotations, or over many normal keys; σ² is that at q·k = 0, so 1/d of it is missing."""
    Q, K = drawn(l=99, d=64)
    method, rng = parse(spec), np.random.default_rng(2)
    x = np.array([Q @ method.codes(K, rng).keys.T for _ in range(40)])
    about = Q @ K.T if method.deterministic else x.mean(axis=0)
    spread = method.codes(K, rng).error_variance
    spread = spread[:, None] * np.ones(64) if spread.ndim == 1 else spread
    ratio = np.square(x - about).mean() / (Q**2 @ spread.T).mean()
    np.testing.assert_allclose(ratio, 1.0, rtol=0.1)  # 1/40, and 2 % for 300 pairs


def test_a_channel_keeps_a_group_exact_by_default():
    for spec, exact, causal in (
        ("quantised(by='channel', group=3)", 2, True),
        ("quantised(by='channel', group=3, recent=1)", 1, False),
        ("quantised(by='channel', recent=0)", 0, False),
        ("quantised()", 0, True),
        ("turboquant(group=4)", 3, True),
        ("turboquant()", 0, True),
    ):
        assert (parse(spec).exact_keys, AUTOREGRESSIVE in parse(spec).tags) == (exact, causal), spec


# Values


@pytest.mark.parametrize("by", ["token", "channel"])
def test_the_output_is_that_of_rounded_values(by):
    Q, K = drawn(n=6, l=6)
    V = np.random.default_rng(9).standard_normal((6, 3))
    coded = [naive.levels(v, 2) for v in (V if by == "token" else V.T)]
    coded = np.array(coded if by == "token" else np.transpose(coded))
    spec = f"rounded_values(sink_window(k=2), bits=2, by='{by}', group=9999)"
    A = parse(spec).approximate(Q, K, mask="causal")
    weights = parse("sink_window(k=2)").approximate(Q, K, mask="causal").attend(np.eye(6))
    np.testing.assert_allclose(A.attend(V), weights @ coded, rtol=0, atol=1e-13)
    p = naive.attention(Q, K, np.eye(6), Mask.causal(6, 6))
    errors = compare(A, Q, K, V)
    want = np.linalg.norm(weights @ coded - p @ V) / np.linalg.norm(p @ V)
    np.testing.assert_allclose(errors["output_relative_error"], want, rtol=1e-12)
    assert errors["attention_tv"] == pytest.approx(np.abs(weights - p).sum() / 12)
    np.testing.assert_array_equal(
        A @ V, parse("sink_window(k=2)").approximate(Q, K, mask="causal") @ V
    )


# Bytes


@pytest.mark.parametrize(
    ("spec", "bits"),
    [
        ("exact()", 16 * 8 * 64 * 2),
        ("quantised(bits=3)", 8 * (64 * 3 + 2 * 16 + 64 * 16)),
        (
            "quantised(bits=2, by='channel', group=4, recent=0)",
            8 * (64 * 2 + 64 * 16) + 2 * 2 * 64 * 16,
        ),
        ("turboquant(bits=2, rotation='none')", 8 * (64 * 2 + 16 + 64 * 16)),
        ("turboquant(bits=3, form='product')", 8 * (64 * 3 + 2 * 16 + 64 * 16) + 2 * 64 * 64 * 16),
        ("qjl(m=64)", 8 * (64 + 16 + 64 * 16) + 64 * 64 * 16),
        ("rounded_values(quantised(bits=3), bits=4)", 8 * (64 * 3 + 2 * 16 + 64 * 4 + 2 * 16)),
        ("rounded_values(sink_window(k=2), bits=4)", 2 * (64 * 16 + 64 * 4 + 2 * 16)),
        ("rounded_values(positive(m=4), bits=4)", 16 * (4 * 65 + 4 * 64)),
    ],
)
def test_every_bit_is_counted(spec, bits):
    price = parse(spec).price(n=8, l=8, d=64, mask="causal")
    assert price.bytes_read == bits / 8


def test_all_signs_of_a_hadamard_rotation():
    """In four dimensions the choices of signs have the mean that is drawn; in three all are one."""
    Q, K = drawn(d=4)
    one = np.array([[1, 1], [1, -1]]) / 2
    levels, H = lloyd_max(2).levels, np.block([[one, one], [one, -one]])
    every = [
        [[q @ naive.coded_by_norm(k, levels, H * signs, "mse") for k in K] for q in Q]
        for signs in itertools.product([-1, 1], repeat=4)
    ]
    x = runs("turboquant(bits=2, rotation='hadamard')", Q, K, count=2000)
    off = np.abs(x.mean(axis=0) - np.mean(every, axis=0))
    assert (off <= SURE * np.std(every, axis=0) / math.sqrt(2000) + 1e-13).all()


def test_a_window_reads_the_scales_of_each_group_that_it_touches():
    whole = Mask.window(40, 40, 6)
    method = parse("rounded_values(exact(), bits=2, by='channel', group=4)")
    at = {"n": 40, "l": 40, "d": 1, "c": 1, "mask": whole}
    touched = max(len({j // 4 for j in range(max(i - 5, 0), i + 1)}) for i in range(40))
    assert method.price(**at).reads - parse("exact()").price(**at).reads == 2 * touched


@pytest.mark.parametrize(
    ("inner", "chosen"), [("exact()", False), ("columns(k=64, by='h2o')", True)]
)
def test_a_group_of_heads_shares_values_only_where_all_read_them(inner, chosen):
    method = parse(f"rounded_values({inner}, bits=2)")
    at = {"n": 512, "l": 512, "d": 64, "mask": "causal"}
    one, four = (method.price(**at, group=group).bytes_read for group in (1, 4))
    assert four == pytest.approx(4 * one if chosen else one, rel=0.02)  # and H2O's own counts
