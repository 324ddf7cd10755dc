"""What each head does to a language model when it alone is replaced: a stored table.

``make lm-study`` measures it on the model itself; a model of 93 MB and half an hour are too much
for a figure.
"""

from pathlib import Path

import pandas as pd

from analysis.experiments.profile import Profile
from analysis.models.sensitivity import PREDICTORS

COLUMNS = ("layer", "head", "method", "kl", "kl_stderr", *PREDICTORS)
STORED = Path(__file__).parents[1] / "data" / "damage.csv"


def compute(profile: Profile) -> pd.DataFrame:
    """Return the table of `sensitivity.singles` that ``make lm-study`` has stored."""
    return pd.read_csv(STORED)[list(COLUMNS)]
