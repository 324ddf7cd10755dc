"""Distance of every named attention from softmax attention at equal budget."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.costs.budget import match
from analysis.costs.candidates import runs, why_not
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps import sweep, table as tidy
from approx import Approximation, Method, parse
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Named attentions beside softmax attention at equal budget"
ORDER = 380
SHARE, COUNT = 4, 512  # the budget is 1/4 of the values that exact attention stores
ERROR, PRICE = "attention_relative_frobenius", "values_per_row"
ROW_SUM = "row_sum"  # the mean, of rows that are used as they are
REFUSED, AHEAD = "refused", "reads_ahead"  # under a mask: has no meaning, reads later tokens
UNIFORM = "uniform"
SPECS = (
    UNIFORM,
    "elu",
    "relu",
    "cosformer",
    "flowformer",
    "flash",
    "rfa",
    "positive",
    "lara",
    "linformer",
    "linformer(combinations='gaussian')",
    "nystromformer",
    "nystromformer(iterations=6)",
    "sliding_window",
    "strided",
    "reformer",
    "smyrf",
    "scatterbrain(low_rank=positive(), sparse=sliding_window())",
    "scatterbrain(low_rank=positive(), sparse=top_k())",
    "eva",
    "randomized_attention",
    "truncated_svd(space='attention')",
)
FLOOR, CEILING = 0.1, 10.0


def _own_price(method: Method, x: Head) -> float:
    """Return the price of a method of one size, or of the least member of a template."""
    if method.sized_by is not None and method.is_template:
        method = method.resized(method.fewest(x.d))
    if (price := method.price(n=x.n, l=x.l, d=x.d, mask=x.mask)) is not None:
        return price.stored
    budgets = (1.05**k for k in itertools.count())  # two sizes are open
    return next(b for b in budgets if match([method], b, x).fitting)


def _measured(estimate: Approximation, x: Head) -> dict[str, float]:
    errors = sweep.errors(estimate, x)
    if estimate.space == "attention" and not estimate.fitted:
        errors[ROW_SUM] = float(np.mean(estimate @ np.ones(x.l)))
    return errors


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at t = 1 and 1/4 of what exact attention stores; what is dearer, at its price.

    Metrics refused and reads_ahead are 1 for methods that have no meaning under the mask of an
    input, and for those of which a row follows from later tokens, too.
    """
    parts = []
    for x in (x.first(COUNT) for x in profile.inputs):
        budget = x.mask.entries / x.n / SHARE
        at_one = dataclasses.replace(profile, inputs=(x,), temperatures=(1.0,))
        fitting, absent = match([parse(spec) for spec in SPECS], budget, x)
        groups = {budget: fitting}
        refused = [m for m in absent if why_not(m, x.mask) is not None]
        for method in (m for m in absent if m not in refused):
            groups.setdefault(_own_price(method, x), []).append(method)
        for price, methods in groups.items():
            swept = at_one.sweep(map(str, methods), budget=price, measure=_measured, label=x.name)
            parts.append(swept[swept.metric.isin([ERROR, "attention_tv", PRICE, ROW_SUM])])
            ahead = [m for m in methods if not (m.oracle or runs(m, x.mask))]
            parts.append(_said(AHEAD, ahead, x, price))
        parts.append(_said(REFUSED, refused, x, -1.0))
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _said(metric: str, methods: list[Method], x: Head, price: float) -> pd.DataFrame:
    """Return a row of 1 for each method."""
    heads = (tidy.head(x.at_temperature(1.0), method, price) for method in methods)
    return tidy.frame((*head, metric, 1.0, float("nan")) for head in heads)


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return medians over trials: a row an input and method, columns the metrics and fits."""
    table = table[table.metric != REFUSED]
    wide = table.pivot_table(
        index=["input", "method", "l", "budget"], columns="metric", values="value",
        aggfunc="median", sort=False,
    ).reset_index()  # fmt: skip
    ahead = wide[AHEAD] > 0 if AHEAD in wide else False
    budgets = wide[wide.method == f"{UNIFORM}()"].set_index("input").budget
    fits = wide.budget <= wide.input.map(budgets)
    return wide.assign(fits=fits, ahead=ahead, name=wide.method.map(style.label))


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel an input, a line a method: filled at equal budget, hollow above it."""
    wide = medians(table)
    inputs = wide.input.unique().tolist()
    order = wide.groupby("name")[ERROR].median().sort_values(ascending=False).index.tolist()
    with style.style():
        figure = Figure(figsize=(7.0, 0.165 * len(order) + 1.1))
        axes = figure.subplots(1, len(inputs), sharey=True, sharex=True, squeeze=False)[0]
        for ax, name in zip(axes, inputs):
            _panel(ax, wide[wide.input == name], order)
            ax.set_title(name)
        axes[0].set_yticks(range(len(order)), order)
        axes[0].set_xlim(FLOOR / 1.4, 1.4 * CEILING)
        figure.supxlabel(tr("relative Frobenius error of attention"), fontsize=8.5)
    return figure


def _panel(ax: Axes, part: pd.DataFrame, order: list[str]) -> None:
    for row in part.itertuples():
        look = style.look(str(row.method))
        marker = look["marker"] or "o"
        error = min(max(getattr(row, ERROR), FLOOR), CEILING)
        ax.plot(
            error, order.index(str(row.name)), marker=marker,
            color=look["color"], markersize=6, linestyle="none",
            markerfacecolor=look["color"] if row.fits else "none",
        )  # fmt: skip
    uniform = part[part.name == style.label(f"{UNIFORM}()")][ERROR].iloc[0]
    ax.axvline(uniform, color="0.35", linestyle="--", linewidth=1)
    ax.set(xscale="log")


def finding(table: pd.DataFrame) -> str:
    wide = medians(table)
    uniform = wide[wide.method == f"{UNIFORM}()"].set_index("input")[ERROR]
    wide = wide[wide.method != f"{UNIFORM}()"]
    better = wide[wide[ERROR] < wide.input.map(uniform)].name.nunique()
    return tr(
        "Of {count} named attentions {better} are nearer than uniform attention on some input, "
        "untrained.",
        count=wide.name.nunique(),
        better=better,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Relative Frobenius error at t = 1 and 1/{share} of the values that exact attention "
        "stores; dashed: uniform attention. Hollow: does not fit, drawn at its least price.",
        share=SHARE,
    )
