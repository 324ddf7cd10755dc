"""Planted bugs, each beside the test that must notice it; ``python tests/mutants`` plants them."""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Bug(NamedTuple):
    """In a file the text `old`, which stands in it exactly once, becomes `new`."""

    tests: str  # path::function
    file: str  # its path, or as much of the end of it as no other file has
    old: str
    new: str
    name: str = ""  # where the texts do not say it
    only: str = ""  # in the ids of the parameters to run, where all of them are slow


def kills(file: str, old: str, new: str, name: str = "", *, only: str = "") -> Callable:
    """Say above a test which bug it must notice; one line a bug."""
    return lambda test: test


FOLDERS = "approx", "analysis", "figures", "studies", "docs", "tests"


def bugs(root: Path) -> Iterator[Bug]:
    """Read the bugs above the tests of a tree, without importing them."""
    paths = (path for folder in FOLDERS for path in sorted((root / folder).rglob("*.*")))
    files = [path.relative_to(root).as_posix() for path in paths]
    for path in files:
        if not (path.startswith("tests/") and path.endswith(".py")):
            continue
        if "@kills(" not in (text := (root / path).read_text("utf-8")):
            continue
        for test in ast.parse(text).body:
            for call in getattr(test, "decorator_list", []):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "kills":
                    file, *texts = (ast.literal_eval(value) for value in call.args)
                    only = {x.arg: ast.literal_eval(x.value) for x in call.keywords}
                    ends = [name for name in files if f"/{name}".endswith(f"/{file}")]
                    one = ends[0] if len(ends) == 1 else file
                    yield Bug(f"{path}::{test.name}", one, *texts, **only)


def misplaced(root: Path, chosen: Iterable[Bug]) -> list[str]:
    """Return which texts do not stand exactly once in their files."""
    found = []
    for bug in chosen:
        path = root / bug.file
        count = path.read_text("utf-8").count(bug.old) if path.is_file() else 0
        if count != 1:
            found.append(f"{bug.tests}: {bug.old!r} stands {count} times in {bug.file}")
    return found
