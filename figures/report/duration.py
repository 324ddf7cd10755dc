"""How long a report takes: the seconds of its studies on one machine, at the speed of this one.

``python -m figures.report.duration FOLDER …`` writes these seconds, from the manifests of reports
of the bundled heads that ``expqk report --jobs 1 --profile PROFILE`` has just written.
"""

import json
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from analysis.experiments.profile import SIZES, Profile, profile
from analysis.runs import output_files

MEASURED = Path(__file__).with_name("seconds.json")
REPEATS = 5


def expected(asked: Profile, kept: Collection[str]) -> float:
    """Return about how many seconds a report takes whose studies are computed but for those kept.

    The seconds of a study grow with the entries of the inputs, from those of the quick profile on,
    which a study takes however few its entries are; they shrink with the processes. What was not
    measured takes no time.
    """
    measured = json.loads(MEASURED.read_text("utf-8"))
    own, least = measured.get(asked.name, measured["default"]), measured["quick"]["seconds"]
    size = _entries(asked) / own["entries"]
    studies = pages = 0.0
    for name, seconds in own["seconds"].items():
        if "." in name:
            pages += seconds
        elif name not in kept:
            floor = min(least.get(name, 0.0), seconds)
            studies += floor + (seconds - floor) * size
    return float(_speed() / measured["speed"] * (studies / asked.jobs + pages))


def forecast(asked: Profile, kept: Collection[str], studies: Collection[str]) -> str:
    """Return how long a report takes and what it does not compute again, as a line to read."""
    seconds = max(expected(asked, kept), 5)
    own = json.loads(MEASURED.read_text("utf-8")).get(asked.name, {"seconds": {}})["seconds"]
    known = set(studies) - {*kept} <= own.keys()
    taken = f"{seconds / 60:.0f} minutes" if seconds > 100 else f"{seconds:.0f} s"
    cores = f"{asked.jobs} core{'s' * (asked.jobs > 1)}"
    stored = f"; {len(kept)} of {len(studies)} tables are kept" if kept else ""
    said = f"{'about' if known else 'more than'} {taken} on {cores}"
    return f"{said}, longer where functions are compiled first{stored}"


def _entries(asked: Profile) -> int:
    return sum(x.n * x.l for x in asked.inputs)


def _speed(clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a small computation, the least of a few."""
    x = np.random.default_rng(0).normal(size=(400, 400))
    seconds = []
    with threadpool_limits(1):
        for _ in range(REPEATS):
            start = clock()
            np.linalg.svd(np.exp(x @ x.T / 400))
            seconds.append(clock() - start)
    return min(seconds)


def main(folders: list[str]) -> int:
    """Write the seconds of reports in their folders."""
    measured: dict[str, object] = {"speed": round(_speed(time.process_time), 4)}
    for name, folder in zip(SIZES, folders, strict=True):
        seconds = output_files.manifest(Path(folder))["seconds"]
        rounded = {study: round(taken, 2) for study, taken in sorted(seconds.items())}
        measured[name] = {"entries": _entries(profile(name)), "seconds": rounded}
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
