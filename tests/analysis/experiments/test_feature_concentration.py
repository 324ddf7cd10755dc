"""Terms of random features against their law; Bernstein's bound against tails and its equation."""

import math

import numpy as np
import pytest
import scipy.stats

from analysis.experiments import concentration as study


@pytest.mark.parametrize("family", ["positive", "trigonometric"])
def test_terms_have_the_law_of_the_formula(family):
    """e^(s ω − s²/2), and e^(D²/2) cos D ω, ω normal: by Kolmogorov and Smirnov."""
    s = 1.5
    x = study.terms(family, s, 4000, np.random.SeedSequence(0))
    omega = np.random.default_rng(1).standard_normal(40_000)
    if family == "positive":
        law, expected = np.exp(s * omega - s**2 / 2), math.expm1(s**2)
    else:
        law, expected = math.exp(s**2 / 2) * np.cos(s * omega), math.cosh(s**2) - 1
    assert scipy.stats.ks_2samp(x, law).pvalue > 1e-5
    assert study.variance(family, s) == pytest.approx(expected, rel=1e-12)


def test_bernstein_is_the_root_of_its_equation_and_holds():
    """Of Bernoulli terms with mean p, whose tail is known exactly."""
    for m, p, delta in ((50, 0.02, 0.1), (400, 0.3, 0.01), (7, 0.5, 0.2)):
        var, largest = (1 - p) / p, max(1 / p - 1, 1.0)  # of terms over p
        t = study.bernstein(var, largest, m, delta)
        tail = 2 * math.exp(-m * t**2 / (2 * var + 2 * largest * t / 3))
        assert tail == pytest.approx(delta, rel=1e-12)
        counts = np.arange(m + 1)
        outside = np.abs(counts / (m * p) - 1) >= t
        assert scipy.stats.binom.pmf(counts, m, p)[outside].sum() <= delta


def test_errors_are_below_bernstein_and_follow_the_deviation():
    for s in (min(study.DIFFERENCES), max(study.DIFFERENCES)):
        found = study._errors("trigonometric", s, 0)
        rows = {(m, metric): value for _, _, m, metric, value in found}
        for m in study.COUNTS:
            assert rows[m, "quantile"] < rows[m, "bernstein"]
    rows = {(m, metric): value for _, _, m, metric, value in study._errors("positive", 1.0, 0)}
    ratio = rows[8192, "median"] / rows[8192, "deviation"]
    # of a normal law Φ⁻¹(¾); the median of 256 has the error 1/(2·0.318·√256)·... = 8 %
    assert ratio == pytest.approx(scipy.stats.norm.ppf(0.75), rel=5 * 0.08)
