"""Bias and variance of an estimate, in closed form and by Monte Carlo.

The closed form of an entry is `Method.moments`. This package adds Monte Carlo with standard errors,
the expected error of the whole matrix, the number of features for a given error, the moments of
normalised attention, and the tail shape of a sample.
"""

from typing import TYPE_CHECKING

from approx.sample_moments import MonteCarlo as MonteCarlo, pareto_k as pareto_k

_HOMES = {
    "NormalisedMoments": "normalised",
    "expected_error": "expected_errors",
    "features_needed": "expected_errors",
    "monte_carlo": "simulation",
    "normalised_moments": "normalised",
}

if TYPE_CHECKING:
    from analysis.moments.expected_errors import (
        expected_error as expected_error,
        features_needed as features_needed,
    )
    from analysis.moments.normalised import (
        NormalisedMoments as NormalisedMoments,
        normalised_moments as normalised_moments,
    )
    from analysis.moments.simulation import monte_carlo as monte_carlo
else:
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__, _HOMES)
