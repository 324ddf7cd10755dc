"""Measure every case and every residual, and write `docs/accuracy.md`: `make accuracy`."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from figures.words.markdown import insert, table
from studies.accuracy import factorisations
from studies.accuracy.cases import CASES
from studies.accuracy.measure import Found, worst

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
POINTS = 400  # points per case; `make test` takes a few
ROWS = 96  # rows of the matrices that are factorised


def measure(size: int, *, quick: bool = False) -> list[Found]:
    """Return the largest error of every case, in the order of their names."""
    found = [worst(case, size, quick=quick) for case in CASES]
    return sorted(found, key=lambda row: (row.name, row.part, row.dtype))


def number(x: float) -> str:
    """Return a number with two digits."""
    return "0" if x == 0 else f"{x:.2g}"


def of_cases(found: Iterable[Found]) -> str:
    titles = "function", "dtype", "κ there", "ulp", "largest error", "promised", "where"
    return table(titles, [
        (
            f"`{row.name}`" + (f": {row.part}" if row.part else ""), row.dtype,
            number(row.condition), number(row.ulps),
            *(f"{number(x)} {row.unit}" for x in (row.error, row.promise)), row.where,
        )
        for row in found
    ])  # fmt: skip


def of_residuals(size: int) -> str:
    rows = factorisations.residuals(size)
    titles = "factorisation", "what", "matrix", "over rounding"
    return table(titles, [(f"`{r.name}`", r.what, r.matrix, number(r.value)) for r in rows])


def marks(name: str) -> tuple[str, str]:
    """Return the lines that enclose a generated block of the page."""
    return f"<!-- {name} begin -->", f"<!-- {name} end -->"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.accuracy", description=__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="of each case")
    found = measure(parser.parse_args(arguments).points)
    page = insert(PAGE.read_text("utf-8"), *marks("table"), of_cases(found))
    page = insert(page, *marks("residuals"), of_residuals(ROWS))
    PAGE.write_text(page, encoding="utf-8")
    broken = [row for row in found if not row.holds]
    for row in broken:
        print(f"{row.name} {row.part} {row.dtype}: {row.error:.3g} {row.unit} at {row.where}, "
              f"promised {row.promise:g}", file=sys.stderr)  # fmt: skip
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
