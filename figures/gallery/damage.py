"""What a head does to a language model when it alone is replaced, and which number predicts it.

``make lm-study`` measures the table on the model itself, of 93 MB, in half an hour; it is stored.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import analysis
from analysis.experiments.profile import Profile
from analysis.models.sensitivity import PREDICTORS, spearman
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Which error of a head predicts what it does to the model"
ORDER = 410
PANELS = {
    "attention_tv": mark("total variation of the head's attention"),
    "fisher": mark("damage predicted by gradients of the loss"),
}
FLOOR = 1e-6  # of both axes: below it nothing matters to a model
COLUMNS = ("layer", "head", "method", "kl", "kl_stderr", *PREDICTORS)


def compute(profile: Profile) -> pd.DataFrame:
    """Return the table of `sensitivity.singles` that ``make lm-study`` has stored."""
    return pd.read_csv(Path(analysis.__file__).parent / "data" / "damage.csv")[list(COLUMNS)]


def draw(table: pd.DataFrame) -> Figure:
    """Draw the damage of each head and method against two numbers that could predict it."""
    with style.style():
        figure, axes = style.panels(1, len(PANELS), height=3.0)
        for ax, (name, label) in zip(axes.flat, PANELS.items()):
            for spec, part in table.groupby("method", sort=False):
                look = style.look(str(spec))
                ax.plot(
                    part[name].clip(lower=FLOOR), part.kl.clip(lower=FLOOR), label=look["label"],
                    alpha=0.6, mew=0, **style.dots(look["color"], look["marker"], 3),
                )  # fmt: skip
            ax.set(xscale="log", yscale="log", xlabel=style.lines(tr(label), 28))
            ax.set_ylim(FLOOR / 1.5, table.kl.max() * 2)
        line = np.array([FLOOR, table.kl.max()])
        axes.flat[-1].plot(line, line, color="0.35", ls="--", lw=0.9, label=tr("equal"))
        axes.flat[0].set_xlim(1e-3, 1.1)
        axes.flat[0].set_ylabel(tr("KL(model ‖ with the head replaced)"))
        style.legend(figure, list(axes.flat), columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    rank = {
        name: spearman(table[name].to_numpy(), table.kl.to_numpy())
        for name in ("fisher", "attention_tv")
    }
    return tr(
        "Output error times gradients predicts the damage of a head (rank correlation "
        "{fisher:.2f}) better than total variation ({attention_tv:.2f}).",
        **rank,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Each of {heads} heads of SmolLM2-135M replaced alone by each of {methods} methods: the KL "
        "of the next token against two numbers that could predict it.",
        heads=len(table.drop_duplicates(["layer", "head"])),
        methods=table.method.nunique(),
    )
