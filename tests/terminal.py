"""Commands as a shell runs them for a user who sits before a terminal."""

import contextlib
import functools
import gc
import importlib
import json
import os
import pty
import re
import runpy
import select
import shlex
import subprocess
import sys
from typing import NamedTuple

COUNT = r"\d+(?:\.\d+)?[kM]?"
PROGRESS = re.compile(rf".*{COUNT}/{COUNT} \[.*\]\s*|.*: \d+it \[.*\]\s*")
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Done(NamedTuple):
    """What a command left."""

    status: int
    stdout: str
    stderr: str  # without bars of progress


def run(command, folder, env, new=False):
    """Run a command in a folder; stderr is a terminal, so that there is progress.

    A new one begins as a shell begins it, and imports for itself what others wrote, too.
    """
    ours, theirs = pty.openpty()
    out, said = folder.with_name("stdout"), b""
    ends = os.devnull, str(out), os.ttyname(theirs)
    print(json.dumps([command, str(folder), env, ends, new]), file=_server().stdin, flush=True)
    while ours in select.select([ours, _server().stdout], [], [])[0]:
        said += os.read(ours, 2**16)
    os.close(theirs)
    with contextlib.suppress(OSError):  # raised where no process that it began has it, either
        while more := os.read(ours, 2**16):
            said += more
    os.close(ours)
    lines = re.split(r"[\r\n]+", CONTROL.sub("", said.decode("utf-8", "replace")))
    other = [line for line in lines if line.strip() and not PROGRESS.fullmatch(line)]
    return Done(int(_server().stdout.readline()), out.read_text("utf-8"), "\n".join(other))


@functools.cache
def _server():
    """Return a process that becomes commands; it ends with this one."""
    command, pipe = [sys.executable, "-P", __file__], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def _serve():
    """Import what others wrote; then for each line, begin its command in a copy of the process."""
    for name in ("matplotlib.pyplot", "numba", "pandas", "scipy.sparse.linalg"):
        importlib.import_module(name)
    gc.freeze()  # else each copy writes to all of it where it ends
    for line in sys.stdin:
        if not (process := os.fork()):
            return _begin(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _begin(command, folder, env, ends, new):
    """Become the command; our own code is imported here, from the first folder of PYTHONPATH."""
    os.chdir(folder)
    os.environ.update(env)
    flags = os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_NOCTTY
    for number, (end, flag) in enumerate(zip(ends, flags)):
        os.dup2(os.open(end, flag), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.argv = shlex.split(command)
    sys.path.insert(0, env["PYTHONPATH"])
    if sys.argv[:2] == ["python", "-P"]:
        runpy.run_path(sys.argv[2], run_name="__main__")
    elif sys.argv[0] == "expqk" and not new:
        from figures.command.cli import main

        sys.exit(main())
    else:
        os.execvp("bash", ["bash", "-c", command])


if __name__ == "__main__":
    _serve()
