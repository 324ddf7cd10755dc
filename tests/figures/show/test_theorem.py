"""Figures of Scatterbrain's theorem: published numbers, agreement."""

import math

import pytest

from analysis import inputs
from analysis.advice.pitfalls import OneStream
from analysis.experiments import collision
from analysis.experiments.profile import Profile
from figures.gallery import FIGURES

BOUND = 5


@pytest.fixture(scope="module")
def small():
    return Profile("small", (inputs.gaussian(8, 4, rng=0),), (1.0,), 32.0, trials=2, draws=150)


@pytest.fixture(scope="module")
def collisions(small):
    with pytest.MonkeyPatch.context() as patch:  # part "family" has the other hashes
        patch.setattr(collision, "SUPPORTS", collision.SUPPORTS[:1] + collision.SUPPORTS[3:])
        return collision.compute(small)


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


def test_only_an_independent_support_leaves_no_bias(collisions):
    part = collisions[collisions.part == "dependence"]
    z = (part.value / part.stderr).abs().groupby(part.case).max()
    assert z["independent"] <= BOUND
    for case in ("one stream", "largest estimates"):
        assert z[case] > BOUND
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
