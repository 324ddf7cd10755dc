"""Why a Performer is off by 70 %: d = 128, m = 1024, Gaussian inputs."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.performer_error import (
    EPS,
    FAMILIES,
    SIZES,
    TARGET,
    WITH_EPS,
    D,
    M,
    compute as compute,
    sized,
)  # fmt: skip
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Why a Performer is off by 70 %"
ORDER = 120


def draw(table: pd.DataFrame) -> Figure:
    """Draw the kernel error in closed form and the measured error of the output, against m."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.4))
        kernel, output = figure.subplots(1, 2)
        families = _by_family(table)
        for place, family in enumerate(FAMILIES):
            part = families[family]
            look = style.look(part.method.iloc[0])
            line = part[part.metric == "expected_kernel_error"]
            kernel.plot(line.budget / 2, line.value, **look, markevery=(place % 2, 2))
            errors = part[part.metric == "output_error"].groupby("budget").value.median()
            if len(errors):
                output.plot(errors.index / 2, errors, **look)
        errors = (
            table[(table.method == WITH_EPS) & (table.metric == "output_error")]
            .groupby("budget")
            .value.median()
        )
        look = {"color": style.PALETTE[4], "linestyle": "--", "marker": "x"}
        output.plot(
            errors.index / 2,
            errors,
            label=tr("Performer with eps = {eps}", eps=f"$10^{{{math.log10(EPS):.0f}}}$"),
            **look,
        )
        uniform = table[(table.method == "uniform()") & (table.metric == "output_error")]
        output.axhline(uniform.value.iloc[0], **style.look("uniform()"))
        kernel.axhline(TARGET, color="0.5", linewidth=0.8)
        kernel.set(yscale="log", title=tr("exp(q·k): expected relative error"))
        output.set(ylim=(0.0, None), title=tr("attention output: measured relative error"))
        for ax in (kernel, output):
            ax.axvline(M, color="0.5", linewidth=0.8)
            ax.set(xscale="log", xlabel=tr("features m"), xlim=(12, 6000))
            style.ticks(ax, (16, 64, 256, 1024, 4096))
        style.legend(figure, [kernel, output], columns=2)
    return figure


def _by_family(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    specs = {str(sized(f, m)): f for f in FAMILIES for m in SIZES}
    return dict(list(table.groupby(table.method.map(specs))))


def finding(table: pd.DataFrame) -> str:
    at = table[table.method == f"positive(m={M})"].groupby("metric").value.median()
    trivial = table[table.method == "uniform()"].groupby("metric").value.mean()
    return tr(
        "With {m} positive features the output is off by {error:.0%}, that of uniform attention by "
        "{uniform:.0%}.",
        m=M,
        error=at.output_error,
        uniform=trivial.output_error,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Gaussian q, k, v at d = {d}: the expected error of exp(q·k), in closed form, and the "
        "measured error of the output. Grey: {target:.0%}.",
        d=D,
        target=TARGET,
    )


def _count(value: float) -> str:
    if value < 1e4:
        return f"{value:.3g}"
    return f"$10^{{{np.log10(value):.1f}}}$"
