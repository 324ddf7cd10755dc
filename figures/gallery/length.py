"""Entropy of softmax against length and temperature."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.inputs.statistics import gaussian_entropy, gaussian_logits, weight_statistics
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, numbers
from approx.textbook.attention import log_length_scale
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "Entropy of softmax against length and temperature"
ORDER = 440
COLUMNS = ("input", "n", "scale", "temperature", "metric", "value", "stderr")
GRIDS = {
    "quick": (128, 512, 2048),
    "default": (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
}
ROWS, BASE, COUNT = 64, 512, 256  # rows a length; n at which scales agree; queries of an input
SCALES = ("constant", "sqrt_log", "log")
SCALE_LOOKS = {
    "constant": ("β = 1", looks.PALETTE[0], "o"),
    "sqrt_log": ("β ∝ √log n", looks.PALETTE[1], "s"),
    "log": ("β ∝ log n", looks.PALETTE[2], "^"),
}
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
        entropy = gaussian_logits(n, b, rows=ROWS, rng=rng)["entropy"]
        rows += numbers(place, entropy=entropy, predicted_entropy=gaussian_entropy(n, b))
    return rows


def _at_temperature(x: Head, t: float) -> list[Row]:
    entropies = weight_statistics(x.at_temperature(t).logits())["entropy"]
    return numbers((x.name, x.n, "temperature", t), entropy=entropies.mean())


def compute(profile: Profile) -> pd.DataFrame:
    """Return the entropy of Gaussian rows against n, and of the inputs against t."""
    grid = [(n, profile.seed) for n in GRIDS[profile.grid]]
    lengths = profile.study(_at_length, grid, "n", COLUMNS)
    inputs = [x.first(COUNT) for x in profile.inputs]
    tasks = [(x, t) for x in inputs for t in profile.temperatures]
    temperatures = profile.study(_at_temperature, tasks, "temperatures", COLUMNS)
    return pd.concat([lengths, temperatures], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw ln n − entropy against n, of three scales, and against t, a line an input."""
    figure, (left, right) = style.row(2, 3.6)
    for scale, (name, colour, marker) in SCALE_LOOKS.items():
        part = table[table.scale == scale].pivot_table("value", "n", "metric")
        uniform = np.log(part.index)
        left.plot(part.index, uniform - part.predicted_entropy, color="0.2", linestyle="--")
        look = style.dots(colour, marker, 5)
        left.plot(part.index, uniform - part.entropy, label=name, **look)
    left.plot([], [], color="0.2", linestyle="--", label=tr("theory: β²/2"))
    left.set(xscale="log", xlabel=tr("length n"), ylim=(0, None))
    style.ticks(left, [*part.index[::2]])
    left.set_title(tr("Gaussian logits, standard deviation β"))
    left.set_ylabel(tr("ln n − entropy (0: uniform weights)"))
    part = table[table.scale == "temperature"]
    for line, (head, y) in zip(INPUTS, part.groupby("input", sort=False)):
        right.plot(
            y.temperature, np.log(y.n) - y.value, color="0.2", linestyle=line, marker=".",
            label=str(head),
        )  # fmt: skip
    right.set(xscale="log", xlabel=tr("temperature"), title=tr("attention of the inputs"))
    style.ticks(right, sorted(part.temperature.unique()))
    left.legend(loc="upper left")
    style.legend(figure, right, columns=4)
    return figure


def finding(table: pd.DataFrame) -> str:
    at = table[table.scale == "constant"].set_index(["metric", "n"]).value.sort_index()
    n = sorted(table.n[table.scale == "constant"].unique())
    ends = n[0], n[-1]
    deficit = [np.log(k) - at["entropy", k] for k in ends]
    return tr(
        "From n = {first} to {last}, Gaussian rows of β = 1 keep their distance to the entropy of "
        "uniform weights, {deficit:.2f} to {later:.2f}.",
        first=int(n[0]),
        last=int(n[-1]),
        deficit=deficit[0],
        later=deficit[1],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "ln n − entropy: left of rows of n iid Gaussian logits, right of exact attention of the "
        "inputs."
    )
