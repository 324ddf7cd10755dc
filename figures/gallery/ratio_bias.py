"""Normalised attention: the bias that a ratio brings by itself."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.moments import monte_carlo, normalised_moments
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import required
from approx.estimate import exact
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "Ratio bias of normalised attention"
ORDER = 270
SPECS = (
    "uniform()", "positive(m=64)", "positive(m=64, projection='orthogonal')",
    "generalized_exponential(m=64)",
    "scatterbrain(low_rank=positive(m=64), sparse=sliding_window(width=8))",
)  # fmt: skip
DRAWN = SPECS[1], SPECS[4]
COUNT, MOST_DRAWS = 64, 300  # keys, and draws of a method at most
# high ones, as the delta method needs them
TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
SMALL = 0.3  # above this largest relative variance the delta method is unreliable
FLOOR, CEILING = 1e-4, 10.0


def _rows(inputs: Head, method: Method, t: float, draws: int, seed: int) -> list[Row]:
    x = inputs.at_temperature(t)
    place = head(x, method)
    stream = seed_sequence(seed, x.digest(), str(method))
    attention = np.exp(x.logits() - exact.log_row_sums(x.Q, x.K, mask=x.mask)[:, None])
    size = np.linalg.norm(attention)
    draws = 2 if method.deterministic else draws
    outputs = [
        x.compare(x.approximate(method, rng=child))["output_relative_error"]
        for child in np.random.default_rng(stream).spawn(min(draws, 20))
    ]
    sample = monte_carlo(method, x.Q, x.K, draws=draws, rng=stream, mask=x.mask, space="attention")
    bias, error = attention * (sample.mean - 1.0), attention * sample.mean_stderr
    square, noise = float(np.square(bias).sum()), float(np.square(error).sum())
    known = required(method.moments(x.Q, x.K, mask=x.mask))
    largest = float(np.exp(min(known.log_relative_variance.max(), 700.0)))
    rows = numbers(
        place,
        output_relative_error=np.median(outputs),
        sampled_bias=np.sqrt(max(square - noise, 0.0)) / size,
        noise=np.sqrt(noise) / size,
        largest_variance=largest,
    )
    if largest > SMALL:
        return rows
    if (delta := normalised_moments(method, x.Q, x.K, mask=x.mask)) is not None:
        rows += numbers(place, delta_bias=np.linalg.norm(delta.bias) / size)
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return, relative to the norm of exact attention: output error, and bias of the weights.

    sampled_bias is of the mean of the draws, its own noise taken out; delta_bias is of the delta
    method, where largest_variance, the largest relative variance of an estimate, is at most 0.3.
    Of the first 64 queries and keys.
    """
    tasks = []
    for x in (x.first(COUNT) for x in profile.inputs):
        for spec in SPECS:
            draws = min(profile.draws, MOST_DRAWS)
            tasks += [(x, parse(spec), t, draws, profile.seed) for t in TEMPERATURES]
    return profile.study(_rows, tasks, "ratios")


def draw(table: pd.DataFrame) -> Figure:
    """Draw the bias of the weights, one panel an input: draws, and the delta method."""
    names, ts = table.input.unique().tolist(), sorted(table.temperature.unique())
    with style.style():
        y = style.lines(tr("bias of the weights over their norm"), 20)
        figure, axes = style.tiles(len(names), tr("temperature t"), y)
        for ax, name in zip(axes, names):
            part = table[table.input == name]
            for spec in map(str, map(parse, DRAWN)):
                _biases(ax, _wide(part[part.method == spec]), looks.look(spec))
            ax.set(xscale="log", yscale="log", title=name, ylim=(FLOOR, CEILING))
            style.ticks(ax, ts)
        line = tr("delta method, where the variance is small")
        style.key(axes[0], line=line, mark=tr("measured, where above twice its noise"))
        style.legend(figure, axes, columns=2)
    return figure


def _wide(part: pd.DataFrame, index: str | list[str] = "temperature") -> pd.DataFrame:
    wide = part.pivot(index=index, columns="metric", values="value")
    return wide.reindex(columns=[*wide.columns.union(["delta_bias"])])


def _biases(ax: Axes, wide: pd.DataFrame, look: dict[str, Any]) -> None:
    """Draw sampled biases that stand out of their noise, and the line of the delta method."""
    seen = wide[wide.sampled_bias > 2 * wide.noise]
    ax.plot(seen.index, seen.sampled_bias, **look | {"linestyle": "", "label": None})
    known = wide.dropna(subset=["delta_bias"])
    ax.plot(known.index, known.delta_bias, **look | {"marker": ""})


def finding(table: pd.DataFrame) -> str:
    wide = _wide(table, ["input", "temperature", "method"]).reset_index()
    bias = wide[(wide.method != "uniform()") & (wide.temperature == 1.0)].sampled_bias
    return tr(
        "Unbiased estimates of exp(q·k), normalised, have a bias of {least:.2g} to {most:.2g} of "
        "attention at t = 1.",
        least=bias.min(),
        most=bias.max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Bias of the attention weights over their norm, measured and by the delta method.")
