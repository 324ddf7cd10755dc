"""Orthogonal features from a raw QR decomposition: a bias that depends on the direction."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.advice.pitfalls import RawQR
from analysis.experiments.profile import Profile
from analysis.moments import monte_carlo
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx.checks import Array
from approx.projections import Orthogonal, Projection
from approx.random_features.positive import Positive
from figures.drawing import looks, style
from figures.words.translation import mark, share_of, tr

TITLE = "Orthogonal features from raw QR are biased"
ORDER = 140
COLUMNS = ("d", "m", "norm", "direction", "projection", "metric", "value", "stderr")
WIDTHS = (2, 4, 8, 16, 32, 64)
NORMS = (1.0, 2.0)
M = 64
PROJECTIONS: dict[str, Projection] = {"raw QR": RawQR(), "Haar": Orthogonal()}
DIRECTIONS = ("e₁", "1/√d", "−1/√d", "random")
NAMES = {"raw QR": mark("raw QR"), "Haar": "Haar"}
LOOKS = {
    "e₁": (looks.PALETTE[0], "o"),
    "1/√d": (looks.PALETTE[2], "^"),
    "−1/√d": (looks.PALETTE[6], "v"),
    "random": (looks.PALETTE[8], "s"),
}


def directions(d: int, seed: int) -> Array:
    """Return e₁, 1/√d·(1, …, 1), its negative, and a random one, as rows of length 1."""
    ones = np.full(d, 1 / math.sqrt(d))
    g = np.random.default_rng(seed_sequence(seed, "direction", d)).standard_normal(d)
    return np.stack([np.eye(d)[0], ones, -ones, g / np.linalg.norm(g)])


def _rows(d: int, projection: str, draws: int, seed: int) -> list[Row]:
    K = np.concatenate([norm * directions(d, seed) for norm in NORMS])
    rng = np.random.default_rng(seed_sequence(seed, d, projection))
    method = Positive(M, PROJECTIONS[projection])
    sample = monte_carlo(method, np.zeros((1, d)), K, draws=draws, rng=rng)
    names = [(norm, name) for norm in NORMS for name in DIRECTIONS]
    return [
        (d, M, norm, name, projection, "mean_ratio", value, error)
        for (norm, name), value, error in zip(names, sample.mean[0], sample.mean_stderr[0])
    ]


def compute(profile: Profile) -> pd.DataFrame:
    """Return mean_ratio, the mean of estimate/exact by Monte Carlo, with its standard error.

    Columns: norm |q+k| and direction of q + k; projection: raw QR, or Haar, whose standard error is
    the closed form. A draw is m/d blocks of d rows, as many features at every d.
    """
    tasks = [(d, name, profile.draws, profile.seed) for name in PROJECTIONS for d in WIDTHS]
    return profile.study(_rows, tasks, "blocks", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels a projection, one column a norm of q + k."""
    with style.style():
        x, y = tr("width d"), tr("mean of estimate/exact")
        figure, axes = style.panels(len(PROJECTIONS), len(NORMS), x, y)
        for row, projection in enumerate(PROJECTIONS):
            for column, norm in enumerate(NORMS):
                ax = axes[row, column]
                part = table[(table.projection == projection) & (table.norm == norm)]
                for name, line in part.groupby("direction", sort=False):
                    colour, marker = LOOKS[str(name)]
                    ax.errorbar(
                        line.d, line.value, 2 * line.stderr, color=colour, marker=marker,
                        label=tr("q + k along {direction}", direction=_long(str(name))),
                        capsize=2, linewidth=1,
                    )  # fmt: skip
                ax.axhline(1.0, color="black", linewidth=0.8)
                ax.set(xscale="log", title=f"{tr(NAMES[projection])}, |q + k| = {norm:g}")
                style.ticks(ax, WIDTHS)
        style.legend(figure, list(axes.flat), columns=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    z = ((table.value - 1) / table.stderr).abs()
    raw, haar = (share_of(z[table.projection == x] > 5, mark("cases")) for x in PROJECTIONS)
    return tr("Features from raw QR are biased in {raw}, Haar ones in {haar}.", raw=raw, haar=haar)


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean of estimate/exact over draws, two standard errors; biased: five from 1. Haar: Q "
        "with its signs corrected."
    )


def _long(name: str) -> str:
    return {"1/√d": "(1, …, 1)", "−1/√d": "−(1, …, 1)", "random": tr("a random direction")}.get(
        name, name
    )
