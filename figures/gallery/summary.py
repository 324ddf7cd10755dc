"""The report in one figure: which class is nearest at which temperature, and what can be run."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.advice import diagnose
from analysis.advice.verdict import KEEP
from analysis.costs.candidates import TRIVIAL
from analysis.experiments.profile import Profile, nearest_to_one
from analysis.sweeps.sweep import COLUMNS as SWEPT
from approx.method import TV
from figures.drawing import looks, style
from figures.gallery import error
from figures.words import amounts
from figures.words.translation import mark, share_of, tr

TITLE = "The best approximations, and the best that can be run"
ORDER = 10
COLUMNS = (*SWEPT, "role", "verdict")
METRIC, CROSSING = TV, "crossing"
SHOWN = 1e-3, 2.0  # limits of the axis of total variation
BEST = "runnable"  # roles: this, uniform, and those of the three classes
CLASSES = ["sparse", "low_rank", "both"]
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {  # role → label and look
    "sparse": (
        mark("largest entries (sees all logits)"),
        looks.PALE | {"color": looks.PALETTE[6]},
    ),
    "low_rank": (mark("low rank (sees all logits)"), looks.PALE | {"color": looks.PALETTE[0]}),
    "uniform": (mark("uniform attention"), {"color": "0.35", "linestyle": "--"}),
    BEST: (mark("best method that can be run"), {"color": "black", "marker": "o"}),
}
NAMED = 4  # the most inputs that a title names
AGAIN = mark("{said} On {inputs}, the entries win at a temperature above one at which they lose.")


def compute(profile: Profile) -> pd.DataFrame:
    """Return the total variation of each class's oracle and of the advisor's winner."""
    return compose(error.compute(profile), winners(profile))


def winners(profile: Profile) -> pd.DataFrame:
    """Return the advisor's winner on each input at each temperature.

    Its trials are the advisor's own, whatever the profile, so that both name the same.
    """
    return diagnose.winners(
        profile.inputs,
        budget=profile.budget,
        currency=profile.currency,
        temperatures=profile.temperatures,
        seed=profile.seed,
        jobs=profile.jobs,
        progress=profile.progress,
    )


def elsewhere(profile: Profile) -> pd.DataFrame:
    """Return `winners` at the other temperatures than the one nearest 1, which the advice has."""
    others = tuple(t for t in profile.temperatures if t != nearest_to_one(profile.temperatures))
    return winners(dataclasses.replace(profile, temperatures=others))


def with_advice(profile: Profile, others: pd.DataFrame, advice: pd.DataFrame) -> pd.DataFrame:
    """Return `winners` from the result of `elsewhere` and the advice for these and more heads."""
    places = {x.name: place for place, x in enumerate(profile.inputs)}
    every = pd.concat([others, diagnose.best([advice[advice.input.isin(places)]])])
    order = every.input.map(places), every.temperature
    return every.iloc[np.lexsort(order[::-1])].reset_index(drop=True)


def compose(errors: pd.DataFrame, winners: pd.DataFrame) -> pd.DataFrame:
    """Return the table from that of the errors and that of the advisor's winners."""
    part = errors[(errors.metric == METRIC) & (errors.trial <= 0)]
    roles = [part[part.method == TRIVIAL].assign(role="uniform")]
    for _, own in part.groupby("input", sort=False):
        specs = error.decompositions(own)
        if {"sparse", "both", "refined"} <= specs.keys():
            specs["low_rank"] = specs.pop("refined")
            roles += [own[own.method == spec].assign(role=role) for role, spec in specs.items()]
    crossed = errors[errors.metric == error.CROSSING.format(metric=METRIC)]
    roles.append(crossed.assign(role=CROSSING))
    best = winners.rename(columns={"winner": "method", "attention_tv": "value"}).assign(
        trial=-1, metric=METRIC, stderr=np.nan, role=BEST
    )
    every = pd.concat([*(p.assign(verdict="") for p in roles), best], ignore_index=True)
    columns = [*COLUMNS, *(["currency"] if "currency" in every else [])]
    return every.reindex(columns=columns)


