"""The best of each class of estimates at equal price, of full and of causal heads."""

import dataclasses
from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile, with_causal
from analysis.inputs import Head
from analysis.sweeps import sweep
from figures.drawing import style
from figures.words.translation import mark, share_of, tr

TITLE = "The best of each class at equal price"
ORDER = 200
COLUMNS = (*sweep.COLUMNS, "kind", "causal")
METRIC = "attention_relative_frobenius"
MOST = {"quick": 128, "default": 512}  # rows: every head is decomposed at every budget
BUDGETS = {"quick": (8.0, 32.0), "default": (8.0, 16.0, 32.0, 64.0)}
LEAVES = 4, 8, 16
FLOOR, CEILING = 1e-4, 2.0


@dataclasses.dataclass(frozen=True)
class Class:
    """Methods of one kind, and how the best of them is drawn."""

    label: str
    specs: tuple[str, ...]
    colour: str
    line: str
    marker: str


CLASSES = (
    Class(mark("window and first key"), ("sink_window()", "sliding_window()"), style.PALETTE[7],
          "-", "s"),
    Class(mark("hierarchical, can be run"),
          tuple(f"hierarchical(leaf={leaf}, basis='{basis}', sinks=1)"
                for basis in ("mean", "pivots") for leaf in LEAVES),
          style.PALETTE[0], "-", "o"),
    Class(mark("columns of most attention"),
          ("columns()", "columns(recent=4)", "columns(recent=8)"), style.PALETTE[1], "--", "P"),
    Class(mark("low rank (SVD)"), ("truncated_svd(space='attention')",), style.PALETTE[2],
          "--", "v"),
    Class(mark("largest entries"), ("top_k()", "godec(rank=0, space='attention')"),
          style.PALETTE[6], "--", "^"),
    Class(mark("sparse + low rank (GoDec)"), ("godec(space='attention')",), "black",
          "--", "D"),
    Class(mark("hierarchical (SVD)"),
          tuple(f"hierarchical(leaf={leaf}, space='attention')" for leaf in LEAVES),
          style.PALETTE[4], "--", "o"),
)  # fmt: skip
HIERARCHICAL, LOW_RANK, ENTRIES = CLASSES[6], CLASSES[3], CLASSES[4]


def compute(profile: Profile) -> pd.DataFrame:
    """Return every error at t = 1, of the profile's inputs and four causal heads, by budget."""
    some = dataclasses.replace(
        profile, inputs=tuple(with_causal(profile.inputs, MOST[profile.grid]))
    )
    tables = [
        some.sweep(one.specs, budget=budget, temperatures=(1.0,), label=one.label).assign(
            kind=one.label
        )
        for one in CLASSES
        for budget in BUDGETS[profile.grid]
    ]
    return causal_marked(tables, some.inputs)


def causal_marked(tables: Iterable[pd.DataFrame], heads: Iterable[Head]) -> pd.DataFrame:
    """Return tables as one, which says of each row whether its head looks back.

    A table may be empty: small budgets have no member of some classes.
    """
    looks_back = {(x.name, x.layer, x.head): x.mask.looks_back for x in heads}
    table = pd.concat([table for table in tables if len(table)], ignore_index=True)
    places = zip(table.input, table.layer, table["head"])
    return table.assign(causal=[looks_back[place] for place in places])


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the least error of each class: a row per head and budget, a column per class."""
    part = table[table.metric == METRIC]
    keys = ["causal", "input", "layer", "head", "budget"]
    return part.pivot_table("value", keys, "kind", aggfunc="min")


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel per head, full heads first: the best of each class against the budget."""
    wide = best(table)
    groups = list(wide.groupby(["causal", "input", "layer", "head"], sort=False))
    with style.style():
        x = style.lines(tr("stored values per query row"), 14)
        figure, axes = style.heads(len(groups), x, tr("relative Frobenius error"))
        for ax, ((causal, name, *_), part) in zip(axes, groups):
            for one in CLASSES:
                if one.label not in part:
                    continue
                values = part[one.label].droplevel([0, 1, 2, 3]).clip(FLOOR, 1e300)
                ax.plot(
                    values.index, values, label=tr(one.label), color=one.colour,
                    linestyle=one.line, marker=one.marker, markersize=4,
                )  # fmt: skip
            ax.set(xscale="log", yscale="log", ylim=(FLOOR, CEILING))
            ax.set_title(tr("{name}, causal", name=name) if causal else str(name), fontsize=8)
            style.ticks(ax, sorted(table.budget.unique()))
        style.legend(figure, axes, columns=3, faded=[tr(CLASSES[2].label)])
    return figure


def finding(table: pd.DataFrame) -> str:
    budget = max(b for b in table.budget.unique() if b <= 32)
    at = best(table).xs(budget, level="budget")
    causal = at[at.index.get_level_values("causal")]
    return tr(
        "At {budget:g} values, hierarchical low rank beats low rank on {share}.",
        budget=budget,
        share=share_of(causal[HIERARCHICAL.label] < causal[LOW_RANK.label], mark("causal heads")),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Relative Frobenius error of row-normalised attention at t = 1; of each class the best "
        "of its members. Dashed: needs all logits."
    )
