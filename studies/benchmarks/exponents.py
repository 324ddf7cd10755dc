"""Exponents of time and memory in each size, beside the exponents of the formulas: a table.

    python -m studies.benchmarks.exponents [NAME ...] [--readme]

Every routine runs at growing sizes of one argument. The slopes of log CPU seconds and of log peak
memory over the largest three sizes are compared with the exponent of the formula; no routine should
grow faster. ``--readme`` writes the table into the README.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from analysis import inputs
from analysis.advice.diagnose import diagnose
from analysis.errors.metrics import compare
from analysis.moments import expected_error, monte_carlo
from analysis.ranks.rank import singular_values
from approx import Mask, parse
from approx.estimate import exact
from approx.low_rank.godec import at_budget
from approx.low_rank.robust_pca import inexact_alm
from approx.low_rank.total_variation import nearest
from figures.words.marked_text import insert, table
from studies.benchmarks import measure

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- exponents -->", "<!-- end of exponents -->"
D, M = 64, 128
ORTHOGONAL = "positive(m=16, projection='orthogonal')"
SLACK = 0.15  # tolerance for the fit of three sizes
Side = Callable[[], Any]


class Case(NamedTuple):
    """A routine at growing sizes; ``prepare`` makes of a size the function that is measured.

    ``time`` and ``memory``, beyond the arguments, are the exponents of the formula ``because``.
    """

    work: str
    axis: str
    sizes: Sequence[int]
    prepare: Callable[[int], Side]
    time: float
    memory: float
    because: str


def points(n: int, l: int | None = None, d: int = D) -> tuple[Any, Any]:
    """Return Gaussian queries and keys at temperature 1."""
    rng = np.random.default_rng(0)
    Q, K = (rng.standard_normal((count, d)) * d**-0.25 for count in (n, l or n))
    return Q, K


def attend(n: int = 4096, *, d: int = D, spec: str = f"positive(m={M})", mask: Any = None) -> Side:
    """Return a function that computes a new estimate and its attention."""
    (Q, K), method = points(n, d=d), parse(spec)
    return lambda: method.approximate(Q, K, mask=mask, rng=0).attend(K)


def errors(n: int = 1024, l: int | None = None, *, d: int = D, m: int = M) -> Side:
    """Return a function that computes every error of positive features."""
    Q, K = points(n, l, d)
    estimate = parse(f"positive(m={m})").approximate(Q, K, rng=0)
    return lambda: compare(estimate, Q, K)


def sample(temperatures: int = 1, draws: int = 50) -> Side:
    """Return a function for mean and variance by Monte Carlo, for 64 × 64 pairs."""
    Q, K = (x / 2 for x in points(64))
    method, ladder = parse("positive(m=64)"), np.geomspace(0.5, 8.0, temperatures).tolist()
    return lambda: monte_carlo(method, Q, K, draws=draws, rng=0, temperatures=ladder)


def weights(n: int, mask: str | None = None) -> Any:
    """Return rows of softmax."""
    return exact.softmax(*points(n), mask)


def advice(n: int = 256, heads: int = 1, d: int = D, **asked: Any) -> Side:
    """Return a function that computes the advice for heads of a model."""
    q, k, v = np.random.default_rng(0).standard_normal((3, heads, n, d))
    ids = tuple((0, i, str(i)) for i in range(heads))
    x = inputs.Heads("heads", q, k, v, ids=ids)
    return lambda: diagnose(x, **({"budget": 16.0, "trials": 1} | asked))


# fmt: off
LINEAR, MATRIX = ("n, l", (2048, 4096, 8192, 16384)), ("n, l", (128, 256, 512, 1024))
OF_D, OF_M = ("d", (32, 64, 128, 256)), ("m", (64, 128, 256, 512))
CASES = [
    Case("attend, positive", *LINEAR, attend, 1, 1, "n·m·d"),
    Case("attend, positive, causal", *LINEAR, lambda n: attend(n, mask="causal"), 1, 1, "n·m·d"),
    Case("attend, hierarchical, causal", *LINEAR, lambda n: attend(
        n, spec="hierarchical(rank=4, basis='mean')", mask="causal"), 1.16, 1.16,
        "n·log₂(n/16)·r·d"),
    Case("attend, sliding window", *LINEAR, lambda n: attend(
        n, spec="sliding_window(width=64)", mask=Mask.causal(n, n)), 1, 1, "n·w·d"),
    Case("attend, positive", *OF_M, lambda m: attend(spec=f"positive(m={m})"), 1, 1, "n·m·d"),
    Case("attend, positive", *OF_D, lambda d: attend(d=d), 1, 1, "n·m·d"),
    Case("compare", "n, l", (512, 1024, 2048, 4096), errors, 2, 1, "n·l·(m + d); 15·n kept"),
    Case("compare", "l", (1024, 2048, 4096, 8192), lambda l: errors(512, l), 1, 1, "n·l·(m + d)"),
    Case("compare", *OF_M, lambda m: errors(m=m), 1, 0, "n·l·(m + d)"),
    Case("compare", *OF_D, lambda d: errors(d=d), 1, 1, "n·l·(m + d)"),
    Case("monte_carlo", "temperatures", (2, 4, 8, 16), sample, 1, 1, "draws·m·pairs·t"),
    Case("monte_carlo", "draws", (50, 100, 200, 400), lambda c: sample(1, c), 1, 0,
         "draws·m·pairs"),
    Case("expected_error, orthogonal", *MATRIX, lambda n: partial(
        expected_error, parse(ORTHOGONAL), *points(n)), 2, 2, "n·l·d"),
    Case("godec.at_budget(32)", *MATRIX, lambda n: partial(at_budget, weights(n), 32.0), 3, 2,
         "sweeps·n·l·r, one Gram matrix n·l²"),
    Case("total_variation.nearest, rank 8", *MATRIX, lambda n: partial(nearest, weights(n), 8),
         3, 2, "sweeps·n·l·r², one Gram matrix n·l²"),
    Case("total_variation.nearest", "rank", (4, 8, 16, 32), lambda r: partial(
        nearest, weights(256), r), 2, 2, "sweeps·n·l·r²"),
    Case("inexact_alm, 10 iterations", *MATRIX, lambda n: partial(
        inexact_alm, weights(n), max_iterations=10), 3, 2, "n·l² an iteration"),
    Case("singular_values", *MATRIX, lambda n: partial(singular_values, weights(n)), 3, 2, "n·l²"),
    Case("diagnose", "n, l", (256, 512, 1024, 2048), advice, 3, 2, "spectra n·l², else n·l"),
    Case("diagnose", "budget", (16, 32, 64, 128), lambda b: advice(512, budget=b), 1, 1,
         "n·m·d, n·k"),
    Case("diagnose", *OF_D, lambda d: advice(512, d=d), 1, 1, "n·l·d"),
    Case("diagnose", "temperature", (1, 2, 4, 8), lambda t: advice(512, temperature=t), 0, 0,
         "none"),
    Case("diagnose", "trials", (1, 2, 4), lambda t: advice(512, trials=t), 1, 1, "draws"),
    Case("diagnose", "heads", (1, 2, 4), lambda h: advice(heads=h), 1, 0, "heads"),
]
# fmt: on


def seconds(side: Side, least: float = 0.3, most: int = 9) -> float:
    """Return the least CPU seconds of several runs, after a warm-up run."""
    side()
    found: list[float] = []
    while len(found) < most and (len(found) < 2 or sum(found) < least):
        start = time.process_time()
        side()
        found.append(time.process_time() - start)
    return min(found)


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of the logarithms over the largest three sizes."""
    return float(np.polyfit(np.log(sizes[-3:]), np.log(values[-3:]), 1)[0])


