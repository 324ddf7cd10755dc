"""Figures of Scatterbrain's theorem: published numbers, agreement, planted faults seen."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from analysis.advice.pitfalls import OneStream
from analysis.experiments import collision, entry_error, predicted_error
from analysis.experiments.profile import Profile
from analysis.moments.squared_errors import FrobeniusError, frobenius_error
from analysis.sweeps.sweep import COLUMNS
from approx import parse
from approx.sparse.lsh import LSH
from figures.gallery import FIGURES

BOUND = 5
HOT, COLD = 16.0, 0.5


@pytest.fixture(scope="module")
def small():
    return Profile("small", (inputs.gaussian(8, 4, rng=0),), (1.0,), 32.0, trials=2, draws=150)


@pytest.fixture(scope="module")
def entries(small):
    return entry_error.compute(dataclasses.replace(small, draws=75))


@pytest.fixture(scope="module")
def collisions(small):
    with pytest.MonkeyPatch.context() as patch:  # part "family" has the other hashes
        patch.setattr(collision, "SUPPORTS", collision.SUPPORTS[:1] + collision.SUPPORTS[3:])
        return collision.compute(small)


@pytest.fixture(scope="module")
def predictions(small):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicted_error, "TEMPERATURES", (COLD, HOT, 4 * HOT))
        return predicted_error.compute(dataclasses.replace(small, draws=125))


# --- entry_error ---------------------------------------------------------------------------------


def test_factor_of_hyperbolic_features_and_that_of_the_script(entries):
    factors = entry_error.hyperbolic_factor(np.array([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(factors, [0, 0.432, 0.491], atol=5e-4)  # published to three digits
    assert entry_error.hyperbolic_factor(None) == pytest.approx(0.316, abs=5e-4)
    # right by accident at |q + k|² = 1
    np.testing.assert_allclose(
        entry_error.hyperbolic_factor(np.array([-0.5])), entry_error.hyperbolic_factor(None)
    )
    inner = np.linspace(-0.9, 1, 20)
    ratio = entry_error.mse(entry_error.method("hyperbolic", 0, 88), 1.0, inner)
    ratio /= entry_error.mse(entry_error.method("performer", 0, 44), 1.0, inner)
    # |q + k|² of rounded numbers near 0.2
    np.testing.assert_allclose(ratio, entry_error.hyperbolic_factor(inner), rtol=1e-13)


def test_collisions_as_the_script_has_them():
    p = entry_error.published_collision(np.array([0.5, 0.8, 0.9, 0.95]))
    np.testing.assert_allclose(p, [2e-9, 3e-3, 0.13, 0.58], rtol=0.2)  # to one or two digits
    assert entry_error.published_collision(np.array([-1.0, 1.0])).tolist() == [0, pytest.approx(1)]


def curve(table, name, metric, norm, hashes):
    part = table[(table.curve == name) & (table.metric == metric)]
    return part[(part.norm == norm) & (part.hashes == hashes)].value.to_numpy()


@pytest.mark.parametrize("hashes", entry_error.HASHES)
def test_the_theorem_holds_along_every_curve(entries, hashes):
    p = curve(entries, "lsh", "collision", 1.0, hashes)
    split = [curve(entries, "lsh", m, 1.0, hashes) for m in ("bias_squared", "variance")]
    np.testing.assert_allclose(sum(split), 1 - p, atol=1e-15)
    for norm in entry_error.NORMS:  # hashes see directions only
        unit = np.exp(2 * norm**2 * np.linspace(-1, 1, entry_error.DOTS))
        alone = curve(entries, "lsh", "mse", norm, hashes)
        # cosines are rounded: p has an error of √eps near 1
        np.testing.assert_allclose(alone, (1 - p) * unit, rtol=1e-12, atol=1e-7 * unit[-1])
        for low, both in (
            ("performer", "scatterbrain"),
            ("hyperbolic", "scatterbrain_hyperbolic"),
        ):
            features = curve(entries, low, "mse", norm, 0)
            found = curve(entries, both, "mse", norm, hashes)
            np.testing.assert_allclose(
                found, (1 - p) * features, rtol=1e-12, atol=1e-7 * features[-1]
            )


def entry_scores(table):
    """Return |sampled − closed| in standard errors of the closed form, where reliable."""
    keys = ["norm", "hashes", "curve", "logit"]
    dots = table[table.metric == "sampled_mse"].assign(logit=lambda t: t.logit.round(9))
    full = table[table.metric == "believable"].value.to_numpy() == 1.0
    dots = dots[full].set_index(keys)
    lines = table[table.metric == "mse"].assign(logit=lambda t: t.logit.round(9))
    closed = lines.set_index(keys).value.reindex(dots.index)
    return np.asarray((dots.value - closed).abs() / dots.stderr)


def test_markers_hold_their_lines(entries):
    # at |q + k|² ≤ ½ a square has a relative variance below 4, that of a normal error is 2;
    # beyond, the mean of 150 squares is not normal, though its deviation is right
    near = 2 * entries.norm**2 + 2 * entries.logit <= 0.5 + 1e-9
    z = entry_scores(entries[near | (entries.curve == "lsh")])
    assert len(z) > 70
    assert z.max() <= BOUND
    assert (entries[entries.metric == "believable"].value == 0).sum() > 50


@pytest.mark.parametrize(
    ("bug", "hashes", "change"),
    [
        ("figure: one round for four", 2, lambda p: p),
        ("figure: hashes of a round not joined", 2, lambda p: 1 - (1 - p**0.5) ** 4),
        ("figure: the rounds' probabilities add", 1, lambda p: np.minimum(4 * p, 1 - 1e-9)),
    ],
)
def test_a_wrong_probability_is_off_the_markers(monkeypatch, killed, bug, hashes, change):
    right = LSH.probability

    def wrong(self, Q, K, *, mask=None):
        return change(right(dataclasses.replace(self, rounds=1), Q, K, mask=mask))

    monkeypatch.setattr(LSH, "probability", wrong)
    rows = entry_error._study("lsh", hashes, 400, 0)
    table = pd.DataFrame(rows, columns=list(entry_error.COLUMNS))
    z = entry_scores(table)
    assert z.max() > BOUND
    killed(bug, z.max())


# --- collision -----------------------------------------------------------------------------------


def frequency_scores(table):
    """Return |frequency − closed form| in standard errors."""
    part = table[table.part == "family"]
    keys = ["case", "logit"]
    known = part[part.metric == "collision"].set_index(keys).value
    drawn = part[(part.metric == "frequency") & (part.stderr > 1e-9)].set_index(keys)
    return ((drawn.value - known.reindex(drawn.index)).abs() / drawn.stderr).reset_index(drop=True)


def test_frequencies_are_the_closed_form(collisions):
    z = frequency_scores(collisions)
    assert len(z) > 40
    assert z.max() <= BOUND


def test_scatterbrain_has_one_minus_p_of_the_error_of_its_features(collisions):
    z = FIGURES["collision"].theorem_scores(collisions)
    assert len(z) == 3 * collision.SHOWN
    assert z.max() <= BOUND


@pytest.mark.parametrize(
    ("bug", "change"),
    [
        ("figure: 1 − p for p", lambda p: 1 - p),
        ("figure: (1 − p)² for 1 − p", lambda p: 1 - (1 - p) ** 2),
        ("figure: no support", lambda p: 0 * p),
    ],
)
def test_another_theorem_is_noticed(collisions, killed, bug, change):
    table = collisions.copy()
    on = table.metric == "one_minus_p"
    table.loc[on, "value"] = 1 - change(1 - table[on].value)
    found = FIGURES["collision"].theorem_scores(table).max()
    assert found > BOUND
    killed(bug, found)


def test_only_an_independent_support_leaves_no_bias(collisions, killed):
    part = collisions[collisions.part == "dependence"]
    z = (part.value / part.stderr).abs().groupby(part.case).max()
    assert z["independent"] <= BOUND
    for case in ("one stream", "largest estimates"):
        assert z[case] > BOUND
        killed(f"figure: {case}", z[case])
    honest = collision.dependent("independent")
    assert collision.dependent("one stream") == OneStream(honest.low_rank, honest.sparse)


def test_smyrf_prefers_large_logits_and_random_keys_do_not(collisions):
    part = collisions[collisions.part == "clusters"]
    for case, rows in part.groupby("case"):
        values, errors = rows.value.to_numpy(), rows.stderr.to_numpy()
        apart = (values[-1] - values[0]) / math.hypot(errors[0], errors[-1])
        assert (apart > BOUND) == case.startswith("smyrf")
    # cuts of one round hold a quarter of the pairs, whatever is drawn
    one = part[part.case == "smyrf(size=8)"].value.mean()
    assert one == pytest.approx(0.25, abs=1e-12)


# --- predicted_error -----------------------------------------------------------------------------


def test_prediction_and_measurement_agree_where_to_be_believed(predictions):
    z = FIGURES["predicted_error"].z_scores(predictions)
    assert len(z) >= 10
    assert z.max() <= BOUND


def test_cold_cells_are_flagged_and_would_flatter(predictions):
    wide = FIGURES["predicted_error"]._wide(predictions)
    cold = wide.xs(COLD, level="temperature")
    assert (cold.believable == 0).all()
    assert (cold.square_ratio < 1e-3).all()
    # the flag is a bound: the sample's own error is below it
    sure = predictions[predictions.metric == "square_ratio"].set_index(["method", "temperature"])
    bound = predictions[predictions.metric == "stderr_bound"].set_index(["method", "temperature"])
    assert (sure.stderr <= bound.value).all()


def scaled(log):
    def wrong(method, Q, K, mask):
        found = frobenius_error(method, Q, K, mask=mask)
        return FrobeniusError(found.log_mean + log, found.relative_deviation)

    return wrong


def features_only(method, Q, K, mask):
    return frobenius_error(getattr(method, "low_rank", method), Q, K, mask=mask)


@pytest.mark.parametrize(
    ("bug", "wrong"),
    [
        ("figure: variance times 2", scaled(math.log(2))),
        ("figure: variance over 2", scaled(-math.log(2))),
        ("figure: the factor 1 − p left out", features_only),
    ],
)
def test_a_wrong_prediction_is_noticed(small, monkeypatch, killed, bug, wrong):
    monkeypatch.setattr(predicted_error, "TEMPERATURES", (HOT,))
    monkeypatch.setattr(predicted_error, "frobenius_error", wrong)
    spec = next(s for s in predicted_error.SPECS if "sliding_window" in s)
    rows = predicted_error._study(predicted_error.heads(small)[0], parse(spec), draws=200, seed=0)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    found = FIGURES["predicted_error"].z_scores(table).max()
    assert found > BOUND
    killed(bug, found)


def test_a_profile_too_small_says_so(small):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicted_error, "TEMPERATURES", (1.0,))
        table = predicted_error.compute(dataclasses.replace(small, draws=10))
    assert (table[table.metric == "believable"].value == 0).all()
