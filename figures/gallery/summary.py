"""The report in one figure: which class is nearest at which temperature, and what can be run."""

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
from approx import parse
from figures.drawing import style
from figures.gallery import error
from figures.words import amounts
from figures.words.translation import mark, share_of, tr

TITLE = "The best approximations, and the best that can be run"
ORDER = 10
COLUMNS = (*SWEPT, "masked", "role", "verdict")
METRIC, CROSSING = error.TV, "crossing"
FLOOR = 1e-3  # of the axis
BEST = "runnable"  # roles: this, uniform, and those of the three classes
NAMES = {
    "sparse": mark("largest entries"),
    "low_rank": mark("low rank"),
    "both": "GoDec",
}
COLOURS = {"sparse": style.PALETTE[6], "low_rank": style.PALETTE[0], "both": "0.35"}
UNIFORM = ((1.0, 0.2, 1.4, mark("uniform attention")), (0.5, 0.1, 0.8, mark("half of uniform")))
NAMED = 4  # inputs of a title at most
AGAIN = mark("{said} On {inputs}, the entries win at a temperature above one at which they lose.")
SPARSE = ("entries", "compressed logits", "columns", "pages", "lines", "window", "sampled")


def compute(profile: Profile) -> pd.DataFrame:
    """Return the total variation of each class's oracle and of the advisor's winner."""
    return compose(error.compute(profile), winners(profile))


