"""Rounding against truncation: the Taylor polynomial at x ≪ 0, in float32 and float64."""

from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from approx.checks import Array
from approx.polynomials.taylor import Taylor
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Rounding against truncation"
ORDER = 350
COLUMNS = ("degree", "dtype", "x", "metric", "value")
DEGREES = (20, 33, 62)
PLACES = tuple(-x / 2 for x in range(1, 49))
DTYPES = ("float64", "float32")
DIGITS = 60  # e^{2·24} is 10^21: forty are left
FLOOR = 1e-18
LINES = {"exact": "-", "float64": "-", "float32": ":"}


def exactly(degree: int, x: float) -> tuple[Decimal, Decimal]:
    """Return T_n(x) and e^x to 30 digits or more."""
    with localcontext(prec=DIGITS):
        y, term, total = Decimal(x), Decimal(1), Decimal(1)
        for j in range(1, degree + 1):
            term *= y / j
            total += term
        return total, y.exp()


def compute(profile: Profile) -> pd.DataFrame:
    """Return |T_n(x) − e^x|/e^x in exact arithmetic, and what each dtype adds to it."""
    rows = []
    for degree in DEGREES:
        method = Taylor(degree)
        values = {
            dtype: method.approximate(
                np.ones((len(PLACES), 1), dtype), np.ones((1, 1), dtype)
            ).low.block(slice(0, len(PLACES)), slice(0, 1), np.zeros(len(PLACES), dtype),
                        np.array(PLACES, dtype)[:, None])  # one logit a row
            for dtype in DTYPES
        }  # fmt: skip
        for i, x in enumerate(PLACES):
            true, exp = exactly(degree, x)
            rows.append((degree, "exact", x, "truncation", float(abs(true / exp - 1))))
            for dtype, rounded in values.items():
                error = abs(Decimal(float(rounded[i, 0])) - true) / exp
                rows.append((degree, dtype, x, "rounding", float(error)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw(table: pd.DataFrame) -> Figure:
    """Draw truncation (thick) and rounding (thin) against −x, a colour a degree."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.8))
        ax = figure.subplots()
        shades = colormaps["viridis"](np.linspace(0.05, 0.85, len(DEGREES)))
        for degree, shade in zip(DEGREES, shades):
            for dtype, line in LINES.items():
                part = table[(table.degree == degree) & (table.dtype == dtype)]
                exact = dtype == "exact"
                if not exact and degree != DEGREES[-1]:
                    continue  # it hardly depends on the degree
                ax.plot(
                    -part.x, part.value.where(part.value > FLOOR), color=shade,
                    linestyle=line, alpha=1 if exact else 0.8,
                    linewidth=2.2 if exact else 0.9,
                    marker="" if exact else ("." if dtype == "float64" else "x"), markersize=3,
                    label=tr("degree {degree}: truncation", degree=degree) if exact else
                    tr("degree {degree}: rounding, {dtype}", degree=degree, dtype=dtype),
                )  # fmt: skip
        size = np.array(PLACES)
        for dtype in DTYPES:
            eps = float(np.finfo(dtype).eps)
            ax.plot(-size, eps * np.exp(-2 * size), color="0.6", linewidth=0.8, linestyle="--")
        ax.set(
            yscale="log", ylim=(FLOOR, 1e4), xlim=(0, 24), xlabel="−x",
            ylabel=tr("error relative to $e^x$"),
        )  # fmt: skip
        _named(ax, table, shades)
    return figure


def _named(ax: Axes, table: pd.DataFrame, shades: Array) -> None:
    """Name truncation by its degree and rounding by its format, on the curves."""
    exact = table[table.dtype == "exact"]
    for degree, shade in zip(DEGREES, shades):
        part = exact[(exact.degree == degree) & (exact.value > 1e-9) & (exact.value < 1e-2)]
        row = part.iloc[(part.value - 1e-5).abs().argmin()]
        words = tr("truncation,\ndegree {degree}", degree=degree)
        style.Note(ax, words, (-row.x, row.value), color=shade)
    for dtype in DTYPES:
        part = table[(table.dtype == dtype) & (table.degree == DEGREES[-1]) & (table.value < 1)]
        row = part.iloc[(part.x + 7).abs().argmin()]
        style.Note(ax, tr("rounding, {dtype}", dtype=dtype), (-row.x, row.value))


def finding(table: pd.DataFrame) -> str:
    at = table.set_index(["degree", "dtype", "x"]).value
    top = max(DEGREES)
    return tr(
        "At x = −16 Taylor's polynomial of degree {top} is right to {exact:.1e}, float64 is off by "
        "{float64:.1e}.",
        top=top,
        exact=at[top, "exact", -16.0],
        float64=at[top, "float64", -16.0],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Relative to e^x: the error of the exact polynomial (thick), and what rounding adds "
        "(thin). Dashed: eps·e^{2|x|}."
    )
