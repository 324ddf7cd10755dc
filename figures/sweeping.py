"""The commands ``expqk sweep`` and ``expqk verify``."""

from __future__ import annotations

import argparse
import functools
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from analysis import config, estimate
from analysis import sweep as sweeping
from analysis.store import Store, StoreError, existing
from analysis.sweep import Cell, Plan
from approx import memory

SHOWN = 5  # cells named where there are many


def text_of(path: Path) -> tuple[bytes, str]:
    """Return the text of a config and its folder; a bare name is that of a bundled one."""
    bundled = resources.files("figures") / "configs" / path.name
    if not path.exists() and path.parent == Path() and bundled.is_file():
        return bundled.read_bytes(), ""
    return config.text(path), str(path.resolve().parent)


def sweep(arguments: argparse.Namespace) -> int:
    """Run, resume or only describe a sweep; return 1 if a cell failed."""
    text, folder = text_of(arguments.config)
    whole = config.loads(text, arguments.config.name).plan(folder)
    planned = whole.shard(*arguments.shard) if arguments.shard else whole
    store = Store(arguments.store)
    for method, budget, name in whole.absent:
        print(f"absent: nothing of {method} fits budget {budget:g} on {name}", file=sys.stderr)
    if arguments.dry_run:
        describe(store, planned, jobs=arguments.jobs, retry_failed=arguments.retry_failed)
        return 0
    about = sweeping.described(whole)
    begin = functools.partial(
        store.open, whole.keys, **about, config=text.decode("utf-8-sig"), folder=folder
    )
    begin()
    run = functools.partial(
        sweeping.outcomes,
        planned,
        jobs=arguments.jobs,
        scheduler=arguments.scheduler,
        progress=sys.stderr.isatty(),
    )
    if not all(store.done(key) for key in whole.keys):
        (store.folder / "table.csv").unlink(missing_ok=True)  # of a smaller sweep
    failed = sweeping.fill(store, planned, run, retry_failed=arguments.retry_failed)
    begin()
    for cell in failed[:SHOWN]:
        print(f"failed: {sweeping.described_failure(store, cell)}", file=sys.stderr)
    done = sum(store.done(key) for key in whole.keys)
    part = f", of which {len(planned.cells)} in this part" if arguments.shard else ""
    print(f"{len(whole.cells)} cells{part}: {done} done, {len(failed)} failed")
    if done == len(whole.cells):
        table = store.table(whole.keys).to_csv(index=False, lineterminator="\n")
        store.put(store.folder / "table.csv", table.encode())
        print(store.folder / "table.csv")
    return 1 if failed else 0


def describe(store: Store, planned: Plan, *, jobs: int, retry_failed: bool) -> None:
    """Print what a sweep would do: cells, memory, time."""
    done = [cell for cell in planned.cells if store.done(cell.key)]
    failed = [cell for cell in planned.cells if store.failure(cell.key) is not None]
    skipped = {id(cell) for cell in done + ([] if retry_failed else failed)}
    todo = [cell for cell in planned.cells if id(cell) not in skipped]
    print(
        f"cells   {len(planned.cells)}: {len(done)} done, {len(failed)} failed, {len(todo)} to do"
    )
    if todo:
        need = max(estimate.working_set(cell, planned.heads[cell.place]) for cell in todo)
        print(f"memory  about {need / 1e6:.0f} MB a process, the limit is {memory.limit():.3g} B")
        time = estimate.seconds(planned, todo)
        print(
            f"time    about {_duration(time.total / jobs)} with --jobs {jobs}, "
            f"foretold from {time.cells} cells"
        )


def _duration(seconds: float) -> str:
    """Return a duration that people read.

    Examples
    --------
    >>> [_duration(x) for x in (0.2, 59, 240, 9000)]
    ['1 s', '59 s', '4 min', '2.5 h']
    """
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def verify(arguments: argparse.Namespace) -> int:
    """Compute a random part of a store again; return 1 if anything differs or was altered."""
    store = existing(arguments.store)
    found = store.manifest
    text, folder = found.get("config"), found.get("folder")
    if not isinstance(text, str) or not isinstance(folder, str):
        raise StoreError(
            f"{store.folder} was not written by `expqk sweep`: verify it where its methods are, "
            f"with analysis.sweep.verify"
        )
    planned = config.loads(text, "manifest.json").plan(folder)
    if planned.keys != found["cells"]:
        raise StoreError(
            f"{store.folder} cannot be computed again: since it was written, its inputs, the "
            f"methods or the version of expqk have changed"
        )
    checked = sweeping.verify(
        store,
        planned,
        part=arguments.part,
        seed=arguments.seed,
        run=functools.partial(
            sweeping.outcomes, planned, jobs=arguments.jobs, progress=sys.stderr.isatty()
        ),
    )
    _versions(found.get("versions"))
    altered = [cell for cell in checked.missing if store.altered(cell.key)]
    _name("altered", store, altered)
    _name("differs", store, checked.differing)
    print(
        f"{len(planned.cells)} cells: {len(checked.again)} computed again, "
        f"{len(checked.differing)} differ; {len(altered)} altered, "
        f"{len(checked.missing) - len(altered)} not done"
    )
    return 1 if checked.differing or altered or not checked.again else 0


def _versions(then: Any) -> None:
    """Say which packages have changed: a stream of random numbers may have, too."""
    now = sweeping.versions()
    before = then if isinstance(then, dict) else {}
    changed = [f"{k} {v}, now {now.get(k)}" for k, v in before.items() if now.get(k) != v]
    if changed:
        print(f"note: written with {'; '.join(changed)}", file=sys.stderr)


def _name(what: str, store: Store, cells: list[Cell]) -> None:
    for cell in cells[:SHOWN]:
        where: Any = f"trial {cell.trial}, budget {cell.budget:g}, {cell.key}"
        print(f"{what}: {cell.label} on {cell.name}, {where}", file=sys.stderr)
