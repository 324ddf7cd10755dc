"""Attention rows and their estimates at equal budget, as pictures: a panel a temperature."""

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from analysis.costs.budget import match
from analysis.experiments.profile import Profile, nearest_to_one, trials
from analysis.inputs import Head
from analysis.sweeps.table import Row, with_currency
from approx import parse
from approx.checks import Array
from approx.estimate import exact
from figures.drawing import style
from figures.words import amounts
from figures.words.translation import mark, tr

TITLE = "Attention rows and their estimates at equal budget"
ORDER = 480
SIDE = 64  # pixels a picture is wide and high, at most
EXACT, WEIGHTS = "exact", "weights"
SPECS = {
    "positive": "Performer",
    "top_k": "top-k",
    "scatterbrain(low_rank=positive(), sparse=top_k())": "Scatterbrain",
    "truncated_svd(space='attention')": "truncated SVD",
    "uniform": "uniform",
}
ERRORS = ("attention_tv", "attention_relative_frobenius")
PIXELS = tuple(f"pixel_{place}" for place in range(SIDE))
COLUMNS = (
    "input", "n", "l", "temperature", "name", "method", "budget", "metric", "query", "value",
    *PIXELS,
)  # fmt: skip
FLOOR = 1e-3
WIDTH = 0.93  # of a picture in its column
ERROR_NAMES = dict(zip(ERRORS, (mark("TV"), mark("error"))))


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors, and a row of pixels a query: its weight on each group of neighbouring keys.

    A picture has at most `SIDE` queries, evenly spaced, and as many groups; pixels that a shorter
    sequence has no use for are NaN. A random method shows its first draw in a sweep.
    """
    heads = [x for x in profile.inputs if x.layer >= 0] or profile.inputs[-1:]
    shown = {x.name: x for x in (profile.inputs[0], heads[len(heads) // 2])}
    tasks = [
        (x.at_temperature(t), profile.budget, profile.currency, profile.seed)
        for x in shown.values()
        for t in profile.temperatures
    ]
    return with_currency(profile.study(_rows, tasks, "pictures", COLUMNS), profile.currency)


def _rows(x: Head, budget: float, currency: str, seed: int) -> list[Row]:
    groups = _groups(x.l)
    head = (x.name, x.n, x.l, x.temperature)
    rows = _picture((*head, EXACT, EXACT, -1.0), exact.attention(x.Q, x.K, groups, mask=x.mask))
    for spec, name in SPECS.items():
        for method in match([parse(spec)], budget, x, currency).fitting:
            about = (*head, name, str(method), budget)
            ((_, stream),) = trials(method, x, 1, seed)
            estimate = x.approximate(method, rng=stream)
            errors = x.compare(estimate)
            rows += [(*about, key, -1, errors[key], *[np.nan] * SIDE) for key in ERRORS]
            rows += _picture(about, estimate.attend(groups))
    return rows


def _groups(l: int) -> Array:
    """Return which of at most `SIDE` groups of neighbours each of l keys is in, (l, groups)."""
    group = np.arange(l) // -(-l // SIDE)
    return np.equal.outer(group, np.unique(group)).astype(float)


def _picture(about: Row, attention: Array) -> list[Row]:
    """Return the rows of a picture, to three digits: more than a colour shows."""
    unused = [np.nan] * (SIDE - attention.shape[1])
    return [
        (*about, WEIGHTS, query, np.nan, *(float(f"{w:.3g}") for w in attention[query]), *unused)
        for query in range(0, len(attention), -(-len(attention) // SIDE))
    ]


def draw(table: pd.DataFrame) -> Figure:
    """Draw the pictures at the temperature nearest 1."""
    return _grid(_at_one(table))


def _at_one(table: pd.DataFrame) -> pd.DataFrame:
    here: pd.DataFrame = table[table.temperature == nearest_to_one(table.temperature)]
    return here


def panels(table: pd.DataFrame) -> dict[float, Figure]:
    """Return a figure of each temperature, by temperature."""
    grid = sorted(table.temperature.unique().tolist())
    return {t: _grid(table[table.temperature == t]) for t in grid}


def _grid(table: pd.DataFrame) -> Figure:
    """Draw an axes an input and temperature; side by side in it, a picture a method."""
    names = [EXACT, *(name for name in SPECS.values() if name in set(table.name))]
    grid = sorted(table.temperature.unique().tolist())
    places = [(t, name) for t in grid for name in table.input.unique().tolist()]
    colours = colormaps["magma_r"].with_extremes(under=style.PALETTE[0])
    norm = LogNorm(FLOOR, 1)
    height = 1.4 * len(places) + 1.1
    place = {"left": 0.06, "right": 1.0, "top": 1 - 0.5 / height, "bottom": 0.55 / height}
    with style.style(), rc_context(style.ARRANGED):
        figure = Figure(figsize=(7.0, height))
        axes = figure.subplots(len(places), 1, squeeze=False, gridspec_kw=place | {"hspace": 0.32})
        for row, (ax, (t, name)) in enumerate(zip(axes[:, 0], places)):
            part = table[(table.temperature == t) & (table.input == name)]
            for column, method in enumerate(names):
                rows, extent = part[part.name == method], (column, column + WIDTH, 0, 1)
                ax.imshow(
                    _shown(rows), cmap=colours, norm=norm, extent=extent, interpolation="none"
                )
                heading = "" if row else f"{tr(method)}\n"
                ax.text(
                    column + WIDTH / 2, 1.03, heading + _errors(rows), size=style.SMALL, ha="center"
                )
            ax.set(xlim=(0, len(names)), ylim=(0, 1), xticks=[], yticks=[], aspect="auto")
            ax.spines[:].set_visible(False)
            ax.set_ylabel(f"{name}\nt = {t:g}", size=style.SMALL)
        bar = figure.colorbar(
            ScalarMappable(norm, colours), orientation="horizontal", extend="min",
            cax=figure.add_axes((0.3, 0.4 / height, 0.4, 0.1 / height)),
        )  # fmt: skip
        bar.ax.tick_params(labelsize=style.SMALL)
        bar.ax.grid(False)
        bar.set_label(
            tr("share of a query's attention (left end: below −{floor:g})", floor=FLOOR),
            size=style.SMALL,
            labelpad=1,
        )
    return figure


def _shown(rows: pd.DataFrame) -> Array:
    """Return the pixels of a picture, those near 0 lifted to where the colours begin."""
    pixels = rows[rows.metric == WEIGHTS][list(PIXELS)].dropna(axis=1).to_numpy()
    return np.where(pixels < -FLOOR, FLOOR / 2, pixels.clip(min=FLOOR))


def _errors(rows: pd.DataFrame) -> str:
    values = rows.set_index("metric").value
    return "\n".join(
        f"{tr(name)} {_short(values[key])}" for key, name in ERROR_NAMES.items() if key in values
    )


def _short(value: float) -> str:
    return f"{value:#.2g}" if value >= 1e-2 else f"{value:.2g}"


def nearest(table: pd.DataFrame) -> pd.DataFrame:
    """Return which estimates have the least tv that is printed, of all and of the runnable.

    A row an input and temperature, with columns ``every`` and ``runnable`` of tuples of names: as
    many as print the same number.
    """
    tv = table[table.metric == "attention_tv"]
    keys = ["input", "temperature"]
    some = {"every": tv, "runnable": tv[[not parse(spec).oracle for spec in tv.method]]}
    least = {
        of: {key: _least(rows) for key, rows in part.groupby(keys, sort=False)}
        for of, part in some.items()
    }
    return pd.DataFrame({of: pd.Series(names) for of, names in least.items()}).rename_axis(keys)


def _least(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the names whose values print as the least does, the least first."""
    rows = rows.sort_values("value", kind="stable")
    printed = rows.value.map(_short)
    return tuple(rows["name"][printed == printed.iloc[0]])


def finding(table: pd.DataFrame) -> str:
    here = nearest(_at_one(table)).droplevel("temperature")
    return tr(
        "At t = {t:g}, {every} has the least total variation; among those shown that can be run, "
        "{runnable}.",
        t=_at_one(table).temperature.iloc[0],
        every=_listed(here.every),
        runnable=_listed(here.runnable),
    )


def _listed(names: pd.Series) -> str:
    """Return each method with the inputs on which it is nearest."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, tied in names.items():
        groups.setdefault(tied, []).append(str(name))
    return tr(", ").join(
        tr("{method} ({inputs})", method=_either(tied), inputs=tr(", ").join(inputs))
        for tied, inputs in groups.items()
    )


def _either(names: tuple[str, ...]) -> str:
    """Return the names of methods that print the same value."""
    return tr(" or ").join(tr(name) for name in names)


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Queries down, keys across; exact, estimates at {budget}. Above: total variation, "
        "relative Frobenius error.",
        budget=amounts.budget(table),
    )
