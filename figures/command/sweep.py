"""``expqk sweep``."""

import argparse
import contextlib
import dataclasses
import functools
import re
import sys
import time
from importlib import resources
from pathlib import Path

from analysis.runs import output_files
from analysis.sweeps import config, sweep as sweeping
from analysis.sweeps.store import TABLE, SweepStore
from analysis.sweeps.sweep import Cell, SweepPlan
from figures.command import options

EXAMPLES = ("expqk sweep figures/configs/quick.toml --store quick",)
SHOWN = 5  # cells named where many failed


def add(parser: argparse.ArgumentParser) -> None:
    about = "a config, or one of quick.toml, report.toml, full.toml"
    parser.add_argument("config", type=Path, metavar="CONFIG.toml", help=about)
    about = "folder for the cells; an existing one is continued"
    parser.add_argument("--store", type=Path, required=True, metavar="DIR", help=about)
    options.add(parser, "jobs", "scheduler")
    about = "compute part i of N only, i from 1 to N"
    parser.add_argument("--shard", type=_shard, metavar="i/N", help=about)
    about = "only say how many cells there are, and about how long they take"
    parser.add_argument("--dry-run", action="store_true", help=about)
    parser.add_argument("--retry-failed", action="store_true", help="try failed cells again")


def _shard(text: str) -> tuple[int, int]:
    parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not parts or not 1 <= int(parts[1]) <= int(parts[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not i/N with 1 ≤ i ≤ N, such as 2/8")
    return int(parts[1]), int(parts[2])


def run(arguments: argparse.Namespace) -> int:
    """Run, resume or only describe a sweep; return 1 if a cell failed."""
    text, folder = _text(arguments.config)
    whole = config.loads(text, arguments.config.name).plan(folder)
    planned = whole.shard(*arguments.shard) if arguments.shard else whole
    store = SweepStore(arguments.store)
    for absent in whole.absent:
        print(f"absent: {absent}", file=sys.stderr)
    if arguments.dry_run:
        options.refuse_idle(arguments, "dry-run", "scheduler")
        _describe(store, planned, jobs=arguments.jobs, retry_failed=arguments.retry_failed)
        return 0
    about = sweeping.described(whole)
    begin = functools.partial(
        store.open, whole.keys, **about, config=text.decode("utf-8-sig"), folder=folder
    )
    begin()
    if not all(store.done(key) for key in whole.keys):
        (store.folder / TABLE).unlink(missing_ok=True)  # it may be that of a smaller sweep
    how = options.keywords(arguments, "retry_failed", "jobs", "scheduler")
    failed = sweeping.fill(store, planned, **how, progress=sys.stderr.isatty(), label="cells")
    begin()
    for cell in failed[:SHOWN]:
        print(f"failed: {sweeping.described_failure(store, cell)}", file=sys.stderr)
    done = sum(store.done(key) for key in whole.keys)
    part = f", of which {len(planned.cells)} in this part" if arguments.shard else ""
    print(f"{len(whole.cells)} cells{part}: {done} done, {len(failed)} failed")
    if done == len(whole.cells):
        with output_files.replacing(store.folder / TABLE) as temporary:
            temporary.write_text(store.csv(whole.keys), "utf-8")
        print(store.folder / TABLE)
    return 1 if failed else 0


def _text(path: Path) -> tuple[bytes, str]:
    """Return the text of a config and its folder; a bare name is that of a bundled one."""
    bundled = resources.files("figures") / "configs" / path.name
    if not path.exists() and path.parent == Path() and bundled.is_file():
        return bundled.read_bytes(), ""
    return config.read_config(path), str(path.resolve().parent)


def _describe(store: SweepStore, planned: SweepPlan, *, jobs: int, retry_failed: bool) -> None:
    done = [cell for cell in planned.cells if store.done(cell.key)]
    failed = [cell for cell in planned.cells if store.failure(cell.key) is not None]
    skipped = {id(cell) for cell in done + ([] if retry_failed else failed)}
    todo = [cell for cell in planned.cells if id(cell) not in skipped]
    print(
        f"cells   {len(planned.cells)}: {len(done)} done, {len(failed)} failed, {len(todo)} to do"
    )
    if todo:
        timed = max(todo, key=functools.partial(_work, planned))
        about = _duration(len(todo) * _spent(planned, timed) / jobs)
        print(f"time    about {about} with --jobs {jobs}, by the time of one cell, {timed.label}")


def _work(planned: SweepPlan, cell: Cell) -> float:
    """Return the multiply-adds of a cell at one temperature, 0 where only a run shows them."""
    x = planned.heads[cell.place]
    price = cell.method.price(n=x.n, l=x.l, d=x.d, mask=x.mask)
    return 0.0 if price is None else x.n * (price.multiply_adds or 0.0)


def _spent(planned: SweepPlan, cell: Cell) -> float:
    """Return the seconds of a cell at all temperatures, from its second run at one of them."""
    one = dataclasses.replace(cell, temperatures=cell.temperatures[:1])
    before = 0.0
    for _ in range(2):  # the first one may compile
        before = time.perf_counter()
        with contextlib.suppress(Exception):  # the sweep itself will record the error
            one.run(planned.heads[one.place])
    return len(cell.temperatures) * (time.perf_counter() - before)


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
