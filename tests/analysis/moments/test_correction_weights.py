"""Replace or weigh: errors by enumeration of all draws, and the rule that says which is nearer."""

import dataclasses
import itertools

import naive
import numpy as np
import pytest
from each import each
from hypothesis import given, strategies as st

from analysis import inputs
from analysis.moments.correction_weights import Errors, Row, effective_number, rows, threshold
from approx import Approximation, parse
from approx.combinations.sampled import Sampled

TINY = 1e-12  # some 10³ terms of size 1, each with a few roundings
P = np.array([0.3, 0.05, 0.2, 0.15, 0.1, 0.2])
REST = np.array([False, True, True, False, True, True])
ERRORS = np.array([  # of a low-rank part, equally likely: biased, and correlated among keys
    [0.3, -0.5, 0.4, 0.1, 0.2, 0.9],
    [0.1, 0.8, 0.6, 0.0, -0.4, 0.5],
    [-0.2, 0.1, 1.1, 0.3, 0.3, 0.0],
])  # fmt: skip
BIAS, COVARIANCE = ERRORS.mean(axis=0), np.cov(ERRORS.T, ddof=0)
V = np.array([[1.0, 0.0], [0.5, -1.0], [2.0, 1.0], [0.0, 0.0], [-1.0, 2.0], [0.3, 0.4]])
DRAWN = 2


def draws(design, keys, drawn):
    """Yield (probability, keys that are drawn)."""
    if design == "uniform":
        every = list(itertools.combinations(keys, drawn))
        yield from ((1 / len(every), some) for some in every)
        return
    pi = drawn / len(keys)
    for size in range(len(keys) + 1):
        for some in itertools.combinations(keys, size):
            yield pi**size * (1 - pi) ** (len(keys) - size), some


def enumerated(design, weight, errors=ERRORS, p=P, rest=REST):
    """Return mean squared errors of the row sum and of the output, over draws and estimates."""
    found = np.zeros(2)
    for chance, some in draws(design, np.flatnonzero(rest).tolist(), DRAWN):
        for one in errors:
            found += (
                chance
                / len(errors)
                * np.array(naive.errors_of_a_drawn_row(p, rest, one, some, weight, V))
            )
    return found


@each("design", ["uniform", "coins"])
def test_the_error_of_the_row_sum_is_the_mean_over_all_draws(design):
    row = Row(P, REST, DRAWN, BIAS, COVARIANCE, design)
    for weight in (0.0, 1.0, 1.3, 1 / row.pi):
        expected = enumerated(design, weight)[0]
        assert row.row_sum_at(weight) == pytest.approx(expected, rel=TINY)
    weighted, replaced = (enumerated(design, c)[0] for c in (1 / row.pi, 1.0))
    assert row.row_sum() == pytest.approx(Errors(weighted, replaced), rel=TINY)
    assert row.row_sum().ratio == pytest.approx(weighted / replaced, rel=TINY)
    # uncorrelated errors, of which the variances are enough
    signs = np.array(list(itertools.product([-1, 1], repeat=6)))
    some = np.array([0.3, 0.2, 0.6, 0.1, 0.5, 0.4])
    alone = Row(P, REST, DRAWN, BIAS, some**2, design)
    expected = enumerated(design, 1 / row.pi, BIAS + some * signs)[0]
    assert alone.row_sum().weighted == pytest.approx(expected, rel=TINY)
    as_matrix = Row(P, REST, DRAWN, BIAS, np.diag(some**2), design)
    assert alone.row_sum() == pytest.approx(as_matrix.row_sum(), rel=TINY)


def test_errors_are_those_of_the_methods_that_weigh_and_replace():
    x = next(iter(inputs.sample("smollm2").heads())).first(24).at_temperature(8.0)
    support, low = parse("top_k(k=4)"), parse("positive(m=16)")
    method = Sampled(support, k=3, low_rank=low)
    for i, row in rows(x, support, 3, low_rank=low, queries=[9, 23]):
        assert row.keys == i + 1 - 4
        covariance = method.covariance(x.Q, x.K, row=i, mask=x.mask)
        assert row.row_sum().weighted == pytest.approx(row.p @ covariance @ row.p, rel=1e-9)
    # Scatterbrain's moments know no covariance of its support: a row with one key has none
    support, low = parse("random(k=3)"), parse("regularized(m=16)")
    b, v = parse(f"scatterbrain(low_rank={low}, sparse={support})").moments(x.Q, x.K, mask=x.mask)
    known = low.moments(x.Q, x.K, mask=x.mask)
    share = np.zeros(24)
    share[5] = 1.0
    variance = np.exp(known.log_relative_variance[23])
    row = Row(share, np.ones(24, bool), 3, known.relative_bias[23], variance)
    assert row.row_sum().replaced == pytest.approx(b[23, 5] ** 2 + np.exp(v[23, 5]), rel=1e-9)


