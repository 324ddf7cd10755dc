"""Files that are written whole or not at all, with checksums, and never in place of another's.

    FOLDER/written.sha256    the hash and name of every file that expqk wrote into an output folder

Only a file whose hash is on record under its name is ever replaced; whatever else is there, an
edited file among them, stays. Several processes may write into one folder: each adds a line.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

RECORD, MANIFEST = "written.sha256", "manifest.json"
TOKEN = secrets.token_hex(4)  # tells this process from a dead one with the same process id


def usable(folder: Path, names: Iterable[str] = (), holds: str | None = None) -> None:
    """Create an output folder, before any computation, for files with these names.

    ``holds`` says what it will hold, as its manifest does.

    Raises
    ------
    OSError
        The folder cannot be written; it holds something else, or a file that was edited.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"the output folder {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"the output folder {folder} is not writable")
    if holds is not None:
        refuse_another(folder, holds)
    refuse_edited(folder, names)


def inside(folder: Path, path: Path) -> Path:
    """Return a path and create its folders; raise ValueError if it leads out of ``folder``.

    A link in ``folder`` to another place is not followed.
    """
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path.parent} leads out of {folder}: remove the link")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; the file written there then replaces ``path``.

    After an error the file at ``path`` is unchanged, and an OSError names it. A link there is
    replaced, not followed.

    Parameters
    ----------
    path : Path
    lasting : bool
        Whether the file survives even if the machine stops. What killed processes left in the
        folder is removed, too.
    """
    mine = f"{_host()}-{os.getpid()}-{TOKEN}-{threading.get_ident()}"  # two threads differ, too
    temporary = path.with_name(f".tmp-{mine}.{path.name}")
    if lasting:
        sweep_leftovers(path.parent)
    try:
        yield temporary
        if lasting:
            _sync(temporary)
        os.replace(temporary, path)
        if lasting:
            _sync(path.parent)
    except OSError as error:
        # an error of a full disk names no file
        if error.errno and error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def sweep_leftovers(folder: Path) -> None:
    """Remove the files that processes of this machine were writing when they died."""
    for path in folder.glob(".tmp-*"):
        parts = re.fullmatch(r"\.tmp-([^-]+)-(\d+)-([0-9a-f]+)-.*", path.name)
        if parts is None or parts[1] != _host():
            continue
        pid = int(parts[2])
        mine = pid == os.getpid()
        if (mine and parts[3] != TOKEN) or (not mine and not psutil.pid_exists(pid)):
            path.unlink(missing_ok=True)


def sealed(key: str, text: str) -> str:
    """Return a text under a line with a hash of it and of its key; `unsealed` is the way back."""
    h = hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()
    return f"# sha256 {h}\n{text}"


def unsealed(path: Path, key: str) -> str | None:
    """Return the text that was sealed in a file; None if there is none, or it was altered."""
    try:
        regular = path.is_file() and not path.is_symlink()  # a pipe would never end
        whole = path.read_bytes().decode() if regular else ""
    except (OSError, UnicodeDecodeError):
        return None
    text = whole.partition("\n")[2]
    return text if whole == sealed(key, text) else None


# An output folder


def edited(folder: Path, name: str) -> bool:
    """Return whether a file is there that is not, byte for byte, what expqk wrote."""
    path = folder / name
    if not path.is_file():  # a pipe would never end
        return os.path.lexists(path)
    return _line(path, name) not in _record(folder).splitlines()


def refuse_edited(folder: Path, names: Iterable[str]) -> None:
    """Raise FileExistsError if a file that is to be written is there and not as expqk wrote it."""
    for name in names:
        if edited(folder, name):
            raise FileExistsError(
                f"{folder / name} was edited, or is not of expqk, and is never overwritten: "
                "move it, or give another --out"
            )


@contextlib.contextmanager
def recorded(folder: Path, name: str) -> Iterator[Path]:
    """Yield a temporary name; what is written there is recorded, and then becomes FOLDER/NAME.

    In this order, whoever is killed in between finds nothing that seems to be edited.

    Raises
    ------
    FileExistsError
        A file is there that was edited, or that expqk did not write.
    """
    with replacing(inside(folder, folder / name), lasting=False) as temporary:
        yield temporary
        refuse_edited(folder, [name])
        line, known = _line(temporary, name), _record(folder)
        if line not in known.splitlines():
            torn = known and not known.endswith("\n")  # by a full disk
            with (folder / RECORD).open("a", encoding="utf-8") as file:
                file.write(f"\n{line}\n" if torn else f"{line}\n")


def put(folder: Path, name: str, text: str) -> Path | None:
    """Write a file; return the name of the one before it, NAME.1 or so, if that was edited."""
    with recorded(folder, name) as temporary:
        temporary.write_text(text, encoding="utf-8")
        if not edited(folder, name):
            return None
        names = (folder / f"{name}.{i}" for i in itertools.count(1))
        free = next(path for path in names if not os.path.lexists(path))
        return (folder / name).rename(free)


def manifest(folder: Path) -> dict[str, Any]:
    """Return the entries of a folder's manifest; none where there is no manifest."""
    try:
        path = folder / MANIFEST
        found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def refuse_another(folder: Path, holds: str) -> None:
    """Raise FileExistsError if the manifest of a folder says that it holds something else."""
    if (before := manifest(folder).get("holds", holds)) != holds:
        raise FileExistsError(
            f"{folder} holds {before}, which {holds} does not replace: give another --out"
        )


def describe(folder: Path, about: dict[str, Any]) -> None:
    """Write the manifest of a folder anew."""
    with recorded(folder, MANIFEST) as temporary:
        text = json.dumps(about, ensure_ascii=False, indent=2)
        temporary.write_text(text + "\n", encoding="utf-8", errors="replace")


def _record(folder: Path) -> str:
    path = folder / RECORD
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise FileExistsError(f"{path} is not a file of expqk: move it, or give another --out")
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _line(path: Path, name: str) -> str:
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._]", "_", socket.gethostname()) or "host"


def _sync(path: Path) -> None:
    """Make a file, or a rename in a folder, survive a crash, if the system can."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some file systems can sync files only, no folders
                raise
        finally:
            os.close(descriptor)
