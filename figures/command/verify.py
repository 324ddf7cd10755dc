"""``expqk verify``."""

import argparse
import sys
from pathlib import Path
from typing import Any

from analysis.sweeps import config
from analysis.sweeps.store import TABLE, StoreError, existing
from analysis.sweeps.sweep import Cell, verify, versions
from figures.command import options

EXAMPLES = ("expqk verify quick",)
SHOWN = 5  # cells named where there are many


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE")
    about = "share of the cells to compute again, 0 to 1 [0.05]"
    parser.add_argument("--part", type=float, default=0.05, metavar="SHARE", help=about)
    options.add(parser, "seed", "jobs")


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if anything differs or was altered."""
    store = existing(arguments.store)
    manifest = store.manifest
    text, folder = manifest.get("config"), manifest.get("folder")
    if not isinstance(text, str) or not isinstance(folder, str):
        raise StoreError(
            f"{store.folder} was not written by `expqk sweep`: verify it where its methods are, "
            f"with analysis.sweeps.sweep.verify"
        )
    planned = config.loads(text, "manifest.json").plan(folder)
    if planned.keys != manifest["cells"]:
        raise StoreError(
            f"{store.folder} cannot be computed again: since it was written, its inputs, the "
            f"methods or the version of expqk have changed"
        )
    how = options.keywords(arguments, "part", "seed", "jobs")
    checked = verify(store, planned, **how, progress=sys.stderr.isatty(), label="cells")
    _print_changed(manifest.get("versions"))
    altered = [cell for cell in checked.missing if store.altered(cell.key)]
    _print("altered", altered)
    _print("differs", checked.differing)
    path = store.folder / TABLE
    false = path.exists() and not checked.missing and _read(path) != store.csv(planned.keys)
    if false:
        print(f"altered: {path} is not the table of the cells", file=sys.stderr)
    print(
        f"{len(planned.cells)} cells: {len(checked.again)} computed again, "
        f"{len(checked.differing)} differ; {len(altered)} altered, "
        f"{len(checked.missing) - len(altered)} not done"
    )
    return 1 if checked.differing or altered or false or not checked.again else 0


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""  # a pipe would never end


def _print_changed(then: Any) -> None:
    """Say which packages have changed: a stream of random numbers may have, too."""
    now = versions()
    before = then if isinstance(then, dict) else {}
    changed = [f"{k} {v}, now {now.get(k)}" for k, v in before.items() if now.get(k) != v]
    if changed:
        print(f"note: written with {'; '.join(changed)}", file=sys.stderr)


def _print(what: str, cells: list[Cell]) -> None:
    for cell in cells[:SHOWN]:
        where = f"trial {cell.trial}, budget {cell.budget:g}, {cell.key}"
        print(f"{what}: {cell.label} on {cell.name}, {where}", file=sys.stderr)