# The rule


@each("pi, ratio, keys, crossing", [
    (0.5, 0.0, None, 3), (0.5, 1.0, None, 5), (0.25, 0.5, None, 7), (1 / 5, 0.0, 5, 3),
    (2 / 8, 2.0, 8, 8), (3 / 9, 0.0, 9, 3),
])  # fmt: skip
def test_the_two_are_as_near_exactly_at_the_threshold(pi, ratio, keys, crossing):
    """N_eff equal shares, and none for the others: N_eff is 3, 5, 7, …, and one more or less."""
    b, design = -0.7, "coins" if keys is None else "uniform"
    v = ratio * b**2
    assert threshold(pi, bias=b, variance=v, keys=keys) == pytest.approx(crossing, rel=TINY)
    count = keys or 12
    for broad in (crossing - 1, crossing, crossing + 1):
        if broad > count:
            continue
        p = np.where(np.arange(count) < broad, 1 / broad, 0.0)
        row = Row(p, np.ones(count, bool), round(pi * count, 9) if keys is None else
                  round(pi * keys), np.where(p > 0, b, -1.0), v, design)  # fmt: skip
        assert row.effective_number == pytest.approx(broad, rel=TINY)
        assert row.common == pytest.approx((b, v), rel=TINY)
        assert row.rule == pytest.approx(broad / crossing, rel=TINY)
        weighted, replaced = row.row_sum()
        if broad == crossing:
            assert weighted == pytest.approx(replaced, rel=TINY)
        else:
            assert (weighted < replaced) == (broad > crossing)
            assert abs(weighted / replaced - 1) > 0.01


def made(seed, keys, drawn, design, common):
    rng = np.random.default_rng(seed)
    p = rng.exponential(size=keys) ** rng.integers(1, 5)
    bias, C = rng.standard_normal(), rng.exponential()
    if not common:
        bias, root = rng.standard_normal(keys), rng.standard_normal((keys, 3))
        C = root @ root.T * rng.exponential()
    return Row(p / p.sum(), np.ones(keys, bool), min(drawn, keys - 1), bias, C, design)


@given(
    seed=st.integers(0, 2**32 - 1), keys=st.integers(2, 40), drawn=st.integers(1, 39),
    design=st.sampled_from(["uniform", "coins"]), common=st.booleans(),
)  # fmt: skip
def test_the_rule_says_which_is_nearer(seed, keys, drawn, design, common):
    row = made(seed, keys, drawn, design, common)
    weighted, replaced = row.row_sum()
    number, crossing = row.effective_errors, row.threshold
    assert -TINY <= number <= keys * (1 + TINY)
    if abs(number - crossing) > 1e-9 * keys:
        assert (weighted < replaced) == (number > crossing)
        assert (row.best_weight > (1 + 1 / row.pi) / 2) == (number > crossing)
    if common and abs(row.rule - 1) > 1e-9:
        assert (weighted < replaced) == (row.rule > 1)
    c = row.best_weight
    assert -TINY <= c <= (1 + 1e-9) / row.pi
    least = row.row_sum_at(c)
    assert least <= min(weighted, replaced) * (1 + 1e-9)
    for other in (0.9 * c, 1.1 * c):
        assert least <= row.row_sum_at(other) * (1 + 1e-9)


