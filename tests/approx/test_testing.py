"""The kit for a method of one's own: planted bugs, heavy tails, and the power that it states."""

import dataclasses
import functools
import math
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from scipy.stats import kstwo, norm

from approx import Mask, Method, Moments, Parts, Price, Size, parse, testing
from approx.method.tags import AUTOREGRESSIVE, RANDOM, ROTATION, ROW_LOCAL
from approx.testing import (
    Undecided,
    assert_autoregressive,
    assert_converges,
    assert_finite,
    assert_invariant,
    assert_moments,
    assert_price,
    assert_seeded,
    assert_unbiased,
    assert_variance,
    check_method,
    heads,
    seeds,
    verdict,
)

Q, K = np.random.default_rng(1).uniform(-0.2, 0.2, (2, 6, 4))
CACHED = np.random.default_rng(0)


@dataclasses.dataclass(frozen=True)
class Waves(Method):
    """Positive features as a user writes them; a bug by its name."""

    name, sized_by = "waves", Size("m")
    tags = frozenset({RANDOM, AUTOREGRESSIVE, ROW_LOCAL, ROTATION})
    m: int | None = None
    bug: str = ""
    factor: float = 2.0
    stated: bool = True

    def evaluate(self, q, k, mask, rng):
        shape = (self.m, q.shape[1])
        source = {"global": CACHED, "ignored": np.random.default_rng(0)}.get(self.bug, rng)
        omega = source.standard_normal(shape).astype("d" if self.bug == "dtype" else q.dtype)
        if self.bug == "law":
            omega = math.sqrt(3) * source.uniform(-1, 1, shape).astype(q.dtype)
        if self.bug == "in place":
            q[0] *= 1.01
        if self.bug == "dependent":
            omega = np.broadcast_to(omega[:1], shape)
        if self.bug == "future":
            k = k - k.mean(axis=0) + mask.n * k[0] / len(k)
        x, y = (z @ omega.T - (z * z).sum(axis=1, keepdims=True) / 2 for z in (q, k))
        if self.bug == "norm":
            y = k @ omega.T
        if self.bug == "mask":  # as if every query saw all keys
            x = x + np.log(len(k) / mask.counts.astype(q.dtype))[:, None]
        if self.bug == "range":
            return Parts.from_factors(np.exp(x), np.exp(y) / self.m)
        if self.bug == "overflow":
            squares = (q * q).sum(axis=1)
            return Parts.from_factors(np.exp(x + squares[:, None]), np.exp(y) / self.m, -squares)
        top, peak = x.max(axis=1), y.max()
        factor = self.factor if self.bug == "factor" else 1
        if self.bug == "tail":  # of mean 1, without a fourth moment: 8 times the stated variance
            factor = 0.6 * rng.uniform() ** -0.4
        left, right = np.exp(x - top[:, None]), factor * np.exp(y - peak) / self.m
        return Parts.from_factors(left, right, top + peak)

    def _moments(self, q, k, mask):
        if not self.stated:
            return None
        square = ((q[:, None] + k) ** 2).sum(axis=2)
        with np.errstate(over="ignore"):
            variance = np.maximum(np.expm1(square), 1e-300) / self.m
        far = {"large": math.log(1e4), "NaN": math.nan}.get(self.bug, 0.0)
        return Moments(np.zeros_like(square), np.log(variance) + far)

    def _price(self, shape):
        stored = self.m * (shape.n + shape.l) / shape.n
        short = 0.5 if self.bug == "price" else 1
        return Price(short * stored, None, None, 8 * stored)


ASSERTIONS = {
    "unbiased": lambda x: assert_unbiased(x, Q, K, draws=100),
    "unbiased, causal": lambda x: assert_unbiased(x, Q, K, mask="causal", draws=100),
    "variance": lambda x: assert_variance(x, Q, K),
    "converges": lambda x: assert_converges(x, Q, K),
    "autoregressive": lambda x: assert_autoregressive(x, Q, K),
    "rotation": lambda x: assert_invariant(x, Q, K, "rotation"),
    "seeded": lambda x: assert_seeded(x, Q, K),
    "finite": assert_finite,
    "price": lambda x: assert_price(x, Q, K),
}
MEANS = {"unbiased", "unbiased, causal"}
NOTICED = {  # bug → the assertions that fail
    "": set(),
    "factor": MEANS | {"variance"},
    "norm": MEANS | {"autoregressive"},  # a later key of norm 400 has the largest features
    "mask": {"unbiased, causal", "autoregressive"},
    "dependent": MEANS | {"variance", "converges"},  # means: σ is not the stated one
    "future": MEANS | {"variance", "autoregressive"},
    "global": {"autoregressive", "seeded"},
    "ignored": MEANS | {"rotation", "seeded"},
    "range": {"finite"},  # all entries are 0 at logits of 10⁴
    "overflow": {"finite"},
    "dtype": set(),  # of the list below, "one matrix" and "finite" in float32
    "price": {"price"},
}


