"""Mean log variance of every family of random features against the norm of the inputs."""

import dataclasses
import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import Method, parse
from approx.checks import Array, required
from figures.drawing import looks, style
from figures.words.translation import mark, share_of, tr

TITLE = "Log variance of random features against the norm of q and k"
ORDER = 100
COLUMNS = ("input", "n", "l", "d", "norm", "method", "metric", "value")
D, COUNT, M = 16, 48, 64
NORMS = tuple(np.geomspace(0.25, 4.0, 17).tolist())
OFFSET = 0.5  # each coordinate of the mean of the second input
FAMILIES = "positive", "trigonometric", "generalized_exponential", "dense_exponential"
LIMITS = -10.5, 12.5  # limits of the axis
LINES = "-", ":", "-.", "--"


def kinds(seed: int) -> list[Head]:
    """Return Gaussian inputs, and clusters of unequal axes off the centre."""
    clustered = data.clustered(COUNT, D, rng=seed)
    axes = np.geomspace(2.0, 0.25, D)
    q, k = (x * axes + OFFSET for x in (clustered.q, clustered.k))
    uneven = dataclasses.replace(clustered, name=mark("clustered, off centre"), q=q, k=k)
    return [data.gaussian(COUNT, D, rng=seed), uneven]


def scaled(x: Array, norm: float) -> Array:
    """Return x times what makes the root mean square of its rows' norms that norm."""
    return np.asarray(x * (norm / math.sqrt(np.square(x).sum(axis=1).mean())))


def _rows(x: Head, method: Method) -> list[Row]:
    rows = list[Row]()
    for norm in NORMS:
        known = required(method.moments(scaled(x.q, norm), scaled(x.k, norm)))
        value = float(known.log_relative_variance.mean())
        rows.append((x.name, x.n, x.l, x.d, norm, str(method), "mean_log_relative_variance", value))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return mean_log_relative_variance over all pairs, in closed form.

    Column norm: the root mean square of |q|, and of |k|. Of the profile only the seed matters.
    """
    methods = [dataclasses.replace(parse(family), m=M) for family in FAMILIES]  # type: ignore[type-var]
    tasks = [(x, method) for x in kinds(profile.seed) for method in methods]
    return profile.study(_rows, tasks, "families", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel a kind of input, one line a family."""
    figure = Figure(figsize=(7.0, 3.5))
    names = table.input.unique()
    axes = figure.subplots(1, len(names), sharex=True, sharey=True)
    for ax, name in zip(axes, names):
        part = table[table.input == name]
        for place, spec in enumerate(looks.order(part.method.tolist())):
            line = part[part.method == spec]
            look = looks.look(spec) | {"markevery": (place, 4), "linestyle": LINES[place]}
            style.curve(ax, line.set_index("norm").value, LIMITS, **look)
        grey = {"color": "0.5", "linewidth": 1.0}
        ax.axvline(_typical(table)[0], label=tr("typical norm"), ls="--", **grey)
        ax.axhline(0.0, label=tr("deviation of 100 %"), **grey)
        ax.set(xscale="log", ylim=LIMITS, title=tr(name), xlabel=tr("norm of q and of k"))
        ax.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
        ax.minorticks_off()
    axes[0].set_ylabel(tr("mean ln of the relative variance"))
    style.legend(figure, list(axes), columns=3)
    return figure


def _typical(table: pd.DataFrame) -> tuple[float, float]:
    """Return the norm of scaled attention on entries of variance 1, and the nearest there is."""
    typical = float(table.d.iloc[0]) ** 0.25  # |q|² = √d at t = 1
    norms = table.norm.unique()
    return typical, float(norms[np.argmin(np.abs(np.log(norms / typical)))])


def finding(table: pd.DataFrame) -> str:
    here = table[table.norm == _typical(table)[1]]
    least = here.groupby("input", sort=False).value.min()
    return tr(
        "At the typical norm of scaled queries, some family has a deviation below 100 % on "
        "{share}.",
        share=share_of(least < 0, mark("kinds of input")),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean ln(relative variance), closed form, {m} columns, d = {d}; the typical norm is d^¼^.",
        m=M,
        d=int(table.d.iloc[0]),
    )
