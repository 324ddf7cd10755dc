"""Commands as a shell runs them for a user who sits before a terminal."""

import os
import pty
import re
import subprocess
from typing import NamedTuple

COUNT = r"\d+(?:\.\d+)?[kM]?"
PROGRESS = re.compile(rf".*{COUNT}/{COUNT} \[.*\]\s*|.*: \d+it \[.*\]\s*")
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Done(NamedTuple):
    """What a command left."""

    status: int
    stdout: str
    stderr: str  # without bars of progress


def run(command, folder, env):
    """Run a command of bash in a folder; stderr is a terminal, so that there is progress."""
    ours, theirs = pty.openpty()
    out = folder.with_name("stdout")
    with out.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=os.environ | env,
            stdin=subprocess.DEVNULL, stdout=file, stderr=theirs,
        )  # fmt: skip
    os.close(theirs)
    said = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    lines = re.split(r"[\r\n]+", CONTROL.sub("", said.decode("utf-8", "replace")))
    other = [line for line in lines if line.strip() and not PROGRESS.fullmatch(line)]
    return Done(process.wait(), out.read_text("utf-8"), "\n".join(other))


def _read(terminal):
    try:
        return os.read(terminal, 2**16)
    except OSError:  # Linux says so that nobody writes any more
        return b""


def constant(token):
    """Refuse NaN and infinities, as readers of JSON but Python's do: for ``parse_constant``."""
    raise AssertionError(f"{token} is no JSON")
