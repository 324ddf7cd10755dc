"""Log variance against 1/t: closed form through what Monte Carlo can see."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.moments import monte_carlo
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import required
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "Log variance against inverse temperature"
ORDER = 110
D, COUNT, M = 16, 8, 32
SPECS = f"positive(m={M})", f"generalized_exponential(m={M})"
LINE = tuple((1 / np.linspace(1 / 32, 1.25, 40)).tolist())
SAMPLED = (32.0, 16.0, 8.0, 4.0, 8 / 3, 2.0, 1.6, 1.0, 0.8)


def pair(x: Head) -> tuple[int, int]:
    """Return query and key of the median |q+k|²."""
    squares = np.square(x.Q[:, None] + x.K).sum(axis=2)
    place = np.argsort(squares, axis=None, kind="stable")[squares.size // 2]
    i, j = np.unravel_index(place, squares.shape)
    return int(i), int(j)


def _rows(inputs: Head, method: Method, at: tuple[int, int], draws: int, seed: int) -> list[Row]:
    spec, rows = str(method), list[Row]()
    price = required(method.price(n=inputs.n, l=inputs.l, d=inputs.d))
    for t in LINE:
        x = inputs.at_temperature(t)
        place = head(x, method, price.stored)
        known = required(method.moments(x.Q, x.K))
        rows += numbers(place, log_relative_variance=known.log_relative_variance[at])
    for t in SAMPLED:
        x = inputs.at_temperature(t)
        place = head(x, method, price.stored)
        rng = np.random.default_rng(seed_sequence(seed, x.digest(), spec, str(t)))
        sample = monte_carlo(method, x.Q, x.K, draws=draws, rng=rng)
        v, error = sample.variance[at], sample.variance_stderr[at]
        rows += numbers(
            place,
            sampled_log_variance=(np.log(v), error / v),
            believable=sample.believable[at],
        )
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ln(relative variance) of one pair of Gaussian inputs, in closed form and sampled."""
    x = data.gaussian(COUNT, D, rng=profile.seed)
    tasks = [(x, parse(s), pair(x), profile.draws, profile.seed) for s in SPECS]
    return profile.study(_rows, tasks, "temperatures")


def draw(table: pd.DataFrame) -> Figure:
    """Draw lines in closed form and markers by Monte Carlo, one panel a method."""
    with style.style():
        figure, axes = style.tiles(
            len(SPECS), tr("inverse temperature 1/t"), tr("ln relative variance")
        )
        for ax, spec in zip(axes, SPECS):
            look, part = {"color": looks.look(spec)["color"]}, table[table.method == spec]
            at = {m: p.set_index("temperature").value for m, p in part.groupby("metric")}
            line = at["log_relative_variance"]
            ax.plot(1 / line.index, line, **look)
            dots = at["sampled_log_variance"]
            for t, value, believed in zip(dots.index, dots, at["believable"].reindex(dots.index)):
                face = {"markerfacecolor": look["color"] if believed else "white"}
                ax.plot([1 / t], [value], "o", **look | face)
            ax.set_title(looks.label(spec))
        style.key(
            axes[0],
            line=tr("closed form"),
            mark=tr("measured"),
            hollow=tr("measured, not reliable"),
        )
        style.legend(figure, axes)
    return figure


def finding(table: pd.DataFrame) -> str:
    line = table[table.metric == "log_relative_variance"].set_index(["method", "temperature"]).value
    part = table[table.method == SPECS[0]]
    sure = part[(part.metric == "believable") & (part.value == 1.0)].temperature
    slope = _slope(line[SPECS[0]])
    if sure.empty:
        return tr(
            "At low temperature the log variance of positive features grows as {slope:.2g}/t.",
            slope=slope,
        )
    return tr(
        "At low temperature the log variance of positive features grows as {slope:.2g}/t; "
        "draws show it only down to t = {t:.2g}.",
        slope=slope,
        t=sure.min(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("ln of the relative variance of one estimate of exp(q·k), for Gaussian inputs.")


def _slope(line: pd.Series) -> float:
    ends = line.sort_index().iloc[:2]
    (a, b), (x, y) = ends.to_numpy(), 1 / ends.index.to_numpy()
    return float((a - b) / (x - y))
