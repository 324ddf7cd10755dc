"""Keys in few bits: the error of a logit against bits, theory and runs."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.sweeps.table import Row, head, numbers
from approx import parse
from approx.compressed_logits.coded_keys import CodedKeys
from approx.compressed_logits.normal_levels import lloyd_max
from approx.compressed_logits.turboquant import TurboQuant
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Keys in few bits: error of logits"
ORDER = 392
D = 64
BITS = (1, 2, 3, 4, 5, 6)
COUNT = {"quick": (4, 32), "default": (8, 128)}  # queries and keys
FORMS = {  # by name: a spec at b bits of a number; the logits of all but "mse" are unbiased
    "mse": "turboquant(bits={b})",
    "eden": "turboquant(bits={b}, form='eden')",
    "product": "turboquant(bits={b}, form='product')",
    "qjl": "qjl(m={m})",
}
NAMES = {
    "mse": (mark("rotated, rounded (TurboQuant)"), looks.PALETTE[0], "o"),
    "eden": (mark("EDEN's scale"), looks.PALETTE[2], "s"),
    "product": (mark("rotated, rounded + signs"), looks.PALETTE[1], "^"),
    "qjl": (mark("signs only (QJL)"), looks.PALETTE[4], "v"),
}


def expected(method: CodedKeys, x: Head) -> float:
    """Return the mean square error of logits over |q|²|k|²/d.

    It is in closed form, that of "eden" to leading order.
    """
    z, sizes = x.Q @ x.K.T, np.outer((x.Q**2).sum(axis=1), (x.K**2).sum(axis=1))
    law = method.logit_moments(x.Q, x.K)
    if law is None:
        assert isinstance(method, TurboQuant)
        off = lloyd_max(method.bits).distortion
        square = off / (1 - off) * (sizes - z**2) / (x.d - 1)
    else:
        square = (law.mean - z) ** 2 + law.variance
    return float((square / sizes).mean() * x.d)


def _rows(x: Head, name: str, bits: int, draws: int, seed: int) -> list[Row]:
    method = parse(FORMS[name].format(b=bits, m=bits * x.d))
    assert isinstance(method, CodedKeys)
    z, sizes = x.Q @ x.K.T, np.outer((x.Q**2).sum(axis=1), (x.K**2).sum(axis=1))
    squares = []
    for _, stream in trials(method, x, draws, seed):
        off = x.Q @ method.codes(x.K, np.random.default_rng(stream)).keys.T - z
        squares.append((off**2 / sizes).mean() * x.d)
    spread = float(np.std(squares, ddof=1) / math.sqrt(draws))
    return numbers(
        head(x, method, float(bits)),
        logit_error=(float(np.mean(squares)), spread),
        expected_logit_error=expected(method, x),
    )


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors of logits of Gaussian inputs at t = 1, by form and bits (budget)."""
    n, l = COUNT[profile.grid]
    pairs = data.gaussian(l, D, rng=profile.seed).first(n).at_temperature(1.0)
    draws = max(4, min(profile.draws, 40))
    tasks = [(pairs, name, bits, draws, profile.seed) for name in FORMS for bits in BITS]
    return profile.study(_rows, tasks, "key bits")


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each form and number of bits, a column for each number."""
    forms = {
        str(parse(spec.format(b=b, m=b * D))): name for name, spec in FORMS.items() for b in BITS
    }
    found = table.assign(form=table.method.map(forms), bits=table.budget)
    return found.pivot_table(index=["form", "bits"], columns="metric", values="value")


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error of logits: lines of theory and markers of runs."""
    rows = wide(table)
    figure, (ax,) = style.row(1, 3.8)
    for form, (name, colour, marker) in NAMES.items():
        part = rows.loc[form]
        ax.plot(part.expected_logit_error, color=colour, label=tr(name))
        ax.plot(part.logit_error, **style.dots(colour, marker, 5))
    style.key(ax, line=tr("theory"), mark=tr("simulation"))
    ax.set(yscale="log", xlabel=tr("bits per coordinate of a key"))
    ax.set_xticks(BITS)
    ax.set_ylabel(tr("squared error of q·k, in units of |q|²|k|²/d"))
    style.legend(figure, ax)
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
    return tr("Gaussian keys, d = {d}, t = 1.", d=D)
