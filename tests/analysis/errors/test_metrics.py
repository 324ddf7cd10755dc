"""Errors: against their definitions, at any scale, over sampled rows, and streamed."""

import dataclasses
import itertools
import math
import tracemalloc

import naive
import numpy as np
import pytest
import scipy.stats
from each import each
from refusals import refuses
from small import ONE_OF_EACH, hiding, member

from analysis import inputs
from analysis.errors import row_sums
from analysis.errors.metrics import compare, compare_all
from analysis.inputs import Head
from approx import Approximation, Mask, parse
from approx.estimate import exact
from approx.estimate.low import Factors

EPS = np.finfo(float).eps


def points(n, l, d, seed=0, scale=0.7):
    rng = np.random.default_rng(seed)
    return tuple(scale * rng.standard_normal(shape) for shape in ((n, d), (l, d), (l, 2)))


def masked(mask, n, l):
    """Return the mask of a parameter: None, "causal", or one that a seed draws."""
    return hiding(n, l, mask) if isinstance(mask, int) else mask


MASKS = [None, "causal", 3]  # of 3 the intervals are out of order
masks = pytest.mark.parametrize("mask", MASKS)


def condition(estimate, kernel, mask):
    """Return how much the definition amplifies rounding of the largest entry of a row.

    Row sums cancel by Σ|e|/|Σe|, log q_j loses the digits by which e_j is below its row, and both
    enter the share q_j = e_j/Σe, itself up to Σ|e|/|Σe| large.
    """
    e = np.where(naive.seen(mask, *kernel.shape), estimate, 0.0)
    size, total = np.abs(e).sum(axis=1), e.sum(axis=1)
    kept = np.abs(total[total != 0]) / size[total != 0]
    small = [np.abs(row[row != 0]).min() / np.abs(row).sum() for row in e if row.any()]
    return 1 / min([1.0, *(kept**2), *small])


def assert_errors(found, expected, tolerance):
    assert found.keys() - {"runnable"} == expected.keys()  # which is no error
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


# Against the definitions


@pytest.mark.parametrize("name", ONE_OF_EACH)
@each(
    ("n", "l", "mask", "stripe"),  # all rows at once, two by two, one by one
    [
        (7, 12, None, None), (11, 11, "causal", None), (5, 8, "causal", 16), (5, 8, 3, 16),
        (1, 9, None, 1), (1, 9, 0, 1),
    ],
)  # fmt: skip
def test_compare_is_its_definition(monkeypatch, name, n, l, mask, stripe):
    Q, K, V = points(n, l, 3)
    mask = masked(mask, n, l)
    method = member(name, n, l, 3)
    if mask is not None and method.refusal is not None:
        return
    estimate = method.approximate(Q, K, mask=mask, rng=1)
    kernel, dense = naive.kernel(Q, K), estimate.to_dense()
    with monkeypatch.context() as patch:
        if stripe:
            patch.setattr(exact, "STRIPE", stripe)
            patch.setattr(row_sums, "LEAST_HEIGHT", 1)
        found = compare(estimate, Q, K, V, mask=mask, spectral=True)
    # A product of r terms and a sum of l carry (r + l + 4) roundings of the largest term, which
    # for features and monomials of these short vectors is at most e² times the entry.
    tolerance = (estimate.rank + l + 4) * EPS * np.exp(2) * condition(dense, kernel, mask)
    assert tolerance < 1e-7  # else it would say nothing
    assert_errors(found, naive.errors(dense, kernel, V, mask), tolerance)


@pytest.mark.kernel
@each("sink", [-40.0, 0.5, 6.0, 60.0])
@each("spec", ["sliding_window(width=3)", "positive(m=4)", "trigonometric(m=4)", "zero()"])
def test_a_sink_is_one_more_outcome_of_a_row_with_the_value_zero(spec, sink):
    n, l = 7, 9
    Q, K, V = points(n, l, 3)
    estimate = parse(spec).approximate(Q, K, mask="causal", rng=1, sink=sink)
    one = np.full((n, 1), math.exp(sink))  # causal queries see the first key in every row
    kernel, dense = (np.hstack([one, x]) for x in (naive.kernel(Q, K), estimate.to_dense()))
    found, more = compare(estimate, Q, K, V), np.vstack([0 * V[:1], V])
    expected = naive.errors(dense, kernel, more, Mask.causal(n, l + 1))
    # as above; at e^60 the twin, and at e^−40 the row sum, hold what 1 has of the other to eps·e^60
    tolerance = 2 * (l + 8) * EPS * np.exp(2) * condition(dense, kernel, Mask.causal(n, l + 1))
    for name in expected:
        if name.startswith(("attention", "output", "nonpositive")):
            assert found[name] == pytest.approx(expected[name], rel=tolerance, abs=tolerance), name
    shares = np.where(Mask.causal(n, l + 1).visible(), kernel, 0)
    truth = shares @ more / shares.sum(axis=1, keepdims=True)
    output = exact.attention(Q, K, V, mask="causal", sink=sink)
    np.testing.assert_allclose(output, truth, rtol=0, atol=tolerance)
    total = np.maximum(dense.sum(axis=1, keepdims=True), 0)
    rows = np.divide(dense @ more, total, where=total > 0, out=np.zeros((n, 2)))
    np.testing.assert_allclose(estimate.attend(V), rows, rtol=0, atol=tolerance)


