"""Why a Performer is off by 70 %: d = 128, m = 1024, Gaussian inputs."""

import math

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.performer_error import (
    EPS,
    FAMILIES,
    WITH_EPS,
    D,
    M,
    compute as compute,
)  # fmt: skip
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "Why a Performer is off by 70 %"
ORDER = 120


def draw(table: pd.DataFrame) -> Figure:
    """Draw the kernel error in closed form and the measured error of the output, against m."""
    figure, (kernel, output) = style.row(2, 3.4)
    measured = table[table.metric == "output_relative_error"]
    for family in FAMILIES:
        part = looks.of_methods(table, family)
        look = looks.look(part.method.iloc[0])
        line = part[part.metric == "expected_kernel_relative_frobenius"]
        kernel.plot(line.budget / 2, line.value, **look)
        errors = part[part.metric == "output_relative_error"].groupby("budget").value.median()
        output.plot(errors.index / 2, errors, **look)
    uniform = measured[measured.method == "uniform()"].value.iloc[0]
    output.axhline(uniform, **looks.look("uniform()"))
    errors = measured[measured.method == WITH_EPS].groupby("budget").value.median()
    what = tr("Performer with eps = {eps}", eps=f"$10^{{{math.log10(EPS):.0f}}}$")
    output.plot(errors.index / 2, errors, label=what, **style.dots(looks.PALETTE[4], "x", 5))
    kernel.set(yscale="log", ylabel=tr("expected relative error of exp(q·k)"))
    output.set(ylim=(0.0, None), ylabel=tr("relative error of the output"))
    for ax in (kernel, output):
        ax.set(xscale="log", xlabel=tr("features m"), xlim=(12, 6000))
        style.ticks(ax, (16, 64, 256, 1024, 4096))
    style.legend(figure, [kernel, output], columns=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    at = table[table.method == f"positive(m={M})"].groupby("metric").value.median()
    trivial = table[table.method == "uniform()"].groupby("metric").value.mean()
    return tr(
        "With {m} positive features the output is off by {error:.0%}, that of uniform attention by "
        "{uniform:.0%}.",
        m=M,
        error=at.output_relative_error,
        uniform=trivial.output_relative_error,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Gaussian q, k, v at d = {d}: the expected error of exp(q·k), in closed form, and the "
        "measured error of the output.",
        d=D,
    )
