"""Trace error of Nyström's method against rank, for each choice of pivots, beside its bound."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.nystrom import compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Pivots of Nyström's method"
ORDER = 67
LOOKS = {
    ("uniform", "error"): (mark("uniform"), style.PALETTE[1], "v"),
    ("leverage", "error"): (mark("leverage"), style.PALETTE[4], "D"),
    ("random", "error"): (mark("random pivots"), style.PALETTE[0], "o"),
    ("greedy", "error"): (mark("greedy"), style.PALETTE[2], "s"),
    ("any", "best"): (mark("best rank"), "0.45", ""),
}
TYPICAL = 64  # the rank of the texts, if there is one so large


def draw(table: pd.DataFrame) -> Figure:
    """Draw the share of the trace that is left against rank; the bound of random pivots dotted."""
    ts = sorted(table.temperature.unique())
    with style.style():
        figure = Figure(figsize=(7.4, 3.4))
        axes = figure.subplots(1, len(ts), squeeze=False)[0]
        for ax, t in zip(axes, ts):
            part = table[(table.temperature == t) & (table.value > 0)]
            ends = []
            for (pivots, metric), (name, colour, marker) in LOOKS.items():
                curve = part[(part.pivots == pivots) & (part.metric == metric)]
                dashed = "--" if metric == "best" else "-"
                ax.plot(
                    curve["rank"], curve.value, color=colour, marker=marker, linestyle=dashed,
                    markersize=3,
                )  # fmt: skip
                ends.append((tr(name), curve.value.iloc[-1], colour))
            bound = part[part.metric == "bound"]
            colour = LOOKS["random", "error"][1]
            ax.plot(bound["rank"], bound.value, color=colour, linestyle=":")
            ax.set(xscale="log", yscale="log", xlabel=tr("pivots"))
            ax.set_title(tr("{name}, t = {t:g}", name=part.input.iloc[0], t=t))
            style.ticks(ax, sorted(part["rank"].unique()))
            ax.set_xlim(0.9, 1.15 * part["rank"].max())
            style.direct(ax, ends)
        axes[0].set_ylabel(tr("trace left, of 1"))
    return figure


def _errors(table: pd.DataFrame) -> pd.Series:
    return table.set_index(["temperature", "pivots", "metric", "rank"]).value.sort_index()


def _rank(table: pd.DataFrame) -> int:
    return int(table["rank"][table["rank"] <= TYPICAL].max())


def finding(table: pd.DataFrame) -> str:
    at, r = _errors(table), _rank(table)
    cold, hot = table.temperature.min(), table.temperature.max()
    return tr(
        "Of the trace, {r} pivots leave at t = {cold:g}: {uniform:.2g} if drawn uniformly, "
        "{random:.2g} if drawn by the remaining diagonal, {greedy:.2g} if greedy; at t = {hot:g}: "
        "{uniform_hot:.2g}, {random_hot:.2g} and {greedy_hot:.2g}.",
        r=r,
        cold=cold,
        hot=hot,
        uniform=at[cold, "uniform", "error", r],
        random=at[cold, "random", "error", r],
        greedy=at[cold, "greedy", "error", r],
        uniform_hot=at[hot, "uniform", "error", r],
        random_hot=at[hot, "random", "error", r],
        greedy_hot=at[hot, "greedy", "error", r],
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Trace error of exp(k·k′) against rank. Dotted: bound for random pivots.")


def details(table: pd.DataFrame) -> str:
    at, r = _errors(table), _rank(table)
    ts = sorted(table.temperature.unique())
    cold, hot = ts[0], ts[-1]

    def ratios(pivots: str, metric: str) -> pd.Series:
        """Return what others leave over what random pivots do."""
        both = [at[t, pivots, metric] / at[t, "random", "error"] for t in ts]
        ratio: pd.Series = pd.concat(both)
        return ratio.loc[(ratio.index <= TYPICAL) & (ratio > 0) & (ratio < np.inf)]

    best, bound = ratios("any", "best"), ratios("random", "bound")
    stderr = table.set_index(["temperature", "pivots", "metric", "rank"]).stderr.sort_index()
    above = pd.concat(
        [
            (at[t, "random", "error"] - at[t, "random", "bound"]) / stderr[t, "random", "error"]
            for t in ts
        ]
    )
    measured = table[table.stderr.notna() & (table.value > 0) & (table["rank"] <= TYPICAL)]
    first = int(table["rank"].min())
    return tr(
        "tr(A − A_S)/tr A, A = exp(k·k′) of {n} keys of {name}, A_S Nyström's approximation by "
        "the pivots S; means of draws, whose standard errors are at most {stderr:.0%} of them "
        "up to rank {r}. Greedy takes the largest remaining diagonal entry, random draws in "
        "proportion to the remaining diagonal (randomly pivoted Cholesky), leverage draws by ridge "
        "leverage scores. Up to rank {r} random pivots leave {least:.2f} to {most:.2f} times "
        "what the best rank does, and the bound Σ Φ^r(λ), Φ(λ) = λ − λ²/Σλ, is {low:.2f} to "
        "{high:.2f} times what they leave: no mean is above it by more than {z:.1f} standard "
        "errors. Where keys differ in norm, uniform pivots fail until they have drawn the "
        "longest: at t = {cold:g} the best rank {first} leaves {best_cold:.2g}, a uniform pivot "
        "{uniform_cold:.2g}. The first greedy pivot is the longest key: at t = {hot:g} it leaves "
        "{greedy_one:.2g}, a uniform one {uniform_one:.2g}; leverage scores leave "
        "{leverage:.2g} at rank {r}.",
        n=int(table.n.iloc[0]),
        name=table.input.iloc[0],
        stderr=float((measured.stderr / measured.value).max()),
        r=r,
        least=1 / best.max(),
        most=1 / best.min(),
        low=bound.min(),
        high=bound.max(),
        z=max(0.0, float(above.max())),
        cold=cold,
        hot=hot,
        first=first,
        best_cold=at[cold, "any", "best", first],
        uniform_cold=at[cold, "uniform", "error", first],
        greedy_one=at[hot, "greedy", "error", first],
        uniform_one=at[hot, "uniform", "error", first],
        leverage=at[hot, "leverage", "error", r],
    )
