"""Keys in few bits: the error of a logit and the bias of exp against bits, theory and runs."""

import math

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.sweeps.table import Row, head, numbers
from approx import parse
from approx.compressed_logits.coded_keys import CodedKeys
from approx.compressed_logits.normal_levels import lloyd_max
from approx.compressed_logits.turboquant import TurboQuant

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
