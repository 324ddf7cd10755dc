"""What sparse + low-rank gains over the better single class, against temperature; crossings."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile, varied
from analysis.sweeps.crossovers import crossings, oracles
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Crossing temperatures, and the gain of sparse + low-rank"
ORDER = 160
COUNT = 256
ERROR = "attention_relative_frobenius"
RANKS = (8, 16, 32)  # of 256: a budget is twice as many values a row
STEPS = {"quick": np.arange(-2, 4.5, 2.0), "default": np.arange(-3, 5.1, 0.5)}  # log₂ t
FOUND = ("crossing", "entropy", "largest_gain", "gain_temperature")
LOOKS = {
    "gaussian": (style.PALETTE[0], "-", "o"),
    "sphere": (style.PALETTE[9], "--", "v"),
    "clustered Q=K": (style.PALETTE[2], "-", "s"),
    "clustered": (style.PALETTE[1], "--", "D"),
}
OTHERS = ((style.PALETTE[4], "P"), (style.PALETTE[8], "X"), (style.PALETTE[5], "^"))


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors and gains at every temperature and budget, and where the errors cross.

    Methods sparse, low-rank and both as in `analysis.sweeps.crossovers.oracles`, the last also with
    metric gain, over the better single one. Method "crossing", at temperature −1: metrics crossing,
    entropy there, largest_gain and gain_temperature, on the grid; NaN where there is no crossing.
    """
    inputs = varied(profile, COUNT)
    temperatures = [float(t) for t in 2.0 ** STEPS[profile.grid]]
    budgets = [2.0 * r * max(x.n for x in inputs) / COUNT for r in RANKS]
    table = oracles(inputs, temperatures, budgets, jobs=profile.jobs, progress=profile.progress)
    errors = table[table.metric == ERROR].drop(columns=["metric", "trial", "stderr"])
    index = [c for c in errors.columns if c not in ("method", "value")]
    wide = errors.pivot(index=index, columns="method", values="value")
    gains = (wide[["sparse", "low-rank"]].min(axis=1) / wide["both"]).rename("value").reset_index()
    gains = gains.assign(method="both", metric="gain", trial=-1, stderr=np.nan)
    crossed = crossings(table, inputs, ERROR).rename(columns={"gain": "largest_gain"})
    heads = table.drop_duplicates(["input", "budget"]).assign(
        method="crossing", temperature=-1.0, stderr=np.nan
    )
    rows = heads.drop(columns=["metric", "value"]).merge(
        crossed.melt(["input", "budget"], FOUND, var_name="metric"), on=["input", "budget"]
    )
    columns = table.columns
    return pd.concat([table, gains[columns], rows[columns]], ignore_index=True)


def looks(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return colour, line style and marker of every input; others take turns."""
    others = [name for name in names if name not in LOOKS]
    turns = {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}
    known = LOOKS | {name: (colour, ":", marker) for name, (colour, marker) in turns.items()}
    return {
        name: dict(zip(("color", "linestyle", "marker"), known[name])) | {"label": name}
        for name in names
    }


def draw(table: pd.DataFrame) -> Figure:
    """Draw the gain against temperature, a panel a budget; a tick below it where errors cross."""
    budgets = sorted(table.budget.unique())
    gains = table[table.metric == "gain"]
    known = looks(table.input.unique().tolist())
    with style.style():
        figure, axes = style.panels(1, len(budgets), height=2.6)
        for ax, budget in zip(axes[0], budgets):
            part = gains[gains.budget == budget]
            at = table[(table.metric == "crossing") & (table.budget == budget)]
            ax.set(xscale="log", yscale="log", ylim=(0.88, 1.1 * gains.value.max()))
            for name, look in known.items():
                line = part[part.input == name].sort_values("temperature")
                ax.plot(line.temperature, line.value, **look)
                where = at[at.input == name].value  # none where no low-rank matrix fits
                ax.plot(
                    where, [0.93] * len(where), linestyle="", marker="|", markersize=9,
                    markeredgewidth=1.8, color=look["color"],
                )  # fmt: skip
            ax.axhline(1.0, color="0.5", linewidth=0.8)
            ticks = [t for t in (0.125, 0.5, 2.0, 8.0, 32.0) if t >= part.temperature.min()]
            style.ticks(ax, ticks)
            heights = [y for y in (1, 1.5, 2, 3, 4, 6, 8) if y <= gains.value.max()]
            ax.set_yticks(heights, [f"{y:g}" for y in heights])
            ax.set(
                title=tr("{budget:g} values per query row", budget=budget),
                xlabel=tr("temperature t"),
            )
        axes[0, 0].set_ylabel(tr("× below the better single one"))
        style.legend(figure, list(axes.flat), columns=4)
    return figure


def finding(table: pd.DataFrame) -> str:
    gains = table[(table.method == "crossing") & (table.metric == "largest_gain")]
    best = gains.sort_values("value", kind="stable").iloc[-1]
    return tr(
        "GoDec's relative Frobenius error is up to {gain:.2f}× below the better of sparse and "
        "low-rank, on {name} at {budget:g} values per query row.",
        gain=best.value,
        name=best.input,
        budget=best.budget,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Gain in relative Frobenius error of normalised rows against temperature, best found of "
        "each class. Ticks: where the single classes cross."
    )