@pytest.mark.kernel
@each("sink", [-1e4, 0.0, 2e4])
def test_a_sink_far_from_every_logit_takes_nothing_or_all(sink):
    Q, K = np.array([[100.0], [-100.0]]), np.array([[100.0], [99.0], [-100.0]])
    for spec, lost in (("exact()", 0), ("zero()", 1), ("sliding_window(width=1)", 0.5)):
        estimate = parse(spec).approximate(Q, K, sink=sink)
        found = compare(estimate, Q, K, np.eye(3))
        assert not any(math.isnan(x) for x in found.values()), found
        rounding = EPS * math.exp(-100)  # of the second key's share
        assert found["attention_tv"] == pytest.approx(lost * (sink < 1e4), abs=rounding)


def test_a_window_keeps_a_sink_that_it_would_lose_as_a_key():
    for seed in range(4):
        q, k, v = np.random.default_rng(seed).standard_normal((3, 128, 64))
        x = Head("made", q, k, v, mask="causal", sinks=6.0)

        def tv(spec, x=x):
            return x.compare(x.approximate(parse(spec), rng=0))["attention_tv"]

        assert 0.14 < tv("sliding_window(width=16)") < 0.15
        assert 0.029 < tv("turboquant(bits=2)") < 0.032
        assert x.at_temperature(2.0).sink == 3.0
        assert x.digest() != dataclasses.replace(x, sinks=5.0).digest()
        rows, plain = parse("truncated_svd(rank=2, space='attention')"), parse("exact()")
        refuses("no place for an attention sink", x.approximate, rows)
        plain = plain.approximate(x.Q, x.K, mask="causal")
        refuses("the attention sink -inf, and made has 6", x.compare, plain)


def test_output_error_does_not_depend_on_the_scale_of_values():
    Q, K, V = points(5, 5, 2)
    estimate = parse("positive(m=4)").approximate(Q, K, rng=0)
    vector, column = (compare(estimate, Q, K, v) for v in (V[:, 0], V[:, :1]))
    assert vector == column
    expected = compare(estimate, Q, K, V)["output_relative_error"]
    for scale in (2.0**500, 2.0**-500):  # squares of these would overflow, or vanish
        assert compare(estimate, Q, K, V * scale)["output_relative_error"] == expected
    assert compare(estimate, Q, K, 0 * V)["output_relative_error"] == 0.0
    V = [4, -4, 4, -4]  # pV = 0 for these weights of ¼
    uniform = parse("one").approximate(Q, 0 * K[:4])
    assert compare(uniform, Q, 0 * K[:4], V)["output_relative_error"] == 0.0
    one_key = parse("top_k(1)").approximate(Q, 0 * K[:4])
    assert compare(one_key, Q, 0 * K[:4], V)["output_relative_error"] == math.inf


# Attention space: rows as they are


@masks
def test_softmax_rows_are_used_as_they_are_and_fitted_ones_divided_as_distributions(mask):
    Q, K, V = points(5, 6, 3)
    whole = parse("truncated_svd(2, space='attention')").approximate(Q, K)
    estimate = whole.seen(masked(mask, 5, 6))
    q = estimate.to_dense()
    assert (q[naive.seen(estimate.mask, 5, 6)] > 0).all()  # else both divergences would be inf
    assert abs(q.sum(axis=1) - 1).max() > 1e-4  # and they are not normalised
    given = q, naive.kernel(Q, K), V, estimate.mask
    expected, divided = naive.errors(*given, space="attention"), naive.errors(*given)
    used = Approximation(estimate.low, space="attention", mask=estimate.mask)
    # q is about 1/6 and loses at most a factor 100 in logs and differences of O(1) quantities
    assert_errors(compare(used, Q, K, V, spectral=True), expected, 1000 * EPS)
    two = ("attention_tv", "attention_kl", "attention_kl_reverse")
    expected |= {name: divided[name] for name in two}
    assert_errors(compare(estimate, Q, K, V, spectral=True), expected, 1000 * EPS)
    assert divided["attention_tv"] != pytest.approx(compare(used, Q, K)["attention_tv"], rel=1e-3)