@pytest.mark.parametrize("bug", NOTICED)
def test_which_assertion_notices_a_planted_bug(bug):
    found = {}
    for name, check in ASSERTIONS.items():
        found[name], why = verdict(functools.partial(check, Waves(m=64, bug=bug)))
        assert ("entry" in why and "standard error" in why) or name not in MEANS or not why
    assert {name for name, said in found.items() if said == "failed"} == NOTICED[bug]
    assert [name for name, said in found.items() if said == "cannot tell"] == (
        ["variance", "converges"] if bug == "ignored" else []
    )


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("bug", NOTICED)
def test_the_list_of_checks_notices_it_unless_nothing_is_stated(bug, stated):
    checks = check_method(Waves(bug=bug, stated=stated))
    failed = (name for name, check in checks if verdict(check)[0] == "failed")
    assert any(failed) == (bug not in (("",) if stated else ("", "factor", "norm")))
    if bug == "dependent":
        assert {*failed} == ({"unbiased"} if stated else set())  # after the first


@pytest.mark.parametrize(
    ("method", "failed"),
    [
        (Waves(bug="factor", factor=1.01), {"unbiased"}),
        (Waves(bug="law"), {"unbiased"}),
        (Waves(bug="large"), {"moments"}),  # for "unbiased", it is undecided
        (
            Waves(bug="NaN"),
            {"moments", "unbiased", *(f"finite at logits of 10⁴, float{x}" for x in (32, 64))},
        ),
        (Waves(bug="in place"), {"draws from rng alone", "row local"}),
    ],
)
def test_the_list_notices_small_factors_and_false_moments(method, failed):
    checks = check_method(method)
    assert next(checks)[0] == "refuses bad input"
    assert {name for name, check in checks if verdict(check)[0] == "failed"} == failed


@pytest.mark.parametrize(("name", "check"), list(check_method(Waves)))
def test_each_check_of_a_class_is_a_test(name, check):
    assert check() is None


def test_a_check_of_a_list_fails_by_itself():
    checks = dict(check_method(Waves(m=4, bug="future")))
    assert {"price", "moments", "unbiased", "row local", "autoregressive"} < {*checks}
    with pytest.raises(AssertionError, match=r"row 7 changes by .* if later tokens are cut off"):
        checks["autoregressive"]()


# What cannot be told


def far(norm):
    x = np.full((1, 4), norm / 4)
    return x, x  # |q + k| = norm


def test_a_heavy_tail_cannot_be_judged():
    """The variance at |q + k| = 4 is 9·10⁶/m: a sample of 400 draws has a mean far below 1."""
    for method in (Waves(m=8), Waves(m=8, bug="factor"), parse("positive(m=256)")):
        with pytest.raises(Undecided, match="hides a bias of one half"):
            assert_unbiased(method, *far(4.0), draws=40)
        with pytest.raises(Undecided, match=r"standard error of its variance|Pareto"):
            assert_variance(method, *far(4.0))
        with pytest.raises(Undecided, match="Pareto k̂ of its variance"):  # it rises with m here
            assert_converges(method, *far(4.0))
    with pytest.raises(Undecided, match=r"Pareto k̂ = \d\.\d\d of 400 draws, above 0\.62"):
        assert_unbiased(Waves(m=8, stated=False), *far(4.0), draws=400)
    with pytest.raises(Undecided, match="hides a bias of one half"):
        assert_unbiased(parse("sampled(k=1)"), np.zeros((1, 2)), np.zeros((400, 2)), draws=30)
    with pytest.raises(Undecided, match=r"its variance 0\.\d+ is 0\.\d+"):  # shows no tenfold one
        assert_variance(Waves(m=16, bug="tail"), *far(1.0))


def test_a_skewed_mean_fails_in_some_of_a_thousand_runs():
    assert "|q + k| = 1.8 the mean of 4096 positive features fails in 3 of 2000" in (
        " ".join(assert_unbiased.__doc__.split())
    )
    rng, sigma = np.random.default_rng(0), math.sqrt(math.expm1(1.8**2) / 4096)
    runs = [np.exp(1.8 * rng.standard_normal(4096) - 1.62).mean() - 1 for _ in range(10_000)]
    assert 0 < np.sum(np.abs(runs) > 5 * sigma) < 35  # 15 expected, of standard deviation 4


