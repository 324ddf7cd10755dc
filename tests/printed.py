"""Every place where a number becomes text, and the tests that must notice a wrong one.

A number is printed as a value of `tr` or `Sentence`, in an f-string with a format, or by one of the
functions that write a cell of a table; `diagnose --json` prints what its rows hold. The places are
found in the syntax tree: ``python tests/printed.py`` lists them.
``python tests/mutants/too_large.py`` makes each in turn 5 % larger and says which test notices.
"""

import ast
import collections
import fnmatch
import functools
import re
import string
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FILES = [
    *sorted((ROOT / "figures" / "gallery").glob("*.py")),
    *sorted((ROOT / "figures" / "report").glob("*.py")),
    *(ROOT / "figures" / f"{name}.py" for name in (
        "document/page_drawings", "show/claims_ledger", "show/diagnosis", "show/model_run",
        "show/plans", "show/substitution", "show/targets", "show/theories", "words/amounts",
    )),
    *(ROOT / "analysis/advice" / f"{name}.py" for name in ("caveats", "diagnose", "verdict")),
]  # fmt: skip
PICTURES = {"draw", "compute", "build"}  # labels of axes, and a table's own names
SAYING = {"tr", "Sentence", "_said"}  # of a message with values
WRITING = {"number", "percent", "power"}  # of one number
ROWS = {
    "analysis/advice/diagnose.py": {"_facts", "_row", "_head", "_winner"}
}  # of dicts of numbers
NO_NUMBERS = {"join", "tr", "label", "literal", "str", "budget", "_temperatures", "mask_name"}
DIAGNOSIS = "tests/figures/show/test_diagnosis_numbers.py"
PRINTED = "tests/figures/test_printed.py tests/figures/test_printed_elsewhere.py"
DIAGNOSE = f"{DIAGNOSIS} tests/analysis/advice/test_diagnose.py"
TESTS = {  # of the places file:function; the first pattern that fits
    "figures/gallery/damage.py:*": "tests/figures/gallery/test_model_figures.py",
    "figures/gallery/*": PRINTED,
    "figures/show/claims_ledger.py:*": "tests/figures/test_printed.py",
    "figures/report/model_page.py:*": "tests/figures/report/test_model_page.py",
    "figures/report/model_sections.py:*": "tests/figures/report/test_model_page.py",
    "figures/report/claims_document.py:*": "tests/figures/report/test_claims_document.py",
    "figures/document/page_drawings.py:*": "tests/figures/drawing/test_drawing.py",
    "figures/report/*": PRINTED,
    "figures/show/model_run.py:*": "tests/figures/report/test_model_page.py",
    "figures/show/diagnosis.py:*": DIAGNOSIS,
    "figures/show/targets.py:*": DIAGNOSIS,
    "figures/show/theories.py:*": DIAGNOSIS,
    "analysis/advice/verdict.py:*": DIAGNOSIS,
    "analysis/advice/caveats.py:*": DIAGNOSIS,
    "analysis/advice/diagnose.py:*": DIAGNOSE,
    "figures/show/plans.py:*": "tests/analysis/models/test_plan.py "
    "tests/analysis/models/test_planner.py",
    "figures/show/substitution.py:*": "tests/figures/show/test_substitution.py",
    "figures/words/amounts.py:*": "tests/test_currencies.py",
}
NUMERIC = re.compile(r".*[efgdn%]$")


class Place(NamedTuple):
    """A number that is printed: its file, the function, and its name there."""

    file: str
    function: str
    name: str
    line: int
    start: int  # of the expression, in characters from the beginning of the file
    end: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.function}"


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.expr) -> bool:
    """Whether an expression is text, as far as one can see."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.JoinedStr():
            return True
        case ast.Call(func=function):
            return _called(function) in NO_NUMBERS
        case ast.BinOp(left=left):
            return _text(left)
        case ast.IfExp(body=body):
            return _text(body)
    return False


def _formats(message: ast.expr) -> dict[str, str]:
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        parts = string.Formatter().parse(message.value)
        return {name: spec or "" for _, name, spec, _ in parts if name}
    return {}


def _numbers(node: ast.AST, function: str, file: str):
    """Yield (name, expression) of the numbers that one node prints."""
    match node:
        case ast.Call(func=called, args=arguments, keywords=keywords):
            name = _called(called)
            if name in SAYING and arguments:
                formats = _formats(arguments[0])
                for keyword in keywords:
                    spec = formats.get(keyword.arg or "", "")
                    if keyword.arg in formats and (NUMERIC.match(spec) or not _text(keyword.value)):
                        yield keyword.arg, keyword.value
            elif name in WRITING and len(arguments) == 1 and not _text(arguments[0]):
                yield ast.unparse(arguments[0]), arguments[0]
        case ast.FormattedValue(value=value, format_spec=ast.JoinedStr() as spec):
            if NUMERIC.match(ast.unparse(spec)[2:-1]):
                yield ast.unparse(value), value
        case ast.Dict(keys=keys, values=values) if function in ROWS.get(file, ()):
            for key, value in zip(keys, values):
                if isinstance(key, ast.Constant) and not _text(value):
                    yield str(key.value), value


@functools.cache
def places(path: Path) -> tuple[Place, ...]:
    """Return the numbers that a file prints, in order; of one name in a function, all."""
    source = path.read_text("utf-8")
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    file = path.relative_to(ROOT).as_posix()

    def offset(line: int, column: int) -> int:
        start = lines[line - 1]
        text = source[start : lines[line]].encode()[:column]
        return start + len(text.decode())

    found = []

    def visit(node: ast.AST, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef) and not function else function
            for name, expression in _numbers(child, inner, file):
                start = offset(expression.lineno, expression.col_offset)
                end = offset(expression.end_lineno, expression.end_col_offset)
                found.append(Place(file, inner, name, expression.lineno, start, end))
            visit(child, inner)

    visit(ast.parse(source), "")
    return tuple(found)


def every() -> list[Place]:
    """Return every place where a number is printed."""
    found = (place for path in FILES for place in places(path))
    return [place for place in found if place.function not in PICTURES]


def tests(where: str) -> str | None:
    """Return the tests of a place, None if nobody named one."""
    return next((t for pattern, t in TESTS.items() if fnmatch.fnmatch(where, pattern)), None)


def main() -> None:
    """Print every place with its numbers and its tests."""
    by_place = collections.defaultdict(list)
    for place in every():
        by_place[place.where].append(" ".join(place.name.split()))
    for where, names in by_place.items():
        print(f"{where} ({tests(where)}): {', '.join(names)}")
    print(sum(map(len, by_place.values())), "numbers in", len(by_place), "functions")


if __name__ == "__main__":
    main()
