"""What coupling the frequencies of positive features is worth: exact error over that of iid."""

import re

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.coupling_gain import AT, BOUND, FEW_FEATURES, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "What coupled frequencies are worth"
ORDER = 90
BIASED = ("moment_matched", "regularized")
FADED = "positive()", "positive(projection='antithetic')"


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel a width d: lines in closed form, markers by Monte Carlo."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.6))
        widths = table.d.unique()
        axes = figure.subplots(1, len(widths), sharex=True, sharey=True, squeeze=False)[0]
        for ax, d in zip(axes, widths):
            part = table[table.d == d]
            closed, sampled = (
                dict(list(part[part.metric == name].groupby("method")))
                for name in ("mse_ratio", "sampled_mse_ratio")
            )
            for spec in style.order([s for s in closed if s != BOUND]):
                look = style.look(spec)
                look["label"] += tr(" (biased)") if _coupling(spec) in BIASED else ""
                line = closed[spec]
                ax.plot(line.squared_sum, line.value, **look | {"marker": ""})
                if spec in sampled and _coupling(spec) != "antithetic":
                    dots = sampled[spec]
                    dot = look | {"linestyle": "", "label": None, "elinewidth": 0.9}
                    ax.errorbar(
                        dots.squared_sum, dots.value, dots.stderr, capsize=1.5, markersize=3, **dot
                    )
            line = closed[BOUND]
            ax.plot(
                line.squared_sum, line.value, color="black", linestyle=":",
                label=tr("Theorem 2: bound of orthogonal"),
            )  # fmt: skip
            ax.set(xscale="log", ylim=(0.0, 1.1), title=f"d = {d}, m = {part.m.iloc[0]}")
            ax.set_xticks([0.1, 1.0, 10.0], ["0.1", "1", "10"])
            ax.set_xlabel("|q + k|²")
        axes[0].set_ylabel(tr("error² over the Performer's"))
        style.legend(figure, list(axes), columns=2, faded=map(style.label, FADED))
    return figure


def finding(table: pd.DataFrame) -> str:
    closed = table[(table.metric == "mse_ratio") & (table.squared_sum == AT)]
    at = closed.assign(name=closed.method.map(_coupling)).pivot(
        index="d", columns="name", values="value"
    )
    d = at.index.max()
    return tr(
        "At |q + k|² = {at:g} and d = {d} orthogonal frequencies leave {orthogonal:.0%} of the "
        "error of independent ones, simplex ones {simplex:.0%}.",
        at=AT,
        d=d,
        orthogonal=at.orthogonal[d],
        simplex=at.simplex[d],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean squared error over that of independent frequencies, m = 2d. Lines: closed form; "
        "markers: Monte Carlo, one standard error."
    )


def details(table: pd.DataFrame) -> str:
    closed = table[table.metric == "mse_ratio"]
    closed = closed.assign(name=closed.method.map(_coupling))
    at = closed[closed.squared_sum == AT].pivot(index="d", columns="name", values="value")
    few = table[table.metric == "few_mse_ratio"]
    few = few.assign(name=few.method.map(_coupling)).pivot(
        index="d", columns="name", values="value"
    )
    pairs_at = [
        tr(
            "{orthogonal:.3f} and {simplex:.3f} at d = {d}",
            orthogonal=row.orthogonal,
            simplex=row.simplex,
            d=d,
        )
        for d, row in at.iterrows()
    ]
    bounds = [f"{v:.3f}" for v in at[BOUND]]
    fewer = [
        tr("{orthogonal:.3f} and {simplex:.3f}", orthogonal=row.orthogonal, simplex=row.simplex)
        for _, row in few.iterrows()
    ]
    least = closed.squared_sum.min()
    near = closed[closed.squared_sum == least].groupby("name").value.median()
    removed = tr(", ").join(
        f"{tr(label)} {near[name]:.2g}"
        for name, label in (
            ("zero_mean", mark("zero-mean")),
            ("antithetic", mark("antithetic")),
            ("moment_matched", mark("moment-matched")),
        )
    )
    z = _z_scores(table)
    return tr(
        "Mean squared error of m = 2d positive features with coupled frequencies over that "
        "of independent ones, the Performer. Lines: closed form, variance + bias² "
        "(frequencies of length √d and moment-matched ones are biased); markers: Monte "
        "Carlo, one standard error. At |q + k|² = {at:g} the ratio of orthogonal and of "
        "simplex blocks of d is {pairs_at}; the bound of the Performer's Theorem 2 for "
        "orthogonal ones gives {bounds}. With {few} features, whatever d, the two are "
        "{fewer}: the gain of orthogonality vanishes for a fixed count only. Where |q + "
        "k|² is small what counts is which terms of the series are removed: at "
        "{least:.2g}, in the median over d, the ratio is {removed}. All gains of the "
        "unbiased ones vanish as |q + k|² grows; the biased ones fall to 0 there because "
        "their estimate does: an error of 100 %, where the Performer's is far larger. "
        "Largest $|z|$ of a marker: {z:.1f} of {markers}, in standard errors of the "
        "sample, which are too small where its tail was not drawn.",
        at=AT,
        pairs_at=tr("; ").join(pairs_at),
        bounds=tr(", ").join(bounds),
        few=FEW_FEATURES,
        fewer=tr("; ").join(fewer),
        least=least,
        removed=removed,
        z=z.max(),
        markers=len(z),
    )


def _coupling(spec: str) -> str:
    quoted = re.search("'(.*)'", spec)
    return quoted[1] if quoted else spec


def _z_scores(table: pd.DataFrame) -> pd.Series:
    """Return |sampled − closed| in standard errors of the sample."""
    keys = ["d", "squared_sum", "method"]
    line = table[table.metric == "mse_ratio"].set_index(keys).value
    dots = table[table.metric == "sampled_mse_ratio"].set_index(keys)
    return ((dots.value - line.reindex(dots.index)).abs() / dots.stderr).reset_index(drop=True)
