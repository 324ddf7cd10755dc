"""Forecasts of a sweep: its memory by arithmetic, and its time by running a few cells."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.inputs import Head
from analysis.sweeps.sweep import HELD, Cell, Plan
from approx.estimate import exact, memory

HANDFUL = 6  # stripes that `metrics.compare` holds at once; also copies in a decomposition


def working_set(cell: Cell, x: Head) -> int:
    """Return about how many bytes a cell needs: inputs, factors, and stripes or whole matrices.

    Factors of several temperatures count only as far as a cell holds them at the same time.
    """
    arrays = [a for a in (x.q, x.k, x.v) if a is not None]
    inputs = 2 * sum(8 * a.size for a in arrays)  # raw, and at a temperature
    price = cell.method.price(n=x.n, l=x.l, d=x.d, mask=x.mask)
    paid = max(cell.budget, 0.0) if cell.currency == "stored" else 0.0
    factors = 8 * x.n * (paid if price is None else price.stored)
    factors += min(factors * (len(cell.temperatures) - 1), memory.limit() // HELD)
    whole = x.n * x.l
    stripe = min(whole, max(exact.STRIPE, x.l))
    return inputs + math.ceil(factors) + 8 * HANDFUL * (whole if cell.method.oracle else stripe)


class Seconds(NamedTuple):
    """The time of a sweep in one process, predicted from some of its cells."""

    total: float
    cells: int


def seconds(
    planned: Plan, cells: Sequence[Cell], *, count: int = 8, limit: float = 20.0
) -> Seconds:
    """Return the predicted time of all cells in one process, from a few random cells.

    Each of these runs twice at one temperature; only the second run, without compilation, counts.

    Parameters
    ----------
    count : int
        The largest number of cells to run.
    limit : float
        Seconds after which no further cell starts.
    """
    start = time.perf_counter()
    spent: list[float] = []
    chosen = np.random.default_rng(0).permutation(len(cells))[:count]
    for cell in (cells[i] for i in chosen):
        if spent and time.perf_counter() - start > limit:
            break
        one = dataclasses.replace(cell, temperatures=cell.temperatures[:1])
        for _ in range(2):
            before = time.perf_counter()
            with contextlib.suppress(Exception):  # the sweep will record it
                one.run(planned.heads[one.place])
            last = time.perf_counter() - before
        spent.append(last * len(cell.temperatures))
    return Seconds(len(cells) * float(np.mean(spent)) if spent else 0.0, len(spent))
