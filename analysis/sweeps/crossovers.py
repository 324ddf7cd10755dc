"""Crossovers: the temperatures at which sparse beats low rank or the reverse, and GoDec's gain."""

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator

from analysis.inputs import Head, Heads
from analysis.sweeps.sweep import sweep
from approx import Method, checks, parse

ORACLES = {
    "sparse": "godec(rank=0, space={space!r})",
    "low-rank": "truncated_svd(space={space!r})",
    "both": "godec(space={space!r})",
}
ROUNDING = 1e-4  # relative error of a root
COLUMNS = (
    "input", "coldest", "hottest", "crossing", "gain", "gain_temperature", "gain_at_crossing",
)  # fmt: skip


def crossing(
    temperatures: ArrayLike,
    sparse: ArrayLike | None = None,
    low_rank: ArrayLike | None = None,
    *,
    errors: Callable[[float], Sequence[float]] | None = None,
) -> float:
    """Return the temperature at which the two errors are equal, or NaN.

    With rising temperature, it is the first change from sparse being better to low-rank being
    better; of places between the two where the errors are equal, the first. Curves that only touch
    do not cross. An error that is NaN, inf or 0 is not part of a change; two errors without a ratio
    between two temperatures hide the crossing: NaN.

    Parameters
    ----------
    temperatures : (t,)
        > 0, increasing.
    sparse, low_rank : (t,)
        Errors ≥ 0; by default those that ``errors`` returns.
    errors : callable, optional
        It returns both errors at any temperature: the crossing is the root of the two curves, to
        about 10⁻⁴ of itself. By default it is log-interpolated.

    Examples
    --------
    >>> crossing([1.0, 4.0], [0.1, 0.4], [0.4, 0.1])
    2.0
    >>> round(crossing([1.5, 9.0], errors=lambda t: (t - 1, 1.0)), 3)
    2.0
    """
    t = checks.array("temperatures", temperatures, ndim=1).astype(float)
    if t.size and (t[0] <= 0 or (np.diff(t) <= 0).any()):
        raise ValueError(f"temperatures must be > 0 and increase, got {checks.display(t.tolist())}")
    if sparse is None and errors is not None:
        sparse, low_rank = zip(*map(errors, t.tolist()))
    grid = []
    for name, value in (("sparse", sparse), ("low_rank", low_rank)):
        x = checks.array(name, () if value is None else value, ndim=1, finite=False).astype(float)
        if x.shape != t.shape or (x < 0).any():
            raise ValueError(
                f"{name} must be an error >= 0 for each of {len(t)} temperatures, "
                f"got {checks.display(x.tolist())}"
            )
        grid.append(x)
    with np.errstate(all="ignore"):
        gap = np.log(grid[0] / grid[1])
    gap[~np.isfinite(gap)] = np.nan
    last = -1  # the last temperature at which sparse is better; after it, only equal errors so far
    for i, here in enumerate(gap):
        if here > 0 and last >= 0:
            if last + 1 < i:
                return float(t[last + 1])
            if errors is None:
                return float(t[last] * (t[i] / t[last]) ** (gap[last] / (gap[last] - here)))
            gaps = {math.log(at): math.tanh(x / 2) for at, x in zip(t, gap) if not np.isnan(x)}
            return _between(t[last], t[i], gaps, errors)
        if here != 0:
            last = i if here < 0 else -1
    return float("nan")


def _between(
    low: float, high: float, gaps: dict[float, float], errors: Callable[[float], Any]
) -> float:
    """Return the crossing between two temperatures at which different errors are less, or NaN.

    `gaps` has (a − b)/(a + b) = tanh(log(a/b)/2) of the errors a, b, by the logarithm of t. The
    root of their interpolation joins them until it is next to a known one.
    """
    while True:
        known, values = zip(*sorted(gaps.items()))
        roots = PchipInterpolator(known, values).roots(extrapolate=False)
        log = float(roots[(math.log(low) <= roots) & (roots <= math.log(high))][0])
        if np.abs(np.subtract(known, log)).min() <= ROUNDING:
            return math.exp(log)
        one, other = errors(math.exp(log))
        if not 0 < one + other < math.inf:
            return math.nan
        gaps[log] = (one - other) / (one + other)


def root(
    x: Head, methods: Sequence[Method], metric: str, known: Mapping[float, Sequence[float]]
) -> float:
    """Return the temperature at which two methods have equal errors on a head, or NaN.

    The methods draw nothing at random, and the first is the better one below the crossing. `known`
    has both errors at some temperatures, ascending: `crossing` looks between these.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> methods = [parse("top_k(k=2)"), parse("uniform()")]
    >>> known = {0.5: (0.46, 0.53), 8.0: (0.85, 0.05)}
    >>> round(root(gaussian(16, 4, rng=0), methods, "attention_tv", known), 2)
    0.56
    """

    def errors(t: float) -> list[float]:
        at = x.at_temperature(t)
        return [at.compare(at.approximate(method))[metric] for method in methods]

    return crossing(list(known), *zip(*known.values()), errors=errors)


