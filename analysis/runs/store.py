"""A folder of outcomes, so that a stopped run continues where it was.

    FOLDER/KEY.json          the outcome of a task, under a hash of its key and its text
    FOLDER/KEY.error.json    how a task failed
    FOLDER/.tmp-…            a file that is being written; those of dead processes are removed

A key is a hash of everything that decides an outcome. Files are written under another name and
renamed, so that a process that dies leaves none that is half written. An outcome whose file was
altered, or cut when the machine stopped, does not have its hash and is computed again. Processes
need no lock: the same key always means the same bits.
"""

import csv
import dataclasses
import functools
import json
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs import output_files
from analysis.runs.tasks import Failure
from analysis.sentences import Sentence

Place = str | os.PathLike[str] | None


class Store:
    """The outcomes of a run: numbers, texts, `Sentence`, tables, and lists and dicts of these.

    They are read back bit for bit.

    Parameters
    ----------
    folder : path, optional
        Created with the first outcome; None keeps nothing.
    earlier : path
        The folders of earlier runs, whose outcomes are used again.

    Examples
    --------
    >>> Store(None).get("a key") is None
    True
    """

    suffix = ".json"

    def __init__(self, folder: Place, *earlier: Place) -> None:
        self.folder = self.cells = None if folder is None else Path(folder)
        self.earlier = [Path(one) for one in earlier if one is not None]
        self._whole: set[str] = set()

    def __bool__(self) -> bool:
        return self.folder is not None or bool(self.earlier)

    @functools.cached_property
    def _ready(self) -> Path:
        """The folder, made, without what dead processes left in it."""
        assert self.cells is not None
        self.cells.mkdir(parents=True, exist_ok=True)
        output_files.sweep_leftovers(self.cells)
        return self.cells

    # Outcomes

    def get(self, key: str) -> Any:
        """Return the outcome of a task; None if it is missing or damaged."""
        for folder in (self.cells, *self.earlier):
            text = folder and output_files.unsealed(folder / f"{key}{self.suffix}", key)
            if not text:
                continue
            try:
                outcome = self.decoded(text)
            except (ValueError, TypeError, KeyError, RecursionError, csv.Error):
                continue  # altered by somebody who knows the hash
            if folder is not self.cells:
                self.put(key, outcome)
            self._whole.add(key)
            return outcome
        return None

    def done(self, key: str) -> bool:
        """Return whether the outcome of a task is there."""
        return key in self._whole or self.get(key) is not None

    def altered(self, key: str) -> bool:
        """Return whether an outcome was written and its file has changed since."""
        path = self.cells and self.cells / f"{key}{self.suffix}"
        return path is not None and path.exists() and self.get(key) is None

    def put(self, key: str, outcome: Any) -> None:
        """Keep the outcome of a task, and remove the record of its failure."""
        if self.cells is None:
            return
        text = output_files.sealed(key, self.encoded(outcome))
        with output_files.replacing(
            self._ready / f"{key}{self.suffix}", lasting=False
        ) as temporary:
            temporary.write_text(text, "utf-8")
        self._whole.add(key)
        self._error(key).unlink(missing_ok=True)

    def keep_only(self, keys: Collection[str]) -> None:
        """Remove the outcomes of all tasks but these; other files stay."""
        for path in self.cells.glob(f"*{self.suffix}") if self.cells else ():
            if re.fullmatch("[0-9a-f]{64}", path.stem) and path.stem not in keys:
                path.unlink(missing_ok=True)

    def encoded(self, outcome: Any) -> str:
        """Return an outcome as text."""
        return json.dumps(_plain(outcome), ensure_ascii=False)

    def decoded(self, text: str) -> Any:
        """Return the outcome of a text."""
        return json.loads(text, object_hook=_read)

    # Failures

    def _error(self, key: str) -> Path:
        assert self.cells is not None
        return self.cells / f"{key}.error.json"

    def fail(self, key: str, failure: Failure, **about: Any) -> None:
        """Record how a task failed."""
        if self.cells is None:
            return
        text = json.dumps(about | dataclasses.asdict(failure), ensure_ascii=False, indent=1)
        with output_files.replacing(self._ready / f"{key}.error.json") as temporary:
            temporary.write_text(text, "utf-8", "replace")

    def failure(self, key: str) -> Failure | None:
        """Return the failure of a task; None if it is done or was not tried."""
        if self.cells is None or self.done(key):
            return None
        path = self._error(key)
        try:
            record = json.loads(path.read_text("utf-8")) if path.is_file() else {}
            return Failure(*(str(record[field.name]) for field in dataclasses.fields(Failure)))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None  # the task is tried again


def _plain(x: Any) -> Any:
    """Return a value that JSON can hold; `_read` is the way back."""
    if isinstance(x, Sentence):
        return {"message": x.message, "values": _plain(x.values)}
    if isinstance(x, pd.DataFrame):
        columns = [[name, str(x[name].dtype), _plain(x[name].tolist())] for name in x]
        return {"columns": columns}
    if isinstance(x, dict):
        return {"pairs": [[name, _plain(value)] for name, value in x.items()]}
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, Sequence) and not isinstance(x, str):
        return [_plain(value) for value in x]
    return x


def _read(x: dict[str, Any]) -> Any:
    if "columns" in x:
        series = {name: pd.Series(cells, dtype=kind) for name, kind, cells in x["columns"]}
        return pd.DataFrame(series)
    return Sentence(x["message"], **x["values"]) if "message" in x else dict(x["pairs"])