def test_around_an_unbiased_part_only_errors_that_keys_share_make_weighing_nearer():
    p, every = np.full(20, 1 / 20), np.ones(20, bool)
    assert threshold(0.1, bias=0.0, variance=1.0) == np.inf
    for design in ("uniform", "coins"):
        alone = Row(p, every, 4, 0.0, 0.3, design)
        assert alone.row_sum().replaced < alone.row_sum().weighted
        assert alone.effective_errors == pytest.approx(1.0)
        shared = Row(p, every, 4, 0.0, np.full((20, 20), 0.3), design)
        assert shared.row_sum().weighted < shared.row_sum().replaced
        assert shared.effective_errors == pytest.approx(20.0)
        assert shared.rule == alone.rule == 0.0
    # as those of features are: all keys share the frequencies
    x = next(iter(inputs.sample().heads())).first(128).at_temperature(4.0)
    for _, row in rows(x, parse("top_k(k=8)"), 8, low_rank=parse("positive(m=16)"), queries=[5]):
        assert row.row_sum().ratio < 0.5
        assert row.rule == 0.0


def test_without_replacement_weighing_wins_earlier():
    p = np.exp(-np.arange(30) / 10)
    ratios = [Row(p / p.sum(), np.ones(30, bool), 5, design=d).row_sum().ratio
              for d in ("uniform", "coins")]  # fmt: skip
    assert ratios[0] < ratios[1]
    assert threshold(5 / 30, keys=30) == pytest.approx(35 / 6)
    assert threshold(5 / 30) == pytest.approx(35 / 5)
    assert effective_number([0.5, 0.5, 0.0]) == 2.0
    assert effective_number([1e-200, 1e-200]) == 2.0


# Outputs


def test_where_nothing_is_exact_and_nothing_stands_for_the_rest_outputs_coincide():
    x = next(iter(inputs.sample("smollm2").heads())).first(40)
    for method in (Sampled(k=3), Sampled(design="poisson", k=5)):  # the latter: coins
        weighed = x.approximate(method, rng=4)
        once = dataclasses.replace(weighed.correction, weights=None)
        replaced = Approximation(weighed.maskable, once, mask=x.mask)
        assert weighed.correction.weights.max() > 1
        np.testing.assert_allclose(weighed.attend(x.V), replaced.attend(x.V), rtol=1e-9)
    for design in ("uniform", "coins"):
        weighed, replaced = Row(P, np.ones(6, bool), 2, design=design).output(V)
        assert weighed == pytest.approx(replaced, rel=1e-12)
        assert weighed > 0


@each("design", ["uniform", "coins"])
def test_the_error_of_the_output_is_exact_to_first_order(design):
    """As the rest shrinks by ε so does what the first order leaves out, relative to the error."""
    rates = []
    for eps in (1e-2, 1e-3):
        p = np.where(REST, eps * P, P)
        p /= p.sum()
        row = Row(p, REST, DRAWN, BIAS, COVARIANCE, design)
        both = row.output(V)
        alone = [row.output(V[:, c]) for c in (0, 1)]
        np.testing.assert_allclose(np.sum(alone, axis=0), both, rtol=TINY)
        exact = [enumerated(design, c, p=p)[1] for c in (1 / row.pi, 1.0)]
        rates.append(np.abs(np.array(both) / exact - 1).max())
    assert rates[0] < 0.1
    assert rates[1] < 0.15 * rates[0]  # a tenth, and terms of second order


# Refused


def test_what_is_no_such_row_is_refused():
    for match, options in {
        "drawn must be below the 4 keys of the rest, got 4": {"drawn": 4},
        "drawn must be an integer": {"drawn": 1.5},
        "design must be one of uniform, coins": {"design": "lsh"},
        "rest must say of each of 6 keys": {"rest": REST[:5]},
        "p must be shares >= 0": {"p": -P},
        "bias and covariance must be of 6 keys": {"bias": BIAS[:5]},
        "variances must be >= 0, got -1": {"covariance": -1.0},
    }.items():
        with pytest.raises((ValueError, TypeError), match=match):
            Row(**{"p": P, "rest": REST, "drawn": 2, **options})
    assert Row(P, REST, 1.5, design="coins").pi == 0.375
    with pytest.raises(ValueError, match="variance must be >= 0"):
        threshold(0.1, variance=-1)
    x = inputs.gaussian(8, 2, rng=0)
    for match, arguments in {
        "sparse must draw nothing": {"sparse": parse("random(k=2)")},
        "sparse must be a support": {"sparse": parse("one()")},
        "moments of .* are not known": {"low_rank": parse("coreset(rank=2)")},
    }.items():
        with pytest.raises((ValueError, TypeError), match=match):
            list(rows(x, **{"sparse": parse("top_k(k=2)"), "drawn": 2, **arguments}))
    assert list(rows(x, parse("top_k(k=4)"), 4)) == []