def measured(case: Case) -> tuple[float, float]:
    """Return the measured exponents of time and memory."""
    times, peaks = [], []
    for size in case.sizes:
        side = case.prepare(size)
        times.append(seconds(side))
        peaks.append(max(float(measure.traced(side)), 1.0))
        print(case.work, case.axis, size, times[-1], peaks[-1], file=sys.stderr, flush=True)
    return slope(case.sizes, times), slope(case.sizes, peaks)


def row(case: Case, found: tuple[float, float]) -> tuple[str, ...]:
    """Return the cells of a line; exponents above the formula's are bold."""
    shown = [
        f"**{value:.2f}**" if value > formula + SLACK else f"{value:.2f}"
        for value, formula in zip(found, (case.time, case.memory))
    ]
    sizes = f"{case.axis} = {case.sizes[-3]} … {case.sizes[-1]}"
    return case.work, sizes, shown[0], f"{case.time:g}", shown[1], f"{case.memory:g}", case.because


def main() -> None:
    """Measure, print, and with ``--readme`` write into the README."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.benchmarks.exponents", description=__doc__
    )
    parser.add_argument("names", nargs="*", help="the routines whose names begin so")
    parser.add_argument("--readme", action="store_true")
    options = parser.parse_args()
    if options.readme and options.names:
        parser.error("the README shows every routine: --readme takes no names")
    names = tuple(options.names) or ("",)
    with threadpool_limits(1):
        found = [row(one, measured(one)) for one in CASES if one.work.startswith(names)]
    titles = "routine", "sizes", "time", "its formula", "memory", "its formula", "which is"
    print(text := table(titles, found))
    if options.readme:
        README.write_text(insert(README.read_text("utf-8"), BEGIN, END, text), "utf-8")


if __name__ == "__main__":
    main()