# Row sums that are not positive


def test_zero_is_wrong_by_exactly_one_at_any_scale():
    for logit in (0.0, 300.0, -300.0, 1e4, -1e4):
        Q, K = np.array([[logit]] * 2), np.ones((3, 1))
        found = compare(parse("zero").approximate(Q, K), Q, K, np.ones(3), spectral=True)
        assert found["attention_kl"] == found["attention_kl_reverse"] == math.inf
        assert found["negative_fraction"] == 0
        assert found["nonpositive_rows"] == 2
        wrong = {name: x for name, x in found.items() if "relative" in name or "tv" in name}
        assert len(wrong) >= 6
        assert wrong == dict.fromkeys(wrong, pytest.approx(1.0, rel=8 * EPS))


@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("right", [[1.0, -1.0, 1e-310], [1.0, -1.0, 5e-324]])
def test_shares_above_1e308_are_infinite_errors(space, right):
    Q, K, V = points(2, 3, 1)
    factors = [[1.0], [2.0]], np.array(right)[:, None]
    for row_log in (0.0, 1e4, -1e4):
        estimate = Approximation.from_factors(*factors, row_log, space=space)
        found = compare(estimate, Q, K, V)
        assert not any(math.isnan(x) for x in found.values())
        if space == "kernel" or row_log > 0:  # shares e_j/Σe; or rows as they are, e^±10⁴
            errors = {x for name, x in found.items() if name.startswith(("attention", "output"))}
            assert errors == {math.inf}
            assert found["nonpositive_rows"] == 0


def test_of_shares_above_1e154_nothing_squared_is_finite():
    Q = np.zeros((3, 1))
    estimate = Approximation.from_factors([[1.0], [2.0], [4.0]], Q + 1, 400.0, space="attention")
    found = compare(estimate, Q, Q, rows=2)  # rows 1 and 2
    assert found["attention_tv"] == pytest.approx(math.exp(400) * 1.5 * (2 + 4) / 2, rel=500 * EPS)
    assert found["attention_tv_stderr"] == found["attention_relative_frobenius"] == math.inf
    assert compare(estimate, Q, Q, rows=3)["attention_tv_stderr"] == 0.0  # not inf · 0


# Any scale


# Logits of integers: exact in every order of summation, so nothing but the errors is tested.
EXTREME = {
    "both signs": ([[100, 0], [0, 100], [-100, 0], [60, -80]], [[100, 0], [-100, 0], [0, -100]]),
    "all low": ([[100, 0], [100, 0], [96, 28]], [[-100, 0], [-100, 1], [-96, -28]]),
    "all high": ([[100, 0], [100, 1], [96, 28]], [[100, 0], [100, -1], [96, 28]]),
    "long and short": ([[4096, 0], [0, 2048]], [[-2, 1], [2, 1], [1, -2]]),
}


@pytest.mark.parametrize("name", ONE_OF_EACH)
@each(("dtype", "mask"), [(np.float64, None), (np.float32, "causal"), (np.float64, 3)])
@each("case", EXTREME)
def test_at_logits_of_ten_thousand(name, case, mask, dtype):
    Q, K = (np.array(x, dtype) for x in EXTREME[case])
    Q = Q[: len(K)] if mask == "causal" else Q
    V = np.array([[1, 2], [-1, 3], [0, 1], [5, -2]], dtype)[: len(K)]
    mask = masked(mask, len(Q), len(K))
    method = member(name, len(Q), len(K), 2)
    if mask is not None and method.refusal is not None:
        return
    estimate = method.approximate(Q, K, mask=mask, rng=3)
    found = compare(estimate, Q, K, V, spectral=True)
    assert not any(math.isnan(x) for x in found.values())
    logits = Q.astype(float) @ K.astype(float).T  # and of the same stored numbers
    shift = estimate.row_log(slice(None), logits if estimate.mask.is_full else None)
    e, kernel = estimate.block(slice(None), shift=shift, logits=logits), np.longdouble(logits)
    expected = naive.errors(e, np.exp(kernel), V, estimate.mask, estimate.space, shift)
    # Exponents are rounded to eps·10⁴, which an estimate's own error does not fall below; row
    # sums cancel by at most 10² in these cases.
    tolerance = 1e4 * EPS * 1e2
    spectral = "kernel_relative_spectral"  # it makes the entries anew, at another scale
    close = pytest.approx(expected.pop(spectral), rel=tolerance + 8 * np.finfo(dtype).eps)
    assert found.pop(spectral) == close
    assert_errors(found, expected, tolerance)


