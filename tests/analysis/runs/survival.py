"""Sweeps that are killed, and two at once: a script, so that forking it is safe.

    survival.py FOLDER

It prints what happened as JSON.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from analysis.inputs import gaussian
from analysis.sweeps.store import SweepStore, read
from analysis.sweeps.sweep import sweep
from approx import parse

METHODS = [parse(s) for s in ("positive(m=4)", "trigonometric(m=4)", "zero", "taylor(degree=1)")]
MOMENTS = [  # the first file is the manifest
    (0, "half written"), (4, "half written"), (3, "written"), (2, "named"), (0, "half written"),
]  # fmt: skip
PAUSE = 0.004


def small(**options):
    return sweep(METHODS, gaussian(6, 3, rng=0), [0.5, 1.0], trials=15, seed=0, **options)


def forked(work):
    """Start a process that does some work; return its number."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def temporary(folder):
    return list(folder.glob("**/.tmp-*"))


def named(folder):
    return {p.name: p.stat().st_mtime_ns for p in (folder / "cells").glob("[0-9a-f]*")}


def watch(at):
    """Call ``at(number of the file, moment)`` while the files of a store are written."""
    write, replace, number = Path.write_text, os.replace, -1

    def halved(self, text, *options):
        nonlocal number
        if self.name.startswith(".tmp-"):
            number += 1
            write(self, text[: len(text) // 2], *options)
            at(number, "half written")
        return write(self, text, *options)

    def replaced(source, target):
        at(number, "written")
        replace(source, target)
        at(number, "named")

    Path.write_text, os.replace = halved, replaced


def dying(folder, moment):
    """Sweep into a folder until this process kills itself."""
    watch(lambda *now: now == moment and os.kill(os.getpid(), signal.SIGKILL))
    small(store=folder)


def killed(folder, whole):
    """Return what each kill left, and the sweep after them: the table, and cells done twice."""
    found, before = [], {}
    for moment in MOMENTS:
        status = os.waitpid(forked(lambda moment=moment: dying(folder, moment)), 0)[1]
        kept, after = SweepStore(folder), named(folder)
        found.append({
            "signal": os.WTERMSIG(status),
            "half": [name for name in after if kept.get(name.split(".")[0]) is None],
            "again": [name for name, at in before.items() if after.get(name) != at],
            "done": len(after), "temporary": len(temporary(folder)),
        })  # fmt: skip
        before = after
    small(store=folder)
    after = named(folder)
    return {
        "kills": found,
        "again": [name for name, at in before.items() if after[name] != at],
        "cells": len(SweepStore(folder).manifest["cells"]),
        "shards": len(after),
        "temporary": len(temporary(folder)),
        "same": read(folder).equals(whole),
    }


def together(folder, whole):
    """Return what two processes wrote that ran at once."""

    def work():
        watch(lambda *_: time.sleep(PAUSE))
        wrote = SweepStore.put

        def noted(self, key, rows):
            wrote(self, key, rows)
            with (folder / f"log-{os.getpid()}").open("a") as file:
                file.write(f"{key}\n")

        SweepStore.put = noted
        small(store=folder / "store")

    folder.mkdir()
    both = [forked(work) for _ in range(2)]
    states = [os.waitpid(pid, 0)[1] for pid in both]
    shares = [(folder / f"log-{pid}").read_text().split() for pid in both]
    return {
        "states": states,
        "shares": [len(share) for share in shares],
        "cells": len(SweepStore(folder / "store").manifest["cells"]),
        "different": len(set(shares[0]) | set(shares[1])),
        "temporary": len(temporary(folder)),
        "same": read(folder / "store").equals(whole),
        "shards": len(named(folder / "store")),
    }


if __name__ == "__main__":
    place, table = Path(sys.argv[1]), small()
    found = {"killed": killed(place / "one", table), "together": together(place / "two", table)}
    print(json.dumps(found))
