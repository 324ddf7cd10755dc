"""The finished tasks of a run, in a folder, so that a stopped run continues where it was.

    DIR/KEY.json     the outcome of one task, under a hash of everything that decides it

Outcomes are numbers, texts, `Sentence`, tables, and lists and dicts of these; they are read back
bit for bit. A file that was altered does not have its hash, and its task is done again.
"""

import json
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs import output_files
from analysis.sentences import Sentence


class Finished:
    """The finished tasks of a run.

    Parameters
    ----------
    folder : path, optional
        Created with the first outcome; None keeps nothing.
    earlier : path
        The folders of earlier runs, whose outcomes are used again.

    Examples
    --------
    >>> Finished(None).get("a key") is None
    True
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *earlier: str | os.PathLike[str] | None,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.earlier = [Path(one) for one in earlier if one is not None]
        if self.folder is not None:
            output_files.sweep_leftovers(self.folder)

    def __bool__(self) -> bool:
        return self.folder is not None or bool(self.earlier)

    def get(self, name: str) -> Any:
        """Return the outcome of a task by its key; None if it is missing or damaged."""
        for folder in (self.folder, *self.earlier):
            text = folder and output_files.unsealed(folder / f"{name}.json", name)
            if text:
                outcome = json.loads(text, object_hook=_read)
                if folder is not self.folder:
                    self.put(name, outcome)
                return outcome
        return None

    def put(self, name: str, outcome: Any) -> None:
        """Keep the outcome of a task."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_plain(outcome), ensure_ascii=False)
        with output_files.replacing(self.folder / f"{name}.json", lasting=False) as temporary:
            temporary.write_text(output_files.sealed(name, text), "utf-8")

    def keep_only(self, names: Collection[str]) -> None:
        """Remove the outcomes of all tasks but these; other files stay."""
        for path in self.folder.glob("*.json") if self.folder else ():
            if re.fullmatch("[0-9a-f]{64}", path.stem) and path.stem not in names:
                path.unlink(missing_ok=True)


def _plain(x: Any) -> Any:
    """Return what JSON can hold; `_read` is the way back."""
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
