"""Error against stored values a row: a method of each family, polynomials at their own price."""

import re

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from approx.method import FROBENIUS
from figures.drawing import looks, style
from figures.words.translation import share_of, tr

TITLE = "Error against stored values per query row"
ORDER = 30
BUDGETS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TEMPLATES = ("positive", "top_k", "truncated_svd(space='attention')")
OWN = ("uniform()", "taylor(1)", "taylor(2)", "taylor(3)")  # which choose their own price
FLOOR, CEILING = 1e-4, 100.0


def compute(profile: Profile) -> pd.DataFrame:
    """Return every error at t = 1: of templates at every budget, of the others at their price."""
    at_budget = [
        profile.sweep(TEMPLATES, budget=b, temperatures=(1.0,), label=f"budget {b:g}")
        for b in BUDGETS
    ]
    priced = profile.sweep(OWN, temperatures=(1.0,), label="own price")
    return pd.concat([*at_budget, priced], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel an input, of row-normalised attention; a dot a member of a method."""
    inputs, metric = table.input.unique().tolist(), FROBENIUS["attention"]
    x, y = tr("stored values per query row"), tr("relative Frobenius error")
    figure, axes = style.tiles(len(inputs), x, y)
    for ax, name in zip(axes, inputs):
        part = table[table.input == name]
        wide = part.pivot_table("value", "method", "metric", aggfunc="median").reset_index()
        points = wide.assign(price=wide.stored, error=wide[metric])
        for label, members in _families(points.dropna(subset=["error"])):
            spec, members = members.method.iloc[0], members.sort_values("price")
            look = looks.reference_look(spec) | {"label": label}
            if len(members) == 1 and not looks.look(spec)["marker"]:
                ax.axhline(members.error.iloc[0], **look)
            else:
                if len(members) == 1:
                    look |= {"marker": looks.look(spec)["marker"]}
                style.curve(ax, members.set_index("price").error, (FLOOR, CEILING), **look)
        look = {"color": "0.35", "linestyle": ":", "label": tr("entries of the matrix per row")}
        ax.axvline(part.l.iloc[0], **look)
        ax.set(xscale="log", yscale="log", ylim=(FLOOR / 1.5, CEILING * 1.5), title=name)
    style.legend(figure, axes)
    return figure


def _families(points: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return (label, members) of every method, in the order of the registry."""
    groups = dict(list(points.groupby(points.method.map(_family))))
    labels = dict.fromkeys(map(_family, looks.order(points.method)))
    return [(name, groups[name]) for name in labels]


def _family(spec: str) -> str:
    """Return a method's name without its size."""
    return re.split("[,，]", looks.reference_look(spec)["label"])[0]


def _taylor(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.method == "taylor(degree=2)"].pivot_table(
        index="input", columns="metric", values="value", sort=False
    )


def finding(table: pd.DataFrame) -> str:
    stored = _taylor(table).stored
    exact = table.drop_duplicates("input").set_index("input").l.reindex(stored.index)
    return tr(
        "A polynomial of degree 2 stores more numbers than the matrix has entries on {share}.",
        share=share_of(stored > exact),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Row-normalised attention at t = 1; random features by their median. Pale: sees all logits."
    )
