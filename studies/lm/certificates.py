"""Bounds of estimates on their own errors, on a language model: ``python -m
studies.lm.certificates``.

``expqk capture`` or ``python -m studies.lm`` writes FILE. Tables of bounds and true errors are
written into ``--summary``: by method and by the data about unread keys, by kind of head, and by the
size of pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import tqdm

from analysis.experiments.certificates import BOXES, ENTRIES, NORMS, Source, compared
from analysis.inputs import Head, head_kinds
from studies.lm import pages
from studies.lm.sample import DATA

FIRST = 128  # the first query that counts
LEAST = 1e-6  # smaller errors are left out of ratios, because rounding is a part of them
CODES = {bits: Source("boxes", bits=bits) for bits in (2, 3, 4, 6)}
SIZES = tuple(Source("boxes", size, bits) for bits in (0, 4) for size in (4, 8, 16, 32))
METHODS: dict[str, tuple[Source, ...]] = {
    "top_k(k=32)": (BOXES, *CODES.values()),
    "top_k(k=128)": (BOXES, *CODES.values()),
    "pages(k=64, current=True)": (BOXES, *CODES.values()),
    "sink_window(k=32)": (BOXES, *CODES.values()),
    "sampled(sparse=sink_window(k=16), k=16)": (BOXES, CODES[4]),
    "scatterbrain(low_rank=positive(m=16), sparse=sink_window(k=24))": (
        ENTRIES, ENTRIES._replace(bits=4),
    ),
    "hierarchical(rank=4, basis='mean', sinks=1)": (ENTRIES, ENTRIES._replace(bits=4)),
    "hierarchical(rank=4, space='attention')": (NORMS, ENTRIES._replace(bits=4)),
    "truncated_svd(rank=16, space='attention')": (NORMS, ENTRIES._replace(bits=4)),
}  # fmt: skip
IN_SIZES = ("top_k(k=32)", "sink_window(k=32)")
SAID = {"boxes": "boxes", "entries": "boxes, every entry", "dropped": "norms of what was dropped"}


def measured(heads: Iterable[Head], first: int = FIRST) -> pd.DataFrame:
    """Return all rows of attention, of all heads by all methods, with their bounds."""
    known, tables = pages.kinds(pd.read_csv(DATA / "smollm2.csv")), []
    for x in heads:
        for spec, sources in METHODS.items():
            more = [s for s in SIZES if spec in IN_SIZES and s not in sources]
            found = compared(x, spec, (*sources, *more))
            found = found[found.position >= first]
            tables.append(found.assign(kind=known.get((x.layer, x.head), "mixed")))
    rows = pd.concat(tables, ignore_index=True)
    return rows.assign(ratio=(rows.value / rows.truth).where(rows.truth > LEAST))


def summary(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return medians and shares over rows of attention, grouped by some columns, in their order."""
    tv, output = (rows[rows.metric == name] for name in ("attention_tv", "output_error"))
    groups, others = (x.groupby(list(by), sort=False) for x in (tv, output))
    table = pd.DataFrame(
        {
            "reads": groups.share.mean(),
            "true tv": groups.truth.median(),
            "bound": groups.value.median(),
            "bound/true": groups.ratio.median(),
            "of outputs": others.ratio.median(),
        }
    )
    for level in (0.5, 0.1):
        table[f"true < {level:g}"] = groups.truth.agg(lambda x, y=level: np.mean(x < y))
        table[f"bound < {level:g}"] = groups.value.agg(lambda x, y=level: np.mean(x < y))
    return table.reset_index()


def by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table by method and source, with pages of 16 keys."""
    table = summary(rows[rows["size"] == BOXES.size], ["method", "source", "bits"])
    return _said(table)


def by_kind(rows: pd.DataFrame, bits: int = 4) -> pd.DataFrame:
    """Return the table by kind of head, for codes of ``bits`` bits or for norms."""
    some = rows[(rows["size"] == BOXES.size) & (rows.method.isin(METHODS))]
    some = some[(some.source == "boxes") & (some.bits == bits) | (some.source == "dropped")]
    order = {name: i for i, name in enumerate(head_kinds.KINDS)}
    table = summary(some, ["method", "source", "bits", "kind"])
    table = table.sort_values("kind", key=lambda x: x.map(order), kind="stable")
    places = {spec: i for i, spec in enumerate(METHODS)}
    table = table.sort_values("method", key=lambda x: x.map(places), kind="stable")
    return _said(table).drop(columns=["knows", "bits"])


def by_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table by the number of keys in a page."""
    some = rows[rows.method.isin(IN_SIZES) & rows.bits.isin((0, 4)) & (rows.source == "boxes")]
    table = summary(some, ["method", "bits", "size"]).sort_values(
        ["method", "bits", "size"], ascending=[False, True, True]
    )
    table["method"] = [f"`{x}`" for x in table.method]
    return table.astype({"bits": str, "size": str})


def _said(table: pd.DataFrame) -> pd.DataFrame:
    table = table.rename(columns={"source": "knows"}).astype({"bits": str})
    table["knows"] = table.knows.map(SAID)
    table["method"] = [f"`{x}`" for x in table.method]
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Measure some heads of a file, and write the tables."""
    parser = pages.parser(".certificates", __doc__)
    pages.add_heads(parser, 270, 512)
    arguments = parser.parse_args(argv)
    heads = pages.heads(arguments)
    rows = measured(tqdm.tqdm(heads, "heads", file=sys.stderr))
    below = int((rows.value < rows.truth * (1 - 1e-9) - 1e-12).sum())
    pages.write(
        arguments,
        f"What estimates know of their own errors ({len(heads)} heads of {arguments.file.stem}, "
        f"queries {FIRST} to {heads[0].n - 1}, measured on {pages.today()}): medians over rows of "
        f"attention, and shares of them. Of {len(rows)} bounds {below} are below the error that "
        "was measured. Reads are numbers of 16 bits that are read to answer with a bound, keys and "
        "values included, as shares of what exact attention reads; blank where every entry of the "
        "estimate is read, which costs no less; factors are not counted. Bits are those of the "
        "code of a coordinate; norms of what was dropped need all logits when the estimate is "
        "made. Bound/true is a median over rows, then of the error of the output.",
        pages.numbers(by_method(rows)),
        "By kind of head, with codes of 4 bits, or norms of what was dropped:",
        pages.numbers(by_kind(rows)),
        "By the keys of a page:",
        pages.numbers(by_size(rows)),
    )


if __name__ == "__main__":
    main()
