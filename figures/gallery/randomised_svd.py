"""Error of the randomised SVD against oversampling and power steps, beside its bounds."""

import math

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from analysis.experiments.randomised_svd import OVERSAMPLING, STEPS, K, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Randomised SVD against its bounds"
ORDER = 65
COLOURS = style.PALETTE[0], style.PALETTE[2], style.PALETTE[4]
MARKERS = "osD"
NAMES = mark("no power step"), mark("1 step"), mark("2 steps")
LEAST_NAME = mark("best of rank k + p")
NORMS = {"spectral": mark("spectral error over σ₁"), "frobenius": mark("Frobenius error over σ₁")}
TYPICAL = 8  # of oversampling, in the texts


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error against oversampling: above spectral, below Frobenius; a column a temperature.

    Bounds are dotted, in the colour of their curve.
    """
    temperatures = sorted(table.temperature.unique())
    with style.style():
        figure = Figure(figsize=(7.0, 5.0))
        axes = figure.subplots(2, len(temperatures), sharex=True, squeeze=False)
        for column, t in enumerate(temperatures):
            for ax, (norm, label) in zip(axes[:, column], NORMS.items()):
                part = table[table.temperature == t]
                ends = []
                least = part[part.metric == f"{norm}_least"]
                ax.plot(least.oversampling, least.value, color="0.45", linestyle="--")
                ends.append((tr(LEAST_NAME), least.value.iloc[-1], "0.45"))
                for steps, name, colour, marker in zip(STEPS, NAMES, COLOURS, MARKERS):
                    part_of = part[part.steps == steps]
                    curve = part_of[part_of.metric == norm]
                    bound = part_of[part_of.metric == f"{norm}_bound"]
                    ax.plot(curve.oversampling, curve.value, color=colour, marker=marker)
                    ax.plot(bound.oversampling, bound.value, color=colour, linestyle=":")
                    ends.append((tr(name), curve.value.iloc[-1], colour))
                wanted = part[(part.metric == norm) & (part.steps == -1)].value.iloc[0]
                ax.axhline(wanted, color="0.7", linewidth=0.8, zorder=0)
                ends.append((tr("best of rank {k}", k=K), wanted, "0.55"))
                ax.set(xscale="log", yscale="log", xlim=(OVERSAMPLING[0] / 1.1, 70))
                style.x_ticks(ax, OVERSAMPLING)
                ax.set_ylim(top=10 ** math.ceil(math.log10(ax.get_ylim()[1])))
                ax.yaxis.set_minor_formatter(NullFormatter())
                if column == len(temperatures) - 1:
                    style.direct(ax, ends, apart=0.075)
                if column == 0:
                    ax.set_ylabel(tr(label))
            name = part.input.iloc[0]
            axes[0, column].set_title(tr("{name}, t = {t:g}", name=name, t=t))
            axes[1, column].set_xlabel(tr("oversampling p"))
    return figure


def _values(table: pd.DataFrame) -> pd.Series:
    keys = ["temperature", "metric", "steps", "oversampling"]
    return table.set_index(keys).value.sort_index()


def finding(table: pd.DataFrame) -> str:
    at, t = _values(table), table.temperature.min()
    return tr(
        "One power step lowers the spectral error from {none:.2g} to {one:.2g} times the least "
        "possible at rank {k} (t = {t:g}, p = {p}); the bounds say {loose:.2g} and {tight:.2g}.",
        none=at[t, "spectral", 0, TYPICAL] / at[t, "spectral", -1, 0],
        one=at[t, "spectral", 1, TYPICAL] / at[t, "spectral", -1, 0],
        loose=at[t, "spectral_bound", 0, TYPICAL] / at[t, "spectral", -1, 0],
        tight=at[t, "spectral_bound", 1, TYPICAL] / at[t, "spectral", -1, 0],
        k=K,
        t=t,
        p=TYPICAL,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean error of {k} + p random columns for softmax rows. Dotted: its bounds.",
        k=K,
    )


def details(table: pd.DataFrame) -> str:
    at, ts = _values(table), sorted(table.temperature.unique())

    def span(metric: str, over: str, steps: int) -> str:
        ratios = pd.concat([at[t, metric, steps] / at[t, over, steps] for t in ts])
        return style.range_of(ratios.min(), ratios.max())

    cold, hot = ts[0], ts[-1]
    measured = table[table.stderr.notna()]
    below = [int((at[t, "spectral", 0] < at[t, "spectral", -1, 0]).sum()) for t in (cold, hot)]
    last = OVERSAMPLING[-1]
    return tr(
        "Errors ‖A − QQᵀA‖ over σ₁, A the softmax rows of {name} (n = {n}), Q from k + p "
        "Gaussian columns, k = {k}; standard errors are at most {stderr:.1%} of a mean. "
        "σ_{next}/σ₁ is {cold_next:.2g} at t = {cold:g}, {hot_next:.2g} at t = {hot:g}. The "
        "spectral bound over the error is {loose} without a power step, {one} with one, {two} "
        "with two; the Frobenius bound {frobenius}. No bound can fall below the least error "
        "at rank {k}, however large p is. The measured error can, because it uses k + p columns: "
        "without a step it does at {cold_below} of {count} values of p (t = {cold:g}) and at "
        "{hot_below} (t = {hot:g}). If k is chosen to minimise the bound for the same number of "
        "columns, the spectral bound at p = {last} is {best:.2g} times the error instead of "
        "{fixed:.2g} (t = {hot:g}). Each step takes one more product with A and one with Aᵀ.",
        name=table.input.iloc[0],
        n=int(table.n.iloc[0]),
        k=K,
        next=K + 1,
        stderr=float((measured.stderr / measured.value).max()),
        cold_next=at[cold, "spectral", -1, 0],
        hot_next=at[hot, "spectral", -1, 0],
        cold=cold,
        hot=hot,
        loose=span("spectral_bound", "spectral", 0),
        one=span("spectral_bound", "spectral", 1),
        two=span("spectral_bound", "spectral", 2),
        frobenius=span("frobenius_bound", "frobenius", 0),
        cold_below=below[0],
        hot_below=below[1],
        count=len(OVERSAMPLING),
        last=last,
        best=at[hot, "spectral_best_bound", 0, last] / at[hot, "spectral", 0, last],
        fixed=at[hot, "spectral_bound", 0, last] / at[hot, "spectral", 0, last],
    )
