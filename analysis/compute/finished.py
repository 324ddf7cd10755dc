"""The finished tasks of a run, in a folder, so that a stopped run continues.

    DIR/KEY.json     the outcome of one task; KEY is a hash of everything that decides it

A file is written under another name and then renamed, so that no file is half written. Outcomes are
numbers, texts, `Sentence`, and lists and dicts of them, stored to the last bit.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.sentences import Sentence


class Finished:
    """The finished tasks of a run.

    Parameters
    ----------
    folder : path, optional
        Created when an outcome is stored; None stores nothing.
    earlier : path, optional
        The folder of an earlier run, whose outcomes are used, too.

    Examples
    --------
    >>> Finished(None).get(key("a head")) is None
    True
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        earlier: str | os.PathLike[str] | None = None,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.earlier = None if earlier is None else Path(earlier)

    def __bool__(self) -> bool:
        return not (self.folder is None and self.earlier is None)

    def get(self, name: str) -> Any:
        """Return the outcome of a task by its `key`; None if the file is absent or damaged."""
        for folder in (self.folder, self.earlier):
            if folder is None:
                continue
            try:
                text = (folder / f"{name}.json").read_text("utf-8")
                outcome = json.loads(text, object_hook=_read)
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if folder is not self.folder:
                self.put(name, outcome)
            return outcome
        return None

    def put(self, name: str, outcome: Any) -> None:
        """Store the outcome of a task."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f".tmp-{secrets.token_hex(8)}"
        try:
            half.write_text(json.dumps(_plain(outcome), ensure_ascii=False), "utf-8")
            half.replace(self.folder / f"{name}.json")
        finally:
            half.unlink(missing_ok=True)


def key(*decisive: Any) -> str:
    """Return a hash of the data that decide an outcome: texts, numbers, and bytes of arrays."""
    h = hashlib.sha256()
    for x in decisive:
        if isinstance(x, np.ndarray):
            h.update(repr((x.shape, x.dtype.str)).encode())
            h.update(np.ascontiguousarray(x).tobytes())
        else:
            h.update(repr(x).encode())
        h.update(b"\n")
    return h.hexdigest()


def _plain(x: Any) -> Any:
    """Return an outcome in types that JSON can store; `_read` is the inverse."""
    if isinstance(x, Sentence):
        return {"message": x.message, "values": _plain(x.values)}
    if isinstance(x, dict):
        return {"pairs": [[name, _plain(value)] for name, value in x.items()]}
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, Sequence) and not isinstance(x, str):
        return [_plain(value) for value in x]
    return x


def _read(x: dict[str, Any]) -> Any:
    return Sentence(x["message"], **x["values"]) if "message" in x else dict(x["pairs"])