def regimes(
    table: pd.DataFrame,
    metric: str,
    *,
    sparse: str,
    low_rank: str,
    both: str,
    crossed: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Return the crossing and the largest gain of sparse + low-rank for each input.

    Parameters
    ----------
    table : DataFrame
        The result of `analysis.sweeps.sweep.sweep`.
    metric : str
        The error to compare.
    sparse, low_rank, both : str
        Values of the column ``method``: ``both`` is compared with the better of the first two.
    crossed : dict of floats, optional
        The crossing of each input, such as `root` finds; by default interpolated.

    Returns
    -------
    DataFrame
        ``input``; ``coldest`` and ``hottest``, the better single class at the ends of the grid:
        "sparse", "low-rank", "equal", or "unknown" if an error is NaN;
        ``crossing``; ``gain``, the largest ratio of the better single class's error to the error of
        ``both``, and ``gain_temperature``, its temperature; ``gain_at_crossing``, the ratio at the
        grid's temperature nearest to the crossing. Equal errors have the ratio 1,
        two zeros too.
    """
    checks.instance("table", table, pd.DataFrame, "a table of a sweep")
    for label, value in (("sparse", sparse), ("low_rank", low_rank), ("both", both)):
        checks.instance(label, value, str, "a method of the table")
    if missing := {"input", "temperature", "method", "metric", "value"} - set(table.columns):
        raise ValueError(f"table must have a column {min(missing)}, got {list(table.columns)}")
    if len(table):
        checks.one_of("metric", metric, tuple(table.metric.unique()))
    rows = []
    errors = table[table.metric == metric]
    for name, part in errors.groupby("input", sort=False):
        curves = part.pivot_table(
            index="temperature", columns="method", values="value", aggfunc="median"
        )
        if not {sparse, low_rank, both} <= set(curves.columns):
            continue
        t = curves.index.to_numpy(float)
        one, other, split = (curves[name].to_numpy(float) for name in (sparse, low_rank, both))
        single = np.minimum(one, other)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(single == split, 1.0, single / split)
        cross = crossing(t, one, other) if crossed is None else crossed[str(name)]
        near = np.nan if np.isnan(cross) else gain[np.argmin(np.abs(np.log(t / cross)))]
        best = np.argmax(np.where(np.isnan(gain), -np.inf, gain))
        better = np.select(
            [one < other, one > other, one == other], ["sparse", "low-rank", "equal"], "unknown"
        )
        ends = str(better[0]), str(better[-1])
        rows.append((name, *ends, cross, float(gain[best]), float(t[best]), float(near)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def oracles(
    inputs: Sequence[Head | Heads] | Head | Heads,
    temperatures: Sequence[float],
    budgets: Sequence[float],
    *,
    space: str = "attention",
) -> pd.DataFrame:
    """Return the least Frobenius errors found with entries, with factors, and with both.

    Parameters
    ----------
    inputs, temperatures
        See `analysis.sweeps.sweep.sweep`.
    budgets : sequence of float
        Stored values per query.
    space : {"kernel", "attention"}
        The matrix: exp(Q Kᵀ), or its row-softmax, whose estimates are not normalised again.

    Returns
    -------
    DataFrame
        The table of a sweep, whose ``method`` is one of `ORACLES`: the largest entries, the
        truncated SVD, or the best split of the budget between the two that
        `approx.low_rank.godec.at_budget` finds. Metrics: {space}_relative_frobenius, rank, nnz.

    Notes
    -----
    Under a mask, the largest visible entries are still the best of their number. No formula gives
    the best matrix of a rank if the invisible entries are free. So "low-rank" is the best found
    then; its error is at most that of the SVD of the masked matrix. With the true optimum the
    crossing would be at the same or a lower temperature.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> table = oracles(gaussian(16, 4, rng=0), [1.0], [4.0])
    >>> table[table.metric == "rank"].value.tolist()[:2]
    [0.0, 2.0]
    """
    checks.one_of("space", space, ("kernel", "attention"))
    checks.instance("budgets", budgets, Sized, "a sequence of numbers")
    sizes = [checks.positive("budget", budget) for budget in budgets]
    if not sizes:
        raise ValueError("budgets must not be empty")
    kept = (f"{space}_relative_frobenius", "rank", "nnz")
    parts = []
    for budget in sizes:
        for label, spec in ORACLES.items():
            table = sweep(
                [parse(spec.format(space=space))], inputs, temperatures, trials=1, seed=0,
                budget=budget,
            )  # fmt: skip
            parts.append(table[table.metric.isin(kept)].assign(method=label))
    return pd.concat([part for part in parts if len(part)], ignore_index=True)
