"""Error of random features against their number, Bernstein's bound, and Pareto k̂."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.concentration import DELTA, DRAWS, REPEATS, SAMPLES, compute as compute
from analysis.moments.tail_shape import reliable_k
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Where random features concentrate"
ORDER = 115
LOOKS = (
    (style.PALETTE[0], "o"), (style.PALETTE[4], "D"), (style.PALETTE[1], "v"),
    (style.PALETTE[2], "s"),
)  # fmt: skip
CLOSE = 0.1  # standard error of a mean, by the closed form


def draw(table: pd.DataFrame) -> Figure:
    """Draw the typical error of positive features, that of sines and cosines, and k̂ of samples.

    Theory is dotted; crosses are where the closed form promises an error of 10 %.
    """
    panels = {"positive": ("median", "deviation"), "trigonometric": ("quantile", "bernstein")}
    with style.style():
        figure = Figure(figsize=(7.4, 3.2))
        axes = figure.subplots(1, 3)
        for ax, (family, (measured, theory)) in zip(axes, panels.items()):
            part = table[table.family == family]
            name = "|q + k| = {s:g}" if family == "positive" else "|q − k| = {s:g}"
            ends = []
            for (s, curve), (colour, marker) in zip(part.groupby("distance"), LOOKS):
                error, line = (curve[curve.metric == x] for x in (measured, theory))
                ax.plot(error.m, error.value, color=colour, marker=marker, markersize=3)
                ax.plot(line.m, line.value, color=colour, linestyle=":")
                ends.append((name.format(s=s), error.value.iloc[-1], colour))
            ax.set(xscale="log", yscale="log", xlabel=tr("frequencies m"))
            ax.set_xlim(part.m.min() / 1.3, part.m.max() * 1.3)
            style.direct(ax, ends)
        axes[0].set_ylabel(tr("error over exp(q·k)"))
        axes[0].set_title(tr("positive: median error"))
        share = 1 - DELTA
        axes[1].set_title(tr("sin/cos: {share:.0%} of errors are below", share=share))
        tail = table[table.family == "tail"]
        ends = []
        for m, (colour, marker) in zip(DRAWS, LOOKS):
            k = tail[(tail.m == m) & (tail.metric == "k")]
            axes[2].plot(k.distance, k.value, color=colour, marker=marker, markersize=3)
            ends.append((tr("{m:g} draws", m=m), k.value.iloc[-1], colour))
            at = _promised(tail, m)
            axes[2].plot(
                at, np.interp(at, k.distance, k.value), "x", color="black", markersize=7, zorder=5
            )
            axes[2].axhline(reliable_k(m), color=colour, linewidth=0.8, linestyle=":")
        axes[2].set(xlabel="|q + k|", title=tr("positive: Pareto k̂"))
        axes[2].set_xlim(right=tail.distance.max() * 1.03)
        axes[2].set_ylim(top=1.15 * tail[tail.metric == "k"].value.max())
        axes[2].set_xticks([1, 2, 3, 4])
        style.direct(axes[2], ends)
    return figure


def _promised(tail: pd.DataFrame, m: int) -> float:
    """Return |q + k| at which by the closed form a mean of m draws is off by 10 %."""
    distance, log = _deviation(tail, m)
    return float(np.interp(np.log(CLOSE), log, distance))


def _crossing(tail: pd.DataFrame, m: int) -> float:
    """Return |q + k| at which k̂ passes its limit for m draws."""
    k = tail[(tail.metric == "k") & (tail.m == m)]
    return float(np.interp(reliable_k(m), np.maximum.accumulate(k.value), k.distance))


def _slopes(table: pd.DataFrame, family: str, metric: str) -> pd.Series:
    part = table[(table.family == family) & (table.metric == metric)]
    return pd.Series(
        {s: np.polyfit(np.log(x.m), np.log(x.value), 1)[0] for s, x in part.groupby("distance")}
    )


def finding(table: pd.DataFrame) -> str:
    slopes, tail = _slopes(table, "positive", "median"), table[table.family == "tail"]
    return tr(
        "At |q + k| = {low:g} the typical error falls as m^({light:.2f}), at {high:g} as "
        "m^({heavy:.2f}); k̂ of {draws} draws exceeds {limit:.2g} from |q + k| = "
        "{crossing:.1f} on.",
        low=slopes.index[0],
        light=slopes.iloc[0],
        high=slopes.index[-1],
        heavy=slopes.iloc[-1],
        draws=DRAWS[1],
        limit=reliable_k(DRAWS[1]),
        crossing=_crossing(tail, DRAWS[1]),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Dotted: closed-form deviation; Bernstein's bound; the limits of k̂. Crosses: the closed "
        "form promises {close:.0%}.",
        close=CLOSE,
    )


def details(table: pd.DataFrame) -> str:
    tail = table[table.family == "tail"]
    at = table.set_index(["family", "metric", "distance", "m"]).value.sort_index()
    over = at["trigonometric", "bernstein"] / at["trigonometric", "quantile"]
    last, heavy = int(table[table.family == "positive"].m.max()), at["positive", "median"]
    slopes = _slopes(table, "positive", "median")
    wave = _slopes(table, "trigonometric", "quantile")
    crossings = [_crossing(tail, m) for m in DRAWS]

    def listed(values: list[float], form: str = "{:.2g}") -> str:
        return " / ".join(form.format(x) for x in values)

    errors = [float(np.exp(np.interp(s, *_deviation(tail, m)))) for s, m in zip(crossings, DRAWS)]
    top = slopes.index[-1]
    return tr(
        "|estimate/exp(q·k) − 1| of one entry, {repeats} estimates a point. Left: exponents of "
        "the median error {slopes} at |q + k| = {sums}; of the closed-form root mean square −1/2. "
        "At |q + k| = {top:g} and m = {last} the root mean square error is {closed:.0f} and the "
        "median error {median:.2f}: a typical estimate misses the rare large terms and is too "
        "small. Middle: no term of sines and cosines is above e^(|q − k|²/2), so Bernstein's "
        "inequality applies (failure probability {delta:.0%}): the bound is {least:.2f} to "
        "{most:.2f} times the error, whose exponents are {waves}. Positive features have no "
        "largest term, and no such bound. Right: mean k̂ of {samples} samples of single terms; it "
        "passes its limit {limits} at |q + k| = {crossings} for {draws} draws, where the "
        "closed-form error is {errors}; it is {close:.0%} at {promised}. So k̂ warns of means that "
        "fail, not of every mean that is inaccurate. All moments of a lognormal law are finite: k̂ "
        "describes the draws at hand, not the law.",
        repeats=REPEATS,
        slopes=listed([*slopes], "{:.2f}"),
        sums=listed([*slopes.index], "{:g}"),
        top=top,
        closed=at["positive", "deviation", top, last],
        last=last,
        median=heavy[top, last],
        delta=DELTA,
        least=over.min(),
        most=over.max(),
        waves=listed([*wave], "{:.2f}"),
        samples=SAMPLES,
        limits=listed([reliable_k(m) for m in DRAWS]),
        crossings=listed(crossings),
        draws=listed([*DRAWS], "{:g}"),
        errors=listed(errors, "{:.0%}"),
        close=CLOSE,
        promised=listed([_promised(tail, m) for m in DRAWS]),
    )


def _deviation(tail: pd.DataFrame, m: int) -> tuple[pd.Series, pd.Series]:
    """Return |q + k|, and the log of the standard error of a mean of m draws."""
    line = tail[(tail.metric == "deviation") & (tail.m == m)]
    return line.distance, np.log(line.value)
