"""Rounding against truncation: the Taylor polynomial at x ≪ 0, in float32 and float64."""

from decimal import Decimal, localcontext

import numpy as np
import pandas as pd

from analysis.experiments.profile import Profile
from approx.polynomials.taylor import Taylor

COLUMNS = ("degree", "dtype", "x", "metric", "value")
DEGREES = (20, 33, 62)
PLACES = tuple(-x / 2 for x in range(1, 49))
DTYPES = ("float64", "float32")
DIGITS = 60  # e^{2·24} is 10^21: forty are left


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
