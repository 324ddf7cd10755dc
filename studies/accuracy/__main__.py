"""Measure every case and every residual, and write `docs/accuracy.md`: `make accuracy`."""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from figures.words.marked_text import insert
from studies.accuracy import attention, elements, errors, factorisations, moments, public, scalars
from studies.accuracy.measure import CASES, Found, worst

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
PARTS = attention, elements, errors, moments, scalars  # importing them registers their cases
POINTS = 400  # points per case; `make test` takes a few
ROWS = 96  # rows of the matrices that are factorised


def measure(size: int, *, quick: bool = False) -> list[Found]:
    """Return the largest error of every case, in the order of their names."""
    found = [row for case in CASES for row in worst(case, size, quick=quick)]
    return sorted(found, key=lambda row: (row.name, row.part, row.dtype))


def number(x: float) -> str:
    """Return a number with two digits."""
    return "0" if x == 0 else f"{x:.2g}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def of_cases(found: Sequence[Found]) -> str:
    headings = "function", "dtype", "κ there", "ulp", "largest error", "promised", "where"
    rows = []
    for row in found:
        name = f"`{row.name}`" + (f": {row.part}" if row.part else "")
        error, bound = (f"{number(x)} {row.unit}" for x in (row.error, row.promise))
        rows.append(
            (name, row.dtype, number(row.condition), number(row.ulps), error, bound, row.where)
        )
    return table(headings, rows)


def of_residuals(size: int) -> str:
    headings = "factorisation", "what", "matrix", "over rounding"
    return table(
        headings,
        (
            (f"`{r.name}`", r.what, r.matrix, number(r.value))
            for r in factorisations.residuals(size)
        ),
    )


def of_reasons() -> str:
    measured = {name for case in CASES for name in case.names}
    by_reason = defaultdict(list)
    for name in public.functions():
        if name not in measured:
            by_reason[public.why(name) or "nobody said why"].append(name)
    parts = []
    for why, names in by_reason.items():
        of_module = defaultdict(list)
        for name in names:
            of_module[name.rpartition(".")[0]].append(name.rpartition(".")[2])
        text = "; ".join(f"`{m}`: {', '.join(some)}" for m, some in of_module.items())
        parts.append(f"- **{why[0].upper()}{why[1:]}.** {text}.")
    return "\n".join(parts)


def marks(name: str) -> tuple[str, str]:
    """Return the lines that enclose a generated block of the page."""
    return f"<!-- {name} begin -->", f"<!-- {name} end -->"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.accuracy", description=__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="of each case")
    size = parser.parse_args(arguments).points
    found = measure(size)
    page = PAGE.read_text("utf-8")
    page = insert(page, *marks("table"), of_cases(found))
    page = insert(page, *marks("residuals"), of_residuals(ROWS))
    page = insert(page, *marks("reasons"), of_reasons())
    PAGE.write_text(page, encoding="utf-8")
    broken = [row for row in found if not row.holds]
    for row in broken:
        print(f"{row.name} {row.part} {row.dtype}: {row.error:.3g} {row.unit} at {row.where}, "
              f"promised {row.promise:g}", file=sys.stderr)  # fmt: skip
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
