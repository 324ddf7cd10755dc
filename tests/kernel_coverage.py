"""Fail unless the run that just ended without JIT executed every line of every kernel."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DECORATORS = {"kernel", "summing_kernel", "by_precision"}


def kernels(tree):
    """Yield the functions of a module that are compiled."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and DECORATORS & {
            d.id for o in node.decorator_list for d in ast.walk(o) if isinstance(d, ast.Name)
        }:
            yield node


def main():
    import coverage

    data = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    data.load()
    found, missed = 0, []
    for path in sorted([*ROOT.glob("approx/**/*.py"), *ROOT.glob("analysis/**/*.py")]):
        for kernel in kernels(ast.parse(path.read_text("utf-8"))):
            found += 1
            body = range(kernel.body[0].lineno, kernel.end_lineno + 1)
            if lines := sorted({*data.analysis2(str(path))[3]} & {*body}):
                missed.append(f"{path.relative_to(ROOT)}: {kernel.name} misses lines {lines}")
    print("\n".join(missed) or f"every line of {found} kernels is covered")
    return 1 if missed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
