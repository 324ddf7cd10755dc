"""Predictions of theory beside measurements: ranks, degrees, bias and variance."""

import math

import numpy as np
import pandas as pd
from scipy.special import ndtri

from analysis.experiments import rational
from figures.gallery import moments
from figures.report import tables
from figures.words import numbers
from figures.words.amounts import range_of
from figures.words.translation import mark, share, share_of, tr

CHANCE = 0.01  # that the largest |z| exceeds its limit although all theory holds
SHOWN = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)  # temperatures of the table of ranks


def least(table: pd.DataFrame) -> str:
    """Return how often a method without variance is nearest, and an unbiased one of no use."""
    wide = tables.decomposed(table)
    paid = wide[wide.budget > 0]
    nearest = paid.loc[paid.groupby("input", sort=False).total.idxmin()]
    # closed forms only: a sampled bias of 0 only means that it is below the noise
    unbiased = wide[(wide.log_squared_bias == -np.inf) & (wide.closed_form == 1.0)]
    return tr(
        "Among the methods that fit the budget, the least expected squared error belongs to one "
        "without variance on {nearest}; the errors of {worse} exceed 1, the error of the zero "
        "matrix.",
        nearest=share_of(np.isneginf(nearest.log_variance)),
        worse=share_of(unbiased.total > 0, mark("unbiased estimates")),
    )


def bounded(ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the ε-rank and its bound by the best polynomial, at each input and temperature."""
    keys = ["input", "n", "l", "d", "temperature"]
    return ranks.pivot_table("value", keys, "method", sort=False).reset_index()


def rank_table(ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `bounded`, a row an input."""
    wide = ranks[ranks.temperature.isin(SHOWN)]
    rows = []
    for (name, d), part in wide.groupby(["input", "d"], sort=False):
        cells = {
            f"t = {row.temperature:g}": numbers.unbroken(f"{row.exact:.0f} ≤ {row.minimax:.0f}")
            for row in part.sort_values("temperature").itertuples()
        }
        rows.append({tr("input"): name, "d": str(d), **cells})
    return pd.DataFrame(rows)


def comparison(computed: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the prediction of each quantity, its measurement, and where they part.

    Parameters
    ----------
    computed : dict of DataFrame
        rational, polynomial_rank, moments.
    """
    rows = [
        _degree(computed["rational"]),
        _rank(computed["polynomial_rank"]),
        *_moments(computed["moments"]),
    ]
    return pd.DataFrame(
        rows, columns=[tr("quantity"), tr("theory"), tr("measured"), tr("where it ends")]
    )


def _degree(table: pd.DataFrame) -> tuple[str, ...]:
    at = table.set_index(["interval", "method", "degree"]).value.sort_index()
    polynomial = at["interval", "minimax"] / at["interval", "bessel_tail"]
    best = at["half_line", "best"] / at["half_line", "halphen"]
    return (
        tr("error at degree N"),
        tr("Bessel tail; {line}", line="$2\\cdot9.28903^{-N-1/2}$"),
        tr(
            "best polynomial: {least:.2f} to {most:.2f} of the tail; best rational: {low:.2f} to "
            "{high:.2f} of the line",
            least=polynomial.min(),
            most=polynomial.max(),
            low=best.min(),
            high=best.max(),
        ),
        tr("for B = {b:g}; the errors are over the largest entry", b=rational.B),
    )


def _rank(table: pd.DataFrame) -> tuple[str, ...]:
    wide = bounded(table)
    held, low = wide.exact <= wide.minimax, wide.minimax < wide[["n", "l"]].min(axis=1)
    cases = mark("cases")
    return (
        tr("rank"),
        tr("ε-rank ≤ {width}", width=r"$\binom{d+N}{N}$"),
        tr("it holds in {share}", share=share_of(held, cases)),
        tr("the bound is below n and l in {share}", share=share_of(low, cases)),
    )


def _moments(table: pd.DataFrame) -> list[tuple[str, ...]]:
    wide = table.pivot_table(
        "value", ["input", "method", "temperature"], "metric", sort=False
    ).reset_index()
    nothing = tr("no draw is reliable")
    if "believable" not in wide:
        return [(tr(name), tr("closed form"), nothing, "–") for name in ("bias", "variance")]
    drawn = wide[wide.believable.notna()]
    sure = drawn[drawn.believable == 1.0]
    z = moments.z_scores(table)
    ratio = sure.sampled_variance / np.exp(sure.log_relative_variance)
    with np.errstate(divide="ignore"):
        hidden = np.log(drawn.sampled_variance) - drawn.log_relative_variance
    few = share(len(drawn) - len(sure), len(drawn), mark("samples"))
    worst = float(hidden[np.isfinite(hidden)].min())
    return [
        (
            tr("bias"),
            tr("closed form; 0 for random features"),
            tr(
                "|z| is at most {z:.1f} (reliable samples: {count}); chance alone exceeds "
                "{limit:.1f} in at most {chance} of cases",
                z=z.max(),
                count=len(z),
                limit=_limit(len(z)),
                chance=numbers.spaced_percent(CHANCE),
            )
            if len(z)
            else nothing,
            tr("no statement on {few}: too few draws", few=few),
        ),
        (
            tr("variance"),
            tr("closed form, such as {one}", one=r"$(e^{\lVert q+k\rVert^2}-1)/m$"),
            tr("{ratio} of it where reliable", ratio=range_of(ratio.min(), ratio.max()))
            if len(ratio)
            else nothing,
            tr(
                "elsewhere the draws show as little as {share} of it",
                share=numbers.formula_power(math.exp(max(worst, -700.0)), worst),
            ),
        ),
    ]


def _limit(count: int) -> float:
    """Return the limit that the largest of so many |z| exceeds with probability ≤ CHANCE."""
    return float(ndtri(1 - CHANCE / (2 * count)))


def agreement(table: pd.DataFrame) -> str:
    """Return whether the samples of one entry contradict its bias in closed form."""
    z = moments.z_scores(table)
    if not len(z):
        return tr("No sample here is good enough to test a closed form.")
    if z.max() <= _limit(len(z)):
        return tr("Where a sample can test a closed form, nothing measured contradicts it.")
    return tr(
        "The largest |z| exceeds what chance allows: read its row before you trust either side."
    )
