"""Attention rows and their estimates at equal budget, as pictures: a figure a temperature."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from analysis.costs.budget import match
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.sweeps.table import Row, with_currency
from approx import parse
from approx.checks import Array
from approx.estimate import exact
from figures.drawing import style
from figures.gallery.summary import at_one
from figures.words import amounts
from figures.words.translation import tr

TITLE = "Attention rows and their estimates at equal budget"
ORDER = 480
SIDE = 64  # the largest width and height of a picture, in pixels
EXACT, WEIGHTS = "exact", "weights"
SPECS = {
    "positive": "Performer",
    "top_k": "top-k",
    "truncated_svd(space='attention')": "truncated SVD",
}
ERRORS = ("attention_tv", "attention_relative_frobenius")
PIXELS = tuple(f"pixel_{place}" for place in range(SIDE))
COLUMNS = (
    "input", "n", "l", "temperature", "name", "method", "budget", "metric", "query", "value",
    *PIXELS,
)  # fmt: skip
FLOOR = 1e-3


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
    """Draw the pictures of the last input at the temperature nearest 1."""
    here, norm = at_one(table), LogNorm(FLOOR, 1, clip=True)
    pictures = _pictures(here)
    figure, axes = style.row(len(pictures), 2.9)
    for ax, (title, pixels) in zip(axes, pictures):
        image = ax.imshow(pixels, cmap="magma_r", norm=norm, aspect="auto", interpolation="none")
        ax.set(title=title, xticks=[], yticks=[], xlabel=tr("each key"))
    axes[0].set_ylabel(tr("each query"))
    figure.suptitle(_title(here))
    label = tr("share of a query's attention; palest: at most {floor:g}", floor=FLOOR)
    figure.colorbar(image, ax=axes, location="bottom", fraction=0.05, aspect=40, label=label)
    return figure


def panels(table: pd.DataFrame) -> Iterator[tuple[float, Figure]]:
    """Yield each temperature and its figure: one figure, laid out once, with other pictures."""
    figure = draw(table)
    for t in sorted(table.temperature.unique().tolist()):
        here = table[table.temperature == t]
        for ax, (title, pixels) in zip(figure.axes, _pictures(here)):
            ax.set_title(title)
            ax.images[0].set_data(pixels)
        figure.texts[0].set_text(_title(here))
        yield t, figure


def _title(table: pd.DataFrame) -> str:
    return f"{table.input.iloc[-1]}, t = {table.temperature.iloc[-1]:g}"


def _pictures(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return title and pixels of the exact attention of the last input, and of its estimates."""
    last, found = table[table.input == table.input.iloc[-1]], []
    for name in (EXACT, *SPECS.values()):
        if len(rows := last[last.name == name]):
            tv = rows.value[rows.metric == ERRORS[0]]
            below = tr("total variation {tv}", tv=_short(tv.iloc[0])) if len(tv) else ""
            pixels = rows[rows.metric == WEIGHTS][list(PIXELS)].dropna(axis=1)
            found.append((f"{tr(name)}\n{below}", pixels))
    return found


def _short(value: float) -> str:
    return f"{value:#.2g}" if value >= 1e-2 else f"{value:.2g}"


def finding(table: pd.DataFrame) -> str:
    here = at_one(table)
    last = here[(here.input == here.input.iloc[-1]) & (here.metric == ERRORS[0])]
    tv = last[last.name.isin(SPECS.values())].set_index("name").value
    if tv.empty:
        return tr("No estimate fits the budget.")
    return tr(
        "Of these estimates of {input} at t = {t:g}, {best} has the least total variation, "
        "{least}; {worst} has the most, {most}.",
        input=last.input.iloc[0],
        t=last.temperature.iloc[0],
        best=_least(tv),
        least=_short(tv.min()),
        worst=tr(tv.idxmax()),
        most=_short(tv.max()),
    )


def _least(values: pd.Series) -> str:
    """Return the names whose values print as the least does, the least first."""
    printed = values.sort_values(kind="stable").map(_short)
    return tr(" or ").join(tr(name) for name in printed.index[printed == printed.iloc[0]])


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Attention of queries (down) to keys (across), exact and by estimates at {budget}.",
        budget=amounts.budget(table),
    )