@pytest.mark.parametrize("logit", [-400.0, 0.0, 400.0])
def test_errors_above_1e154_and_row_sums_below_1e_308(logit):
    Q, K = np.array([[logit]] * 2), np.ones((3, 1))
    far = Approximation.from_factors([[1.0], [2.0]], np.ones((3, 1)), logit + 500)
    found = compare(far, Q, K, spectral=True)
    relative = math.exp(500) * math.sqrt((1 + 4) / 2)  # and e^−500 of that
    for name in ("kernel_relative_frobenius", "kernel_relative_spectral"):
        assert found[name] == pytest.approx(relative, rel=1000 * EPS)  # eps of the exponent 900
    assert found["kernel_relative_max"] == pytest.approx(2 * math.exp(500), rel=1000 * EPS)
    tiny = Approximation.from_factors([[1e-310], [1.0]], np.ones((3, 1)), logit)
    found = compare(tiny, Q, K, np.ones(3))
    assert max(found["attention_tv"], found["output_relative_error"]) <= 2 * EPS
    assert max(abs(found["attention_kl"]), abs(found["attention_kl_reverse"])) <= 2 * EPS


# Spectral norm


@masks
@pytest.mark.parametrize("spec", ["positive(m=6)", "taylor(2)", "top_k(4)", "truncated_svd(2)"])
def test_spectral_error_by_lanczos_is_that_of_the_dense_matrix(monkeypatch, spec, mask):
    Q, K, _ = points(40, 40, 3)
    mask = masked(mask, 40, 40)
    estimate = parse(spec).approximate(Q, K, mask=mask, rng=0)
    dense = compare(estimate, Q, K, spectral=True)["kernel_relative_spectral"]
    kernel = naive.kernel(Q, K)
    expected = naive.errors(estimate.to_dense(), kernel, None, mask)["kernel_relative_spectral"]
    monkeypatch.setattr(exact, "STRIPE", 7 * 40)
    lanczos = compare(estimate, Q, K, spectral=True)["kernel_relative_spectral"]
    assert dense == pytest.approx(expected, rel=200 * EPS)  # a norm of 40 × 40 numbers
    # ARPACK stops at machine precision of s₁² (tol=0): half of that in s₁
    assert lanczos == pytest.approx(expected, rel=200 * EPS)


@pytest.mark.parametrize(("n", "l"), [(1, 30), (30, 1), (30, 30)])
def test_spectral_error_where_lanczos_has_nothing_to_do(monkeypatch, n, l):
    monkeypatch.setattr(exact, "STRIPE", 8)
    Q, K = np.zeros((n, 2)), np.ones((l, 2))
    found = compare(parse("one").approximate(Q, K), Q, K, spectral=True)
    assert found["kernel_relative_spectral"] <= EPS  # the estimate is exact
    found = compare(parse("zero").approximate(Q, K), Q, K, spectral=True)
    assert found["kernel_relative_spectral"] == pytest.approx(1, rel=16 * EPS)


# Sampled rows


def per_row(n, l=6):
    """Return Q, K, V and factors of an estimate with errors that differ from row to row."""
    Q, K, V = points(n, l, 2, scale=0.5)
    left, right = parse("positive(m=8)").approximate(Q, K, rng=0).factors()
    return Q, K, V, left, right


def sampled(data, rows, order):
    Q, K, V, left, right = data
    estimate = Approximation.from_factors(left[order], right)
    return compare(estimate, Q[order], K, V, rows=rows)


