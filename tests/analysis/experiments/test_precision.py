"""Rounding against approximation, in float32 and for inputs rounded to bfloat16."""

import dataclasses

import mpmath
import numpy as np
import pytest

from analysis import inputs
from analysis.experiments.precision import FORMATS, bfloat16, precision, rounded
from approx import METHODS, parse
from approx.estimate import exact
from approx.random_features.positive import Positive


def nearest(x):
    """Return the nearest number of 8 significant bits, ties to even: by frexp, not by bits."""
    mantissa, exponent = np.frexp(np.float64(np.float32(x)))
    return np.ldexp(np.rint(mantissa * 2**8), exponent - 8)


def test_bfloat16_is_the_nearest_of_eight_bits():
    x = np.random.default_rng(0).standard_normal(20_000) * 2.0 ** np.arange(-100, 100, 0.01)
    halves = 1 + np.arange(512) / 256  # every other one is a tie
    for values in (x, -x, halves, [0.0, -0.0, 3.38e38]):
        assert (bfloat16(values) == nearest(values)).all()
    assert np.signbit(bfloat16(-0.0))
    assert np.isinf(bfloat16(3.4e38))
    assert np.isnan(bfloat16(np.frombuffer(b"\x01\x00\x80\x7f", "<f4"))).all()  # not turned to inf


def test_the_truth_is_right_to_float64():
    x = inputs.gaussian(4, 3, rng=0).at_temperature(0.25)
    with mpmath.workdps(50):
        Q, K, V = (mpmath.matrix(y.tolist()) for y in (x.Q, x.K, x.V))
        E = (Q * K.T).apply(mpmath.exp)
        sums = [mpmath.fsum(E[i, :]) for i in range(4)]
        truth = [[float((E * V)[i, j] / sums[i]) for j in range(3)] for i in range(4)]
    np.testing.assert_allclose(exact.attention(x.Q, x.K, x.V), truth, rtol=1e-13)


@pytest.mark.parametrize("form", FORMATS)
def test_a_perfect_method_has_the_rounding_of_exact_attention(form):
    x = inputs.gaussian(64, 16, rng=1)
    found = precision(parse("top_k(k=64)"), x, form)
    assert found.approximation < 1e-14
    # the sums of 64 terms differ in their order only
    assert abs(found.rounding - found.floor) < 64 * np.finfo(np.float32).eps
    # rounding q and k, d products: a logit moves by (2 ulp + d eps)|q||k|, an output by twice that
    ulp = 2.0**-9 if form == "bfloat16" else 2.0**-24
    moved = (2 * ulp + 16 * 2.0**-24) * np.linalg.norm(x.Q, axis=1).max() * np.linalg.norm(
        x.K, axis=1
    ).max()  # fmt: skip
    bound = (np.expm1(2 * moved) + ulp + 64 * 2.0**-24) * np.abs(x.V).max() * np.sqrt(x.V.size)
    size = np.linalg.norm(exact.attention(x.Q, x.K, x.V))
    assert 0.01 * ulp < found.floor < bound / size


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("form", FORMATS)
def test_total_is_at_most_the_sum(form, mask):
    x = dataclasses.replace(inputs.gaussian(48, 8, rng=2), mask=mask)
    for spec in ("positive(m=16)", "top_k(k=5)", "taylor(degree=2)", "truncated_svd(rank=4)"):
        found = precision(parse(spec), x, form, rng=3)
        assert found.total <= (found.approximation + found.rounding) * (1 + 1e-12)
        assert found.ratio == found.total / found.floor
        assert abs(found.approximation - found.rounding) <= found.total * (1 + 1e-12)


def test_both_runs_draw_the_same():
    x = inputs.gaussian(32, 8, rng=0)
    assert precision(parse("positive(m=16)"), x, "float32", rng=0).rounding < 1e-5

    class Redrawn(Positive):
        """The planted bug: another draw a run."""

        name = "redrawn"
        calls = iter(range(100))

        def evaluate(self, q, k, mask, rng):
            return super().evaluate(q, k, mask, np.random.default_rng(next(self.calls)))

    assert "redrawn" not in METHODS
    assert precision(Redrawn(m=16), x, "float32", rng=0).rounding > 0.1


def test_inputs_are_float64_with_values():
    x = inputs.gaussian(8, 4, rng=0)
    with pytest.raises(ValueError, match=r"must be float64.*float32"):
        precision(parse("one()"), rounded(x, "float32"), "float32")
    with pytest.raises(ValueError, match="has no V"):
        precision(parse("one()"), dataclasses.replace(x, v=None), "float32")
    with pytest.raises(ValueError, match="form must be one of float32, bfloat16, got 'half'"):
        precision(parse("one()"), x, "half")


def test_a_method_is_as_far_off_as_exact_attention_where_the_format_decides():
    x = inputs.gaussian(64, 16, rng=1)
    assert abs(precision(parse("top_k(k=64)"), x, "bfloat16").ratio - 1) < 1e-3
    poor = precision(parse("top_k(k=1)"), x, "bfloat16")
    assert poor.ratio > 10
    assert poor.ratio == pytest.approx(poor.approximation / poor.floor, rel=0.1)
