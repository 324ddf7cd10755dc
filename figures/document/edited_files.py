"""What was written into a folder, so that what was edited since is never lost."""

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.inputs import array_files

MANIFEST = "manifest.json"


def manifest(out: Path) -> dict[str, Any]:
    """Return what the manifest of a folder says, nothing where there is none."""
    try:
        path = out / MANIFEST
        found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def written(out: Path) -> dict[str, list[str]]:
    """Return the digests of all that was ever written here, by the names of the files."""
    found = manifest(out).get("written", {})
    try:
        return {str(name): list(map(str, digests)) for name, digests in found.items()}
    except (TypeError, AttributeError):
        return {}


def edited(path: Path) -> bool:
    """Return whether a file is there that is not, byte for byte, what was written."""
    if path.exists() and not path.is_file():  # a pipe, which would never end
        return True
    return path.exists() and _digest(path) not in written(path.parent).get(path.name, ())


def describe(out: Path, about: dict[str, Any]) -> None:
    """Write the manifest anew; what it says of files that were written stays."""
    _write(out, {**about, "written": written(out)})


@contextlib.contextmanager
def recorded(out: Path, name: str) -> Iterator[Path]:
    """Give a name beside a file; what is written there is recorded, and then takes its place.

    In this order, whoever is killed in between finds nothing that seems to be edited.
    """
    with array_files.replacing(out / name) as temporary:
        yield temporary
        known = written(out)
        every = dict.fromkeys([*known.get(name, []), _digest(temporary)])
        _write(out, {**manifest(out), "written": known | {name: list(every)}})


def put(out: Path, name: str, text: str) -> Path | None:
    """Write a file; return where the one before it is now, if that was edited."""
    with recorded(out, name) as temporary:
        temporary.write_text(text, encoding="utf-8")
        return aside(out / name)


def aside(path: Path) -> Path | None:
    """Give a file that was edited another name, NAME.1 or the next that is free, and return it.

    Without a record of what was written, whatever is there counts as edited.
    """
    if not edited(path):
        return None
    names = (path.with_name(f"{path.name}.{i}") for i in itertools.count(1))
    free = next(name for name in names if not os.path.lexists(name))
    path.rename(free)
    return free


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(out: Path, manifest: dict[str, Any]) -> None:
    with array_files.replacing(out / MANIFEST) as temporary:
        text = json.dumps(manifest, ensure_ascii=False, indent=2)
        temporary.write_text(text + "\n", encoding="utf-8", errors="replace")
