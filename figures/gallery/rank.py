"""Rank measures against temperature, of exact and of the estimates."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks import rank
from analysis.sweeps.table import Row, head
from approx import Approximation
from figures.drawing import looks, style
from figures.words import amounts
from figures.words.translation import mark, share, tr

TITLE = "Rank against temperature"
ORDER = 50
MEASURES = {
    "epsilon_rank": mark("ε-rank, ε = 0.01"),
    "effective_rank": mark("effective rank"),
    "energy_rank_90": mark("rank of 90 % energy"),
    "stable_rank": mark("stable rank"),
}
MEASURE = "effective_rank"  # which is drawn
SPACES = ("kernel", "attention")
MATCHED = "positive", "scatterbrain(low_rank=positive(), sparse=top_k())"
OWN_PRICE = "taylor(degree=2)", "tensor_power(n=2)"
EXACT: dict[str, dict[str, Any]] = {
    "exact kernel": {
        "label": mark("exact exp(q·k)"), "color": "black", "linestyle": "-", "marker": "",
    },
    "exact attention": {
        "label": mark("exact softmax rows"), "color": "black", "linestyle": "--", "marker": "",
    },
}  # fmt: skip


def _of_estimate(approximation: Approximation, inputs: Head) -> dict[str, float]:
    return rank.summary(approximation) | {"rank": float(approximation.rank)}


def _of_exact(inputs: Head, t: float, space: str) -> list[Row]:
    x = inputs.at_temperature(t)
    measured = rank.measures(rank.exact_singular_values(x, space), (x.n, x.l))
    place = head(x, f"exact {space}")
    return [(*place, name, value, float("nan")) for name, value in measured.items()]


def compute(profile: Profile) -> pd.DataFrame:
    """Return every rank measure of exact and of the estimates, at every temperature."""
    grid = [(x, t, s) for x in profile.inputs for t in profile.temperatures for s in SPACES]
    exact = profile.study(_of_exact, grid, "exact ranks")
    once: dict[str, Any] = {"trials": 1, "measure": _of_estimate, "label": "ranks"}
    matched = profile.sweep(MATCHED, budget=profile.budget, currency=profile.currency, **once)
    priced = profile.sweep(OWN_PRICE, **once)
    return pd.concat([exact, matched, priced], ignore_index=True)


def look(spec: str) -> dict[str, Any]:
    """Return label, colour, line style and marker of an exact matrix or a method."""
    if spec not in EXACT:
        return looks.look(spec)
    return EXACT[spec] | {"label": tr(EXACT[spec]["label"])}


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel an input: the effective rank, whatever the table also holds."""
    inputs = table.input.unique().tolist()
    x, y = tr("temperature t"), tr(MEASURES[MEASURE])
    figure, axes = style.tiles(len(inputs), x, y, height=1.9)
    for ax, name in zip(axes, inputs):
        part = table[(table.input == name) & (table.metric == MEASURE)]
        for spec in [*looks.order(table.method[~table.method.isin(EXACT)]), *EXACT]:
            line = part[part.method == spec].sort_values("temperature")
            ax.plot(line.temperature, line.value, **look(spec))
        ax.set(xscale="log", yscale="log", title=name)
        style.ticks(ax, sorted(table.temperature.unique()))
    style.legend(figure, axes)
    return figure


def moves(table: pd.DataFrame) -> tuple[int, int, int]:
    """Return on how many inputs the kernel's effective rank peaks inside, and softmax falls."""
    part = table[table.metric == MEASURE]
    inside = falls = 0
    for name in part.input.unique():
        kernel, rows = (
            part[(part.input == name) & (part.method == f"exact {space}")]
            .sort_values("temperature")
            .value.to_numpy()
            for space in SPACES
        )
        inside += int(0 < kernel.argmax() < len(kernel) - 1)
        falls += int(rows[-1] < rows[0])
    return inside, falls, part.input.nunique()


def finding(table: pd.DataFrame) -> str:
    inside, falls, inputs = moves(table)
    return tr(
        "The effective rank of exp(q·k) peaks at a middle temperature on {inside}; that of softmax "
        "rows ends below its beginning on {falls}.",
        inside=share(inside, inputs),
        falls=share(falls, inputs),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Effective rank of {n} queries and keys: of both exact matrices, and of estimates.",
        n=amounts.span([*table.n, *table.l]),
    )
