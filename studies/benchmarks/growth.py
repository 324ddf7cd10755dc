"""Seconds and peak memory against n, m and the number of temperatures, with fitted slopes.

    python -m studies.benchmarks.growth [--out FOLDER] [--draw] [--largest 65536] [--repeats 3]

Writes data/growth.csv and figures/growth.{png,pdf,txt} into FOLDER. The gallery has no such figure,
because measured times differ from run to run. ``--draw`` only draws an existing CSV again.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from analysis.errors.metrics import compare
from analysis.moments import monte_carlo
from approx import parse
from figures.drawing import style
from studies.benchmarks import measure

D, M, N = 64, 256, 4096
THREADS = {"attend": (1, 2), "compare": (1, 2), "monte_carlo": (1,)}
SQUARE = 16384  # the largest n at which all n² numbers are compared
TITLES = {"n": "n = l", "m": "features m", "temperatures": "temperatures"}
COLUMNS = ["task", "axis", "size", "threads", "seconds", "bytes"]
Side = Callable[[int], Any]  # called with the number of threads or jobs


def inputs(n: int) -> tuple[Any, Any]:
    """Return Gaussian Q and K at temperature 1."""
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, n, D)) * D**-0.25
    return Q, K


def attend(n: int, m: int) -> Side:
    """Return a function that computes attention by positive features."""
    (Q, K), method = inputs(n), parse(f"positive(m={m})")
    return lambda threads: method.approximate(Q, K, rng=0).attend(K)


def errors(n: int, m: int) -> Side:
    """Return a function that computes every error of positive features."""
    Q, K = inputs(n)
    estimate = parse(f"positive(m={m})").approximate(Q, K, rng=0)
    return lambda threads: compare(estimate, Q, K, jobs=threads)


def sample(count: int) -> Side:
    """Return a function for mean and variance by Monte Carlo, 64 × 64 pairs, 100 draws."""
    Q, K = (x[:64] / 2 for x in inputs(64))
    method, ladder = parse("positive(m=64)"), np.geomspace(0.5, 8.0, count).tolist()
    return lambda threads: monte_carlo(method, Q, K, draws=100, rng=0, temperatures=ladder)


def cases(largest: int) -> Iterator[tuple[str, str, int, Callable[[], Side]]]:
    """Yield the task, the axis, the size and a function that prepares the side to measure."""
    for n in (2**k for k in range(10, 17) if 2**k <= largest):
        yield "attend", "n", n, lambda n=n: attend(n, M)  # type: ignore[misc]
        if n <= SQUARE:
            yield "compare", "n", n, lambda n=n: errors(n, M)  # type: ignore[misc]
    for m in (2**k for k in range(4, 11)):
        yield "attend", "m", m, lambda m=m: attend(min(N, largest), m)  # type: ignore[misc]
        yield "compare", "m", m, lambda m=m: errors(min(N, largest), m)  # type: ignore[misc]
    for count in (1, 2, 4, 8, 16):
        yield "monte_carlo", "temperatures", count, lambda c=count: sample(c)  # type: ignore[misc]


def compute(largest: int = 65536, repeats: int = 3) -> pd.DataFrame:
    """Return the median seconds of every case, on one and on two threads, and its peak memory."""
    rows = []
    for task, axis, size, prepare in cases(largest):
        side, peak = prepare(), None
        for threads in THREADS[task]:
            turn = functools.partial(side, threads)
            with threadpool_limits(threads):
                seconds = measure.medians({task: turn}, repeats)[task]
            peak = measure.traced(turn) if peak is None else peak  # after kernels are compiled
            rows.append((task, axis, size, threads, seconds, peak))
            print(*rows[-1], file=sys.stderr, flush=True)
    return pd.DataFrame(rows, columns=COLUMNS)


def slopes(table: pd.DataFrame, of: str) -> pd.Series:
    """Return the slope of log ``of`` against log size, over the upper half of the sizes."""

    def slope(part: pd.DataFrame) -> float:
        upper = part[part["size"] >= part["size"].median()]
        return float(np.polyfit(np.log(upper["size"]), np.log(upper[of]), 1)[0])

    return table.groupby(["axis", "task", "threads"])[["size", of]].apply(slope)


def draw(table: pd.DataFrame) -> Figure:
    """Draw seconds above and megabytes below, with one column per axis."""
    with style.style():
        figure = Figure(figsize=(7.0, 4.6))
        axes = figure.subplots(2, len(TITLES), sharex="col", squeeze=False)
        colours = {task: f"C{i}" for i, task in enumerate(sorted(table.task.unique()))}
        for column, (axis, title) in zip(axes.T, TITLES.items()):
            time, memory = column
            for (task, threads), part in table[table.axis == axis].groupby(["task", "threads"]):
                look = {"color": colours[task], "marker": "o", "markersize": 3}
                dash = "-" if threads == 1 else "--"
                word = "thread" if threads == 1 else "threads"
                label = f"{task}, {threads} {word}"
                time.plot(part["size"], part.seconds, dash, label=label, **look)
                if threads == 1:
                    memory.plot(part["size"], part.bytes / 1e6, dash, label=None, **look)
            time.set_title(f"against {title}")
            for ax in column:
                ax.set_xscale("log", base=2)
                ax.set_yscale("log", base=2)
                ax.xaxis.set_major_formatter("{x:g}")
                ax.yaxis.set_major_formatter("{x:.2g}")
            memory.set_xlabel(title)
        axes[0, 0].set_ylabel("seconds")
        axes[1, 0].set_ylabel("peak MB")
        style.legend(figure, list(axes.flat))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return the caption of the figure, with the slopes of its table."""
    time, memory = slopes(table, "seconds"), slopes(table, "bytes")
    fitted = "; ".join(
        f"{task} against {TITLES[axis]} {time[axis, task, 1]:.2f} in time and "
        f"{memory[axis, task, 1]:.2f} in memory"
        for axis, task, threads in time.index
        if threads == 1
    )
    wide = table.pivot_table(index=["axis", "task", "size"], columns="threads", values="seconds")
    gain = (wide[1] / wide[2]).dropna().groupby(level=[0, 1]).last()
    gains = "; ".join(
        f"{task} against {TITLES[axis]} {gain[axis, task]:.2f}" for axis, task in gain.index
    )
    return (
        f"Median seconds and peak allocated memory; d = {D}, float64, m = {M} features and "
        f"n = l = {N} where they do not vary; Monte Carlo of 64 × 64 pairs with 100 draws. Slopes "
        f"on one thread, fitted to logarithms over the upper half of the sizes: {fitted}. One "
        f"thread over two at the largest size: {gains}."
    )


def main() -> None:
    """Measure, or read an earlier measurement, and draw."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.benchmarks.growth", description=__doc__
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "growth")
    parser.add_argument("--draw", action="store_true", help="from the CSV that is there")
    parser.add_argument("--largest", type=int, default=65536, help="n")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.draw:
        table = pd.read_csv(options.out / "data" / "growth.csv")
    else:
        table = compute(options.largest, options.repeats)
    style.save("growth", table, draw(table), options.out, ("png", "pdf"), caption(table))


if __name__ == "__main__":
    main()
