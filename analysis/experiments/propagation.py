"""How an error of the residual stream grows from layer to layer: a stored table.

``make lm-study`` measures it on the model itself, which is too much for a figure.
"""

from pathlib import Path

import pandas as pd

from analysis.experiments.profile import Profile
from analysis.models import propagation

COLUMNS = ("method", "replaced", "layer", *propagation.COLUMNS, "jacobian")
EVERY = -1  # `replaced` where all layers are
HEALS = 0.9  # of the error that enters a layer
STORED = Path(__file__).parents[1] / "data" / "propagation.csv"


def compute(profile: Profile) -> pd.DataFrame:
    """Return the table of `analysis.models.propagation.trace` that ``make lm-study`` has stored.

    ``replaced`` is the layer whose heads are all replaced, −1 for all layers; ``jacobian`` the norm
    of the Jacobian of each layer, as `analysis.models.propagation.jacobian_norm` estimates it.
    """
    return pd.read_csv(STORED)[list(COLUMNS)]


def findings(table: pd.DataFrame) -> dict[str, float | int | str]:
    """Return what the table says in numbers.

    Returns
    -------
    dict
        ``methods``, how many; of runs with one layer replaced, behind it: ``growth``, ``noise`` and
        ``relative``, the mean factors a layer of `analysis.models.propagation.growth`, with
        ``stderr`` and ``relative_stderr``; ``jacobian`` and ``bound``, medians over layers of the
        norm and of the mean growth that the bound allows; and, where every layer is replaced, of
        the method that in the end is nearest to the model: ``method``, the layer ``worst`` that
        makes the largest error, ``made`` there, and ``heal``, the layers that leave less than nine
        tenths of the error that enters them.
    """
    behind = table[(table.replaced != EVERY) & (table.layer > table.replaced)]
    means = {
        "growth": propagation.growth(behind),
        "noise": propagation.growth(behind, "noise"),
        "relative": propagation.growth(behind, "left_relative", "relative"),
    }
    bounds = propagation.growth(behind, "bound").query("layer >= 0")
    whole = table[table.replaced == EVERY]
    nearest = whole.groupby("method").left_relative.last().idxmin()
    mine = whole[whole.method == nearest]
    worst = mine.iloc[int(mine.made.argmax())]
    heal = mine[(mine.error > 0) & (mine.carried < HEALS * mine.error)]
    return {
        "methods": table.method.nunique(),
        **{name: float(found.growth.iloc[-1]) for name, found in means.items()},
        "stderr": float(means["growth"].stderr.iloc[-1]),
        "relative_stderr": float(means["relative"].stderr.iloc[-1]),
        "jacobian": float(behind.groupby("layer").jacobian.first().median()),
        "bound": float(bounds.growth.median()),
        "method": str(nearest),
        "worst": int(worst.layer),
        "made": float(worst.made),
        "heal": ", ".join(str(layer) for layer in heal.layer),
    }
