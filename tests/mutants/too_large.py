"""Print numbers that are 5 % too large, one at a time, and see whether a test notices.

``python tests/mutants/too_large.py [--count N] [--seed S] [--only WORD]``: of all places where a
number is printed (tests/printed.py), or of so many that are drawn at random. In a copy of the tree
each expression is wrapped, so that one of them at a time can be made 5 % larger, counts by at least
1. The tests that tests/printed.py names for a place are run once as they are, and again for each
place that they reach. What is printed with two digits may hide 5 %: then it is made twice as large.
"""

import argparse
import builtins
import collections
import itertools
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import printed

ROOT = printed.ROOT


class Planted:
    """What instrumented code calls: place, value → value, or 5 % more where it is planted."""

    def __init__(self) -> None:
        self.place, self.factor = -1, 1.05
        self.hits: set[int] = set()
        self.called: set[int] = set()  # with anything, text as well

    def __call__(self, place: int, value: object) -> object:
        self.called.add(place)
        more = _more(value, self.factor)
        if more is not value:
            self.hits.add(place)
        return more if place == self.place else value


def _more(x: object, factor: float) -> object:
    if isinstance(x, bool | np.bool_ | str):
        return x
    if isinstance(x, int | np.integer):
        return type(x)(x + max(1, round((factor - 1) * x)))
    if isinstance(x, float | np.floating):
        return x * factor if x == x and x not in (0, np.inf, -np.inf) else x
    if isinstance(x, pd.Series | np.ndarray) and x.dtype.kind in "if":
        return x * factor
    return x


def instrument(tree: Path, places: list[printed.Place]) -> None:
    """Write a copy of the tree in which every place asks `planted` for its value."""
    names = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(names, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    by_file = collections.defaultdict(list)
    for number, place in enumerate(places):
        by_file[place.file].append((number, place))
    for file, mine in by_file.items():
        source, marks = (ROOT / file).read_text("utf-8"), collections.defaultdict(str)
        for number, place in sorted(mine, key=lambda item: (item[1].start, -item[1].end)):
            marks[place.start] += f"__planted__({number}, ("
        for _, place in mine:
            marks[place.end] = "))" + marks[place.end]
        cuts = [0, *sorted(marks), len(source)]
        text = "".join(source[a:b] + marks.get(b, "") for a, b in itertools.pairwise(cuts))
        (tree / file).write_text(text, "utf-8")
    # In the processes that a test starts nothing is planted.
    without = "import builtins\n\nbuiltins.__planted__ = lambda place, value: value\n"
    (tree / "sitecustomize.py").write_text(without, "utf-8")


class Again:
    """A plugin of pytest: each test that passes is run again for each place that it reached."""

    def __init__(self, planted: Planted, wanted: set[int]) -> None:
        self.planted, self.wanted = planted, wanted
        self.noticed: dict[int, str] = {}
        self.rounded: dict[int, str] = {}  # where 5 % does not show, and twice the number does
        self.reached: set[int] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        self.planted.hits.clear()
        result = yield
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        hits = self.planted.hits & self.wanted
        self.reached |= hits
        todo = sorted(hits - set(self.noticed))
        if todo and _passes(pyfuncitem.obj, arguments):  # it can be run twice
            for place in todo:
                for factor in (1.05, 2.0):
                    self.planted.place, self.planted.factor = place, factor
                    if not _passes(pyfuncitem.obj, arguments):
                        found = self.noticed if factor < 2 else self.rounded
                        found[place] = pyfuncitem.nodeid
                        break
            self.planted.place, self.planted.factor = -1, 1.05
        return result


def _passes(test, arguments) -> bool:
    try:
        test(**arguments)
    except (Exception, pytest.fail.Exception):
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    places = printed.every()
    chosen = [i for i, p in enumerate(places) if options.only in f"{p.where} {p.name}"]
    if options.count:
        random.Random(options.seed).shuffle(chosen)
        chosen = sorted(chosen[: options.count])
    with tempfile.TemporaryDirectory(prefix="printed-") as name:
        tree = Path(name)
        instrument(tree, places)
        builtins.__planted__ = planted = Planted()
        sys.path[0] = str(tree)
        os.environ["PYTHONPATH"] = str(tree)
        os.chdir(tree)
        again = Again(planted, set(chosen))
        named = {printed.tests(places[i].where) or "" for i in chosen}
        files = sorted({test for tests in named for test in tests.split()})
        status = pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", *files], [again])
    if status:
        print("the tests do not pass where nothing is planted")
        return 1
    rounded = {i: test for i, test in again.rounded.items() if i not in again.noticed}
    numbers = [i for i in chosen if i in again.reached]
    lost = [i for i in numbers if i not in again.noticed and i not in rounded]
    for i in numbers:
        name = " ".join(places[i].name.split())[:40]
        said = again.noticed.get(i) or (
            f"only twice the number: {rounded[i]}" if i in rounded else "NOT NOTICED"
        )
        print(f"{places[i].where} {name:<40} {said}")
    never = [i for i in chosen if i not in planted.called]
    for i in never:
        print(f"{places[i].where} {' '.join(places[i].name.split())[:40]:<40} NOT REACHED")
    print(
        f"{len(chosen)} places, {len(never)} of which no test reaches, and {len(numbers)} where "
        f"numbers were printed: {len(again.noticed)} noticed 5 % too large, {len(rounded)} only "
        f"twice as large, {len(lost)} not"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
