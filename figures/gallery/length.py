"""Entropy and sparsity of softmax against length and temperature."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.inputs.statistics import gaussian_entropy, gaussian_logits, weight_statistics
from analysis.sweeps.table import Row, numbers
from approx.textbook.attention import log_length_scale
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Entropy and sparsity of softmax against length and temperature"
ORDER = 440
COLUMNS = ("input", "n", "scale", "temperature", "metric", "value", "stderr")
GRIDS = {
    "quick": (128, 512, 2048),
    "default": (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
}
ROWS, BASE, COUNT = 64, 512, 256  # rows a length; n at which scales agree; queries of an input
SCALES = ("constant", "sqrt_log", "log")
SCALE_LOOKS = {
    "constant": ("β = 1", style.PALETTE[0], "o"),
    "sqrt_log": ("β ∝ √log n", style.PALETTE[1], "s"),
    "log": ("β ∝ log n", style.PALETTE[2], "^"),
}
METRICS = {
    "entropy": mark("entropy / ln n"),
    "sparsity": mark("sparsity S*₁₂"),
}
ABOVE = METRICS | {"entropy": mark("entropy deficit ln n − H")}
INPUTS = ("-", "--", ":", "-.", (0, (3, 1, 1, 1)))


def beta(scale: str, n: int) -> float:
    """Return the standard deviation of the logits at length n; 1 at n = 512.

    Examples
    --------
    >>> [round(beta(scale, 512**2), 3) for scale in SCALES]
    [1.0, 1.414, 2.0]
    """
    power = {"constant": 0.0, "sqrt_log": 0.5, "log": 1.0}[scale]
    return float(log_length_scale(n, 1, base=BASE) ** power)


def _at_length(n: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    for scale in SCALES:
        b = beta(scale, n)
        rng = np.random.default_rng(seed_sequence(seed, "length", n, scale))
        place = ("Gaussian logits", n, scale, math.nan)
        statistics = gaussian_logits(n, b, rows=ROWS, rng=rng)
        rows += numbers(place, **statistics, predicted_entropy=gaussian_entropy(n, b))
    return rows


def _at_temperature(x: Head, t: float) -> list[Row]:
    statistics = weight_statistics(x.at_temperature(t).logits())
    place = (x.name, x.n, "temperature", t)
    return numbers(place, **{name: values.mean() for name, values in statistics.items()})


def compute(profile: Profile) -> pd.DataFrame:
    """Return the statistics of Gaussian logits against n, and of the inputs against t."""
    grid = [(n, profile.seed) for n in GRIDS[profile.grid]]
    lengths = profile.study(_at_length, grid, "n", COLUMNS)
    inputs = [x.first(COUNT) for x in profile.inputs]
    tasks = [(x, t) for x in inputs for t in profile.temperatures]
    temperatures = profile.study(_at_temperature, tasks, "temperatures", COLUMNS)
    return pd.concat([lengths, temperatures], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw two numbers against n (above, three scales) and against t (below, a line an input)."""
    by_length = table[table.scale != "temperature"]
    by_temperature = table[table.scale == "temperature"]
    with style.style():
        figure = Figure(figsize=(7.0, 5.0))
        axes = figure.subplots(2, 2)
        for column, (metric, label) in enumerate(METRICS.items()):
            above, below = axes[:, column]
            for scale, (name, colour, marker) in SCALE_LOOKS.items():
                part = by_length[by_length.scale == scale].pivot_table(
                    index="n", columns="metric", values="value"
                )
                look = {"color": colour, "marker": marker, "label": name}
                if metric == "entropy":
                    above.plot(part.index, np.log(part.index) - part.entropy, **look)
                    predicted = np.log(part.index) - part.predicted_entropy
                    above.plot(part.index, predicted, color="0.3", lw=0.8)
                else:
                    above.plot(part.index, part[metric], **look)
            above.set(xscale="log", xlabel="n", title=tr(ABOVE[metric]))
            above.set_ylim(bottom=0)
            above.minorticks_off()
            looks = zip(INPUTS, by_temperature.groupby("input", sort=False))
            for line, (head, part) in looks:
                y = part[part.metric == metric].sort_values("temperature")
                unit = np.log(y.n) if metric == "entropy" else 1.0
                below.plot(
                    y.temperature, y.value / unit, color="0.2", linestyle=line, marker=".",
                    label=str(head),
                )  # fmt: skip
            below.set(xscale="log", xlabel=tr("temperature"), title=tr(label), ylim=(0, 1.03))
            style.ticks(below, sorted(by_temperature.temperature.unique()))
        style.legend(figure, list(axes.ravel()), columns=4)
    return figure


def finding(table: pd.DataFrame) -> str:
    at = table[table.scale == "constant"].set_index(["metric", "n"]).value.sort_index()
    n = sorted(table.n[table.scale == "constant"].unique())
    ends = n[0], n[-1]
    dense = [at["sparsity", k] for k in ends]
    deficit = [np.log(k) - at["entropy", k] for k in ends]
    return tr(
        "From n = {first} to {last} Gaussian rows of β = 1 keep their sparsity, {dense:.2f} to "
        "{then:.2f}, and their entropy deficit, {deficit:.2f} to {later:.2f}.",
        first=int(n[0]),
        last=int(n[-1]),
        dense=dense[0],
        then=dense[1],
        deficit=deficit[0],
        later=deficit[1],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Above: rows of n iid Gaussian logits of standard deviation β; thin: β²/2. Below: exact "
        "attention of the inputs."
    )
