"""Growth of the size that a target needs with the number of keys."""

from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike

from analysis.advice.target import needed, smallest
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import parse

TARGET = 0.1  # of tv
QUERIES = 64  # at the end of each prefix
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
MOST_KEYS = {  # beyond which a method takes too long here
    "top_k()": 8192,
    "projected_top_k(by='channels')": 8192,
    "columns(by='h2o', recent=16)": 2048,
    "sink_window()": 8192,
    "pages(current=True)": 8192,
    "hierarchical(basis='mean', sinks=1)": 8192,
    "positive(projection='orthogonal')": 512,
}
TRIALS = 3
STORED = "scaling.csv"  # of a language model, made by studies/lm/scaling.py
LAW = "law"  # where the methods stand: `share` of Gaussian logits
SIGMAS = (0.5, 1.0, 2.0, 3.0, 4.0)
GAUSSIAN_LENGTHS = {"quick": (256, 1024, 4096), "default": (*LENGTHS, 32768)}
ROWS = {"quick": 64, "default": 512}  # of Gaussian logits
COLUMNS = (
    "input", "kind", "layer", "head", "sigma", "l", "method", "reached", "value", "error", "share",
)  # fmt: skip


def sizes(x: Head, kind: str, l: int) -> list[Row]:
    """Return the size at which the last queries of a prefix have tv ≤ 0.1, method by method.

    Parameters
    ----------
    x : Head
        One causal head, of which the first l tokens are taken.
    kind : str
        A word for the table, such as "sink" or "local".
    l : int
    """
    methods = [parse(spec) for spec, most in MOST_KEYS.items() if l <= most]
    rows = np.arange(max(l - QUERIES, 0), l)
    table = needed(x.first(l), TARGET, currency="reads", methods=methods, trials=TRIALS, rows=rows)
    table = table[table.method != "exact()"]
    return [
        (x.name, kind, x.layer, x.head, -1.0, l, *row)
        for row in table[["method", "reached", "size", "error", "share"]].itertuples(index=False)
    ]


def share(sigma: ArrayLike, epsilon: ArrayLike) -> np.ndarray:
    """Return the share of keys that top-k needs for tv ≤ ε, of Gaussian logits.

    Parameters
    ----------
    sigma : array_like
        The standard deviation of the logits of a row, σ ≥ 0.
    epsilon : array_like
        0 < ε < 1.

    Notes
    -----
    The share is Φ_c(σ + Φ⁻¹(ε)), with Φ_c = 1 − Φ. Weights are e^x of x ~ N(0, σ²). As ∫ e^x over
    x > σz is E[e^x]·Φ_c(z − σ), keys above σz hold the share Φ_c(z − σ) of the attention of many
    keys; this is 1 − ε at z = σ + Φ⁻¹(ε), and a share Φ_c(z) of the keys is above. tv is what the
    rest holds. So k grows in proportion to the number of keys, however small ε is.

    It is the limit of n ≫ e^{σ²} keys, where the relative variance of a row's sum, (e^{σ²} − 1)/n,
    is small; that n·share is large does not suffice. With fewer keys most rows lack those near
    x = σ², which hold most of the mean sum, as the largest of n is near σ√(2 log n). The others
    share the row: it takes more keys than the law says, and k grows more slowly than n.

    References
    ----------
    .. [1] G. Tzachristas et al., "A mathematical theory of top-k sparse attention via total
       variation distance", arXiv:2512.07647; read in its abstract, which states this law.

    Examples
    --------
    >>> share([0.0, 1.0, 3.0], 0.1).round(3)
    array([0.9  , 0.611, 0.043])
    """
    s, e = np.asarray(sigma, np.float64), np.asarray(epsilon, np.float64)
    if not (np.isfinite(s) & (s >= 0)).all() or not ((e > 0) & (e < 1)).all():
        raise ValueError("sigma must be finite and >= 0, epsilon between 0 and 1")
    return np.asarray(scipy.stats.norm.sf(s + scipy.stats.norm.ppf(e)))


def top_k(logits: np.ndarray, epsilon: float) -> int:
    """Return the smallest k for which the k largest weights of each row have mean tv ≤ ε.

    Examples
    --------
    >>> top_k(np.zeros((2, 10)), 0.25)
    8
    """
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    ordered = -np.sort(-weights, axis=1)
    held = np.cumsum(ordered, axis=1) / ordered.sum(axis=1, keepdims=True)
    tv = 1.0 - held.mean(axis=0)
    k = smallest(lambda size: float(tv[size - 1]), epsilon, len(tv))
    return len(tv) if k is None else k


def _gaussian(sigma: float, l: int, rows: int, seed: int) -> list[Row]:
    logits = sigma * np.random.default_rng([seed, l]).standard_normal((rows, l))
    k, limit = top_k(logits, TARGET), float(share(sigma, TARGET))
    place = "gaussian", "gaussian", -1, -1, sigma, l
    return [
        (*place, "top_k()", True, float(k), TARGET, k / l),
        (*place, LAW, True, limit * l, TARGET, limit),
    ]


def stored() -> pd.DataFrame:
    """Return the table of a language model's heads that is in the repository."""
    with resources.as_file(resources.files("analysis") / "data" / STORED) as path:
        return pd.read_csv(path)


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Return the growth of sizes: d log size/d log l of each method and kind of head.

    Parameters
    ----------
    table : DataFrame
        The rows of heads in the result of `compute`.

    Returns
    -------
    DataFrame
        One row per method and kind, and per method with kind "all": ``heads`` on which the target
        is reached at every length that was measured; ``exponent``, the mean over these of the
        slope of a least-squares line; ``stderr``, its standard error over heads, NaN for one.
    """
    slopes: list[dict[str, Any]] = []
    for (method, kind, *_), part in table.groupby(["method", "kind", "layer", "head"], sort=False):
        if part.reached.all() and len(part) > 2:
            line = np.polyfit(np.log(part.l), np.log(part.value), 1)
            slopes.append({"method": method, "kind": kind, "slope": float(line[0])})
    found = pd.DataFrame(slopes, columns=["method", "kind", "slope"])
    both = pd.concat([found.assign(kind="all"), found])
    grouped = both.groupby(["method", "kind"], sort=False).slope
    return grouped.agg(heads="size", exponent="mean", stderr="sem").reset_index()


def compute(profile: Profile) -> pd.DataFrame:
    """Return the stored sizes of a language model's heads, and those of Gaussian logits."""
    lengths, rows = GAUSSIAN_LENGTHS[profile.grid], ROWS[profile.grid]
    tasks = [
        (sigma, l, max(rows * 1024 // l, 64), profile.seed) for sigma in SIGMAS for l in lengths
    ]
    made = profile.study(_gaussian, tasks, "lengths", COLUMNS)
    return pd.concat([stored(), made], ignore_index=True)
