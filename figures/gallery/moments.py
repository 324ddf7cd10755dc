"""Bias and variance against temperature: closed form as lines, Monte Carlo as markers."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.moments import QUANTILE, compute as compute
from figures import style
from figures.language import tr

TITLE = "Bias and variance against temperature"


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels an input: bias on the left, standard deviation on the right."""
    inputs, temperatures = table.input.unique().tolist(), sorted(table.temperature.unique())
    with style.style():
        figure, axes = style.panels(len(inputs), 2)
        for row, name in enumerate(inputs):
            bias, spread = axes[row]
            for spec in style.order(table.method.unique().tolist()):
                part = table[(table.input == name) & (table.method == spec)]
                if part.empty:  # it fits the budget on other inputs only
                    continue
                at = {m: p.set_index("temperature") for m, p in part.groupby("metric")}
                look = style.look(spec) | {"marker": ""}
                closed = at["relative_bias"].value
                bias.plot(closed.index, closed.clip(-1e300, 1e300), **look)
                variance = at["log_relative_variance"].value
                if np.isfinite(variance).any():
                    deviation = np.exp(np.minimum(variance / 2, 690))
                    spread.plot(variance.index, deviation, **look)
                if "believable" not in at:
                    continue
                for t, believable in at["believable"].value.items():
                    dot = style.look(spec) | {
                        "linestyle": "", "label": None, "linewidth": 0.9,
                        "markerfacecolor": style.look(spec)["color"] if believable else "white",
                    }  # fmt: skip
                    b, v = at["sampled_bias"].loc[t], at["sampled_variance"].loc[t]
                    if believable:
                        bias.errorbar([t], [b.value], [2 * b.stderr], capsize=2, **dot)
                    deviation = np.sqrt(v.value)
                    error = v.stderr / deviation if believable and deviation > 0 else 0.0
                    spread.errorbar([t], [deviation], [error], capsize=2, **dot)
            bias.set_yscale("symlog", linthresh=0.01)
            bias.set_ylim(-2, 2)
            spread.set(yscale="log", ylim=(1e-3, 1e6))
            for ax, what in ((bias, tr("bias")), (spread, tr("standard deviation"))):
                ax.set(xscale="log", title=tr("{name}: {what}", name=name, what=what))
                style.ticks(ax, temperatures)
            bias.set_ylabel(tr("relative to exp(q·k)"))
        for ax in axes[-1]:
            ax.set_xlabel(tr("temperature t"))
        style.legend(figure, list(axes.flat))
    return figure


def caption(table: pd.DataFrame) -> str:
    part = table[(table.metric == "log_relative_variance") & (table.temperature == 1.0)]
    features = part[part.method.str.startswith("positive")]
    sizes = [
        tr("{name}: {what}", name=name, what=_power(value / 2))
        for name, value in zip(features.input, features.value)
    ]
    parts = [
        tr(
            "Relative bias and standard deviation of one estimate exp(q·k), for the pair at "
            "the {quantile:.0%} quantile of q·k. Lines: closed form; markers: Monte Carlo with "
            "two standard errors (bias) and one (deviation), hollow where the draws are too "
            "heavy-tailed to be believed.",
            quantile=QUANTILE,
        )
    ]
    if sizes:
        parts.append(
            tr(
                "Standard deviation of Performer features at t = 1: {sizes}.",
                sizes=tr("; ").join(sizes),
            )
        )
    if len(z := _z_scores(table)):
        parts.append(
            tr(
                "Largest $|z|$ of a believable Monte Carlo bias: {z:.1f} of {count}.",
                z=z.max(),
                count=len(z),
            )
        )
    return functools.reduce(
        lambda first, second: tr("{first} {second}", first=first, second=second), parts
    )


def _power(log: float) -> str:
    return f"{np.exp(log):.2g}" if log < 4 else f"10^{log / np.log(10):.1f}^"


def _z_scores(table: pd.DataFrame) -> pd.Series:
    """Return |sampled − closed-form bias| in standard errors, where Monte Carlo is believable."""
    keys = ["input", "method", "temperature"]
    if "believable" not in set(table.metric):  # nothing random fits the budget
        return pd.Series(dtype=float)
    wide = table.pivot_table(index=keys, columns="metric", values="value")
    stderr = table[table.metric == "sampled_bias"].set_index(keys).stderr
    wide = wide[wide.believable == 1.0]
    return ((wide.sampled_bias - wide.relative_bias) / stderr.reindex(wide.index)).abs()
