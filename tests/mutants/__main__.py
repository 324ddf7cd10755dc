"""Plant each bug alone in a copy of the tree and run the test that must notice it.

``python tests/mutants [WORD ...]``: the bugs that tests/kills.py puts above a test, all of them or
those whose file, test or texts have one of the words.
The tests that noticed are run again at the end where nothing is planted, and must pass.
"""

import multiprocessing
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
os.environ.update(THREADS)

# What all tests import is imported once: each of their processes is a fork of this one.
import joblib  # noqa: E402, F401
import matplotlib.figure  # noqa: E402, F401
import mpmath  # noqa: E402, F401
import numba  # noqa: E402
import pandas as pd  # noqa: E402, F401
import pytest  # noqa: E402
import scipy.optimize  # noqa: E402
import scipy.stats  # noqa: E402, F401

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from kills import Bug, bugs, misplaced  # noqa: E402

BUGS = [*bugs(ROOT)]
WORKERS = 2
PATIENCE = 60  # seconds of a processor, after which what never ends is noticed, too
SHARED = ("elementary.py", "jit.py", "compiler.py")  # Numba's cache sees no edit in them


class Outcome(NamedTuple):
    bug: Bug
    killer: str  # the test that noticed; "" where none did
    seconds: float
    problem: str = ""


class Only(NamedTuple):
    """A plugin of pytest: of the parameters of a test those whose id has a text."""

    text: str

    def pytest_collection_modifyitems(self, items):
        items[:] = [x for x in items if self.text in x.nodeid.partition("[")[2]]


class Tree:
    """A copy of the tree, with a Numba cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.cache, self.log = (folder / x for x in ("tree", "cache", "log"))
        names = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(names, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)  # with its time, which Numba's cache looks at
        self.cache.mkdir()

    def pytest(self, arguments: list[str], cache: Path, only: str = "") -> tuple[int, str]:
        """Return the exit status and what pytest wrote."""
        if (child := os.fork()) == 0:
            self._as_child(["-xq", "--tb=line", "-p", "no:cacheprovider", *arguments], cache, only)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, self.log.read_text("utf-8", "replace")

    def _as_child(self, arguments: list[str], cache: Path, only: str) -> None:
        status = 3
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 10))
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.root)
            sys.path[:2] = [str(self.root)]  # in the place of this folder and of tests/
            os.environ |= {"PYTHONPATH": str(self.root), "NUMBA_CACHE_DIR": str(cache)}
            numba.config.CACHE_DIR = str(cache)
            status = int(pytest.main(arguments, [Only(only)] if only else []))
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def run(self, bug: Bug) -> Outcome:
        """Plant a bug, run its test, and take it out again."""
        path, start = self.root / bug.file, time.monotonic()
        source = path.read_text("utf-8")
        path.write_text(source.replace(bug.old, bug.new), "utf-8")
        cache = self._cache(path, source)
        try:
            status, said = self.pytest(shlex.split(bug.tests), cache, bug.only)
        finally:
            shutil.copy2(ROOT / bug.file, path)
            if cache != self.cache:
                shutil.rmtree(cache)
        seconds = time.monotonic() - start
        if status == 0:
            return Outcome(bug, "", seconds)
        if status == -signal.SIGXCPU:
            return Outcome(bug, f"{PATIENCE} s without an end", seconds)
        if status == 1 and (found := re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.M)):
            return Outcome(bug, found[1], seconds)
        last = said.strip().splitlines()[-1:] or [""]
        return Outcome(bug, "", seconds, f"pytest ended with status {status}: {last[0]}")

    def _cache(self, path: Path, source: str) -> Path:
        # What is compiled with the bug must not be found without it.
        if "jit import" not in source and path.name not in SHARED:
            return self.cache
        cache = self.cache.with_name("cache-of-mutant")
        if path.name in SHARED:
            cache.mkdir()
        else:
            shutil.copytree(self.cache, cache, copy_function=os.link)
        return cache


def work(
    folder: Path, todo: multiprocessing.SimpleQueue, done: multiprocessing.SimpleQueue
) -> None:
    """Run bugs until there is None, then their killers on the tree as it is."""
    tree, killers = Tree(folder), set()
    while (place := todo.get()) is not None:
        outcome = tree.run(BUGS[place])
        killers |= {outcome.killer} if "::" in outcome.killer else set()
        done.put(outcome)
    status, said = tree.pytest(sorted(killers), tree.cache) if killers else (0, "")
    done.put(said if status else None)


def described(bug: Bug) -> str:
    """Return a bug in one line."""
    texts = f"{bug.old} → {bug.new}"
    return f"{bug.file}: {bug.name or ' '.join(texts.split())}"


def main(words: list[str]) -> int:
    chosen = [bug for bug in BUGS if not words or any(w in "\n".join(bug) for w in words)]
    if problems := misplaced(ROOT, chosen):
        print(*problems, sep="\n")
        return 1
    start, survived, problem = time.monotonic(), [], False
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        fork = multiprocessing.get_context("fork")
        todo, done = fork.SimpleQueue(), fork.SimpleQueue()
        for bug in sorted(chosen):  # those of one test side by side
            todo.put(BUGS.index(bug))
        workers = []
        for place in range(WORKERS):
            todo.put(None)
            workers.append(fork.Process(target=work, args=(Path(name) / str(place), todo, done)))
            workers[-1].start()
        for _ in range(len(chosen) + WORKERS):
            match done.get():
                case Outcome() as outcome:
                    said = outcome.killer or outcome.problem or "SURVIVED"
                    print(f"{outcome.seconds:5.1f}  {said}  {described(outcome.bug)}", flush=True)
                    survived += [] if outcome.killer else [described(outcome.bug)]
                case str() as said:
                    print("where nothing is planted:", said)
                    problem = True
        for worker in workers:
            worker.join()
    print(f"{len(chosen)} bugs in {time.monotonic() - start:.0f} s, {len(survived)} not noticed")
    print(*(f"not noticed: {name}" for name in survived), sep="\n")
    return 1 if survived or problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
