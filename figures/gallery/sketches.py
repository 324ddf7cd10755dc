"""Sketches of exp and of its tensor power beside positive features: error against width and t."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.sketches import (
    BASELINES,
    DEGREE,
    EXPECTED,
    FAMILIES,
    KERNEL,
    LIMIT,
    POSITIVE,
    SIZES,
    TAYLOR,
    TEMPERATURE,
    TEMPERATURES,
    TV,
    D,
    M,
    compute as compute,
)  # fmt: skip
from approx import parse
from figures.drawing import style
from figures.gallery.moments import criterion
from figures.words.translation import tr

TITLE = "Sketches beside positive features"
ORDER = 310
FADED = "squared_sketch()", "random_maclaurin(law='poisson')", TAYLOR  # unless they are best
LINES = {LIMIT: "-", TAYLOR: "-.", "uniform()": "--"}


def _families(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    label = table.method.map(lambda spec: style.look(spec)["label"])
    return {name: part for name, part in table.groupby(label, sort=False)}


def draw(table: pd.DataFrame) -> Figure:
    """Draw kernel error and total variation, against width and against temperature."""
    with style.style():
        figure = Figure(figsize=(7.0, 5.6))
        axes = figure.subplots(2, 2, sharex="col", sharey="row")
        for column, key in enumerate(("budget", "temperature")):
            fixed = table.temperature == TEMPERATURE if key == "budget" else table.budget == 2 * M
            for part in _families(table[fixed & (table.budget > 0)]).values():
                _line(axes[0, column], part, key, KERNEL, EXPECTED)
                _line(axes[1, column], part, key, TV, TV)
            for spec in BASELINES:
                part = table[(table.method == spec) & ((key != "budget") | fixed)]
                look = style.look(spec) | {"color": "0.4", "marker": "", "linestyle": LINES[spec]}
                for ax, metric in zip(axes[:, column], (KERNEL, TV)):
                    y = part[part.metric == metric].sort_values("temperature")
                    if key == "budget":
                        ax.axhline(y.value.iloc[0], **look)
                    else:
                        ax.plot(y.temperature, y.value, **look)
            axes[1, column].set(xscale="log")
            axes[1, column].minorticks_off()
        axes[0, 0].set(yscale="log", ylabel=tr("relative error of exp(q·k)"), ylim=(5e-4, 1e4))
        axes[1, 0].set(yscale="log", ylabel=tr("total variation of attention"), ylim=(1e-4, 20))
        axes[0, 0].set_title(tr("temperature {temperature:g}", temperature=TEMPERATURE))
        axes[0, 1].set_title(tr("width {m}", m=M))
        axes[1, 0].set(xlabel=tr("width m"))
        axes[1, 0].set_xticks(SIZES, [str(m) for m in SIZES])
        axes[1, 1].set(xlabel=tr("temperature"))
        axes[1, 1].set_xticks(TEMPERATURES, [f"{t:g}" for t in TEMPERATURES])
        faded = {*map(style.label, FADED)}
        style.legend(
            figure, list(axes.ravel()), columns=2, faded=faded - {style.label(best(table)[0])}
        )
    return figure


def _line(ax: Axes, part: pd.DataFrame, key: str, metric: str, line: str) -> None:
    """Draw a line, and markers of what was measured: hollow where a sample is not reliable."""
    look = style.look(part.method.iloc[0])
    marker = look.pop("marker")
    scale = 2.0 if key == "budget" else 1.0
    wide = part.pivot_table(index=key, columns="metric", values="value")
    wide.index = wide.index / scale
    ax.plot(wide.index, wide[line], **look)
    for heavy, filled in ((True, "none"), (False, look["color"])):
        cells = wide[(wide.believable < 0.5) == heavy]
        ax.plot(
            cells.index, cells[metric], linestyle="none", marker=marker,
            markeredgecolor=look["color"], markerfacecolor=filled, label=f"_{look['label']}",
        )  # fmt: skip


def best(table: pd.DataFrame) -> tuple[str, float]:
    """Return the method with the least total variation at the fixed width and temperature."""
    at = table[(table.temperature == TEMPERATURE) & (table.budget == 2 * M) & (table.metric == TV)]
    least = at.iloc[int(at.value.argmin())]
    return str(least.method), float(least.value)


def finding(table: pd.DataFrame) -> str:
    method, tv = best(table)
    return tr(
        "At t = {temperature:g} and width {m}, {method} has the least total variation, {tv:.2g}.",
        temperature=TEMPERATURE,
        m=M,
        method=style.label(method),
        tv=tv,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Gaussian q, k at d = {d}. Above: expected error of exp(q·k) in closed form; markers: "
        "draws, hollow where not reliable. Below: total variation.",
        d=D,
    )


def details(table: pd.DataFrame) -> str:
    at = table[(table.temperature == TEMPERATURE) & (table.budget == 2 * M)]
    errors, tv, below = (
        at[at.metric == name].set_index("method").value
        for name in (EXPECTED, TV, "negative_fraction")
    )
    named = tr("; ").join(
        tr(
            "{spec} {errors:.2g} and {tv:.2g}",
            spec=style.look(spec)["label"],
            errors=errors[spec],
            tv=tv[spec],
        )
        for spec in errors.index
    )
    believed = table[table.metric == "believable"]
    keys = ["temperature", "budget", "method"]
    wide = table[table.budget > 0].pivot_table(index=keys, columns="metric", values="value")
    short = (wide[EXPECTED] / wide[KERNEL]).max()
    ahead = {}
    for family in FAMILIES[1:]:
        wins = [t for t, part in _at_width(table) if part[family] < part[POSITIVE]]
        ahead[family] = _temperatures(wins)
    first, tensor, squared = FAMILIES[2], FAMILIES[4], FAMILIES[5]
    lost = [t for t, part in _at_width(table) if part[squared] > part["uniform()"]]
    taylor = [t for t, part in _at_width(table) if part[TAYLOR] < part[list(FAMILIES)].min()]
    negative = max(below[spec] for spec in below.index if spec.startswith("tensor_sketch"))
    limit = table[(table.temperature == TEMPERATURE) & (table.method == LIMIT)]
    ends = limit.set_index("metric").value
    return tr(
        "Gaussian q, k, d = {d}, n = l = {n}, logits q·k/(t√d). Lines of the upper panels "
        "are closed forms, markers means of draws; hollow where fewer than half of the "
        "entries have a reliable sample variance ({hollow} of {cells} "
        "cells): there a sample misses the tail, and lies up to {short:.2g} times below "
        "the truth. {criterion} Expected kernel error and measured total variation at t = "
        "{temperature:g}, width {m}: {named}. Sketches of (1 + x/{degree})^{degree} end at "
        "{ends:.2g} and {end_tv:.2g}, its own errors. In total variation at this width "
        "positive features lose to TensorSketch {ahead}, and to random Maclaurin with "
        "degrees 0 and 1 exact {maclaurin}. TensorSketch has {negative:.0%} negative entries "
        "at t = {temperature:g}; with such, total variation may be above 1. The squared "
        "sketch has none, but few inner features: it is worse than uniform attention "
        "{temperatures}. Taylor of degree 2, which draws nothing and takes 153 columns, "
        "has a smaller total variation than every one of the random methods "
        "{taylor}.",
        d=D,
        n=table.n.max(),
        hollow=(believed.value < 0.5).sum(),
        cells=len(believed),
        short=short,
        criterion=criterion(),
        temperature=TEMPERATURE,
        m=M,
        named=named,
        degree=DEGREE,
        ends=ends[EXPECTED],
        end_tv=ends[TV],
        ahead=ahead[tensor],
        maclaurin=ahead[first],
        negative=negative,
        temperatures=_temperatures(lost),
        taylor=_temperatures(taylor),
    )


def _at_width(table: pd.DataFrame) -> list[tuple[float, pd.Series]]:
    """Return total variation by family and baseline at width M, for every temperature."""
    part = table[(table.metric == TV) & ((table.budget == 2 * M) | (table.budget < 0))]
    specs = {str(parse(f).within(2 * M, n=2, l=2, d=D)): f for f in FAMILIES}
    named = part.assign(family=part.method.map(lambda spec: specs.get(spec, spec)))
    groups = named.groupby("temperature")
    return [(float(t), group.set_index("family").value) for t, group in groups]  # type: ignore[arg-type]


def _temperatures(temperatures: list[float]) -> str:
    if not temperatures:
        return tr("nowhere")
    return tr("at t = {temperatures}", temperatures=tr(", ").join(f"{t:g}" for t in temperatures))
