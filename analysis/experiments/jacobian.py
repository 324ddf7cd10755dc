"""The size of softmax's gradient against temperature: why logits are divided by √d."""

import math

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.inputs.statistics import weight_statistics
from analysis.sweeps.table import Row

COLUMNS = ("input", "n", "d", "temperature", "scaled", "metric", "value")
WIDTHS = (4, 16, 64, 256)
TEMPERATURES = tuple(float(t) for t in 2.0 ** np.arange(-6, 7))
COUNT = 128


def _study(x: Head, t: float, scaled: bool) -> list[Row]:
    at = x.at_temperature(t if scaled else t / math.sqrt(x.d))
    weights = weight_statistics(at.logits())
    place = (x.name, x.n, x.d, t, scaled)
    norms = weights["jacobian_norm"]
    numbers = {
        "jacobian_norm": norms.mean(),
        "jacobian_median": np.median(norms),
        "largest_weight": weights["largest_weight"].mean(),
    }
    return [(*place, name, float(value)) for name, value in numbers.items()]


def compute(profile: Profile) -> pd.DataFrame:
    """Return mean norms over queries: Gaussian inputs with and without √d, and the profile's."""
    n = min(COUNT, max(x.n for x in profile.inputs))
    made = [data.gaussian(n, d, rng=profile.seed) for d in WIDTHS]
    own = [x.first(n) for x in profile.inputs if x.name != made[0].name]
    tasks = [(x, t, scaled) for x in made for t in TEMPERATURES for scaled in (True, False)]
    tasks += [(x, t, True) for x in own for t in TEMPERATURES]
    return profile.study(_study, tasks, "gradients", COLUMNS)
