"""Errors at 1/32, 1/16 and 1/8 of the memory, as the Scatterbrain paper tabulates them."""

import dataclasses
from fractions import Fraction

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from analysis.costs.optimality import BOUND, FOUND, standing
from analysis.experiments.profile import Profile
from analysis.sweeps import sweep
from approx import parse
from figures.drawing import style
from figures.gallery.entropy import ERROR, TV, errors
from figures.show import optimality
from figures.words.translation import mark, share, tr

TITLE = "Errors at 1/32, 1/16 and 1/8 of the memory"
ORDER = 190
COLUMNS = (*sweep.COLUMNS, "masked")
SHARES = (Fraction(1, 32), Fraction(1, 16), Fraction(1, 8))  # of exact attention's values
METRICS = {ERROR: mark("relative Frobenius error"), TV: mark("total variation")}
WINDOW = "scatterbrain(low_rank=positive(), sparse=sliding_window())"
TOP_K = "scatterbrain(low_rank=positive(), sparse=top_k())"
SPLIT = "godec(space='attention')"
LARGEST, SVD = "godec(rank=0, space='attention')", "truncated_svd(space='attention')"
PER_HEAD, REFINED = "top_k(per='head')", "truncated_svd(space='attention', refine='tv')"
SIGNS = {BOUND: "= ", FOUND: "≤ "}
PARTS = {  # combination -> sparse part alone, low-rank part alone
    WINDOW: ("sliding_window", "positive"),
    TOP_K: ("top_k", "positive"),
    SPLIT: (LARGEST, SVD),
}
ROWS = {
    "uniform": mark("uniform attention"),
    "positive": "Performer",
    "sliding_window": mark("sliding window"),
    WINDOW: mark("Scatterbrain, window"),
    "top_k": mark("top-k of each row"),
    PER_HEAD: mark("top-k per head"),
    TOP_K: mark("Scatterbrain, top-k"),
    LARGEST: mark("largest entries of the matrix"),
    SVD: mark("truncated SVD"),
    REFINED: mark("low rank refined for tv"),
    SPLIT: mark("sparse + low rank (GoDec)"),
}


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at t = 1 of templates filled to each budget; ``method`` is the template.

    Metrics: both errors of row-normalised attention, and for the combinations …_gain: how many
    times the median over trials is below the better of their two parts alone at the same budget.
    """
    parts = []
    for x in profile.inputs:
        at_one = dataclasses.replace(profile, inputs=(x,), temperatures=(1.0,))
        for part in SHARES:
            budget = x.mask.entries / x.n * float(part)
            label = f"{x.name}, {part} of the memory"
            for spec in ROWS:
                swept = at_one.sweep([spec], budget=budget, measure=errors, label=label)
                parts.append(swept.assign(method=spec, masked=not x.mask.is_full))
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    index = ["input", "layer", "head", "n", "l", "d", "temperature", "budget", "metric", "masked"]
    wide = table.groupby([*index, "method"], sort=False).value.median().unstack()
    gains = [
        (wide.reindex(columns=alone).min(axis=1, skipna=False) / wide[both])
        .rename("value")
        .reset_index()
        .assign(method=both)
        for both, alone in PARTS.items()
        if both in wide
    ]
    rows = pd.concat(gains, ignore_index=True).dropna(subset=["value"])
    rows = rows.assign(metric=rows.metric + "_gain", trial=-1, stderr=np.nan)
    return pd.concat([table, rows[table.columns]], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw a table an input and a metric: a row a method, a column a budget."""
    names = table.input.unique().tolist()
    with style.style():
        figure = Figure(figsize=(7.0, 1.85 * len(names) + 0.3))
        axes = figure.subplots(len(names), len(METRICS), squeeze=False)
        for line, name in zip(axes, names):
            for ax, (metric, label) in zip(line, METRICS.items()):
                _cells(ax, table[table.input == name], metric)
                ax.set_title(tr("{name}: {label}", name=name, label=tr(label)))
            line[1].set_yticklabels([])
        for line in axes[:-1]:
            for ax in line:
                ax.set_xticklabels([])
        for ax in axes[-1]:
            ax.set_xlabel(tr("stored values / those of exact"))
    return figure


def _cells(ax: Axes, part: pd.DataFrame, metric: str) -> None:
    budgets = sorted(part.budget.unique())
    wide, gains = (
        part[part.metric == name]
        .pivot_table("value", "method", "budget", aggfunc="median")
        .reindex(index=list(ROWS), columns=budgets)
        .to_numpy(float)
        for name in (metric, f"{metric}_gain")
    )
    colours = np.clip(wide, 1e-3, None)
    ax.imshow(colours, cmap="RdYlBu_r", norm=LogNorm(1e-2, 1e2), aspect="auto", alpha=0.55)
    mask = optimality.mask(part)
    signs = [SIGNS.get(standing(parse(spec), metric, mask), "") for spec in ROWS]
    for (i, j), value in np.ndenumerate(wide):
        text = "–" if np.isnan(value) else f"{signs[i]}{_short(value)}"
        if gains[i, j] > 0:
            text += f" ({gains[i, j]:.2f}×)"
        ax.text(j, i, text, ha="center", va="center", fontsize=6.5)
    shares = [str(share) for share in SHARES[: len(budgets)]]
    rows = [tr(name) for name in ROWS.values()]
    ax.set_xticks(range(len(budgets)), shares)
    ax.set_yticks(range(len(ROWS)), rows, fontsize=7)
    ax.tick_params(length=0)
    ax.grid(False)


def _short(value: float) -> str:
    """Return three digits of a number, or two in as little room where it has an exponent."""
    if value == 0 or 1e-3 <= value < 1000:
        return f"{value:.3g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


def _runnable_wins(table: pd.DataFrame) -> tuple[int, int]:
    """Return in how many places something without all logits is below uniform, and of how many."""
    medians = (
        table[table.metric == ERROR].groupby(["input", "budget", "method"]).value.median().unstack()
    )
    runnable = medians[[s for s in ("positive", "sliding_window", WINDOW) if s in medians]]
    return int((runnable.min(axis=1) < medians["uniform"]).sum()), len(medians)


def finding(table: pd.DataFrame) -> str:
    wins, places = _runnable_wins(table)
    return tr(
        "Without all logits, the best method beats uniform attention in {share}.",
        share=share(wins, places, mark("cases")),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "At t = 1; in parentheses: the factor gained over the better part alone. =: proved "
        "best of its class; ≤: best found; dash: nothing fits."
    )
