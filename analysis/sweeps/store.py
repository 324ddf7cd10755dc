"""A sweep on disk: a folder that survives a killed process, a full disk and a second process.

    DIR/manifest.json          the cells of the sweep in their order, its config, the versions
    DIR/cells/KEY.csv          the rows of one cell, under a hash of its key and its rows
    DIR/cells/KEY.error.json   how a cell failed
    DIR/cells/.tmp-…           a file that is being written; those of dead processes are removed

A key is a hash of everything that decides a cell's numbers. Files are written under another name
and renamed, so that a process that dies leaves none that is half written. A cell whose file was
altered, or cut when the machine stopped, does not have its hash and is computed again: only the
manifest waits for the disk, which a cell would do for as long as it is computed. Processes do not
need a lock: the same key always means the same bits.
"""

import contextlib
import csv
import dataclasses
import hashlib
import json
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from analysis.compute.executors import Failure
from analysis.sweeps import table
from analysis.sweeps.table import KINDS, Row

FORMAT = 1
TOKEN = secrets.token_hex(4)  # tells this process from a dead one of the same number


class StoreError(ValueError):
    """The folder is not a store, or it holds another sweep."""


class CellsFailed(RuntimeError):
    """Some cells of a sweep failed; the others are in its store."""


def _headed(key: str, body: str) -> str:
    """Return the text of a cell's file: a hash of its key and rows, the columns, the rows."""
    whole = hashlib.sha256(f"{key}\n{body}".encode()).hexdigest()
    return f"# sha256 {whole}\n{','.join(KINDS)}\n{body}"


class Store:
    """The cells of a sweep, one file per cell.

    Parameters
    ----------
    folder : str or Path

    Raises
    ------
    StoreError
        The path is a file, or the folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self._whole: set[str] = set()
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"the store {self.folder} is not a folder")
        if self.folder.is_dir() and not self.manifest and any(self.folder.iterdir()):
            self._only_cells()

    def _only_cells(self) -> None:
        """Raise StoreError unless there is nothing but cells, as before a manifest is written."""
        names = [p.name for p in self.folder.iterdir() if not p.name.startswith(".tmp-")]
        if set(names) - {"cells"}:
            raise StoreError(f"{self.folder} is not a store, and it is not empty")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest that `open` wrote; empty if there is none.

        Raises
        ------
        StoreError
            The manifest is damaged, or of a later format.
        """
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
        self.cells.mkdir(parents=True, exist_ok=True)
        self.sweep_leftovers()
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
        self.put(self.folder / "manifest.json", text.encode())

    def sweep_leftovers(self) -> None:
        """Remove the files that processes of this machine were writing when they died."""
        for path in [*self.folder.glob(".tmp-*"), *self.cells.glob(".tmp-*")]:
            parts = re.fullmatch(r"\.tmp-(.+)-(\d+)-([0-9a-f]+)-.*", path.name)
            if parts is None or parts[1] != _host():
                continue
            pid = int(parts[2])
            mine = pid == os.getpid()
            if (mine and parts[3] != TOKEN) or (not mine and not psutil.pid_exists(pid)):
                path.unlink(missing_ok=True)

    def put(self, path: Path, content: bytes, *, lasting: bool = True) -> None:
        """Write a file whole or not at all; if it is ``lasting``, even if the machine stops."""
        mine = f"{_host()}-{os.getpid()}-{TOKEN}-{threading.get_ident()}"  # two threads differ, too
        temporary = path.with_name(f".tmp-{mine}.{path.name}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                if lasting:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(path)  # a full disk gives no name
            raise
        if lasting:
            _sync(path.parent)

    # Cells

    def _file(self, key: str) -> Path:
        return self.cells / f"{key}.csv"

    def rows(self, key: str) -> list[Row] | None:
        """Return the rows of a cell; None if it is not done, or its file was altered."""
        path = self._file(key)
        if not path.is_file():  # a pipe would never end
            return None
        try:
            text = path.read_bytes().decode()
            body = text.split("\n", 2)[2]
            if text != _headed(key, body):
                return None
            rows = table.parsed(body)
        except (ValueError, IndexError, csv.Error):  # or altered by one who knows the hash
            return None
        self._whole.add(key)
        return rows

    def altered(self, key: str) -> bool:
        """Return whether a cell was written and its file has changed since."""
        return self._file(key).exists() and self.rows(key) is None

    def done(self, key: str) -> bool:
        """Return whether all rows of a cell are there."""
        return key in self._whole or self.rows(key) is not None

    def write(self, key: str, rows: Iterable[Row]) -> None:
        """Write the rows of a cell, and remove the record of its failure."""
        content = _headed(key, table.text(map(table.typed, rows)))
        self.put(self._file(key), content.encode(), lasting=False)
        self._whole.add(key)
        self._error(key).unlink(missing_ok=True)

    # Failures

    def _error(self, key: str) -> Path:
        return self.cells / f"{key}.error.json"

    def fail(self, key: str, failure: Failure, **about: Any) -> None:
        """Record how a cell failed."""
        text = json.dumps(about | dataclasses.asdict(failure), ensure_ascii=False, indent=1)
        self.put(self._error(key), text.encode("utf-8", "replace"))

    def failure(self, key: str) -> dict[str, Any] | None:
        """Return how a cell failed; None if it is done or was not tried."""
        path = self._error(key)
        if not path.exists() or self.done(key):
            return None
        try:
            return dict(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            return None  # the cell is tried again

    def table(self, keys: Iterable[str]) -> pd.DataFrame:
        """Return the rows of the cells that are done, in the order of their keys.

        Budgets that are not stored values have a column that says what they count.
        """
        per_cell = (self.rows(key) or [] for key in keys)
        found = table.frame(row for rows in per_cell for row in rows)
        return table.with_currency(found, str(self.manifest.get("currency", "stored")))


def read(folder: str | Path) -> pd.DataFrame:
    """Return the table of a store in the order of its sweep, whenever the cells finished.

    Parameters
    ----------
    folder : str or Path
        Written by `analysis.sweeps.sweep.sweep` or ``expqk sweep``; cells that are not done are
        absent.

    Raises
    ------
    StoreError
        It is not a store.
    """
    store = existing(folder)
    return store.table(store.manifest["cells"])


def existing(folder: str | Path) -> Store:
    """Return the store in a folder; raise FileNotFoundError or StoreError if there is none."""
    if not Path(folder).exists():
        raise FileNotFoundError(f"there is no {folder}")
    store = Store(folder)
    if not store.manifest:
        raise StoreError(f"{folder} is not a store: it has no manifest.json")
    return store


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and re.fullmatch(r"[0-9a-f]{64}", key) is not None


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._]", "_", socket.gethostname()) or "host"


def _sync(folder: Path) -> None:
    """Make a rename in a folder survive a crash, if the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
