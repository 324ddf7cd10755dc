"""What coupling the frequencies of positive features is worth: exact error over that of iid."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.moments import monte_carlo
from analysis.seeds import seed_sequence
from approx.checks import Array
from approx.random_features.positive import Positive
from figures import style
from figures.language import mark, tr
from figures.profile import Profile, Row

TITLE = "What coupled frequencies are worth"
COLUMNS = ("d", "m", "squared_sum", "method", "metric", "value", "stderr")
WIDTHS = (4, 16, 64)
COUPLINGS = (
    "iid", "orthogonal", "simplex", "zero_mean", "antithetic", "moment_matched", "regularized",
)  # fmt: skip
SAMPLED = (0.25, 0.5, 1.0)  # where a sample variance may be believed
SQUARED_SUMS = tuple(sorted([*np.geomspace(0.03, 30, 31).tolist(), *SAMPLED]))
BIASED = ("moment_matched", "regularized")
BOUND = "Theorem 2"
FEW = 4  # features, whatever d
AT = 1.0  # |q+k|² of the numbers in the caption


class _Task(NamedTuple):
    d: int
    coupling: str
    draws: int
    seed: int


def pairs(squares: tuple[float, ...], d: int) -> tuple[Array, Array]:
    """Return one query and keys with these |q+k|²; nothing else of a pair matters here."""
    Q, K = np.zeros((1, d)), np.zeros((len(squares), d))
    K[:, 0] = np.sqrt(squares)
    return Q, K


def mse(method: Positive, squares: tuple[float, ...], d: int) -> Array:
    """Return E(estimate − exact)²/exact², = variance + bias², in closed form."""
    known = method.moments(*pairs(squares, d))
    assert known is not None
    return np.asarray(np.exp(known.log_relative_variance[0]) + known.relative_bias[0] ** 2)


def bound(m: int, d: int, squares: tuple[float, ...]) -> Array:
    """Return the upper bound of Theorem 2 of the Performer on the error of orthogonal features.

    MSE ≤ MSE_iid − 2(b−1)/(b(d+2))·(1 − e^{−|q+k|²/2})², relative to exp(q·k)², for b ≤ d
    features; for m/d independent blocks of b = d, MSE_iid(m) − d/m of the rest.
    """
    gap = (1 - np.exp(-np.asarray(squares) / 2)) ** 2
    return np.asarray(mse(Positive(m), squares, d) - 2 * (d - 1) / (d * (d + 2)) * gap * d / m)


def _rows(task: _Task) -> list[Row]:
    d, m = task.d, 2 * task.d
    method = Positive(m, task.coupling)
    iid = mse(Positive(m), SQUARED_SUMS, d)
    head = (d, m)
    values = mse(method, SQUARED_SUMS, d) / iid
    rows: list[Row] = [
        (*head, x, str(method), "mse_ratio", v, np.nan) for x, v in zip(SQUARED_SUMS, values)
    ]
    if task.coupling == "orthogonal":
        values = bound(m, d, SQUARED_SUMS) / iid
        rows += [(*head, x, BOUND, "mse_ratio", v, np.nan) for x, v in zip(SQUARED_SUMS, values)]
    if task.coupling == "iid":
        return rows
    if task.coupling in ("orthogonal", "simplex"):
        few = Positive(FEW, task.coupling)
        value = float(mse(few, (AT,), d)[0] / mse(Positive(FEW), (AT,), d)[0])
        rows.append((d, FEW, AT, str(few), "few_mse_ratio", value, np.nan))
    rng = np.random.default_rng(seed_sequence(task.seed, d, str(method)))
    found = monte_carlo(method, *pairs(SAMPLED, d), draws=task.draws, rng=rng)
    unit = mse(Positive(m), SAMPLED, d)
    sampled = (found.variance[0] + (found.mean[0] - 1) ** 2) / unit
    errors = found.variance_stderr[0] / unit
    rows += [
        (*head, x, str(method), "sampled_mse_ratio", v, e)
        for x, v, e in zip(SAMPLED, sampled, errors)
    ]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return mse_ratio, the closed form, and sampled_mse_ratio with its standard error.

    few_mse_ratio is the closed form for 4 features at every d. Columns: d; m = 2d features (two
    blocks of d; moment_matched needs more than d); squared_sum |q+k|²; method, or "Theorem 2" for
    the bound.
    """
    tasks = [_Task(d, c, profile.draws, profile.seed) for d in WIDTHS for c in COUPLINGS]
    return profile.study(_rows, tasks, "couplings", COLUMNS)


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
                if spec in sampled:
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
            ax.set(
                xscale="log",
                ylim=(0.0, 1.1),
                title=f"d = {d}, m = {part.m.iloc[0]}",
            )
            ax.set_xticks([0.1, 1.0, 10.0], ["0.1", "1", "10"])
            ax.set_xlabel("|q + k|²")
        axes[0].set_ylabel(tr("error² over the Performer's"))
        style.legend(figure, list(axes), columns=2)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
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
        few=FEW,
        fewer=tr("; ").join(fewer),
        least=least,
        removed=removed,
        z=z.max(),
        markers=len(z),
    )


def _coupling(spec: str) -> str:
    found = re.search("'(.*)'", spec)
    return found[1] if found else spec


def _z_scores(table: pd.DataFrame) -> pd.Series:
    """Return |sampled − closed| in standard errors of the sample."""
    keys = ["d", "squared_sum", "method"]
    line = table[table.metric == "mse_ratio"].set_index(keys).value
    dots = table[table.metric == "sampled_mse_ratio"].set_index(keys)
    return ((dots.value - line.reindex(dots.index)).abs() / dots.stderr).reset_index(drop=True)
