"""The size of softmax's gradient against temperature: why logits are divided by √d."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.inputs.statistics import weight_statistics
from analysis.sweeps.table import Row
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "The gradient of softmax against temperature"
ORDER = 460
COLUMNS = ("n", "d", "temperature", "scaled", "metric", "value")
WIDTHS = (4, 16, 256)
TEMPERATURES = tuple(float(t) for t in 2.0 ** np.arange(-6, 7))
COUNT = 128
LOOKS = {4: (looks.PALETTE[1], "o"), 16: (looks.PALETTE[0], "s"), 256: (looks.PALETTE[4], "D")}


def _study(x: Head, t: float, scaled: bool) -> list[Row]:
    at = x.at_temperature(t if scaled else t / math.sqrt(x.d))
    weights = weight_statistics(at.logits())
    norms = weights["jacobian_norm"]
    values = {"jacobian_norm": norms.mean(), "jacobian_median": np.median(norms)}
    return [(x.n, x.d, t, scaled, name, float(value)) for name, value in values.items()]


def compute(profile: Profile) -> pd.DataFrame:
    """Return norms over queries of Gaussian inputs, with and without √d: means and medians."""
    made = [data.gaussian(COUNT, d, rng=profile.seed) for d in WIDTHS]
    tasks = [(x, t, scaled) for x in made for t in TEMPERATURES for scaled in (True, False)]
    return profile.study(_study, tasks, "gradients", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the norm against t for Gaussian inputs of three widths, with and without √d."""
    norms = table[table.metric == "jacobian_norm"]
    figure, axes = style.row(2, 3.2, sharey=True)
    titles = tr("logits q·k/(t√d)"), tr("logits q·k/t, without √d")
    for ax, scaled, title in zip(axes, (True, False), titles):
        for d, (colour, marker) in LOOKS.items():
            y = norms[(norms.d == d) & (norms.scaled == scaled)]
            label = tr("width d = {d}", d=d)
            ax.plot(y.temperature, y.value, color=colour, marker=marker, label=label)
        n = norms.n.iloc[0]
        uniform = tr("uniform weights")
        ax.axhline(math.sqrt(n - 1) / n, color="0.4", linestyle=":", label=uniform)
        ax.set(xscale="log", xlabel=tr("temperature t"), title=title, ylim=(0, None))
    axes[0].set_ylabel(tr("norm of the gradient of softmax"))
    style.legend(figure, axes, columns=4)
    return figure


def finding(table: pd.DataFrame) -> str:
    at = table.set_index(["metric", "scaled", "d", "temperature"]).value.sort_index()
    typical = at["jacobian_median", False]
    small, large = min(WIDTHS), max(WIDTHS)
    return tr(
        "Without √d the median gradient at t = 1 falls from {first:.3f} at d = {small} to "
        "{last:.3f} at d = {large}.",
        first=typical[small, 1.0],
        small=small,
        last=typical[large, 1.0],
        large=large,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean over queries of the Frobenius norm of diag(p) − p pᵀ, at most ½, of Gaussian "
        "queries and keys."
    )
