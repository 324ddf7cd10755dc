"""Keys in few bits: the error of a logit and the bias of exp against bits, theory and runs."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.key_bits import BITS, FORMS, D, compute as compute
from approx import parse
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Keys in few bits: logits and exp"
ORDER = 392
NAMES = {
    "mse": (mark("rotated, rounded (TurboQuant)"), style.PALETTE[0], "o"),
    "eden": (mark("EDEN's scale"), style.PALETTE[2], "s"),
    "product": (mark("rotated, rounded + signs"), style.PALETTE[1], "^"),
    "qjl": (mark("signs only (QJL)"), style.PALETTE[4], "v"),
    "dither": (mark("equal steps, dither"), style.PALETTE[9], "D"),
}
PANELS = (
    ("logit_error", mark("mean square error of q·k, of |q|²|k|²/d")),
    ("exp_bias", mark("mean bias of exp(q·k)")),
)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each form and number of bits, a column for each number."""
    specs = {
        str(parse(spec.format(b=b, m=b * D))): (name, b)
        for name, (spec, _) in FORMS.items()
        for b in BITS
    }
    found = table.assign(form=[specs[spec][0] for spec in table.method], bits=table.budget)
    values, errors = (
        found.pivot_table(index=["form", "bits"], columns="metric", values=column)
        for column in ("value", "stderr")
    )
    return values.join(errors.add_suffix("_stderr"))


def draw(table: pd.DataFrame) -> Figure:
    """Draw lines of theory and markers of runs; a bias below 0 is drawn by its size, hollow."""
    rows = wide(table)
    with style.style():
        figure, axes = style.panels(1, 2, tr("bits of a number of a key"), "", height=3.2)
        for ax, (metric, label) in zip(axes.flat, PANELS):
            for form, (name, colour, marker) in NAMES.items():
                part = rows.loc[form]
                theory, run = part[f"expected_{metric}"], part[metric]
                ax.plot(part.index, theory.abs(), color=colour, label=tr(name))
                for some, face in ((run > 0, colour), (run <= 0, "none")):
                    look = {"color": colour, "markerfacecolor": face}
                    ends = part[f"{metric}_stderr"][some]
                    ax.errorbar(part.index[some], run[some].abs(), ends, fmt=marker, **look)
            ax.set(yscale="log", ylabel=tr(label))
            ax.set_xticks(BITS)
        bits = np.array(BITS)
        ends = (np.sqrt(3) * np.pi / 2 * 4.0**-bits, 4.0**-bits)
        for bound, name in zip(ends, (mark("proved for rounding"), mark("4^(−b)"))):
            line = "--" if bound is ends[0] else ":"
            axes.flat[0].plot(bits, bound, line, color="0.4", lw=1.0, label=tr(name))
        style.legend(figure, list(axes.flat), columns=4)
    return figure


def finding(table: pd.DataFrame) -> str:
    rows = wide(table).xs(2, level="bits")
    return tr(
        "At 2 bits an unbiased logit by signs has {ratio:.2g} times the square error of the biased "
        "one, by EDEN's scale {eden:.2g} times.",
        ratio=rows.logit_error["product"] / rows.logit_error["mse"],
        eden=rows.logit_error["eden"] / rows.logit_error["mse"],
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Gaussian keys, d = {d}, t = 1. Lines: theory. Markers: runs, hollow below 0.", d=D)
