"""Bias and variance of an estimate: the public names, each defined in a file of its own.

The closed form is `Method.moments`; beside it stand Monte Carlo with standard errors, the expected
error of the whole matrix, the number of features that an error needs, and the moments of normalised
attention.
"""

from analysis.expected_error import expected_error
from analysis.features_needed import features_needed
from analysis.monte_carlo import MonteCarlo, monte_carlo
from analysis.normalised import NormalisedMoments, normalised_moments

__all__ = [
    "MonteCarlo",
    "NormalisedMoments",
    "expected_error",
    "features_needed",
    "monte_carlo",
    "normalised_moments",
]