def at_one(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the temperature nearest 1."""
    here: pd.DataFrame = table[table.temperature == nearest_to_one(table.temperature)]
    return here


def crossings(table: pd.DataFrame) -> pd.Series:
    """Return where entries and low rank have equal tv, by input; NaN if nowhere or `returning`."""
    crossed = table[table.role == CROSSING].set_index("input").value
    return crossed.mask(crossed.index.isin(returning(table)))


def returning(table: pd.DataFrame) -> list[str]:
    """Return the inputs where entries beat low rank at a temperature above one where they lose."""
    curves = table[table.role.isin(["sparse", "low_rank"])]
    found = []
    for name, own in curves.groupby("input", sort=False):
        tv = own.pivot_table("value", "temperature", "role")
        signs = np.sign(tv["sparse"] - tv["low_rank"])
        if (signs[signs != 0].diff() < 0).any():
            found.append(str(name))
    return found


def together(table: pd.DataFrame) -> tuple[int, int]:
    """Return in how many cases GoDec has the least tv of the three, and of how many."""
    keys = ["input", "temperature"]
    tv = table[table.role.isin(CLASSES)].pivot_table(index=keys, columns="role", values="value")
    tv = tv.dropna()
    return int((tv.both <= tv[CLASSES[:2]].min(axis=1)).sum()), len(tv)


def example(table: pd.DataFrame) -> str:
    """Return the input of the left panel: a head of a model that crosses, if there is one."""
    crossed = crossings(table)
    real = list(table.input[table.layer >= 0].unique())
    turning = [name for name in crossed.index if crossed[name] > 0]
    wanted = [name for name in real if name in turning]
    return str([*wanted[len(wanted) // 2 :], *turning, *real, *table.input.unique()][0])


def draw(table: pd.DataFrame) -> Figure:
    """Draw one input against temperature, and every input at t = 1."""
    count = table.input.nunique()
    figure = Figure(figsize=(7.0, max(3.2, 0.5 * count + 1.4)))
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    _temperatures(left, table[table.input == example(table)])
    _inputs(right, at_one(table))
    style.legend(figure, left, columns=2)
    return figure


def _temperatures(ax: Axes, table: pd.DataFrame) -> None:
    grid = sorted(table.temperature.unique())
    ax.set(xscale="log", yscale="log", ylim=SHOWN, xlim=(grid[0] / 2.2, grid[-1] * 1.12))
    table = table.sort_values("temperature")
    for role, (label, look) in LOOKS.items():
        line = table[table.role == role]
        values = pd.Series(line.value.to_numpy(), line.temperature)
        style.curve(ax, values, SHOWN, **look, label=tr(label))
    best = table[table.role == BEST]
    names = best.method.map(looks.label)
    for t, tv, name in zip(best.temperature, best.value, names.where(names != names.shift(), "")):
        if name:
            style.PointName(ax, style.lines(name, 14), (t, tv))
    ax.set(title=table.input.iloc[0], xlabel=tr("temperature t"), ylabel=tr("total variation"))
    style.ticks(ax, grid)


def _inputs(ax: Axes, table: pd.DataFrame) -> None:
    names = table.input.unique().tolist()
    for role, (_, look) in LOOKS.items():
        part = table[table.role == role]
        rows = [names.index(name) for name in part.input]
        if role == BEST:
            ax.plot(part.value, rows, **look | {"linestyle": ""})
            for row, spec in zip(rows, part.method):
                ax.text(0.0, row - 0.26, looks.label(spec), fontsize=style.SMALL, va="bottom")
        else:
            ax.plot([part.value] * 2, np.add.outer([-0.17, 0.17], rows), **look)
    ax.set_yticks(range(len(names)), names)
    ax.set(
        xlim=(-0.02, 1.06 * float(table.value.max())),
        ylim=(len(names) - 0.6, -0.75),
        xlabel=tr("total variation"),
        title=tr("every input at t = {t:g}", t=table.temperature.iloc[0]),
    )
    ax.grid(axis="y", visible=False)


def finding(table: pd.DataFrame) -> str:
    crossed = crossings(table)
    turning = crossed[crossed > 0]
    if crossed.empty:
        worth = table.verdict[table.role == BEST] != KEEP
        return tr("A method is worth its price in {share}.", share=share_of(worth, mark("cases")))
    if turning.empty:
        said = tr(
            "In total variation, the largest entries beat the best low rank found below a "
            "crossover, and lose above, on no input."
        )
    elif len(turning) > NAMED:
        said = tr(
            "In total variation, the largest entries beat the best low rank found below a "
            "crossover at t ≈ {span}, and lose above, on {share}.",
            span=amounts.range_of(turning.min(), turning.max()),
            share=share_of(crossed > 0),
        )
    else:
        said = tr(
            "In total variation, the largest entries beat the best low rank found below "
            "t ≈ {places}, and lose above.",
            places=tr(", ").join(
                tr("{t:.2f} ({input})", t=t, input=name) for name, t in turning.items()
            ),
        )
    if more := returning(table):
        said = tr(AGAIN, said=said, inputs=share_of(crossed.index.isin(more)))
    return said


def caption(table: pd.DataFrame) -> str:
    return tr(
        "At {budget}. Named: the best method that can be run.",
        budget=amounts.budget(table),
    )
