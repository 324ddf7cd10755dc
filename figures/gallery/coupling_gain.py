"""What coupling the frequencies of positive features is worth: exact error over that of iid."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.moments import monte_carlo
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx.checks import Array, required
from approx.random_features.positive import Positive
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "What coupled frequencies are worth"
ORDER = 90
COLUMNS = ("d", "m", "squared_sum", "method", "metric", "value", "stderr")
WIDTHS = (4, 64)
COUPLINGS = "orthogonal", "simplex", "zero_mean"  # the others are biased, or hardly differ
SAMPLED = (0.25, 0.5, 1.0)  # where a sample variance is reliable
SQUARED_SUMS = tuple(sorted([*np.geomspace(0.03, 30, 31).tolist(), *SAMPLED]))
BOUND = "Theorem 2"
AT = 1.0  # |q+k|² of the numbers in the caption


def pairs(squares: tuple[float, ...], d: int) -> tuple[Array, Array]:
    """Return one query and keys with these |q+k|²; nothing else of a pair matters here."""
    Q, K = np.zeros((1, d)), np.zeros((len(squares), d))
    K[:, 0] = np.sqrt(squares)
    return Q, K


def mse(method: Positive, squares: tuple[float, ...], d: int) -> Array:
    """Return E(estimate − exact)²/exact², = variance + bias², in closed form."""
    known = required(method.moments(*pairs(squares, d)))
    return np.asarray(np.exp(known.log_relative_variance[0]) + known.relative_bias[0] ** 2)


def theorem_bound(m: int, d: int, squares: tuple[float, ...]) -> Array:
    """Return the upper bound of Theorem 2 of the Performer on the error of orthogonal features.

    MSE ≤ MSE_iid − 2(b−1)/(b(d+2))·(1 − e^{−|q+k|²/2})², relative to exp(q·k)², for b ≤ d
    features; for m/d independent blocks of b = d, MSE_iid(m) − d/m of the rest.
    """
    gap = (1 - np.exp(-np.asarray(squares) / 2)) ** 2
    return np.asarray(mse(Positive(m), squares, d) - 2 * (d - 1) / (d * (d + 2)) * gap * d / m)


def _rows(d: int, coupling: str, draws: int, seed: int) -> list[Row]:
    m = 2 * d
    method = Positive(m, coupling)
    iid = mse(Positive(m), SQUARED_SUMS, d)
    head = (d, m)
    values = mse(method, SQUARED_SUMS, d) / iid
    rows: list[Row] = [
        (*head, x, str(method), "mse_ratio", v, np.nan) for x, v in zip(SQUARED_SUMS, values)
    ]
    if coupling == "orthogonal":
        values = theorem_bound(m, d, SQUARED_SUMS) / iid
        rows += [(*head, x, BOUND, "mse_ratio", v, np.nan) for x, v in zip(SQUARED_SUMS, values)]
    rng = np.random.default_rng(seed_sequence(seed, d, str(method)))
    sample = monte_carlo(method, *pairs(SAMPLED, d), draws=draws, rng=rng)
    unit = mse(Positive(m), SAMPLED, d)
    sampled = (sample.variance[0] + (sample.mean[0] - 1) ** 2) / unit
    errors = sample.variance_stderr[0] / unit
    rows += [
        (*head, x, str(method), "sampled_mse_ratio", v, e)
        for x, v, e in zip(SAMPLED, sampled, errors)
    ]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return mse_ratio, the closed form, and sampled_mse_ratio with its standard error.

    Columns: d; m = 2d features (two blocks of d); squared_sum |q+k|²; method, or "Theorem 2".
    """
    tasks = [(d, c, profile.draws, profile.seed) for d in WIDTHS for c in COUPLINGS]
    return profile.study(_rows, tasks, "couplings", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel for each d: lines in closed form, markers by simulation."""
    figure, axes = style.row(2, 3.6, sharex=True, sharey=True)
    for ax, d in zip(axes, sorted(table.d.unique())):
        part = table[table.d == d]
        closed, sampled = (
            dict(list(part[part.metric == name].groupby("method")))
            for name in ("mse_ratio", "sampled_mse_ratio")
        )
        line = closed[BOUND]
        what = tr("bound for orthogonal (Theorem 2)")
        ax.plot(line.squared_sum, line.value, color="black", linestyle=":", label=what)
        for spec in looks.order([s for s in closed if s != BOUND]):
            look, line, dots = looks.look(spec), closed[spec], sampled[spec]
            ax.plot(line.squared_sum, line.value, **look | {"marker": ""})
            dot = look | {"linestyle": "", "label": None, "elinewidth": 0.9}
            ax.errorbar(dots.squared_sum, dots.value, dots.stderr, capsize=1.5, markersize=3, **dot)
        ax.set(xscale="log", ylim=(0.0, 1.1), xlabel=tr("squared length |q + k|²"))
        ax.set_title(tr("head size {d}, {m} features", d=d, m=part.m.iloc[0]))
        ax.set_xticks([0.1, 1.0, 10.0], ["0.1", "1", "10"])
    style.key(axes[0], line=tr("closed form"), mark=tr("simulation ± standard error"))
    axes[0].set_ylabel(tr("squared error over the Performer's"))
    style.legend(figure, axes, columns=2)
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
        "Mean squared error over that of independent frequencies, m = 2d, of unbiased couplings."
    )


def _coupling(spec: str) -> str:
    method = looks.method_of(spec)
    return str(method.projection) if isinstance(method, Positive) else spec
