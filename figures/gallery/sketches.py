"""Sketches of exp and of its tensor power beside positive features: error against width and t."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.errors.metrics import compare
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.moments import expected_error, monte_carlo
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row, head, numbers
from approx import Method, parse
from approx.checks import required
from approx.estimate import exact
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Sketches beside positive features"
ORDER = 310
D, COUNT, M, TEMPERATURE, DEGREE = 16, 64, 256, 1.0, 4
SIZES = (32, 64, 128, 256, 512, 1024)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
FAMILIES = "positive", "random_maclaurin", f"tensor_sketch(degree={DEGREE})"
LIMIT = f"tensor_power(n={DEGREE})"  # of the sketches, as m grows
MOST_DRAWS = 200  # draws of a method at one temperature, at most
KERNEL = "kernel_relative_frobenius"
EXPECTED = "expected_kernel_relative_frobenius"
LINES = {
    LIMIT: ("-", mark("TensorSketch as m → ∞")),
    "uniform()": ("--", mark("uniform attention")),
}


def _rows(x: Head, method: Method, m: int, draws: int, seed: int) -> list[Row]:
    Q, K, spec = x.Q, x.K, str(method)
    place = head(x, method, 2.0 * m)
    expected = required(expected_error(method, Q, K))
    rows = numbers(place, **{EXPECTED: expected})
    if method.deterministic:
        return rows + numbers(place, **{KERNEL: compare(method.approximate(Q, K), Q, K)[KERNEL]})
    rng = np.random.default_rng(seed_sequence(seed, x.digest(), spec, "moments"))
    sample = monte_carlo(method, Q, K, draws=draws, rng=rng)
    weight = np.square(exact.kernel(Q, K))
    square = sample.variance * (1 - 1 / draws) + np.square(sample.mean - 1)
    measured = float(np.sqrt(np.sum(weight * square) / weight.sum()))
    return rows + numbers(place, **{KERNEL: measured}, believable=sample.believable.mean())


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at equal width (budget/2 columns), of Gaussian inputs; −2 where it has none.

    expected_kernel_relative_frobenius: √(E‖estimate − exact‖²_F)/‖exact‖_F in closed form;
    kernel_relative_frobenius: the same from draws; believable: share of entries whose sample
    variance may be believed (`analysis.moments.MonteCarlo`).
    """
    n = 24 if profile.grid == "quick" else COUNT
    raw = data.gaussian(n, D, rng=profile.seed)
    cells = [(TEMPERATURE, m) for m in SIZES] + [(t, M) for t in TEMPERATURES if t != TEMPERATURE]
    draws, tasks = min(profile.draws, MOST_DRAWS), []
    for t, m in cells:
        x = raw.at_temperature(t)
        for family in FAMILIES:
            method = required(parse(family).within(2 * m, n=n, l=n, d=D))
            tasks.append((x, method, m, draws, profile.seed))
    for t in TEMPERATURES:
        x = raw.at_temperature(t)
        tasks += [(x, parse(spec), -1, draws, profile.seed) for spec in LINES]
    return profile.study(_rows, tasks, "sketches")


def draw(table: pd.DataFrame) -> Figure:
    """Draw the kernel error against width and against temperature."""
    figure, axes = style.panels(1, 2, "", tr("relative error of exp(q·k)"), height=3.2)
    for ax, key in zip(axes.flat, ("budget", "temperature")):
        fixed = table.temperature == TEMPERATURE if key == "budget" else table.budget == 2 * M
        for family in FAMILIES:
            name = parse(family).name
            _line(ax, looks.of_methods(table[fixed], name), key)
        for spec, (line, name) in LINES.items():
            part = table[(table.method == spec) & ((key != "budget") | fixed)]
            y = part[part.metric == KERNEL].sort_values("temperature")
            look = {"color": "0.4", "linestyle": line, "label": tr(name)}
            if key == "budget":
                ax.axhline(y.value.iloc[0], **look)
            else:
                ax.plot(y.temperature, y.value, **look)
        ax.set(xscale="log", yscale="log", ylim=(5e-4, 1e4))
        ax.minorticks_off()
    axes[0, 0].set(title=f"t = {TEMPERATURE:g}", xlabel=tr("width m"))
    axes[0, 1].set(title=tr("width {m}", m=M), xlabel=tr("temperature t"))
    axes[0, 0].set_xticks(SIZES, [str(m) for m in SIZES])
    axes[0, 1].set_xticks(TEMPERATURES, [f"{t:g}" for t in TEMPERATURES])
    style.key(axes[0, 0], mark=tr("measured, where reliable"))
    style.legend(figure, list(axes.flat), columns=3)
    return figure


def _line(ax: Axes, part: pd.DataFrame, key: str) -> None:
    """Draw a line of expected errors, and markers of draws where they are reliable."""
    look = looks.look(part.method.iloc[0])
    wide = part.pivot_table(index=key, columns="metric", values="value")
    wide.index = wide.index / (2.0 if key == "budget" else 1.0)
    ax.plot(wide.index, wide[EXPECTED], **look | {"marker": ""})
    seen = wide[wide.believable >= 0.5]
    ax.plot(seen.index, seen[KERNEL], **look | {"linestyle": "", "label": None})


def finding(table: pd.DataFrame) -> str:
    at = table[(table.temperature == TEMPERATURE) & (table.budget == 2 * M)]
    at = at[at.metric == EXPECTED]
    least = at.iloc[int(at.value.argmin())]
    return tr(
        "At t = {temperature:g} and width {m}, {method} has the least expected error of exp(q·k), "
        "{error:.2g}.",
        temperature=TEMPERATURE,
        m=M,
        method=looks.label(least.method),
        error=least.value,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Gaussian q, k at d = {d}. Lines: expected error of exp(q·k) in closed form.",
        d=D,
    )
