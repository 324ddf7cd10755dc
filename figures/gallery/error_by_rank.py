"""Error of exp(q·k) and of normalised attention against rank, for every family."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.moments import expected_error
from analysis.ranks import rank
from analysis.sweeps.table import Row, head, numbers
from approx import Approximation, parse
from approx.checks import required
from approx.low_rank.godec import GoDec
from approx.low_rank.truncated_svd import TruncatedSVD
from approx.method import FROBENIUS
from figures.drawing import looks, style
from figures.words import amounts
from figures.words.translation import mark, tr

TITLE = "Error against rank"
ORDER = 25
COUNT, ENTRIES = 256, 8  # queries and keys; entries of the sparse part, per query
RANKS = {"quick": (4, 16, 64), "default": (2, 4, 8, 16, 32, 64, 128)}
WIDE = 256, 1024, 4096  # features, more than which no matrix of this size has use for
DEGREES = 0, 1, 2, 3  # of polynomials; (1 + x/n)^n has none of degree 0
RANDOM = "positive", "trigonometric"
POLYNOMIALS = {"taylor": mark("truncated Taylor"), "tensor_power": mark("(1 + x/n)ⁿ")}
REFERENCES = "godec", "truncated_svd"  # which see all logits
COMPARED = "truncated_svd", "positive", "scatterbrain"
SHOWN = 64  # the rank of the title, or the next below
EXPECTED = "expected_kernel_relative_frobenius"
FLOOR, CEILINGS = 1e-3, {"kernel": 1e8, "attention": 1e2}


def _measure(approximation: Approximation, inputs: Head) -> dict[str, float]:
    errors = inputs.compare(approximation)
    shown = {name: errors[name] for name in FROBENIUS.values() if name in errors}
    return shown | {"rank": float(approximation.rank)}


def _expected(x: Head, spec: str) -> list[Row]:
    error = required(expected_error(parse(spec), x.Q, x.K, mask=x.mask))
    return numbers(head(x, parse(spec)), **{EXPECTED: error})


def _least(x: Head, space: str) -> list[Row]:
    """Return the error of the best matrix of each rank, by Eckart and Young."""
    squares = np.square(rank.exact_singular_values(x, space))
    left = np.sqrt(np.maximum(squares[::-1].cumsum()[::-1] / squares.sum(), 0.0))
    rows = []
    for r, error in enumerate(left[1:], start=1):
        at = head(x, TruncatedSVD(r, space))
        rows += numbers(at, **{FROBENIUS[space]: error, "rank": r})
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors and rank of each family at t = 1, of the first queries of the main input.

    expected_kernel_relative_frobenius is the root mean square over draws, in closed form. A
    decomposition is measured in its own space. The truncated SVD is the best matrix of its rank as
    it is, before its rows are divided by their sums.
    """
    x = profile.main.first(COUNT).at_temperature(1.0)
    k, most = min(ENTRIES, x.l // 8 + 1), min(x.n, x.l)
    ranks = [r for r in RANKS[profile.grid] if r < most]
    random = [f"{name}(m={m})" for name in RANDOM for m in (*ranks, *WIDE)]
    random += [f"scatterbrain(low_rank=positive(m={r}), sparse=top_k(k={k}))" for r in ranks]
    specs = ["uniform()", *random]
    specs += [f"godec(rank={r}, k={k}, space={s!r})" for r in ranks for s in FROBENIUS]
    specs += [f"taylor({p})" for p in DEGREES] + [f"tensor_power({p})" for p in DEGREES if p]
    table = profile.sweep(
        specs, inputs=(x,), temperatures=(1.0,), measure=_measure, label="errors by rank"
    )
    expected = profile.study(_expected, [(x, spec) for spec in random], "expected errors")
    least = profile.study(_least, [(x, space) for space in FROBENIUS], "singular values")
    return pd.concat([table, expected, least], ignore_index=True)


def _curves(table: pd.DataFrame, space: str) -> pd.DataFrame:
    """Return family, rank and error of each method: expected, or the median over draws."""
    methods, decomposed = map(looks.method_of, table.method), (GoDec, TruncatedSVD)
    own = table[[not isinstance(x, decomposed) or x.space == space for x in methods]]
    wide = own.pivot_table("value", ["method", "trial"], "metric", sort=False)
    wide = wide.groupby("method", sort=False).median()
    errors = wide[FROBENIUS[space]]
    if space == "kernel":
        errors = wide[EXPECTED].fillna(errors)
    names = [method.name for method in map(looks.method_of, wide.index) if method is not None]
    return wide.assign(family=names, error=errors)[["family", "rank", "error"]]


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error of exp(q·k) on the left, and that of normalised attention on the right."""
    names = {"kernel": "exp(q·k)", "attention": tr("row-normalised attention")}
    most, n = 1.0, min(table.n.iloc[0], table.l.iloc[0])
    figure, axes = style.row(2, 2.9, sharex=True)
    for ax, (space, title) in zip(axes, names.items()):
        curves, top = _curves(table, space), ax.get_xaxis_transform()
        ceiling = CEILINGS[space]
        for family in curves.family.unique():
            ordered = curves[curves.family == family].sort_values("rank")
            values = ordered.set_index("rank").error
            look = looks.look(ordered.index[0])
            if family in REFERENCES:
                ax.plot(values.index, values, **look | looks.PALE)
                continue
            if family == "uniform":
                ax.axhline(values.iloc[0], **look)
                continue
            if family in POLYNOMIALS:
                look |= {"linestyle": "", "label": tr(POLYNOMIALS[family])}
                if family == "tensor_power":  # around the other where both are alike
                    look |= {"markerfacecolor": "none", "markersize": 6.5}
            style.beyond(ax, values, (FLOOR, ceiling), color=look["color"])
            ax.plot(values.index, values.where(values.between(FLOOR, ceiling)), **look)
        left = 0.0
        for width, degree in zip(_widths(curves), DEGREES):
            if width < 3 * left:  # its name would cover the last
                continue
            left = width
            ax.annotate(
                f"$N={degree}$", (width, 1.0), (0, -2), ha="center", va="top", xycoords=top,
                textcoords="offset points", size=style.SMALL,
            )  # fmt: skip
        most = max(most, curves["rank"].max())
        ax.axvline(n, color="0.4", linewidth=0.8, linestyle=":")
        ax.annotate(f"$n={n}$", (n, 0.0), (2, 2), xycoords=top, textcoords="offset points",
                    size=style.SMALL)  # fmt: skip
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(0.5, 2.0 * most),
            ylim=(FLOOR / 1.4, ceiling * (ceiling / FLOOR) ** 0.15),
            title=title,
        )
        ax.minorticks_off()
        ax.set_xlabel(tr("rank: columns of the factors"))
    axes[0].set_ylabel(tr("relative Frobenius error"))
    style.legend(figure, axes)
    return figure


def _widths(curves: pd.DataFrame) -> list[float]:
    return sorted(curves[curves.family == "taylor"]["rank"])


def finding(table: pd.DataFrame) -> str:
    curves = _curves(table, "attention")
    shown = curves[curves["rank"] <= SHOWN]
    common = set.intersection(*(set(shown[shown.family == name]["rank"]) for name in COMPARED))
    if not common:
        return tr("No rank of this figure is below the number of queries and keys.")
    at = shown[shown["rank"] == max(common)].set_index("family").error
    return tr(
        "At rank {r} on {name}, attention's error is {svd:.2g} for the best matrix, "
        "{positive:.2g} for positive features, {scatterbrain:.2g} for Scatterbrain with {k} "
        "entries per query.",
        r=int(max(common)),
        name=table.input.iloc[0],
        k=_entries(table),
        svd=at["truncated_svd"],
        positive=at["positive"],
        scatterbrain=at["scatterbrain"],
    )


def _entries(table: pd.DataFrame) -> int:
    """Return the entries per query of the sparse parts."""
    return next(int(m.k or 0) for m in map(looks.method_of, table.method) if isinstance(m, GoDec))


def caption(table: pd.DataFrame) -> str:
    return tr(
        "{n} queries and keys, t = 1. Left: in expectation; right: medians. N: degree; pale: from "
        "the whole matrix.",
        n=amounts.span([*table.n, *table.l]),
    )
