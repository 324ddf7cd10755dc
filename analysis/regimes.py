"""Where sparse beats low-rank, where low-rank beats sparse, and what both together gain."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

COLUMNS = (
    "input", "coldest", "hottest", "crossing", "gain", "gain_temperature", "gain_at_crossing",
)  # fmt: skip


def crossing(temperatures: ArrayLike, sparse: ArrayLike, low_rank: ArrayLike) -> float:
    """Return the temperature at which the two errors are equal, log-interpolated; NaN if none.

    The first change counts, going up in temperature, from sparse better to low-rank better.

    Examples
    --------
    >>> crossing([1.0, 4.0], [0.1, 0.4], [0.4, 0.1])
    2.0
    """
    t = np.log(np.asarray(temperatures, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(np.asarray(sparse, float) / np.asarray(low_rank, float))
    for i in range(len(t) - 1):
        if np.isfinite(gap[i : i + 2]).all() and gap[i] <= 0 < gap[i + 1]:
            part = gap[i] / (gap[i] - gap[i + 1])
            return float(np.exp(t[i] + part * (t[i + 1] - t[i])).round(12))
    return float("nan")


def regimes(
    table: pd.DataFrame, metric: str, *, sparse: str, low_rank: str, both: str
) -> pd.DataFrame:
    """Return, for each input, the crossing and the largest gain of sparse + low-rank.

    Parameters
    ----------
    table : DataFrame
        From `analysis.sweep.sweep`.
    metric : str
        The error.
    sparse, low_rank, both : str
        Values of the column ``method``: the better of the first two is what ``both`` must beat.

    Returns
    -------
    DataFrame
        ``input``; ``coldest`` and ``hottest``, the better single class at the ends of the grid;
        ``crossing``; ``gain`` and ``gain_temperature``, the largest ratio of the better single
        class's error to that of both; ``gain_at_crossing``, at the temperature of the grid
        nearest the crossing (by ratio).
    """
    rows = []
    errors = table[table.metric == metric]
    for name, part in errors.groupby("input", sort=False):
        curves = part.pivot_table(
            index="temperature", columns="method", values="value", aggfunc="median"
        )
        if not {sparse, low_rank, both} <= set(curves.columns):
            continue
        t = curves.index.to_numpy(float)
        gain = np.minimum(curves[sparse], curves[low_rank]) / curves[both]
        cross = crossing(t, curves[sparse], curves[low_rank])
        near = np.nan if np.isnan(cross) else gain.iloc[int(np.argmin(np.abs(np.log(t / cross))))]
        best = int(np.argmax(gain))
        ends = [
            "sparse" if curves[sparse].iloc[i] < curves[low_rank].iloc[i] else "low-rank"
            for i in (0, -1)
        ]
        rows.append((name, *ends, cross, float(gain.iloc[best]), float(t[best]), float(near)))
    return pd.DataFrame(rows, columns=list(COLUMNS))
