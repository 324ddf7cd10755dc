"""Which pairs a support holds, and what that is worth: the theorem of Scatterbrain, checked."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.collision import POINTS, SUPPORTS, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Which pairs a support holds, and what that is worth"
ORDER = 250
FAMILY_LOOKS = {
    "sign": (mark("sign"), style.PALETTE[0], "o"),
    "cross_polytope": (mark("cross-polytope"), style.PALETTE[2], "s"),
    "e2": ("E2", style.PALETTE[4], "^"),
}
TRANSFORM_LOOKS = {"none": (mark("as they are"), "-"), "xbox": (mark("after XBOX+"), "--")}
CLUSTERED_LOOKS = {
    "smyrf(size=8)": (mark("SMYRF, one round"), style.PALETTE[1], "D"),
    "smyrf(size=2, rounds=4)": (mark("SMYRF, four small rounds"), style.PALETTE[5], "v"),
    "random(k=8)": (mark("random keys"), style.PALETTE[3], "X"),
}
SUPPORT_LOOKS = dict(
    zip(
        SUPPORTS,
        (
            *FAMILY_LOOKS.values(),
            CLUSTERED_LOOKS["random(k=8)"],
            ("SMYRF", *CLUSTERED_LOOKS["smyrf(size=8)"][1:]),
        ),
    )
)
DEPENDENT_LOOKS = {
    "independent": (mark("independent"), "black", "o"),
    "one stream": (mark("hashes = first frequencies"), style.PALETTE[2], "s"),
    "largest estimates": (mark("largest estimates"), style.PALETTE[1], "D"),
}
AXES = ("one_minus_p", "mse_ratio")  # of the theorem


def draw(table: pd.DataFrame) -> Figure:
    """Draw collisions above, the theorem and its condition below."""
    with style.style():
        figure = Figure(figsize=(7.0, 7.2))
        (family, clusters), (theorem, dependence) = figure.subplots(2, 2)
        _draw_families(family, table[table.part == "family"])
        _draw_clusters(clusters, table[table.part == "clusters"])
        _draw_theorem(theorem, table[table.part == "theorem"])
        _draw_dependence(dependence, table[table.part == "dependence"])
        for ax in (family, clusters, theorem, dependence):
            ax.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=style.SMALL,
                handlelength=1.8, columnspacing=1.0, handletextpad=0.5,
            )  # fmt: skip
    return figure


def _draw_families(ax: Axes, table: pd.DataFrame) -> None:
    for family, (label, colour, marker) in FAMILY_LOOKS.items():
        for transform, (_, line) in TRANSFORM_LOOKS.items():
            part = table[table.case == f"{family} {transform}"]
            known = part[part.metric == "collision"]
            ax.plot(known.logit, known.value, color=colour, linestyle=line)
            dots = part[part.metric == "frequency"]
            look = style.dots(colour, marker, 3)
            name = tr(label) if transform == "none" else None
            ax.errorbar(dots.logit, dots.value, 2 * dots.stderr, elinewidth=0.8, label=name, **look)
    for how, line in TRANSFORM_LOOKS.values():
        ax.plot([], [], color="0.4", linestyle=line, label=tr(how))
    ax.set(
        title=tr("One hash, |q| = |k| = 1"),
        xlabel="q·k",
        ylabel=tr("P[collision]"),
        ylim=(-0.02, 1.03),
    )


def _draw_clusters(ax: Axes, table: pd.DataFrame) -> None:
    for case, (label, colour, marker) in CLUSTERED_LOOKS.items():
        part = table[table.case == case]
        ax.errorbar(
            part.logit, part.value, 2 * part.stderr, elinewidth=0.8, label=tr(label),
            color=colour, marker=marker, linewidth=1.0,
        )  # fmt: skip
    ax.set(
        title=tr("Clusters of {points} Gaussian q and k", points=POINTS),
        xlabel=tr("q·k (mean of an eighth of the pairs)"),
        ylabel=tr("P[in the support], measured"), ylim=(0, None),
    )  # fmt: skip


def _draw_theorem(ax: Axes, table: pd.DataFrame) -> None:
    ax.plot([0, 1], [0, 1], color="0.4", linewidth=0.9, label=tr("theorem: 1 − p"))
    for case, (label, colour, marker) in SUPPORT_LOOKS.items():
        x, y = (table[(table.case == case) & (table.metric == m)] for m in AXES)
        look = style.dots(colour, marker, 3.2)
        ax.errorbar(
            x.value, y.value, 2 * y.stderr, 2 * x.stderr, elinewidth=0.8, label=tr(label), **look
        )
    ax.set(
        title=tr("The theorem of Scatterbrain"), xlabel="1 − p",
        xlim=(-0.02, 1.03), ylim=(-0.02, 1.12),
        ylabel=tr("squared error over that of the features"),
    )  # fmt: skip


def _draw_dependence(ax: Axes, table: pd.DataFrame) -> None:
    ax.axhline(0.0, color="0.4", linewidth=0.9)
    for case, (label, colour, marker) in DEPENDENT_LOOKS.items():
        part = table[table.case == case]
        ax.errorbar(
            part.logit, part.value, 2 * part.stderr, elinewidth=0.8, label=tr(label),
            color=colour, marker=marker, linewidth=1.0, markersize=3.2,
        )  # fmt: skip
    ax.set(
        title=tr("Its condition: a support that knows nothing"), xlabel="q·k",
        ylabel=tr("relative bias of Scatterbrain"),
    )  # fmt: skip


def finding(table: pd.DataFrame) -> str:
    scores = theorem_scores(table)
    return tr(
        "Scatterbrain leaves 1 − p of its features' error, whatever the support: in {cases} cases "
        "within {z:.1f} standard errors.",
        cases=len(scores),
        z=scores.max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Above: probabilities of a collision, closed form and frequency; pairs that a support "
        "holds. Below: errors against 1 − p; biases. Bars: two standard errors."
    )


def theorem_scores(table: pd.DataFrame) -> pd.Series:
    """Return |ratio − (1 − p)| in standard errors of both, where there is an error at all."""
    part = table[table.part == "theorem"]
    x, y = (part[part.metric == m].reset_index(drop=True) for m in AXES)
    error = np.hypot(x.stderr, y.stderr)
    return ((y.value - x.value).abs() / error)[error > 0]
