"""Exponents of time and memory in each size, beside the exponents of the formulas: a table.

    python -m studies.benchmarks.exponents [NAME ...] [--readme]

Every routine runs at growing sizes of one argument. The slopes of log CPU seconds and of log peak
memory over the largest three sizes are compared with the exponent of the formula; no routine should
grow faster. ``--readme`` writes the table into the README.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
from figures.words.marked_text import insert
from studies.benchmarks import measure

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- exponents -->", "<!-- end of exponents -->"
D, M = 64, 128
ORTHOGONAL = "positive(m=16, projection='orthogonal')"
SLACK = 0.15  # tolerance for the fit of three sizes
Side = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A routine at growing sizes, and its formulas.

    Attributes
    ----------
    work, axis : str
    sizes : sequence of int
    prepare : callable
        size → the function that is measured.
    time, memory : float
        The exponents of the formulas; memory is allocated in addition to the arguments.
    because : str
        The formula.
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


def cases() -> Iterator[Case]:
    """Yield the routines to measure."""
    linear = "n, l", (2048, 4096, 8192, 16384)
    yield Case("attend, positive", *linear, attend, 1, 1, "n·m·d")
    yield Case(
        "attend, positive, causal", *linear, lambda n: attend(n, mask="causal"), 1, 1, "n·m·d"
    )
    yield Case(
        "attend, hierarchical, causal",
        *linear,
        lambda n: attend(n, spec="hierarchical(rank=4, basis='mean')", mask="causal"),
        1.16,
        1.16,
        "n·log₂(n/16)·r·d",
    )
    of_window = "sliding_window(width=64)"
    yield Case(
        "attend, sliding window",
        *linear,
        lambda n: attend(n, spec=of_window, mask=Mask.causal(n, n)),
        1,
        1,
        "n·w·d",
    )
    yield Case(
        "attend, positive",
        "m",
        (64, 128, 256, 512),
        lambda m: attend(spec=f"positive(m={m})"),
        1,
        1,
        "n·m·d",
    )
    yield Case("attend, positive", "d", (32, 64, 128, 256), lambda d: attend(d=d), 1, 1, "n·m·d")
    yield Case("compare", "n, l", (512, 1024, 2048, 4096), errors, 2, 1, "n·l·(m + d); 15·n kept")
    yield Case(
        "compare", "l", (1024, 2048, 4096, 8192), lambda l: errors(512, l), 1, 1, "n·l·(m + d)"
    )
    yield Case("compare", "m", (64, 128, 256, 512), lambda m: errors(m=m), 1, 0, "n·l·(m + d)")
    yield Case("compare", "d", (32, 64, 128, 256), lambda d: errors(d=d), 1, 1, "n·l·(m + d)")
    yield Case("monte_carlo", "temperatures", (2, 4, 8, 16), sample, 1, 1, "draws·m·pairs·t")
    yield Case(
        "monte_carlo", "draws", (50, 100, 200, 400), lambda c: sample(1, c), 1, 0, "draws·m·pairs"
    )
    of_matrix = "n, l", (128, 256, 512, 1024)
    yield Case(
        "expected_error, orthogonal",
        *of_matrix,
        lambda n: functools.partial(expected_error, parse(ORTHOGONAL), *points(n)),
        2,
        2,
        "n·l·d",
    )
    yield Case(
        "godec.at_budget(32)",
        *of_matrix,
        lambda n: functools.partial(at_budget, weights(n), 32.0),
        3,
        2,
        "sweeps·n·l·r, one Gram matrix n·l²",
    )
    yield Case(
        "total_variation.nearest, rank 8",
        *of_matrix,
        lambda n: functools.partial(nearest, weights(n), 8),
        3,
        2,
        "sweeps·n·l·r², one Gram matrix n·l²",
    )
    yield Case(
        "total_variation.nearest",
        "rank",
        (4, 8, 16, 32),
        functools.partial(functools.partial, nearest, weights(256)),
        2,
        2,
        "sweeps·n·l·r²",
    )
    yield Case(
        "inexact_alm, 10 iterations",
        *of_matrix,
        lambda n: functools.partial(inexact_alm, weights(n), max_iterations=10),
        3,
        2,
        "n·l² an iteration",
    )
    yield Case(
        "singular_values",
        *of_matrix,
        lambda n: functools.partial(singular_values, weights(n)),
        3,
        2,
        "n·l²",
    )
    yield Case("diagnose", "n, l", (256, 512, 1024, 2048), advice, 3, 2, "spectra n·l², else n·l")
    yield Case(
        "diagnose", "budget", (16, 32, 64, 128), lambda b: advice(512, budget=b), 1, 1, "n·m·d, n·k"
    )
    yield Case("diagnose", "d", (32, 64, 128, 256), lambda d: advice(512, d=d), 1, 1, "n·l·d")
    yield Case(
        "diagnose", "temperature", (1, 2, 4, 8), lambda t: advice(512, temperature=t), 0, 0, "none"
    )
    yield Case("diagnose", "trials", (1, 2, 4), lambda t: advice(512, trials=t), 1, 1, "draws")
    yield Case("diagnose", "heads", (1, 2, 4), lambda h: advice(heads=h), 1, 0, "heads")


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


def row(case: Case, found: tuple[float, float]) -> str:
    """Return a line of the table; exponents above the formula's are bold."""
    shown = [
        f"**{value:.2f}**" if value > formula + SLACK else f"{value:.2f}"
        for value, formula in zip(found, (case.time, case.memory))
    ]
    sizes = f"{case.axis} = {case.sizes[-3]} … {case.sizes[-1]}"
    cells = case.work, sizes, shown[0], f"{case.time:g}", shown[1], f"{case.memory:g}", case.because
    return "| " + " | ".join(cells) + " |"


def table(lines: Sequence[str]) -> str:
    """Return the table with its headings."""
    heads = "routine", "sizes", "time", "its formula", "memory", "its formula", "which is"
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *lines])


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
        found = [row(one, measured(one)) for one in cases() if one.work.startswith(names)]
    print(table(found))
    if options.readme:
        README.write_text(insert(README.read_text("utf-8"), BEGIN, END, table(found)), "utf-8")


if __name__ == "__main__":
    main()
