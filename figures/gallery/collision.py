"""What a support is worth to Scatterbrain: its theorem, checked, and the theorem's condition."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.collision import compute as compute
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "The error that a support leaves to Scatterbrain"
ORDER = 250
DEPENDENT_LOOKS = {
    "independent": (mark("independent of the features"), "black", "o"),
    "one stream": (mark("hashes shared with features"), looks.PALETTE[2], "s"),
    "largest estimates": (mark("chosen by largest estimates"), looks.PALETTE[1], "D"),
}
AXES = ("one_minus_p", "mse_ratio")  # of the theorem


def draw(table: pd.DataFrame) -> Figure:
    """Draw the theorem on the left, and the bias where its condition does not hold on the right."""
    figure, (left, right) = style.row(2, 4.0)
    part = table[table.part == "theorem"]
    x, y = (part[part.metric == metric] for metric in AXES)
    left.plot([0, 1], [0, 1], color="0.4", label=tr("theorem: both are equal"))
    left.errorbar(
        x.value, y.value, 2 * y.stderr.to_numpy(), 2 * x.stderr, elinewidth=0.8,
        label=tr("measured, ± two standard errors"), **style.dots(looks.PALETTE[0], "o", 3.2),
    )  # fmt: skip
    left.set(xlabel=tr("share of draws whose support lacks the pair"))
    left.set_ylabel(tr("squared error, over that of features alone"))
    for case, (label, colour, marker) in DEPENDENT_LOOKS.items():
        part = table[(table.part == "dependence") & (table.case == case)]
        right.errorbar(
            part.logit, part.value, 2 * part.stderr, label=tr(label), color=colour,
            marker=marker, elinewidth=0.8,
        )  # fmt: skip
    right.set(xlabel="q·k", ylabel=tr("relative bias of the estimate of exp(q·k)"))
    left.set_title(tr("support independent of the features"))
    right.set_title(tr("support independent or not"))
    left.legend(loc="upper left")
    right.legend(loc="lower left")
    return figure


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
        "Left: error of Scatterbrain; a support has a pair with probability p. Right: its bias. "
        "Bars: two standard errors."
    )


def theorem_scores(table: pd.DataFrame) -> pd.Series:
    """Return |ratio − (1 − p)| in standard errors of both, where there is an error at all."""
    part = table[table.part == "theorem"]
    x, y = (part[part.metric == m].reset_index(drop=True) for m in AXES)
    error = np.hypot(x.stderr, y.stderr)
    return ((y.value - x.value).abs() / error)[error > 0]