def test_sampled_rows_are_unbiased_over_all_subsets():
    """Over all C(7, 3) subsets means average to the whole, squared standard errors to variance."""
    n, rows = 7, 3
    data = per_row(n)
    picked = np.sort(np.random.default_rng(0).choice(n, rows, replace=False))
    rest = np.setdiff1d(np.arange(n), picked)
    found = []
    for subset in itertools.combinations(range(n), rows):
        order = np.empty(n, int)
        order[picked] = subset
        order[rest] = np.setdiff1d(np.arange(n), subset)
        found.append(sampled(data, rows, order))
    whole = compare(Approximation.from_factors(data[3], data[4]), *data[:3])
    means = {"attention_tv", "attention_kl", "attention_kl_reverse", "negative_fraction"}
    for name in means:
        values = np.array([x[name] for x in found])
        squares = np.array([x[f"{name}_stderr"] ** 2 for x in found])
        assert values.mean() == pytest.approx(whole[name], rel=64 * EPS)
        assert squares.mean() == pytest.approx(values.var(), rel=64 * EPS)  # exact in theory
    assert whole.keys() == {name for name in found[0] if not name.endswith("_stderr")}
    with_errors = {name.removesuffix("_stderr") for name in found[0] if name.endswith("_stderr")}
    ratios = {name for name in whole if name.endswith(("frobenius", "output_relative_error"))}
    assert with_errors == ratios | means


def test_a_sample_of_rows_knows_the_error_of_attention_but_not_of_the_kernel():
    """Of exp(q·k) this head has 4 effective rows, (Σx)²/Σx² of x = Σ exp(2 q·k), of 512."""
    x = next(x for x in inputs.sample("smollm2").heads() if "broad" in x.name).first(512)
    x, rng = x.at_temperature(1.0), np.random.default_rng(0)
    estimate = x.approximate(parse("top_k(k=32)"))
    whole = x.compare(estimate)
    covered = {"attention_tv": 0, "kernel_relative_frobenius": 0}
    for _ in range(200):
        found = x.compare(estimate, rows=rng.choice(512, 64, replace=False))
        for name in covered:
            covered[name] += abs(found[name] - whole[name]) <= 1.96 * found[f"{name}_stderr"]
    # 95 % of 200 less five binomial deviations of 3.1; as the docstring warns
    assert covered["attention_tv"] > 174
    assert covered["kernel_relative_frobenius"] < 100


def test_standard_errors_of_sampled_rows_cover_the_truth():
    n, rows, repeats = 400, 100, 300
    data = per_row(n)
    whole = compare(Approximation.from_factors(data[3], data[4]), *data[:3])
    rng = np.random.default_rng(1)
    found = [sampled(data, rows, rng.permutation(n)) for _ in range(repeats)]
    ratios = {name for name in whole if name.endswith(("frobenius", "output_relative_error"))}
    for name in {"attention_tv", "attention_kl"} | ratios:
        z = np.array([(x[name] - whole[name]) / x[f"{name}_stderr"] for x in found])
        # |z| > 3.5 happens at a rate of 8·10⁻⁴ (Student, 99); skewed rows triple it at most
        outside = (np.abs(z) > 3.5).sum()
        assert outside <= scipy.stats.binom.ppf(1 - 1e-6, repeats, 3 * 8e-4), name
        # and |z| < 2 at 0.95, within 5 standard deviations √(0.95·0.05/300) = 0.0126
        assert abs((np.abs(z) < 2).mean() - 0.95) < 5 * 0.0126, name
        # nor is it too large: a sample variance of 300 near-normal values is good to √(2/300)
        spread = np.var([x[name] for x in found])
        claimed = np.mean([x[f"{name}_stderr"] ** 2 for x in found])
        assert claimed < spread * (1 + 5 * math.sqrt(2 / repeats)), name


def test_equal_ratios_and_all_rows_have_no_standard_error():
    Q, K, _ = points(30, 6, 2, scale=1.0)
    estimate = Approximation.from_factors(1.5 * exact.kernel(Q, K), np.eye(6))
    found = compare(estimate, Q, K, rows=10)
    # rows differ by factors of a hundred, the error is half of each
    assert found["kernel_relative_frobenius"] == pytest.approx(0.5, rel=100 * EPS)
    assert found["kernel_relative_frobenius_stderr"] < 100 * EPS
    data = per_row(9)
    whole = compare(Approximation.from_factors(data[3], data[4]), *data[:3])
    found = sampled(data, 9, np.arange(9))
    assert {name: found[name] for name in whole} == whole
    assert {found[name] for name in found.keys() - whole.keys()} == {0.0}


