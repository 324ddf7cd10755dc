"""Scatterbrain against what sparse + low-rank could do: the split at its budget, Robust PCA."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis import sweep
from analysis.describe import temperature_at
from analysis.inputs import Inputs
from analysis.metrics import compare
from analysis.seeds import seed_sequence
from approx import parse
from approx.approximation import Approximation
from approx.low_rank import target
from approx.low_rank.godec import godec
from approx.low_rank.robust_pca import RobustPCA
from approx.low_rank.subspace import leading
from figures import style
from figures.gallery.entropy import ERROR, medians
from figures.language import mark, tr
from figures.profile import Profile, Row, first

TITLE = "Scatterbrain, Robust PCA and the split at equal budget"
COLUMNS = (*sweep.COLUMNS, "entropy")
COUNT, D, SHARE, DELTA = 256, 64, 8, 0.3
GRIDS = {
    "quick": (0.5, 0.95),
    "default": (0.2, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99, 0.997),
}
FRACTIONS = (0.125, 0.25, 0.5, 0.75, 0.875)  # of the budget, for factors
AT_BUDGET = (
    "uniform",
    "scatterbrain(low_rank=positive(), sparse=top_k())",
    "truncated_svd(space='attention')",
    "godec(rank=0, space='attention')",
    "godec(space='attention')",
)
PURSUIT = "robust_pca(space='attention')"
CUT = "robust_pca, cut to the budget"
LOOK = {"label": mark("Robust PCA, cut to the budget"), "color": style.PALETTE[8], "marker": "P"}
TICKS = (0.5, 0.9, 0.99)
FLOOR, CEILING = 1e-3, 5.0


class _Task(NamedTuple):
    inputs: Inputs
    entropy: float
    trials: int
    seed: int


def _rows(task: _Task) -> list[Row]:
    x = task.inputs.at_temperature(temperature_at(task.inputs, task.entropy))
    budget, rows = x.l / SHARE, list[Row]()

    def add(spec: str, trial: int, found: Approximation) -> None:
        head = (x.name, x.layer, x.head, x.n, x.l, x.d, x.temperature, spec, budget, trial)
        values = {
            ERROR: compare(found, x.Q, x.K, causal=x.causal)[ERROR],
            "rank": float(found.rank),
            "nnz": float(found.nnz),
            "share": found.parameters / (x.n * x.l),
        }
        rows.extend((*head, name, value, np.nan, task.entropy) for name, value in values.items())

    for spec in AT_BUDGET:
        method = parse(spec).within(budget, n=x.n, l=x.l, d=x.d)
        if method is None:
            continue
        for trial in range(task.trials) if method.uses_rng else (-1,):
            seed = seed_sequence(task.seed, x.digest(), str(method), trial)
            found = method.approximate(x.Q, x.K, rng=np.random.default_rng(seed))
            add(str(method), trial, found)
    pursuit = RobustPCA(space="attention").approximate(x.Q, x.K)
    add(PURSUIT, -1, pursuit)
    add(CUT, -1, cut(x, pursuit, budget))
    return rows


def cut(x: Inputs, pursuit: Approximation, budget: float) -> Approximation:
    """Return the low-rank part of Robust PCA cut to a rank, and the largest entries beside it.

    min over r of ‖D − SVD_r(L) − S‖_F with S the largest entries of D − SVD_r(L) that the budget
    leaves room for.
    """
    D, _ = target.matrix(x.Q, x.K, "attention")
    left, right = pursuit.factors()
    L = np.asarray(left @ right.T, np.float64)
    column = (x.n + x.l) / x.n
    parts = []
    for r in sorted({max(1, round(share * budget / column)) for share in FRACTIONS}):
        if r * column <= budget:
            U, s, V = leading(L, r)
            entries = godec(D - (U * s) @ V.T, 0, budget - r * column)
            parts.append((entries.objective, U * s, V, entries.sparse))
    _, U, V, S = min(parts, key=lambda part: part[0])
    return target.approximation(U, V, S, 0.0, np.dtype(np.float64), "attention")


def kinds(profile: Profile) -> list[Inputs]:
    """Return Gaussian, generative and clustered inputs, then the profile's heads but the first."""
    n, seed = min(COUNT, max(x.n for x in profile.inputs)), profile.seed
    made = [
        data.gaussian(n, D, rng=seed),
        data.generative(n, D, DELTA, shared=False, rng=seed),
        data.clustered(n, D, shared=True, rng=seed),
    ]
    known = {x.name for x in made}
    return made + [first(x, n) for x in profile.inputs if x.name not in known][-2:]


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at a budget of l/8 values a row, and the price that Robust PCA chooses.

    Metrics: the error of row-normalised attention; rank, nnz; share, the stored values over those
    of the exact matrix. Column entropy: of exact attention, over ln l.
    """
    grid = GRIDS[profile.grid]
    tasks = [_Task(x, h, profile.trials, profile.seed) for x in kinds(profile) for h in grid]
    return profile.study(_rows, tasks, "oracles", COLUMNS)


def _look(spec: str) -> dict[str, Any]:
    return (
        LOOK | {"label": tr(LOOK["label"]), "linestyle": "--"} if spec == CUT else style.look(spec)
    )


def draw(table: pd.DataFrame) -> Figure:
    """Draw one column of panels an input: error at the budget; stored values of Robust PCA."""
    names = table.input.unique().tolist()
    with style.style():
        figure, _ = style.panels(1, 1, height=3.6)
        figure.clear()
        axes = figure.subplots(2, len(names), sharex=True, sharey="row", height_ratios=[1.6, 1])
        for (above, below), name in zip(axes.T, names):
            part = table[table.input == name]
            errors = part[(part.metric == ERROR) & (part.method != PURSUIT)]
            for spec in [*style.order(errors.method[errors.method != CUT]), CUT]:
                middle = errors[errors.method == spec].groupby("entropy").value.median()
                above.plot(middle.index, middle.clip(upper=1e300), **_look(spec))
            share = part[(part.metric == "share") & (part.method == PURSUIT)]
            look = style.look(PURSUIT) | {"linestyle": "-"}
            below.plot(share.entropy, share.value, **look)
            below.axhline(1.0, color="black", linewidth=0.8)
            below.axhline(1 / SHARE, color="0.5", linewidth=0.8)
            above.set(yscale="log", ylim=(FLOOR, CEILING), title=name)
            below.set(xscale="logit", ylim=(0.0, None), xlabel=tr("row entropy / ln l"))
            below.set_xticks(TICKS, [f"{t:g}" for t in TICKS])
            below.minorticks_off()
        axes[0, 0].set_ylabel(tr("relative error"))
        axes[1, 0].set_ylabel(tr("stored values / n·l"))
        style.legend(figure, list(axes.flat))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    wide = medians(table)
    scatter = (wide["scatterbrain"] / wide["godec"]).groupby("input", sort=False)
    times = tr(", ").join(
        tr(
            "{name} {least:.2g} and {middle:.2g}×",
            name=name,
            least=least,
            middle=middle,
        )
        for name, least, middle in zip(scatter.min().index, scatter.min(), scatter.median())
    )
    ratio = wide[CUT] / wide["godec"]
    pursuit = table[table.method == PURSUIT].groupby("metric").value
    low, high = pursuit.min(), pursuit.max()
    own = table[(table.method == PURSUIT) & (table.metric == "share")].value
    return tr(
        "Above: relative Frobenius error of row-normalised attention at {budget:g} stored "
        "values a query row, l = {l}, against the mean row entropy over ln l; medians over "
        "trials. Scatterbrain is above the best found split of the same budget by, at "
        "least and in the median: {times}. Robust PCA by principal component pursuit (λ = "
        "1/√l) has no budget; below, what it stores over the n·l of exact attention: "
        "{share:.2g} to {most_share:.2g}, more than exact attention in {dearer} of "
        "{places} places, at rank {rank:.0f} to {most_rank:.0f}. Its error is then at most "
        "{high:.1g}. Cut to the budget, its low-rank part and the largest entries beside "
        "it are from {least_ratio:.2f} to {most_ratio:.2f} times the error of the split: "
        "better in {better} of {cells} places. Grey line: the budget.",
        budget=table.budget.iloc[0],
        l=int(table.l.max()),
        times=times,
        share=low["share"],
        most_share=high["share"],
        dearer=int((own > 1).sum()),
        places=len(own),
        rank=low["rank"],
        most_rank=high["rank"],
        high=high[ERROR],
        least_ratio=ratio.min(),
        most_ratio=ratio.max(),
        better=int((ratio < 1).sum()),
        cells=len(ratio),
    )
