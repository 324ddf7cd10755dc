"""Bounds of estimates on their own errors, and guards that fall back to exact rows.

    python -m studies.lm.certificates out/lm/smollm2-1024.safetensors --summary \\
        studies/lm/certificates.md
    python -m studies.lm.certificates out/lm/smollm2-512.safetensors --heads 24 --guards \\
        --summary studies/lm/guarded.md

Tables of bounds and true errors by method and by the data about unread keys; or the least reads of
guarded methods for a tv that is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import tqdm

from analysis.experiments.certificates import BOXES, ENTRIES, NORMS, Source, compared, row_errors
from analysis.experiments.frontier import guarded_reads
from analysis.inputs import Head
from approx import parse
from studies.lm import pages

FIRST = 128  # the first query that counts
LEAST_ERROR = 1e-6  # smaller errors are left out of ratios, because rounding is a part of them
CODES = {bits: Source("boxes", bits=bits) for bits in (2, 3, 4, 6)}
FOUR = ENTRIES._replace(bits=4)
METHODS: dict[str, tuple[Source, ...]] = {
    "top_k(k=32)": (BOXES, *CODES.values()),
    "top_k(k=128)": (BOXES, *CODES.values()),
    "pages(k=64, current=True)": (BOXES, *CODES.values()),
    "sink_window(k=32)": (BOXES, *CODES.values()),
    "sampled(sparse=sink_window(k=16), k=16)": (BOXES, CODES[4]),
    "scatterbrain(low_rank=positive(m=16), sparse=sink_window(k=24))": (ENTRIES, FOUR),
    "hierarchical(rank=4, basis='mean', sinks=1)": (ENTRIES, FOUR),
    "hierarchical(rank=4, space='attention')": (NORMS, FOUR),
    "truncated_svd(rank=16, space='attention')": (NORMS, FOUR),
}
SAID = {"boxes": "boxes", "entries": "boxes, every entry", "dropped": "norms of what was dropped"}
SUPPORTS = {
    "top_k": "top_k(k={})", "pages": "pages(k={}, current=True)",
    "sink_window": "sink_window(k={}, sinks=4)", "h2o": "columns(k={}, by='h2o', recent=16)",
}  # fmt: skip
KEYS, ALLOWED, CODED, BITS = (32, 64, 128), (0.05, 0.1, 0.2, 0.5), (0, 32, 64), 5


def measured(heads: Iterable[Head], first: int = FIRST) -> pd.DataFrame:
    """Return all rows of attention, of all heads by all methods, with their bounds."""
    tables = [compared(x, spec, sources) for x in heads for spec, sources in METHODS.items()]
    rows = pd.concat(tables, ignore_index=True)
    rows = rows[rows.position >= first]
    return rows.assign(ratio=(rows.value / rows.truth).where(rows.truth > LEAST_ERROR))


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return medians and shares over rows of attention, by method and source, in their order."""
    tv, output = (rows[rows.metric == name] for name in ("attention_tv", "output_absolute_error"))
    by = ["method", "source", "bits"]
    groups, others = (x.groupby(by, sort=False) for x in (tv, output))
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
    table = table.reset_index().rename(columns={"source": "knows"}).astype({"bits": str})
    named = [f"`{x}`" for x in table.method]
    return table.assign(method=named, knows=table.knows.map(SAID))


def guarded(x: Head) -> Iterator[dict[str, object]]:
    """Yield the reads of guarded methods on a head, and their errors."""
    late = np.arange(x.n) >= FIRST
    for name, spec in SUPPORTS.items():
        for k in KEYS:
            for coded in CODED if k < KEYS[-1] else CODED[:1]:
                for tv in ALLOWED:
                    method = parse(
                        f"guarded({spec.format(k)}, tv={tv}, bits={BITS}, coded={coded})"
                    )
                    found = guarded_reads(x, method)[late]
                    apart = row_errors(x.approximate(method), x)[0][late]
                    yield {
                        "method": name, "k": k, "coded": coded, "allowed": tv,
                        "share": found.share.mean(), "exact": found.exact.mean(),
                        "tv": apart.mean(), "most tv": apart.max(),
                        "rows": len(found), "above": int((apart > tv + 1e-9).sum()),
                    }  # fmt: skip


def spending(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cheapest guard of each method for each tv: reads, exact rows, errors."""
    groups = rows.groupby(["allowed", "method", "k", "coded"], sort=False)
    table = groups[["share", "exact", "tv"]].agg(["mean", "sem"])
    table.columns = [f"{name}{' ±' * (kind == 'sem')}" for name, kind in table.columns]
    table["most tv"] = groups["most tv"].max()
    best = table.loc[table.groupby(["allowed", "method"], sort=False).share.idxmin()].reset_index()
    best = best.rename(columns={"share": "reads", "share ±": "reads ±"})
    return best.astype({"k": str, "coded": str})


def main(argv: Sequence[str] | None = None) -> None:
    """Measure some heads of a file, and write the tables."""
    parser = pages.parser(".certificates", __doc__)
    pages.add_heads(parser, 270, 512)
    parser.add_argument("--guards", action="store_true", help="the table of guards instead")
    arguments = parser.parse_args(argv)
    heads = pages.heads(arguments)
    about = (
        f"{len(heads)} heads of {arguments.file.stem}, queries {FIRST} to {heads[0].n - 1}, "
        f"measured on {pages.date()}"
    )
    seen = tqdm.tqdm(heads, "heads", file=sys.stderr)
    if arguments.guards:
        guard = pd.DataFrame([row for x in seen for row in guarded(x)])
        pages.write(
            arguments,
            f"Guards with codes of {BITS} bits on {about}: the least reads of each method for a tv "
            "that is allowed, over k and the keys that are added by their codes before a row is "
            "made exact; reads, exact rows and mean tv with standard errors over heads, and the "
            "largest tv of a row. Reads are shares of what exact attention reads, in bits: keys "
            f"with values, boxes, codes. Of {int(guard.rows.sum())} guarded rows "
            f"{int(guard.above.sum())} have more total variation than is allowed.",
            pages.numbers(spending(guard)),
        )
        return
    rows = measured(seen)
    below = int((rows.value < rows.truth * (1 - 1e-9) - 1e-12).sum())
    pages.write(
        arguments,
        f"What estimates know of their own errors ({about}): medians over rows of "
        f"attention, and shares of them. Of {len(rows)} bounds {below} are below the error that "
        "was measured. Reads are numbers of 16 bits that are read to answer with a bound, keys and "
        "values included, as shares of what exact attention reads; blank where every entry of the "
        "estimate is read, which costs no less; factors are not counted. Bits are those of the "
        "code of a coordinate; norms of what was dropped need all logits when the estimate is "
        "made. Bound/true is a median over rows, then of the error of the output.",
        pages.numbers(summary(rows)),
    )


if __name__ == "__main__":
    main()
