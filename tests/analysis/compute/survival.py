"""Sweeps that are killed: a script, so that forking it is safe. Prints what happened as JSON.

    survival.py kills FOLDER COUNT            small cells, killed while the script watches
    survival.py together FOLDER               two processes on one store

Shards are written slowly, a few bytes at a time, so that kills fall into writes too.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np

from analysis.inputs import gaussian
from analysis.sweeps.store import Store, read
from analysis.sweeps.sweep import sweep
from approx import parse

METHODS = [parse(s) for s in ("positive(m=4)", "trigonometric(m=4)", "zero", "taylor(degree=1)")]
PAUSE = 0.001


class Slow:
    """A file whose writes take their time, each part on the disk before the next."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        for start in range(0, len(content), 500):
            self.file.write(content[start : start + 500])
            self.file.flush()
            time.sleep(PAUSE)


def write_slowly():
    plain = Path.open

    def opened(self, *arguments, **options):
        file = plain(self, *arguments, **options)
        return Slow(file) if self.name.startswith(".tmp-") else file

    Path.open = opened


def small(**options):
    x = gaussian(6, 3, rng=0)
    return sweep(METHODS, x, [0.5, 1.0], trials=15, seed=0, **options)


def child(work):
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
    return [p for p in (folder / "cells").glob(".tmp-*")] if (folder / "cells").exists() else []


def named(folder):
    return {p.name: p.stat().st_mtime_ns for p in (folder / "cells").glob("[0-9a-f]*")}


def look(folder, before):
    """Return what a kill left: shards that are not whole, done ones written again, unfinished."""
    kept = Store(folder)
    after = named(folder)
    return {
        "half": [name for name in after if kept.rows(name.split(".")[0]) is None],
        "again": [name for name, at in before.items() if after.get(name) != at],
        "left": len(kept.manifest.get("cells", [None])) - len(after),
        "during": bool(temporary(folder)),
    }


def survive(folder, count, start, rng, most, whole):
    """Kill what ``start`` starts at random moments; return a record of each kill that counted.

    A kill counts where cells were unfinished. Where none was, the table must be whole, and another
    sweep is started from nothing.
    """
    kills = []
    while len(kills) < count:
        before = named(folder) if (folder / "cells").exists() else {}
        process = start()
        while not (folder / "cells").exists() and process.poll() is None:
            time.sleep(PAUSE)
        while len(kills) > 1 and len(named(folder)) == len(before) and process.poll() is None:
            time.sleep(PAUSE)  # it has come further than the one before
        end = time.monotonic() + rng.uniform(0, most)
        while time.monotonic() < end and process.poll() is None:
            time.sleep(PAUSE)
        while len(kills) % 3 == 1 and not temporary(folder) and process.poll() is None:
            time.sleep(PAUSE / 2)  # in the middle of a write
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        found = look(folder, before)
        if found["left"]:
            kills.append(found | {"done": len(named(folder))})
        else:  # it was done already: another one from the start
            assert not found["half"]
            assert not found["again"]
            assert read(folder).equals(whole)
            shutil.rmtree(folder)
    return kills


class Forked:
    """A child of this process, with the interface of Popen."""

    def __init__(self, work):
        self.pid, self.status = child(work), None

    def poll(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status

    def send_signal(self, number):
        os.kill(self.pid, number)

    def wait(self):
        while self.poll() is None:
            time.sleep(PAUSE)
        return self.status


def kills(folder, count):
    whole = small()
    write_slowly()
    rng = np.random.default_rng(count)
    found = survive(folder, count, lambda: Forked(lambda: small(store=folder)), rng, 0.3, whole)
    before = named(folder)
    small(store=folder)
    return found, before, whole


def together(folder):
    wrote = Store.write

    def noted(self, key, rows):
        wrote(self, key, rows)
        with (folder / f"log-{os.getpid()}").open("a") as file:
            file.write(f"{key}\n")

    Store.write = noted
    whole = small()
    write_slowly()
    store = folder / "store"
    both = [Forked(lambda: small(store=store)) for _ in range(2)]
    states = [one.wait() for one in both]
    shares = [(folder / f"log-{one.pid}").read_text().split() for one in both]
    return {
        "states": states,
        "shares": [len(share) for share in shares],
        "cells": len(Store(store).manifest["cells"]),
        "different": len(set(shares[0]) | set(shares[1])),
        "leftovers": len(temporary(store)),
        "same": read(store).equals(whole),
        "shards": len(named(store)),
    }


def main(mode, folder, *rest):
    folder = Path(folder)
    if mode == "together":
        print(json.dumps(together(folder)))
        return 0
    found, before, whole = kills(folder, int(*rest))
    after = look(folder, before)
    after["same"] = read(folder).equals(whole)
    print(json.dumps({"kills": found, "after": after}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
