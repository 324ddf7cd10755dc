"""What r numbers of a query and of a key are worth before exp, and after it."""

import dataclasses

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile, with_causal
from analysis.sweeps import sweep
from figures.drawing import style
from figures.gallery.classes import causal_marked
from figures.words.translation import share_of, tr

TITLE = "Rank before exp against rank after exp"
ORDER = 400
COLUMNS = (*sweep.COLUMNS, "numbers", "spec", "causal")
METRIC = "attention_relative_frobenius"
MOST = {"quick": 96, "default": 512}  # rows: under a mask the best matrix of a rank takes long
NUMBERS = {"quick": (4, 16), "default": (1, 2, 4, 8, 16, 32)}
BEST = "logit_svd(rank={r})"
BEFORE = (BEST, "key_pca(rank={r})", "key_pca(rank={r}, centred=False)", "channels(r={r})")
ORACLE = "truncated_svd(rank={r}, space='attention')"
RUNNABLE = ("positive(m={r})", "coreset(rank={r})")
AFTER = (ORACLE, *RUNNABLE)
FLOOR, CEILING = 1e-3, 3.0


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at t = 1 of the profile's inputs and four causal heads, for each r ≤ d."""
    tables, known = [], with_causal(profile.inputs, MOST[profile.grid])
    for r in NUMBERS[profile.grid]:
        wide = tuple(x for x in known if x.d >= r and min(x.n, x.l) >= r)
        some = dataclasses.replace(profile, inputs=wide)
        for spec in (*BEFORE, *AFTER):
            table = some.sweep([spec.format(r=r)], temperatures=(1.0,), label=f"r = {r}")
            tables.append(table.assign(numbers=r, spec=spec))
    return causal_marked(tables, known)


def by_spec(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return mean errors over draws: a row per head and r, a column per method."""
    part = table[table.metric == metric]
    keys = ["causal", "input", "layer", "head", "numbers"]
    return part.pivot_table("value", keys, "spec", aggfunc="mean")


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel per head, full heads first: error against the numbers that are kept."""
    groups = list(by_spec(table, METRIC).groupby(["causal", "input", "layer", "head"], sort=False))
    with style.style():
        x, y = tr("numbers r of a key"), tr("relative Frobenius error")
        figure, axes = style.heads(len(groups), x, y)
        for ax, ((causal, name, *_), part) in zip(axes, groups):
            for spec in (*BEFORE, *AFTER):
                values = part[spec].droplevel([0, 1, 2, 3]).clip(FLOOR, CEILING)
                line = "-" if spec in BEFORE else "--"
                look = style.look(spec.format(r=1)) | {"linestyle": line}
                ax.plot(values.index, values, **look, markersize=4)
            ax.set(xscale="log", yscale="log", ylim=(FLOOR, CEILING))
            ax.set_title(tr("{name}, causal", name=name) if causal else str(name), fontsize=8)
            style.ticks(ax, sorted(table.numbers.unique()))
        style.legend(figure, axes, columns=3, faded=[style.label(BEFORE[2].format(r=1))])
    return figure


def finding(table: pd.DataFrame) -> str:
    errors = by_spec(table, METRIC)
    r = max(r for r in table.numbers.unique() if r <= 16)
    at = errors.xs(r, level="numbers")
    return tr(
        "With {r} numbers per key, exp of the best logits has less Frobenius error than the best "
        "matrix found on {share}.",
        r=int(r),
        share=share_of(at[BEST] < at[ORACLE]),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Row-normalised attention at t = 1. Solid: exp of logits of rank r. Dashed: factors of "
        "rank r after exp."
    )
