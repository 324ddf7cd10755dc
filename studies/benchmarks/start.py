"""Seconds of a start: the command, first calls cold and cached, a small sweep, a report."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from studies.benchmarks.measure import Row

TINY: dict[str, tuple[str, ...]] = {
    "commands": ("--help",),
    "kernels": (),
    "sweeps": (),
    "reports": (),
}
COMMANDS = {"--help": (0.3, 0.1), "methods": (0.6, 0.4)}
IMPORTS = {"import approx": {"seconds": (0.5, 0.15)}, "from approx import METHODS": {}}
USED: dict[str, str] = {
    "exp_rows": "approx.parse('positive(m=4)').approximate(Q, K, rng=0)",
    "compare": "metrics.compare(approx.parse('positive(m=4)').approximate(Q, K, rng=0), Q, K)",
    "sampled": "approx.parse('scatterbrain(sparse=top_k(2))').approximate(Q, K, rng=0) @ K",
    "monomials": "approx.parse('taylor(2)').approximate(Q, K).factors()",
    "monte_carlo": "moments.monte_carlo(approx.parse('positive(m=4)'), Q, K, draws=2, rng=0)",
    "godec": "approx.parse('godec(rank=2, k=2)').approximate(Q, K)",
    "robust_pca": "approx.parse('robust_pca()').approximate(Q, K)",
}
SCRIPT = """
import numpy as np, approx, sys, time
from analysis.errors import metrics
from analysis import moments
from approx import METHODS
Q, K = np.random.default_rng(0).standard_normal((2, 24, 4)) / 4
start = time.perf_counter()
{lines}
print(time.perf_counter() - start)
"""


def run(
    repeats: int = 3,
    *,
    commands: Sequence[str] = tuple(COMMANDS),
    kernels: Sequence[str] = tuple(USED),
    sweeps: Sequence[str] = ("quick.toml",),
    reports: Sequence[str] = ("default",),
) -> Iterator[Row]:
    """Yield rows for starts, first calls, sweeps in one process, and reports on all cores."""
    command = [sys.executable, "-m", "figures"]
    for argument in commands:
        seconds = min(_seconds([*command, argument]) for _ in range(repeats))
        yield Row(f"expqk {argument}", seconds, must={"seconds": COMMANDS[argument]})
    for line, must in IMPORTS.items():
        seconds = min(_seconds([sys.executable, "-c", line]) for _ in range(repeats))
        yield Row(line, seconds, must=must)
    script = SCRIPT.format(lines="\n".join(USED[name] for name in kernels))
    with tempfile.TemporaryDirectory() as cache:
        for state, bars in (("cold", (6.0, 4.0)), ("cached", (1.0, None))):
            output = _run([sys.executable, "-c", script], NUMBA_CACHE_DIR=cache)
            work = f"first calls of {len(kernels)} kinds of estimates, {state}"
            yield Row(work, float(output), must={"seconds": bars})
    for config in sweeps:
        with tempfile.TemporaryDirectory() as store:
            seconds = _seconds([*command, "sweep", config, "--store", store, "--jobs", "1"])
            yield Row(f"expqk sweep {config} --jobs 1", seconds, must={"seconds": (20.0, 6.0)})
    for profile in reports:
        with tempfile.TemporaryDirectory() as out:
            seconds = _seconds(
                [*command, "report", "--profile", profile, "--out", out, "--jobs", "2"]
            )
            must = {"seconds": (90.0, 45.0)}
            yield Row(f"expqk report --profile {profile} --jobs 2", seconds, must=must)


def _seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    _run(command)
    return time.perf_counter() - start


def _run(command: Sequence[str], **variables: str) -> str:
    root, variables = Path(__file__).parents[2], {"PYTHONDONTWRITEBYTECODE": ""} | variables
    done = subprocess.run(
        command, cwd=root, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