@pytest.mark.parametrize("spec", ["trigonometric(m=4)", "taylor(1)", "scatterbrain"])
def test_sampled_causal_rows_are_those_of_the_dense_matrix(spec):
    Q, K, V = points(40, 40, 2, scale=2.0)
    estimate = parse(spec).approximate(Q, K, mask="causal", rng=0)
    picked = np.sort(np.random.default_rng(0).choice(40, 15, replace=False))
    found = compare(estimate, Q, K, V, rows=15)
    dense, kernel = estimate.to_dense()[picked], naive.kernel(Q, K)[picked]
    expected = naive.errors(dense, kernel, V, Mask(np.zeros(15, int), picked + 1, 40))
    expected["nonpositive_rows"] *= 40 / 15
    assert expected["nonpositive_rows"] > 0 or not spec.startswith("trigonometric")
    del expected["kernel_relative_spectral"]
    without = {name: x for name, x in found.items() if not name.endswith("_stderr")}
    assert_errors(without, expected, 1000 * EPS)


# Refusals


def test_what_does_not_fit_is_refused():
    Q, K, V = points(4, 6, 2)
    estimate, other = parse("one").approximate(Q, K), np.zeros((5, 2))
    refuses("shape", compare, estimate, other, K, V)
    refuses("shape", compare, estimate, Q, other, V)
    refuses("the mask is for 5 queries and 6 keys, but there are 4 and 6", compare, estimate, Q, K,
            V, mask=Mask.full(5, 6))  # fmt: skip
    refuses("rows must be <= 4", compare, estimate, Q, K, V, rows=5)
    for name, metric in (("attention_tv", len), ("runnable", len), ("mine", 1.0)):
        text = f"functions under names of their own, got '{name}'"
        refuses(text, compare, estimate, Q, K, extra={name: metric})
    for ts, text in (
        ([1.0], "2 approximations need as many temperatures, got 1"),
        ([1.0, 0.0], "temperatures must be finite and > 0"),
        (1.0, "temperatures must have 1 dimensions"),
    ):
        refuses(text, compare_all, [estimate, estimate], Q, K, temperatures=ts)
    with pytest.raises(TypeError, match="approximations must be a sequence, got"):
        compare_all(estimate, Q, K)
    worst = {"worst": lambda x: x["tv"].max()}
    refuses("unknown sum of rows 'tv'", compare, estimate, Q, K, attention=False, extra=worst)
    text = "V gives the error of attention's output"
    refuses(text, compare, estimate, Q, K, V, attention=False)


def test_estimates_of_other_masks_are_refused():
    Q, K, _ = points(4, 6, 2)
    every = [None, "causal", Mask.window(4, 6, 2), Mask([0, 1, 0, 2], [6, 5, 4, 3], 6)]
    estimates = [parse("one").approximate(Q, K, mask=mask) for mask in every]
    text = r"an estimate has the mask .*, not .*: give approx"
    refuses("the mask full, not causal", compare, estimates[0], Q, K, mask="causal")
    for i, estimate in enumerate(estimates):
        refuses(text, compare, estimate, Q, K, mask=every[i - 1] if i != 1 else Mask.full(4, 6))
        refuses(text, compare_all, [estimate, estimates[i - 1]], Q, K)
        assert compare(estimate, Q, K) == compare(estimate, Q, K, mask=estimate.mask)
    refuses(r"the estimate has the mask window\(2\), so causal", estimates[2].seen, "causal")


# The kernel


ROWS = {  # logits, estimate at scale e^row_log
    "positive": ([0.0, 1.0, -2.0, 0.5], [1.0, 2.0, 0.25, 3.0], 0.5),
    "scale below": ([3.0, 4.0, 2.0, 3.5], [1.0, 2.0, 0.25, 3.0], -3.0),
    "scale above": ([-3.0, -4.0, -2.0, -3.5], [1.0, 2.0, 0.25, 3.0], 3.0),
    "a zero": ([0.0, 1.0, -2.0, 0.5], [1.0, 0.0, 0.25, 3.0], 0.0),
    "a subnormal": ([0.0, 1.0, -2.0, 0.5], [1.0, 1e-310, 0.25, 3.0], 0.0),
    "a negative": ([0.0, 1.0, -2.0, 0.5], [1.0, -0.5, 0.25, 3.0], 0.0),
    "a negative sum": ([0.0, 1.0, -2.0, 0.5], [-1.0, -0.5, 0.25, -3.0], 0.0),
    "nothing": ([0.0, 1.0, -2.0, 0.5], [0.0, 0.0, 0.0, 0.0], 0.0),
}


