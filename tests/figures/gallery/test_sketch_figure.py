"""The figure of sketches: closed forms obey their laws, heavy tails are flagged."""

import numpy as np
import pytest

from analysis import inputs
from analysis.experiments.profile import Profile
from approx import parse
from figures.gallery import sketches


@pytest.fixture(scope="module", autouse=True)
def widths():
    """Leave the widest out, which take most of the time and obey the same laws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "SIZES", (32, 64, 128))
        yield


@pytest.fixture(scope="module")
def small():
    return Profile("small", (inputs.gaussian(8, 4, rng=0),), (1.0,), 32.0, trials=2, draws=60)


@pytest.fixture(scope="module")
def table(small):
    return sketches.compute(small)


@pytest.fixture(scope="module")
def wide(table):
    keys = ["temperature", "budget", "method"]
    return table.pivot_table(index=keys, columns="metric", values="value").reset_index()


def test_all_have_the_same_width(wide):
    for row in wide[wide.budget > 0].itertuples():
        columns = parse(row.method).price(n=1, l=1, d=sketches.D).stored
        assert columns == row.budget


def test_expected_errors_fall_as_the_root_of_the_width(wide):
    at = wide[wide.temperature == sketches.TEMPERATURE]
    for family in ("positive", r"random_maclaurin\(m=\d+\)"):
        part = at[at.method.str.match(family)]
        scaled = part[sketches.EXPECTED] * np.sqrt(part.budget)
        assert len(scaled) == len(sketches.SIZES)
        np.testing.assert_allclose(scaled, scaled.iloc[0], rtol=1e-9)
    limit = at[at.method == sketches.LIMIT][sketches.EXPECTED].iloc[0]
    part = at[at.method.str.startswith("product_sketch")]
    variance = (part[sketches.EXPECTED] ** 2 - limit**2) * part.budget  # above the bias
    np.testing.assert_allclose(variance, variance.iloc[0], rtol=1e-9)


def test_what_draws_nothing_has_the_error_that_is_expected(wide):
    part = wide[wide.budget < 0]
    np.testing.assert_allclose(part[sketches.EXPECTED], part[sketches.KERNEL], rtol=1e-9)


def test_measured_errors_are_the_expected_ones_where_a_sample_is_to_be_believed(wide):
    """There a sample variance has a relative standard error ≤ √0.1; the error is its root."""
    part = wide[wide.believable > 0.95]
    assert len(part) >= 6
    ratio = part[sketches.KERNEL] / part[sketches.EXPECTED]
    assert (np.abs(ratio**2 - 1) <= 3 * np.sqrt(0.1)).all()
    assert np.abs(np.log(ratio).median()) < 0.1


def test_heavy_tails_are_flagged(wide):
    heavy = wide[(wide.temperature == 0.5) & wide.method.str.startswith("positive")]
    assert (heavy.believable < 0.5).all()
    assert (heavy[sketches.KERNEL] < 0.01 * heavy[sketches.EXPECTED]).all()
