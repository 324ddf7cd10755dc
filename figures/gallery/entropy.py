"""Error against the entropy of attention at equal budget: which class wins where."""

import dataclasses

import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile, varied
from analysis.inputs import Head
from analysis.inputs.statistics import temperature_at
from analysis.sweeps import sweep
from approx import Approximation
from approx.low_rank.godec import GoDec
from figures.drawing import style
from figures.show import optimality
from figures.words.translation import tr

TITLE = "Error against the entropy of attention at equal budget"
ORDER = 170
COLUMNS = (*sweep.COLUMNS, "entropy", "masked")
COUNT, SHARE = 256, 8  # rows at most; the budget is 1/8 of the values that exact attention stores
DELTA = 0.3
GRIDS = {
    "quick": (0.1, 0.5, 0.9),
    "default": (0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995, 0.999),
}
ERROR, TV = "attention_relative_frobenius", "attention_tv"
SPECS = (
    "uniform",
    "sliding_window",
    "top_k",
    "positive",
    "scatterbrain(low_rank=positive(), sparse=top_k())",
    "truncated_svd(space='attention')",
    "godec(rank=0, space='attention')",
    "godec(space='attention')",
)
FADED = "sliding_window", "top_k"
TICKS = (0.1, 0.9, 0.999)
FLOOR, CEILING = 1e-3, 10.0


def errors(approximation: Approximation, inputs: Head) -> dict[str, float]:
    """Return the errors of row-normalised attention."""
    compared = inputs.compare(approximation)
    return {name: compared[name] for name in (ERROR, TV)}


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors where attention has given mean row entropies (column entropy).

    They are over their largest values, the logarithms of how many keys a query sees.
    """
    inputs = varied(profile, COUNT)
    n, seed = inputs[0].n, profile.seed
    inputs[2:2] = [
        data.generative(n, inputs[0].d, DELTA, shared=shared, rng=seed) for shared in (True, False)
    ]
    grid = GRIDS[profile.grid]
    parts = []
    for x in inputs:
        at = {temperature_at(x, entropy): entropy for entropy in grid}
        swept = dataclasses.replace(profile, inputs=(x,)).sweep(
            SPECS,
            budget=x.mask.entries / x.n / SHARE,
            temperatures=tuple(at),
            measure=errors,
            label=x.name,
        )
        masked = not x.mask.is_full
        parts.append(swept.assign(entropy=swept.temperature.map(at), masked=masked))
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel an input, the error against entropy."""
    names = table.input.unique().tolist()
    columns = 3
    rows = -(-len(names) // columns)
    part, mask = table[table.metric == ERROR], optimality.mask(table)
    with style.style():
        figure, axes = style.panels(rows, columns)
        for ax, name in zip(axes.flat, names):
            one = part[part.input == name]
            for spec in style.order(one.method):
                middle = one[one.method == spec].groupby("entropy").value.median()
                look = style.look(spec) | {"label": optimality.label(spec, ERROR, mask)}
                ax.plot(middle.index, middle.clip(upper=1e300), **look)
            ax.set(xscale="logit", yscale="log", ylim=(FLOOR, CEILING), title=name)
            style.ticks(ax, TICKS)
        for ax in axes.flat[len(names) :]:
            ax.set_axis_off()
        for column in range(columns):
            last = max(i for i in range(column, len(names), columns))
            axes.flat[last].set_xlabel(tr("row entropy / its largest"))
            axes.flat[last].tick_params(labelbottom=True)
        for ax in axes[:, 0]:
            ax.set_ylabel(tr("relative error"))
        faded = [
            optimality.label(s, ERROR, mask) for s in part.method.unique() if s.startswith(FADED)
        ]
        style.legend(figure, list(axes.flat), columns=2, faded=faded)
    return figure


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median error over trials by (input, entropy), a column a family of methods."""
    part = table[table.metric == ERROR]
    keys = ["input", "entropy", "family"]
    return (
        part.assign(family=part.method.map(_family))
        .groupby(keys, sort=False)
        .value.median()
        .unstack()
    )


def _family(spec: str) -> str:
    match style.method_of(spec):
        case None:  # a matrix made of a method's
            return spec
        case GoDec(rank=0):
            return "largest"
        case method:
            return method.name


def finding(table: pd.DataFrame) -> str:
    wide = medians(table)
    cold = wide[wide["largest"] < wide["truncated_svd"]].reset_index()
    last = cold.groupby("input").entropy.max()
    if last.empty:
        return tr(
            "In relative Frobenius error truncated SVD beats the largest entries at all entropies "
            "shown."
        )
    return tr(
        "In relative Frobenius error the largest entries beat truncated SVD up to a row entropy of "
        "{span} of the largest.",
        span=style.range_of(last.min(), last.max()),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Relative Frobenius error of row-normalised attention at 1/{share} of the values that "
        "exact attention stores; medians over trials. Pale: needs all logits.",
        share=SHARE,
    )
