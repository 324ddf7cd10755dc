"""A sweep on disk: a folder that survives a killed process, a full disk and a second process.

    DIR/manifest.json    the cells of the sweep in their order, its config, the versions
    DIR/cells/           the `Store` of its cells, as CSV

Only the manifest waits for the disk, which a cell would do for as long as it is computed.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.runs import output_files
from analysis.runs.store import Store
from analysis.sweeps import table
from analysis.sweeps.table import KINDS, Row

FORMAT = 1
TABLE = "table.csv"


class StoreError(ValueError):
    """The folder is not a store, or it holds another sweep."""


class CellsFailed(RuntimeError):
    """Some cells of a sweep failed; the others are in its store."""


class SweepStore(Store):
    """The cells of a sweep, one file per cell, and their order.

    A path to a file, or to a folder that holds something else, raises StoreError.
    """

    suffix = ".csv"

    def __init__(self, folder: str | Path) -> None:
        super().__init__(Path(folder) / "cells")
        self.folder: Path = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"the store {self.folder} is not a folder")
        if self.folder.is_dir() and not self.manifest:
            names = {p.name for p in self.folder.iterdir() if not p.name.startswith(".tmp-")}
            if names - {"cells"}:  # which are there before a manifest is written
                raise StoreError(f"{self.folder} is not a store, and it is not empty")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest that `open` wrote; empty if there is none, StoreError if it is damaged."""
        path = self.folder / "manifest.json"
        if path.exists() and not path.is_file():  # a pipe, which would never end
            raise StoreError(f"{path} is not a file")
        try:
            manifest = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{path} is damaged: {error}") from None
        known = isinstance(manifest, dict) and manifest.get("format") == FORMAT
        keys = manifest.get("cells") if known else None
        if not isinstance(keys, list) or not all(_is_key(key) for key in keys):
            raise StoreError(f"{path} is not the manifest of a store of format {FORMAT}")
        return dict(manifest)

    def open(self, keys: Sequence[str], **about: Any) -> None:
        """Start or resume a sweep: remove what dead processes left, and write the manifest.

        A sweep may grow: one that has all cells of the last one takes its place. Called again at
        the end of a sweep, this notices another sweep that began here at the same moment.

        Raises
        ------
        StoreError
            The store holds cells of another sweep.
        """
        cells = output_files.inside(self.folder, self.folder / "cells/KEY").parent
        for folder in (self.folder, cells):
            output_files.sweep_leftovers(folder)
        last = self.manifest
        before = last.get("cells", [])
        if last and set(keys) <= set(before):
            return
        if others := len(set(before) - set(keys)):
            raise StoreError(
                f"{self.folder} holds another sweep: {others} of its {len(before)} cells are not "
                f"in this one (of another config, input or version). Use another folder"
            )
        manifest = {"format": FORMAT, **about, "cells": list(keys)}
        text = json.dumps(manifest, ensure_ascii=False, indent=1, allow_nan=False)
        with output_files.replacing(self.folder / "manifest.json") as temporary:
            temporary.write_text(text, "utf-8")

    def encoded(self, outcome: Iterable[Row]) -> str:
        return f"{','.join(KINDS)}\n{table.as_csv(map(table.typed, outcome))}"

    def decoded(self, text: str) -> list[Row]:
        return table.parsed(text.partition("\n")[2])

    def table(self, keys: Iterable[str]) -> pd.DataFrame:
        """Return the rows of the cells that are done, in the order of their keys.

        Budgets that are not stored values have a column that says what they count.
        """
        per_cell = (self.get(key) or [] for key in keys)
        found = table.frame(row for rows in per_cell for row in rows)
        return table.with_currency(found, str(self.manifest.get("currency", "stored")))

    def csv(self, keys: Iterable[str]) -> str:
        """Return the text of the table that `expqk sweep` writes beside the cells."""
        shown = table.harmless(self.table(keys))
        return str(shown.to_csv(index=False, lineterminator="\n"))


def read(folder: str | Path) -> pd.DataFrame:
    """Return the table of a store in the order of its sweep; cells that are not done are absent.

    Raises
    ------
    StoreError
        The folder is not one that `analysis.sweeps.sweep.sweep` or ``expqk sweep`` wrote.
    """
    store = existing(folder)
    return store.table(store.manifest["cells"])


def existing(folder: str | Path) -> SweepStore:
    """Return the store in a folder; raise FileNotFoundError or StoreError if there is none."""
    if not Path(folder).exists():
        raise FileNotFoundError(f"there is no {folder}")
    store = SweepStore(folder)
    if not store.manifest:
        raise StoreError(f"{folder} is not a store: it has no manifest.json")
    return store


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and re.fullmatch(r"[0-9a-f]{64}", key) is not None
