"""Keys in few bits: the error of a logit and the bias of exp against bits, theory and runs."""

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
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Keys in few bits: logits and exp"
ORDER = 392
D = 64
BITS = (1, 2, 3, 4, 5, 6)
COUNT = {"quick": (4, 32), "default": (8, 128)}  # queries and keys
FORMS = {  # by name: a spec at b bits of a number, and whether its logits are unbiased
    "mse": ("turboquant(bits={b})", False),
    "eden": ("turboquant(bits={b}, form='eden')", True),
    "product": ("turboquant(bits={b}, form='product')", True),
    "qjl": ("qjl(m={m})", True),
    "dither": ("quantised(bits={b}, dither=True)", True),
}
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


def expected(method: CodedKeys, x: Head) -> tuple[float, float]:
    """Return the mean square error of logits over |q|²|k|²/d, and the mean bias of exp.

    Logits in closed form, those of "eden" to leading order; exp as that of a normal number of
    their mean and variance, which the logits of many coordinates nearly are.
    """
    z, sizes = x.Q @ x.K.T, np.outer((x.Q**2).sum(axis=1), (x.K**2).sum(axis=1))
    law = method.logit_moments(x.Q, x.K)
    if law is None:
        assert isinstance(method, TurboQuant)
        off = lloyd_max(method.bits).distortion
        shift, variance = np.zeros_like(z), off / (1 - off) * (sizes - z**2) / (x.d - 1)
    else:
        shift, variance = law.mean - z, law.variance
    square = ((shift**2 + variance) / sizes).mean() * x.d
    return float(square), float(np.expm1(shift + variance / 2).mean())


def _rows(x: Head, name: str, bits: int, draws: int, seed: int) -> list[Row]:
    method = parse(FORMS[name][0].format(b=bits, m=bits * x.d))
    assert isinstance(method, CodedKeys)
    z, sizes = x.Q @ x.K.T, np.outer((x.Q**2).sum(axis=1), (x.K**2).sum(axis=1))
    squares, raised = [], []
    for _, stream in trials(method, x, draws, seed):
        off = x.Q @ method.codes(x.K, np.random.default_rng(stream)).keys.T - z
        squares.append((off**2 / sizes).mean() * x.d)
        raised.append(np.expm1(off).mean())
    square, bias = expected(method, x)
    spread = [float(np.std(some, ddof=1) / math.sqrt(draws)) for some in (squares, raised)]
    return numbers(
        head(x, method, float(bits)),
        logit_error=(float(np.mean(squares)), spread[0]),
        exp_bias=(float(np.mean(raised)), spread[1]),
        expected_logit_error=square,
        expected_exp_bias=bias,
    )


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors of logits and of exp of Gaussian inputs at t = 1, by form and bits (budget)."""
    n, l = COUNT[profile.grid]
    pairs = data.gaussian(l, D, rng=profile.seed).first(n).at_temperature(1.0)
    draws = max(4, min(profile.draws, 40))
    tasks = [(pairs, name, bits, draws, profile.seed) for name in FORMS for bits in BITS]
    return profile.study(_rows, tasks, "key bits")


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
        bound = np.sqrt(3) * np.pi / 2 * 4.0 ** -np.array(BITS)
        axes[0, 0].plot(BITS, bound, "--", color="0.4", lw=1.0, label=tr("proved for rounding"))
        style.legend(figure, list(axes.flat), columns=3)
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
