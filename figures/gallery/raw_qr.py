"""Orthogonal features from a raw QR decomposition: a bias that depends on the direction."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.moments import monte_carlo
from analysis.pitfalls import RawQR
from analysis.seeds import seed_sequence
from approx.checks import Array
from approx.projections import Orthogonal, Projection
from approx.random_features.positive import Positive
from figures import style
from figures.language import mark, tr
from figures.profile import Profile, Row

TITLE = "Orthogonal features from raw QR are biased"
COLUMNS = ("d", "m", "norm", "direction", "projection", "metric", "value", "stderr")
WIDTHS = (2, 4, 8, 16, 32, 64)
NORMS = (1.0, 2.0)
M = 64
PROJECTIONS: dict[str, Projection] = {mark("raw QR"): RawQR(), "Haar": Orthogonal()}
LOOKS = {
    "e₁": (style.PALETTE[0], "o"),
    "1/√d": (style.PALETTE[2], "^"),
    "−1/√d": (style.PALETTE[6], "v"),
    "random": (style.PALETTE[8], "s"),
}


class _Task(NamedTuple):
    d: int
    projection: str
    draws: int
    seed: int


def directions(d: int, seed: int) -> Array:
    """Return e₁, 1/√d·(1, …, 1), its negative, and a random one, as rows of length 1."""
    ones = np.full(d, 1 / math.sqrt(d))
    g = np.random.default_rng(seed_sequence(seed, "direction", d)).standard_normal(d)
    return np.stack([np.eye(d)[0], ones, -ones, g / np.linalg.norm(g)])


def _rows(task: _Task) -> list[Row]:
    d = task.d
    K = np.concatenate([norm * directions(d, task.seed) for norm in NORMS])
    rng = np.random.default_rng(seed_sequence(task.seed, d, task.projection))
    method = Positive(M, PROJECTIONS[task.projection])
    found = monte_carlo(method, np.zeros((1, d)), K, draws=task.draws, rng=rng)
    names = [(norm, name) for norm in NORMS for name in LOOKS]
    return [
        (d, M, norm, name, task.projection, "mean_ratio", value, error)
        for (norm, name), value, error in zip(names, found.mean[0], found.mean_stderr[0])
    ]


def compute(profile: Profile) -> pd.DataFrame:
    """Return mean_ratio, the mean of estimate/exact by Monte Carlo, with its standard error.

    Columns: norm |q+k| and direction of q + k; projection: raw QR, or Haar, whose standard error is
    the closed form. A draw is m/d blocks of d rows, as many features at every d.
    """
    tasks = [_Task(d, name, profile.draws, profile.seed) for name in PROJECTIONS for d in WIDTHS]
    return profile.study(_rows, tasks, "blocks", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels a projection, one column a norm of q + k."""
    with style.style():
        figure, axes = style.panels(len(PROJECTIONS), len(NORMS))
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
                ax.set(
                    xscale="log",
                    title=f"{tr(projection)}, |q + k| = {norm:g}",
                )
                ax.set_xticks(WIDTHS, [str(d) for d in WIDTHS])
                ax.minorticks_off()
            axes[row, 0].set_ylabel(tr("mean of estimate/exact"))
        for ax in axes[-1]:
            ax.set_xlabel(tr("width d"))
        style.legend(figure, list(axes.flat), columns=2)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    raw, haar = (table[table.projection == name] for name in PROJECTIONS)
    ranked = raw.sort_values("value", kind="stable")
    low, high = ranked.iloc[0], ranked.iloc[-1]
    places = (raw.norm == raw.norm.max()) & (raw.d == raw.d.max())
    wide = raw[places].set_index("direction")
    far = tr(", ").join(
        tr("{v:.2f} ± {e:.2f} along {direction}", v=v, e=e, direction=_long(str(n)))
        for n, v, e in _each(wide)
    )
    z = {name: ((p.value - 1) / p.stderr).abs() for name, p in (("raw", raw), ("haar", haar))}
    return tr(
        "Mean of estimate/exact over draws of orthogonal positive features, with two "
        "standard errors, where the directions are Q of a QR decomposition as it comes, "
        "and with the sign correction that makes them Haar. Raw QR: from {place} to "
        "{highest}; at d = {d}, |q + k| = {norm:g}: {far}. It is more than five standard "
        "errors from 1 in {raw_off} of {raw_places} places, Haar in {haar_off} of "
        "{haar_places} (largest {z:.1f}).",
        place=_place(low),
        highest=_place(high),
        d=raw.d.max(),
        norm=raw.norm.max(),
        far=far,
        raw_off=int((z["raw"] > 5).sum()),
        raw_places=len(raw),
        haar_off=int((z["haar"] > 5).sum()),
        haar_places=len(haar),
        z=z["haar"].max(),
    )


def _each(wide: pd.DataFrame) -> list[tuple[object, float, float]]:
    return list(zip(wide.index, wide.value, wide.stderr))


def _place(row: pd.Series) -> str:
    return tr(
        "{number:.2f} ± {stderr:.2f} (d = {d}, |q + k| = {norm:g} along {direction})",
        number=row.value,
        stderr=row.stderr,
        d=row.d,
        norm=row["norm"],
        direction=_long(row.direction),
    )


def _long(name: str) -> str:
    return {"1/√d": "(1, …, 1)", "−1/√d": "−(1, …, 1)", "random": tr("a random direction")}.get(
        name, name
    )
