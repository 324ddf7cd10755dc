"""Entropy, sparsity and the largest weight of softmax against length and temperature."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.length import compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Entropy, sparsity and the largest weight against length and temperature"
ORDER = 440
SCALE_LOOKS = {
    "constant": ("β = 1", style.PALETTE[0], "o"),
    "sqrt_log": ("β ∝ √log n", style.PALETTE[1], "s"),
    "log": ("β ∝ log n", style.PALETTE[2], "^"),
}
METRICS = {
    "entropy": mark("entropy / ln n"),
    "largest_weight": mark("largest weight"),
    "sparsity": "S*₁₂",
}
ABOVE = METRICS | {"entropy": mark("entropy deficit ln n − H")}
INPUTS = ("-", "--", ":", "-.", (0, (3, 1, 1, 1)))


def draw(table: pd.DataFrame) -> Figure:
    """Draw three numbers against n (above, three scales) and against t (below, a line an input)."""
    by_length = table[table.scale != "temperature"]
    by_temperature = table[table.scale == "temperature"]
    with style.style():
        figure = Figure(figsize=(7.0, 5.0))
        axes = figure.subplots(2, 3)
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
            if metric == "largest_weight":
                above.set_yscale("log")
            else:
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
    dense, weight = (
        [at[metric, k] for k in (n[0], n[-1])] for metric in ("sparsity", "largest_weight")
    )
    return tr(
        "From n = {first} to {last} Gaussian rows keep their sparsity, {dense:.2f} to {then:.2f}, "
        "as the largest weight falls from {weight:.2g} to {less:.2g}.",
        first=int(n[0]),
        last=int(n[-1]),
        dense=dense[0],
        then=dense[1],
        weight=weight[0],
        less=weight[1],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Above: rows of n iid Gaussian logits of standard deviation β; thin: β²/2. Below: exact "
        "attention of the inputs."
    )
