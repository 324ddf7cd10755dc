"""Error against stored values a row: every method at its own price, polynomials included."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from figures import style
from figures.error import NAMES, SPACES
from figures.profile import Profile

TITLE = "Error against stored values a query row"
BUDGETS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TEMPLATES = (
    "positive",
    "trigonometric",
    "top_k",
    "truncated_svd",
    "truncated_svd(space='attention')",
    "scatterbrain(low_rank=positive(), sparse=top_k())",
)
POLYNOMIALS = ("taylor", "tensor_power")
DEGREES = (1, 2, 3)
FLOOR = 1e-4


def own_price() -> list[str]:
    """Return the polynomials and pursuits, which choose their own price."""
    polynomials = [f"{name}({degree})" for name in POLYNOMIALS for degree in DEGREES]
    return ["uniform()", *polynomials, "robust_pca()", "robust_pca(space='attention')"]


def compute(profile: Profile) -> pd.DataFrame:
    """Return every error at t = 1: of templates at every budget, of the others at their price."""
    at_budget = [
        profile.sweep(TEMPLATES, budget=b, temperatures=(1.0,), label=f"budget {b:g}")
        for b in BUDGETS
    ]
    priced = profile.sweep(own_price(), temperatures=(1.0,), label="own price")
    return pd.concat([*at_budget, priced], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels an input, one column a space; a dot a member of a method."""
    inputs = table.input.unique().tolist()
    with style.style():
        figure, axes = style.panels(len(inputs), 2)
        for row, name in enumerate(inputs):
            part = table[table.input == name]
            wide = part.pivot_table("value", "method", "metric", aggfunc="median").reset_index()
            for column, (space, metric) in enumerate(SPACES.items()):
                ax = axes[row, column]
                points = wide.assign(price=wide.values_per_row, error=wide[metric]).dropna(
                    subset=["error"]
                )
                for label, members in _families(points, space):
                    look = style.look(members.method.iloc[0]) | {"label": label}
                    members = members.sort_values("price")
                    if len(members) == 1 and not look["marker"]:
                        ax.axhline(members.error.iloc[0], **look)
                    else:
                        ax.plot(members.price, members.error.clip(lower=FLOOR), **look)
                ax.set(xscale="log", yscale="log", ylim=(FLOOR / 1.5, 100))
                ax.set_title(f"{name}: {NAMES[space]}")
                if row == len(inputs) - 1:
                    ax.set_xlabel("stored values a query row")
            axes[row, 0].set_ylabel("relative Frobenius error")
        style.legend(figure, list(axes.flat))
    return figure


def _families(points: pd.DataFrame, space: str) -> list[tuple[str, pd.DataFrame]]:
    """Return (label, members) of every method shown in one space."""
    other = points.method.str.startswith(("truncated_svd", "robust_pca")) & (
        points.method.str.contains("attention") != (space == "attention")
    )
    labels = points[~other].method.map(lambda spec: _family(spec))
    groups = dict(list(points[~other].groupby(labels)))
    names = [_family(s) for s in style.order(points[~other].method.tolist())]
    return [(name, groups[name]) for name in dict.fromkeys(names)]


def _family(spec: str) -> str:
    """Return a method's name without its size."""
    return str(style.look(spec)["label"]).split(", ")[0]


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    wide = table[table.method == "taylor(degree=2)"].pivot_table(
        index="input", columns="metric", values="value", sort=False
    )
    sentences = [
        f"{name}: {row.values_per_row:.0f} values and error {row.attention_relative_frobenius:.2g}"
        for name, row in wide.iterrows()
    ]
    return (
        "Error at t = 1 against stored values a query row; every method at its own price, random "
        f"features by their median over trials. Errors below {FLOOR:g} are drawn there: Robust PCA "
        "reproduces the matrix up to its tolerance. Taylor of degree 2 costs, row-normalised, "
        f"{'; '.join(sentences)}. Exact attention stores {int(table.l.max())} values a row."
    )