def winners(profile: Profile) -> pd.DataFrame:
    """Return what the advisor names as winner on each input at each temperature.

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


def compose(errors: pd.DataFrame, winners: pd.DataFrame) -> pd.DataFrame:
    """Return the table from that of the errors and that of the advisor's winners."""
    part = errors[(errors.metric == METRIC) & (errors.trial <= 0)]
    roles = [part[part.method == TRIVIAL].assign(role="uniform")]
    for _, own in part.groupby("input", sort=False):
        specs = error.decompositions(own, "attention")
        if {"sparse", "both", "refined"} <= specs.keys():
            specs["low_rank"] = specs.pop("refined")
            roles += [own[own.method == spec].assign(role=role) for role, spec in specs.items()]
    crossed = errors[errors.metric == error.CROSSING.format(metric=METRIC)]
    roles.append(crossed.assign(role=CROSSING))
    masked = errors.drop_duplicates("input").set_index("input").masked
    best = winners.rename(columns={"winner": "method", "attention_tv": "value"}).assign(
        trial=-1, metric=METRIC, stderr=np.nan, role=BEST, masked=winners.input.map(masked)
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
    tv = table[table.role.isin(NAMES)].pivot_table(index=keys, columns="role", values="value")
    tv = tv.dropna()
    return int((tv.both <= tv[["sparse", "low_rank"]].min(axis=1)).sum()), len(tv)


def example(table: pd.DataFrame) -> str:
    """Return the input of the left panel: a head of a model that crosses, if there is one."""
    crossed = crossings(table)
    real = list(table.input[table.layer >= 0].unique())
    turning = [name for name in crossed.index if crossed[name] > 0]
    wanted = [name for name in real if name in turning]
    return str([*wanted[len(wanted) // 2 :], *turning, *real, *table.input.unique()][0])


def draw(table: pd.DataFrame) -> Figure:
    """Draw one input against temperature, and every input at t = 1."""
    with style.style():
        count = table.input.nunique()
        figure = Figure(figsize=(7.0, max(3.2, 0.45 * count + 1.6)))
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
        _temperatures(left, table[table.input == example(table)])
        _inputs(right, at_one(table))
    return figure


def _temperatures(ax: Axes, table: pd.DataFrame) -> None:
    name = str(table.input.iloc[0])
    grid = sorted(table.temperature.unique())
    ax.set(
        xscale="log", yscale="log", ylim=(FLOOR / 1.3, 2.0), xlim=(grid[0] / 1.12, grid[-1] * 1.12)
    )
    ends: list[tuple[str, float, Any]] = []
    for role, colour in COLOURS.items():
        line = table[table.role == role].sort_values("temperature")
        if len(line):
            values = line.value.clip(FLOOR)
            label = tr(NAMES[role])
            # that of GoDec lies on others, which stay to be seen
            narrow = {"linewidth": 1.5, "alpha": 0.8} if role == "both" else {}
            look = style.PALE | {"color": colour} | narrow
            ax.plot(line.temperature, values, **look, label=label)
            ends.append((label, float(values.iloc[-1]), colour))
    flat = table[table.role == "uniform"].sort_values("temperature")
    label = tr("uniform attention")
    ax.plot(flat.temperature, flat.value.clip(FLOOR), color="0.35", linestyle="--", label=label)
    ends.append((label, float(flat.value.iloc[-1]), "0.35"))
    best = table[table.role == BEST].sort_values("temperature")
    ax.plot(best.temperature, best.value.clip(FLOOR), color="black", label=tr("can be run"))
    for _, row in best.iterrows():
        ax.plot(row.temperature, max(row.value, FLOOR), **_dot(str(row.method)))
    shown = best.method.map(style.label)
    for _, row in best[shown != shown.shift()].iterrows():  # where another method is the nearest
        place = float(row.temperature), max(float(row.value), FLOOR)
        style.Note(ax, style.lines(style.label(str(row.method)), 14), place)
    ends.append((tr("can be run"), max(float(best.value.iloc[-1]), FLOOR), "black"))
    style.direct(ax, ends)
    crossing = crossings(table).get(name, np.nan)
    if crossing > 0:
        ax.axvline(crossing, color="0.2", linewidth=0.8, linestyle=":")
        said = tr("equal tv at t ≈ {t:.2f}", t=crossing)
        sparse = table[(table.role == "sparse") & (table.input == name)].sort_values("temperature")
        logs = np.log(sparse.temperature), np.log(sparse.value.clip(FLOOR))
        place = crossing, float(np.exp(np.interp(np.log(crossing), *logs)))
        style.Note(ax, said, place, color="0.2")
    ax.set_title(name)
    ax.set(xlabel=tr("temperature t"), ylabel=tr("total variation"))
    style.ticks(ax, grid)
    ax.set_xticklabels([{0.25: "¼", 0.5: "½"}.get(t, f"{t:g}") for t in grid])


def _dot(spec: str) -> dict[str, Any]:
    """Return the marker of a method: a square where it keeps entries, a disc where it does not."""
    sparse = parse(spec).class_name in SPARSE
    return style.dots("black", "s" if sparse else "o", 5) | {"label": style.label(spec)}


def _inputs(ax: Axes, table: pd.DataFrame) -> None:
    names = table.input.unique().tolist()
    for row, name in enumerate(names):
        part = table[table.input == name].set_index("role")
        tv = part.value
        ax.plot([tv[BEST], tv["uniform"]], [row, row], color="0.85", linewidth=1.0, zorder=1)
        for role, colour in COLOURS.items():
            if role in tv:
                look = style.PALE | {
                    "color": colour,
                    "label": tr(NAMES[role]) if row == 0 else None,
                }
                ax.plot([tv[role]] * 2, [row - 0.17, row + 0.17], **look)
        for share, height, width, words in UNIFORM:
            value, label = share * tv["uniform"], tr(words) if row == 0 else None
            places = [row - height, row + height]
            ax.plot([value] * 2, places, color="0.35", linewidth=width, label=label)
        spec = str(part.method[BEST])
        ax.plot(tv[BEST], row, **_dot(spec), zorder=3)
        kept = part.verdict[BEST] == KEEP
        said = tr("exact; nearest: {name}") if kept else tr("use {name}")
        ax.text(
            0.0, row - 0.26, said.format(name=style.label(spec)), fontsize=style.SMALL, va="bottom",
            color="0.35" if kept else "black",
        )  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.set(
        xlim=(-0.02, 1.06 * float(table.value.max())),
        ylim=(len(names) - 0.6, -0.75),
        xlabel=tr("total variation"),
    )
    ax.set_title(tr("every input at t = {t:g}", t=table.temperature.iloc[0]))
    ax.grid(axis="y", visible=False)
    handles = {name: line for line, name in zip(*ax.get_legend_handles_labels())}
    some = [tr(NAMES[role]) for role in COLOURS] + [tr(words) for *_, words in UNIFORM]
    ax.legend(
        [handles[name] for name in some if name in handles], [n for n in some if n in handles],
        loc="upper center", bbox_to_anchor=(0.4, -0.2), ncols=2, fontsize=style.SMALL,
        handlelength=1.6, columnspacing=1.0,
    )  # fmt: skip


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
        "At {budget}. Pale: sees all logits. Black: best runnable method; squares: it keeps "
        "entries.",
        budget=amounts.budget(table),
    )
