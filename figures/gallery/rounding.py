"""Rounding against truncation: the Taylor polynomial at x ≪ 0, in float32 and float64."""

from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from approx.polynomials.taylor import Taylor
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "Rounding against truncation"
ORDER = 350
COLUMNS = ("degree", "dtype", "x", "metric", "value")
DEGREES = (20, 33, 62)
PLACES = tuple(-x / 2 for x in range(1, 49))
DTYPES = ("float64", "float32")
DIGITS = 60  # of which e^{2·24} = 10^21 costs some twenty
FLOOR = 1e-18


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
    """Draw truncation (a colour a degree) and rounding, of the highest degree, against −x."""
    figure, (ax,) = style.row(1, 3.8)
    errors = table[table.value > FLOOR].groupby(["degree", "dtype"])
    for degree, shade in zip(DEGREES, looks.PALETTE):
        part = errors.get_group((degree, "exact"))
        what = tr("truncation at degree {degree}", degree=degree)
        ax.plot(-part.x, part.value, color=shade, linewidth=2.2, label=what)
    for dtype, line in zip(DTYPES, ("-", ":")):
        part = errors.get_group((DEGREES[-1], dtype))  # it hardly depends on the degree
        what = tr("rounding in {dtype}", dtype=dtype)
        ax.plot(-part.x, part.value, color="0.3", linestyle=line, label=what)
    ax.set(
        yscale="log", ylim=(FLOOR, 1e4), xlim=(0, 24), xlabel=tr("|x|, for negative x"),
        ylabel=tr("error relative to $e^x$"),
    )  # fmt: skip
    style.legend(figure, ax)
    return figure


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
        "Relative to e^x: the error of the exact polynomial (thick), and what rounding adds at "
        "degree {top} (thin).",
        top=max(DEGREES),
    )
