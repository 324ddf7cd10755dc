"""Error of row-normalised attention against temperature, at equal budget."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps import crossovers
from analysis.sweeps.table import Row
from approx import parse
from approx.low_rank.godec import GoDec
from approx.low_rank.truncated_svd import TruncatedSVD
from approx.method import FROBENIUS, TV
from figures.drawing import looks, style
from figures.words import amounts
from figures.words.translation import share_of, tr

TITLE = "Error against temperature at equal budget"
ORDER = 20
CROSSING = "{metric}_crossing"  # rows of crossovers
FLOOR, CEILING = 1e-3, 10.0
METRIC = FROBENIUS["attention"]

NAMED = "uniform", "positive", "scatterbrain(low_rank=positive(), sparse=sliding_window())"
SPECS = (
    *NAMED, "godec(rank=0, space='attention')", "truncated_svd(space='attention')",
    "godec(space='attention')", "truncated_svd(space='attention', refine='tv')",
)  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return every error of what is compared and fits the budget, at every temperature.

    Rows of the metric {metric}_crossing have the temperature at which the largest entries and the
    low rank of their input cross, or NaN.
    """
    table = profile.sweep(SPECS, budget=profile.budget, currency=profile.currency, label="errors")
    tasks = []
    for x in profile.inputs:
        part = table[table.input == x.name]
        for metric, pair in _pairs(part).items():
            curves = part[part.metric == metric].pivot_table("value", "temperature", "method")
            tasks.append((x, metric, pair, curves[list(pair)], profile.budget))
    crossed = profile.study(_crossing, tasks, "crossings")
    return pd.concat([table, crossed], ignore_index=True) if tasks else table


def _pairs(part: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Return, by metric, the largest entries and the low rank of one input, where there are any."""
    specs, lows = decompositions(part), {METRIC: "low_rank", TV: "refined"}
    found = {m: low for m, low in lows.items() if {"sparse", low} <= specs.keys()}
    return {metric: (specs["sparse"], specs[low]) for metric, low in found.items()}


def _crossing(
    x: Head, metric: str, pair: tuple[str, str], curves: pd.DataFrame, budget: float
) -> list[Row]:
    known = dict(zip(curves.index, curves.to_numpy()))
    t = crossovers.root(x, [parse(spec) for spec in pair], metric, known)
    shape = x.name, x.layer, x.head, x.n, x.l, x.d, curves.index[0], pair[1], budget
    return [(*shape, -1, CROSSING.format(metric=metric), t, np.nan)]


def curves(table: pd.DataFrame) -> list[str]:
    """Return the methods that are drawn: all but GoDec and the refined low rank."""
    specs = table.method.unique()
    return looks.order(x for x in specs if _role(x) not in ("both", "refined"))


def decompositions(table: pd.DataFrame) -> dict[str, str]:
    """Return the specs of the largest entries, GoDec, the SVD and the refined one."""
    return {_role(spec): spec for spec in table.method.unique() if _role(spec)}


def _role(spec: str) -> str:
    match looks.method_of(spec):
        case GoDec(rank=rank):
            return "both" if rank != 0 else "sparse"
        case TruncatedSVD(refine=refine):
            return "refined" if refine else "low_rank"
    return ""


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel an input: errors of row-normalised attention, at the edge if beyond it."""
    inputs = table.input.unique().tolist()
    y = tr("relative Frobenius error")
    figure, axes = style.tiles(len(inputs), tr("temperature t"), y)
    for ax, name in zip(axes, inputs):
        part = table[(table.input == name) & (table.metric == METRIC)]
        for spec in curves(table):
            values = part[part.method == spec].groupby("temperature").value
            if not len(values):
                continue
            middle, look = values.median(), looks.reference_look(spec)
            style.curve(ax, middle, (FLOOR, CEILING), **look)
        ax.set(xscale="log", yscale="log", ylim=(FLOOR / 1.2, CEILING * 1.2), title=name)
        style.ticks(ax, sorted(table.temperature.unique()))
    style.legend(figure, axes, columns=2)
    return figure


def crossings(table: pd.DataFrame) -> pd.DataFrame:
    """Return where the largest entries and the truncated SVD cross, for each input."""
    parts = []
    # a budget buys other ranks where l/n differs
    for _, part in table.groupby("input", sort=False):
        specs = decompositions(part)
        specs.pop("refined", None)
        if len(specs) == 3:
            at = crossed(part, METRIC)
            parts.append(crossovers.regimes(part, METRIC, **specs, crossed=at))
    if not parts:
        return pd.DataFrame(columns=list(crossovers.COLUMNS))
    return pd.concat(parts, ignore_index=True)


def crossed(table: pd.DataFrame, metric: str) -> dict[str, float]:
    """Return where the errors of entries and low rank cross, by input; NaN where they do not."""
    rows = table[table.metric == CROSSING.format(metric=metric)]
    return dict(zip(rows.input, rows.value))


def finding(table: pd.DataFrame) -> str:
    crossed = crossings(table)
    turning = crossed[crossed.crossing > 0]
    if crossed.empty:
        return tr("All of these methods can be run, at equal price: none sees the whole matrix.")
    if turning.empty:
        return tr("In relative Frobenius error entries and low rank cross on no input.")
    return tr(
        "In relative Frobenius error entries and low rank cross at t ≈ {span}, on {share}.",
        span=amounts.range_of(turning.crossing.min(), turning.crossing.max()),
        share=share_of(crossed.crossing > 0),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Normalised rows at {budget}; medians over trials. Pale: sees all logits.",
        budget=amounts.budget(table),
    )