def test_few_or_equal_draws_cannot_be_judged():
    with pytest.raises(Undecided, match=r"1 draws, too few or all alike, .*; try draws=400$"):
        assert_unbiased(Waves(m=10_000, stated=False), Q, K)
    with pytest.raises(Undecided, match=r"100 draws, too few or all alike, [^;]*$"):
        assert_unbiased(Waves(m=8, stated=False, bug="ignored"), Q, K, draws=100)
    with pytest.raises(Undecided, match="see all keys"):
        assert_autoregressive(Waves(m=8), Q, K, mask=None)
    with pytest.raises(ValueError, match="states no moments"):
        assert_moments(Waves(m=8, stated=False), Q, K)


def test_without_chance_there_is_an_answer():
    assert_unbiased(parse("exact()"), Q, K)
    with pytest.raises(AssertionError, match="and nothing is drawn") as found:
        assert_unbiased(parse("taylor(degree=1)"), Q, K)
    assert found.type is AssertionError


# Inputs


@given(heads(max_norm=0.5, mask="causal"), seeds())
def test_a_property_test_of_ones_own(head, seed):
    x, y = head
    assert len(x) <= len(y)
    assert max(np.linalg.norm(z, axis=1).max() for z in head) <= 0.5 * (1 + 1e-15)
    assert_unbiased(Waves(m=4096), *head, mask="causal", rng=seed)


@given(heads(max_norm=2.0, mask=Mask([0, 1, 1], [1, 2, 4], 4)))
def test_a_mask_gives_the_shape(head):
    assert [len(x) for x in head] == [3, 4]


def test_without_hypothesis_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    for strategy in (heads, seeds):
        with pytest.raises(ImportError, match=r"pip install pytest hypothesis$"):
            strategy()


# Power


def stated(assertion):
    """Return the numbers of the paragraph on power in a docstring."""
    power = assertion.__doc__.partition("Power:")[2].split("\n\n")[0]
    return [float(x) for x in re.findall(r"(?<![\w⁻])\d+(?:\.\d+)?", power)]


def test_docstrings_state_the_power_that_follows_from_the_normal_law():
    """A difference b is seen with probability Φ(b/σ − 5): ½ at 5σ, 0.9 at (5 + 1.28)σ."""
    assertions = [value for name, value in vars(testing).items() if name.startswith("assert_")]
    assert len(assertions) == 12
    assert all("    Power: " in assertion.__doc__ for assertion in assertions)
    nine = 5 + norm.ppf(0.9)
    assert "at b = 5σ, 0.9 at b = 6.3σ" in testing.__doc__
    assert round(nine, 1) == 6.3
    sigma = 100 * math.sqrt(math.expm1(1.0) / 4096)
    numbers = 4096, 1, round(sigma, 1), round(5 * sigma), round(nine * sigma), 90
    assert stated(assert_unbiased) == [*numbers]
    sigma = math.sqrt(2 / 400)
    limit = 1 / (1 - 5 * math.hypot(sigma, 5 / 400))  # s² − 1 > 5 errors of s²
    far = limit / (1 - norm.ppf(0.9) * sigma)
    assert stated(assert_variance) == [
        400, round(100 * sigma, 1), round(100 * (limit - 1)), round(100 * (far - 1)), 90
    ]  # fmt: skip
    assert stated(assert_moments) == [400, 5 / 20, round(nine / 20, 2), 90]
    both = math.sqrt(2) * sigma
    assert stated(assert_converges) == [400, round(100 * both), 1, round(0.75 / both, 1)]
    errors = np.exp(parse("positive(m=256)").moments(*testing._head(3, 4, 4, 0.5))[1] / 2) / 20
    extremes = round(100 * errors.max(), 2), round(100 * errors.min(), 2)
    assert stated(check_method) == [12, 4, 2, 400, 16, 256, *extremes, 1.01, 7]
    gaps = (round(float(kstwo.isf(1e-6 / entries, 100)), 2) for entries in (1, 144))
    assert stated(assert_invariant) == [200, *gaps, 144]
    assert stated(assert_seeded) == [1, 10, 20]
    assert round(2.0**-20 * 1e6) == 1
    estimate = Waves(m=64).approximate(Q[:1], np.repeat(K, 2, axis=0), rng=0)
    assert stated(assert_autoregressive) == [12, 64, 3, 10]
    assert round(testing.roundings(estimate) * 1e14) == 3


def test_the_power_is_what_a_normal_z_says():
    x, runs = np.full((1, 4), 0.25), 300
    sigma = math.sqrt(math.expm1(1.0) / 4096)
    for shift in (2.0, 5.0, 6.3):
        method = Waves(m=4096, bug="factor", factor=1 + shift * sigma)
        said = [verdict(functools.partial(assert_unbiased, method, x, x, rng=i))[0]
                for i in range(runs)]  # fmt: skip
        power = norm.cdf(shift - 5)
        error = math.sqrt(power * (1 - power) / runs)
        assert abs(said.count("failed") / runs - power) < 5 * error + 0.03  # 3 %: skew