@pytest.mark.kernel
@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize(("first", "stop"), [(0, 4), (0, 1), (0, 2), (1, 3), (3, 4)])
@each("name", ROWS)
def test_rows_of_every_kind(name, first, stop, space):
    some = ROWS[name], ROWS["positive"]  # which sees all keys, so that some of the row are hidden
    Q, e, row_log = (np.array(x) for x in zip(*some))
    V = np.array([[1.0, 2.0], [-1, 3], [0, 1], [5, -2]])
    mask = None if stop - first == 4 else Mask([first, 0], [stop, 4], 4)
    estimate = Approximation.from_factors(e, np.eye(4), row_log, space=space, mask=mask)
    found = compare(estimate, Q, np.eye(4), V)
    assert found == {**found, **compare(estimate, Q, np.eye(4))}
    assert found == {**found, **compare(estimate, Q, np.eye(4), attention=False)}
    expected = naive.errors(e, np.exp(Q), V, mask, space, row_log)
    expected.pop("kernel_relative_spectral", None)
    # a few dozen operations on numbers of order 1, exp to 2 ulp
    assert_errors(found, expected, 64 * EPS)


# Several estimates


@masks
def test_compare_all_is_compare_of_each(mask):
    Q, K, V = points(9, 9, 2)
    mask = masked(mask, 9, 9)
    methods = [parse(s) for s in ("positive(m=4)", "taylor(2)", "top_k(2)", "relu()", "taylor(3)")]
    ts = [1.0, 0.25, 1.0, 2.0, 4.0]
    scaled = [(Q / math.sqrt(t), K / math.sqrt(t)) for t in ts]
    estimates = [m.approximate(*x, rng=1).seen(mask) for m, x in zip(methods, scaled)]
    found = compare_all(estimates, Q, K, V, temperatures=ts, mask=mask, spectral=True)
    for one, estimate, x in zip(found, estimates, scaled):
        expected = compare(estimate, *x, V, spectral=True)
        tolerance = 40 * EPS * condition(estimate.to_dense(), naive.kernel(*x), mask)
        if estimate.space == "attention":
            tolerance = 1e3 * EPS
        # an entry of a support is exp of a logit that was added in another order
        assert one == pytest.approx(expected, rel=tolerance, abs=1e-14)
    assert compare_all(estimates[:1], Q, K, V)[0] == compare(estimates[0], Q, K, V)


def test_kernel_errors_alone_are_those_of_the_whole(monkeypatch):
    Q, K, _ = points(9, 9, 2)
    for tile in (row_sums.TILE, (2, 2)):
        monkeypatch.setattr(row_sums, "TILE", tile)
        for spec, mask in (("relu()", None), ("positive(m=4)", "causal"), ("relu()", "causal")):
            estimate = parse(spec).approximate(Q, K, rng=1).seen(mask)
            whole, alone = compare(estimate, Q, K), compare(estimate, Q, K, attention=False)
            assert alone == {name: whole[name] for name in alone}
            assert {name.split("_")[0] for name in whole.keys() - alone.keys()} == {"attention"}


@pytest.fixture
def calls(monkeypatch):
    """Return the shapes that the kernel is called with, as they come."""
    shapes, sums = [], row_sums.fill

    def counted(logits, *rest):
        shapes.append(logits.shape)
        sums(logits, *rest)

    monkeypatch.setattr(row_sums, "fill", counted)
    return shapes


@pytest.mark.parametrize("rows", [None, 17])
def test_kernel_errors_alone_go_by_tiles(monkeypatch, calls, rows):
    Q, K, _ = points(23, 19, 3)
    Q[3] *= 40  # the logits of a row differ from tile to tile by hundreds
    Q[4] = 0
    specs = ("trigonometric(m=2)", "positive(m=4)", "taylor(3)", "top_k(2)", "zero()")
    specs += ("scatterbrain(positive(m=2), sparse=sliding_window(3))", "truncated_svd(2)")
    ts = list(np.linspace(0.5, 4, len(specs)))
    estimates = [parse(s).approximate(Q / t**0.5, K / t**0.5, rng=2) for s, t in zip(specs, ts)]
    given = {"Q": Q, "K": K, "temperatures": ts, "rows": rows}
    expected = compare_all(estimates, **given)
    monkeypatch.setattr(row_sums, "TILE", (5, 4))
    assert compare_all(estimates, **given) == expected  # needs whole rows
    assert calls.pop() == (rows or 23, 19)
    calls.clear()
    found = compare_all(estimates, **given, attention=False)
    assert set(calls) <= set(itertools.product((5, 23 % 5, 17 % 5), (4, 19 % 4)))
    for spec, alone, whole in zip(specs, found, expected):
        wanted = {name: x for name, x in whole.items() if not name.startswith("attention_")}
        # sums of 19 terms of a row in another order, of 23 rows in the same
        assert alone == pytest.approx(wanted, rel=1e-12), spec
    assert [x["nonpositive_rows"] for x in found][specs.index("zero()")] == 23
    assert 0 < found[0]["nonpositive_rows"] < 23
    assert compare_all(estimates, **given, attention=False, jobs=2) == found


