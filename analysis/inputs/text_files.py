"""Texts that a user wrote: plans, notes, answers, and what a model reads."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from analysis.sentences import one_line
from approx.checks import display

MOST_TEXT = 2**24  # bytes of a plan, notes or answers


def read_text(path: Path, kind: str = "file", most: int = MOST_TEXT) -> str:
    """Return a UTF-8 text that a user wrote, without a byte order mark.

    Raises
    ------
    FileNotFoundError, ValueError
        There is none, it is no regular file or larger than `most` bytes, or no UTF-8.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no {kind} {one_line(path)}")
    if not path.is_file() or path.stat().st_size > most:  # a pipe or a device may never end
        raise ValueError(f"{one_line(path)} is not a {kind} of at most {most} bytes")
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{one_line(path)} must be a UTF-8 file") from None


def json_object(name: str, text: str) -> dict[str, Any]:
    """Return the JSON object that a text is; raise ValueError if it is none, or a name repeats."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
        if not isinstance(found, dict):
            raise ValueError(f"got {display(found)}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be one JSON object: {one_line(error)}") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{one_line(twice, 60)} is there twice")
    return found
