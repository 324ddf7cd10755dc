"""Every support with every low-rank map, at one budget, against its two parts alone."""

import dataclasses

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile, varied
from analysis.sweeps import sweep
from figures.drawing import style
from figures.gallery.entropy import ERROR, errors
from figures.words.translation import mark, tr

TITLE = "Scatterbrain of every support and every map"
ORDER = 230
COLUMNS = (*sweep.COLUMNS, "support", "low_rank")
SUPPORTS = {
    "sliding_window": mark("window"),
    "chunk": mark("chunks"),
    "strided": mark("strides"),
    "random": mark("random keys"),
    "lsh(rounds=8)": "LSH",
    "smyrf(rounds=4)": "SMYRF",
    "reformer(rounds=2)": "Reformer",
    "threshold": mark("threshold*"),
    "top_k": mark("top-k*"),
}
MAPS = {
    "uniform": mark("uniform*"),
    "positive": "Performer",
    "positive(projection='orthogonal')": mark("orthogonal"),
    "generalized_exponential": "FAVOR++",
    "trigonometric": mark("Fourier"),
    "truncated_svd": "SVD*",
}
NOTHING = "nothing"
COUNT = 256
TEMPERATURES = {"quick": (1.0,), "default": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}


def compute(profile: Profile) -> pd.DataFrame:
    """Return the error of row-normalised attention of supports, maps, and all pairs of them.

    Columns ``support``, ``low_rank``: "nothing" where the other is alone at the whole budget.
    Metric gain, of a pair: the median error of the better of its two parts alone over its own.
    """
    small = profile.draws <= 200
    inputs = varied(profile, COUNT)
    inputs = inputs[:1] + inputs[-1:] if small else inputs
    fewer = dataclasses.replace(
        profile, inputs=tuple(inputs), trials=min(profile.trials, 3),
        temperatures=TEMPERATURES["quick" if small else "default"],
    )  # fmt: skip
    parts = []
    for support in (NOTHING, *SUPPORTS):
        for low in (NOTHING, *MAPS):
            if support != low:
                spec = _spec(support, low)
                swept = fewer.sweep(
                    [spec], budget=profile.budget, currency=profile.currency, measure=errors,
                    label=spec,
                )  # fmt: skip
                parts.append(swept[swept.metric == ERROR].assign(support=support, low_rank=low))
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    gains = _gains(table).reindex(columns=table.columns)
    return pd.concat([table, gains], ignore_index=True)


def _spec(support: str, low: str) -> str:
    if NOTHING in (support, low):
        return low if support == NOTHING else support
    return f"scatterbrain(low_rank={low}, sparse={support})"


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    keys = ["input", "layer", "head", "n", "l", "d", "temperature", "budget"]
    middle = table.groupby([*keys, "support", "low_rank"], sort=False).value.median().reset_index()
    pairs = middle[(middle.support != NOTHING) & (middle.low_rank != NOTHING)]
    for part in ("support", "low_rank"):
        other = "low_rank" if part == "support" else "support"
        alone = middle[middle[other] == NOTHING].drop(columns=other)
        pairs = pairs.merge(alone, on=[*keys, part], suffixes=("", f"_{part}"))
    better = pairs[["value_support", "value_low_rank"]].min(axis=1)
    method = [_spec(support, low) for support, low in zip(pairs.support, pairs.low_rank)]
    return pairs.assign(
        value=better / pairs.value, method=method, metric="gain", trial=-1, stderr=np.nan
    )


def draw(table: pd.DataFrame) -> Figure:
    """Draw the largest gain of each pair over temperature, and where; one panel an input."""
    gains = table[table.metric == "gain"]
    names = gains.input.unique().tolist()
    with style.style():
        columns = min(2, len(names))
        lines = -(-len(names) // columns)
        figure = Figure(figsize=(7.0, 2.3 * lines + 0.5))
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for ax in list(axes.flat)[len(names) :]:
            ax.set_visible(False)
        norm = TwoSlopeNorm(1.0, 0.5, 2.0)
        label = tr("× below the better part alone, at its best temperature")
        for ax, name in zip(axes.flat, names):
            best = _best(gains[gains.input == name])
            for _, row in best.iterrows():
                i, j = list(SUPPORTS).index(row.support), list(MAPS).index(row.low_rank)
                text = f"{row.value:.2f} @{row.temperature:g}"
                dark = not 0.62 < row.value < 1.7
                ax.text(j, i, text, ha="center", va="center", fontsize=5.4,
                        color="white" if dark else "black")  # fmt: skip
            wide = best.pivot(index="support", columns="low_rank", values="value")
            wide = wide.reindex(index=list(SUPPORTS), columns=list(MAPS))
            maps, supports = ([tr(x) for x in of.values()] for of in (MAPS, SUPPORTS))
            image = ax.imshow(wide, cmap="RdBu", norm=norm, aspect="auto", alpha=0.75)
            ax.set_title(name)
            ax.set_xticks(range(len(MAPS)), maps, fontsize=6.5, rotation=20)
            ax.set_yticks(range(len(SUPPORTS)), supports, fontsize=6.5)
            ax.tick_params(length=0, labelbottom=ax in axes[-1] or ax in axes[-2])
            ax.grid(False)
        bar = figure.colorbar(
            image, ax=axes, location="bottom", fraction=0.02, aspect=50, extend="both"
        )
        bar.set_label(label)
    return figure


def _best(gains: pd.DataFrame) -> pd.DataFrame:
    """Return, of every pair, the largest gain and its temperature."""
    return gains.loc[gains.groupby(["support", "low_rank"], sort=False).value.idxmax()]


def finding(table: pd.DataFrame) -> str:
    gains = table[table.metric == "gain"]
    runnable = gains[_runnable(gains)]
    return tr(
        "{share:.0%} of the pairs of support and map beat both parts; of those that can be "
        "run, {runnable:.0%}.",
        share=(gains.value > 1).mean(),
        runnable=(runnable.value > 1).mean(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Factor gained over the better part alone at the whole budget, at the temperature "
        "(@) where it is largest. Asterisk: needs all logits."
    )


def _runnable(table: pd.DataFrame) -> pd.Series:
    """Return where no part needs the whole matrix."""
    seeing = table.support.isin(["top_k", "threshold"])
    return ~(seeing | table.low_rank.isin(["uniform", "truncated_svd"]))
