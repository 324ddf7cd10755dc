"""Fail unless the run that just ended without JIT executed every line of every kernel."""

import ast
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).parent.parent
DECORATORS = {"kernel", "summing_kernel", "by_precision"}


def kernels(path):
    """Yield (name, first line of the body, last line) of the kernels of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and DECORATORS & {
            d.id for o in node.decorator_list for d in ast.walk(o) if isinstance(d, ast.Name)
        }:
            yield node.name, node.body[0].lineno, node.end_lineno


def main():
    data = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    data.load()
    found, missed = 0, []
    for path in sorted([*ROOT.glob("approx/**/*.py"), *ROOT.glob("analysis/**/*.py")]):
        for name, first, last in kernels(path):
            found += 1
            lines = set(data.analysis2(str(path))[3]) & set(range(first, last + 1))
            if lines:
                missed.append(f"{path.relative_to(ROOT)}: {name} misses lines {sorted(lines)}")
    print("\n".join(missed) or f"every line of {found} kernels is covered")
    return 1 if missed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