def test_tiles_of_few_keys_have_more_rows(monkeypatch, calls):
    Q, K, _ = points(23, 2, 3)
    estimate = parse("positive(m=4)").approximate(Q, K, rng=1)
    whole = compare(estimate, Q, K)
    calls.clear()
    monkeypatch.setattr(row_sums, "TILE", (5, 4))
    alone = compare(estimate, Q, K, attention=False)
    assert calls == [(10, 2), (10, 2), (3, 2)]
    assert alone == {name: whole[name] for name in alone}


# Metrics of one's own


@masks
@pytest.mark.parametrize("rows", [None, 4])
def test_a_metric_of_ones_own_is_made_of_the_same_sums(mask, rows):
    Q, K, V = points(9, 9, 2)
    estimate = parse("positive(m=4)").approximate(Q, K, mask=masked(mask, 9, 9), rng=1)
    own = {
        "worst": lambda x: x["tv"].max(),
        "again": lambda x: x.mean(x["tv"]),
        "visible": lambda x: x.visible.sum(),
    }
    found = compare(estimate, Q, K, V, rows=rows, extra=own)
    alone = compare(estimate, Q, K, V, rows=rows)
    new = {name: found[name] for name in found.keys() - alone.keys()}
    assert {name: found[name] for name in alone} == alone
    picked = np.sort(np.random.default_rng(0).choice(9, rows, replace=False)) if rows else range(9)
    each_row = [compare(estimate, Q, K, rows=np.array([i]))["attention_tv"] for i in picked]
    worst = pytest.approx(max(each_row), rel=64 * EPS)  # products of one row round otherwise
    expected = {"worst": worst, "again": alone["attention_tv"]}
    expected["visible"] = float(estimate.mask.counts[picked].sum())
    if rows:
        expected["again_stderr"] = alone["attention_tv_stderr"]
    assert new == expected


# Memory


def test_a_thread_keeps_no_more_than_stripes(monkeypatch):
    monkeypatch.setattr(exact, "STRIPE", 16)
    vars(row_sums._kept).clear()
    for l in (9, 23):  # a row of 23 is longer than 7/5 of a stripe
        Q, K, _ = points(5, l, 2)
        compare(parse("one()").approximate(Q, K), Q, K)
    assert sorted(len(kept) for kept in row_sums._kept.arrays.values()) == [9, 18]


@pytest.mark.parametrize("elementwise", [False, True])  # made before its logits, and of them
def test_an_estimate_whose_own_rows_compare_another(elementwise):
    Q, K, V = points(6, 6, 3)
    one, many = (parse(spec).approximate(Q, K, rng=0) for spec in ("one()", "positive(m=9)"))
    factors = many.scaled_factors()

    class Comparing(Factors):
        def block(self, rows, cols, shift, logits=None, out=None):
            values = super().block(rows, cols, shift, logits, out)
            compare(one, Q, K, V)
            return values

    Comparing.elementwise = elementwise
    alone, inside = (Approximation(low(*factors)) for low in (Factors, Comparing))
    assert compare(inside, Q, K, V) == compare(alone, Q, K, V)


def test_nothing_of_size_n_by_l_is_allocated(monkeypatch):
    for n in (8, 2048):  # at first what loads the kernels takes memory, too
        Q, K, V = points(n, n, 4)
        estimate = parse("positive(m=8)").approximate(Q, K, mask="causal", rng=0)
        monkeypatch.setattr(exact, "STRIPE", 16 * n)
        vars(row_sums._kept).clear()
        if n > 8:
            tracemalloc.start()
        compare(estimate, Q, K, V)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # one n × l array would take 32 MiB; features and a handful of stripes of 256 KiB are allowed
    assert peak <= 2 * 2**20
