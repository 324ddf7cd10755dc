"""The smallest degree at which a polynomial of exp has an error ε on [−B, B]."""

import pandas as pd

from analysis.experiments.profile import Profile
from analysis.sweeps.table import Row
from approx.polynomials.error_bounds import minimum_degree

COLUMNS = ("method", "norm", "bound", "epsilon", "metric", "value")
BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0)
EPSILONS = (1e-2, 1e-4)
ASKED = (
    ("taylor", "relative"), ("tensor_power", "relative"), ("chebyshev", "relative"),
    ("minimax", "relative"), ("taylor", "scaled"), ("chebyshev", "scaled"), ("minimax", "scaled"),
)  # fmt: skip


def _study(method: str, norm: str, bound: float) -> list[Row]:
    degrees = [minimum_degree(method, bound, e, norm) for e in EPSILONS]
    return [(method, norm, bound, e, "degree", float(n)) for e, n in zip(EPSILONS, degrees)]


def compute(profile: Profile) -> pd.DataFrame:
    """Return the degrees, for five B, two ε, four methods and two norms."""
    tasks = [(method, norm, B) for method, norm in ASKED for B in BOUNDS]
    return profile.study(_study, tasks, "degrees", COLUMNS)
