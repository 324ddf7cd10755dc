"""Reliable digits: printed numbers are computed again, with other roundings.

``python -m studies.accuracy.digits [TEXT …]`` makes texts of `TEXTS` once unchanged and once for
each of `OTHERWISE`: queries and keys moved by an ulp (with unchanged draws), BLAS with the kernels
of another processor, and Numba without fused multiply-add. A printed number that differs has more
digits than are reliable. The table is written into ``docs/accuracy.md``.
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from figures.words.marked_text import insert
from studies.accuracy import __main__ as command

ROOT = Path(__file__).parents[2]
DATA = ROOT / "analysis" / "data"
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Lines with a time or with the command of the run are not compared.
TIMED = re.compile(r"\d (?:s|ms|min|seconds|minutes)\b|^expqk ", re.MULTILINE)

# The environment variables of a run; one of them moves the inputs.
OTHERWISE: dict[str, dict[str, str]] = {
    "inputs moved by an ulp": {"EXPQK_MOVED": "1"},
    "BLAS of another processor": {"OPENBLAS_CORETYPE": "Prescott"},
    "Numba without FMA": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


def said(*arguments: str) -> str:
    """Return the output of a command."""
    from figures.command.cli import main

    found = io.StringIO()
    with contextlib.redirect_stdout(found), contextlib.redirect_stderr(io.StringIO()):
        assert main([*arguments, "--jobs", "1"]) == 0
    return found.getvalue()


def readme() -> str:
    """Return the output of the Python block of the README."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[0]
    found = io.StringIO()
    with contextlib.redirect_stdout(found):
        exec(compile(code, "README.md", "exec"), {})
    return found.getvalue()


def report() -> str:
    """Return the Markdown of a quick report."""
    with tempfile.TemporaryDirectory() as folder:
        said("report", "--profile", "quick", "--out", folder)
        return (Path(folder) / "report.md").read_text("utf-8")


TEXTS: dict[str, Callable[[], str]] = {
    "README, the block in Python": readme,
    "`expqk diagnose`, MiniLM": lambda: said("diagnose", str(DATA / "minilm.npz")),
    "`expqk diagnose`, SmolLM2": lambda: said("diagnose", str(DATA / "smollm2.npz")),
    "`expqk target --tv 0.1`, SmolLM2": lambda: said(
        "target", str(DATA / "smollm2.npz"), "--tv", "0.1"
    ),
    "`expqk theory`, SmolLM2": lambda: said("theory", str(DATA / "smollm2.npz")),
    "`expqk report --profile quick`": report,
}


def move() -> None:
    """Move every entry of queries and keys by one unit in the last place, up or down."""
    from analysis.inputs import Head

    scaled = Head._scaled

    def off(self: Any, name: str, x: np.ndarray) -> np.ndarray:
        exact = scaled(self, name, x)
        up = np.random.default_rng(0).integers(2, size=exact.shape) > 0
        return np.nextafter(exact, np.where(up, np.inf, -np.inf).astype(exact.dtype))

    Head._scaled = off


@dataclasses.dataclass(frozen=True)
class Held:
    """The count of numbers of a text, and of those that differ in another run."""

    numbers: int
    changed: int
    worst: str  # the pair with the largest relative difference


def compare(one: str, other: str) -> Held:
    """Return the numbers of a text that differ in another run, counted."""
    total, changed, worst, widest = 0, 0, "", 0.0
    lines = [x for x in one.splitlines() if not TIMED.search(x)]
    others = [x for x in other.splitlines() if not TIMED.search(x)]
    if len(lines) != len(others):
        return Held(0, 0, f"{len(lines)} lines, and {len(others)}")
    for a, b in zip(lines, others):
        pairs = list(zip(NUMBER.findall(a), NUMBER.findall(b)))
        total += len(pairs)
        if a == b:
            continue
        if NUMBER.sub("", a) != NUMBER.sub("", b):
            changed, worst, widest = changed + 1, f"{a.strip()} / {b.strip()}", float("inf")
            continue
        for x, y in pairs:
            if x != y:
                changed += 1
                u, v = (float(z.replace("−", "-")) for z in (x, y))
                gap = abs(u - v) / (max(abs(u), abs(v)) or 1.0)  # 0 and −0
                if gap > widest:
                    widest, worst = gap, f"{x} and {y}"
    return Held(total, changed, worst)


def run(path: Path, names: Sequence[str]) -> None:
    """Write texts into a JSON file; called in a child process."""
    if os.environ.get("EXPQK_MOVED"):
        move()
    found = {}
    for name in names:
        found[name] = TEXTS[name]()
        path.write_text(json.dumps(found), "utf-8")


def texts(names: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the texts of each run; the first run is unchanged."""
    with tempfile.TemporaryDirectory() as folder:
        for name, more in {"": {}, **OTHERWISE}.items():
            path = Path(folder) / "texts.json"
            cache = {"NUMBA_CACHE_DIR": f"{folder}/numba"} if "NUMBA_CPU_NAME" in more else {}
            subprocess.run(
                [sys.executable, "-m", "studies.accuracy.digits", "--run", str(path), *names],
                env=os.environ | more | cache,
                cwd=ROOT,
                check=True,
            )
            yield name, json.loads(path.read_text("utf-8"))


def table(runs: Iterable[tuple[str, dict[str, str]]]) -> str:
    """Return how many printed numbers change in each run after the first."""
    (_, plain), *others = runs
    rows = []
    for name, text in plain.items():
        held = {how: compare(text, again[name]) for how, again in others}
        of = max(x.numbers for x in held.values())
        cells = [f"{x.changed}" + (f": {x.worst}" if x.worst else "") for x in held.values()]
        rows.append((name, str(of), *cells))
    return command.table(("text", "numbers", *OTHERWISE), rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(Path(sys.argv[2]), sys.argv[3:] or [*TEXTS])
    else:
        page = command.PAGE.read_text("utf-8")
        command.PAGE.write_text(
            insert(page, *command.marks("digits"), table(texts(sys.argv[1:] or [*TEXTS]))), "utf-8"
        )
