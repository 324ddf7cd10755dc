"""Useful certificates, and methods that fall back to exact rows when a certificate fails.

    python -m studies.lm.guarded out/lm/smollm2-512.safetensors --summary studies/lm/guarded.md

The share of rows certified at tv .1, .2 and .5 from boxes and codes of several kinds, with their
reads; other data that could be stored about keys; and the reads and errors of guarded methods.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import tqdm

from analysis.bounds import guards
from analysis.experiments.certificates import Source, bounds, errors
from analysis.inputs import Head, head_kinds
from approx import parse
from approx.checks import Array
from approx.supports import boxes, key_boxes
from approx.supports.key_boxes import PageBoxes
from studies.lm import pages
from studies.lm.sample import DATA

FIRST = 128  # the first query that counts
LEVELS = (0.1, 0.2, 0.5)
BEFORE = tuple(Source("boxes", bits=bits) for bits in (0, 3, 4))
AFTER = tuple(Source("boxes", 64, bits, True) for bits in (3, 4, 5))
SUPPORTS = {
    "top_k": "top_k(k={})", "pages": "pages(k={}, current=True)",
    "sink_window": "sink_window(k={}, sinks=4)", "h2o": "columns(k={}, by='h2o', recent=16)",
}  # fmt: skip
KEYS = (32, 64, 128)
OF_KIND = Source("boxes", bits=3), Source("boxes", 64, 3, True)
ALLOWED = (0.05, 0.1, 0.2, 0.5)
CODED, BITS = (0, 32, 64), 5
TARGETS = (0.5, 0.6, 0.75)  # reads, relative to exact attention


def certified(x: Head, kind: str) -> Iterator[dict[str, object]]:
    """Yield the share of a head's rows that each source certifies."""
    late = np.arange(x.n) >= FIRST
    for name, spec in SUPPORTS.items():
        for k in KEYS:
            estimate = x.approximate(parse(spec.format(k)), rng=0)
            tv, output = (e[late] for e in errors(estimate, x))
            for source in (*BEFORE, *AFTER):
                found = bounds(estimate, x, source)[late]
                yield {
                    "method": name, "k": k, "kind": kind, "size": source.size,
                    "bits": source.bits, "shared": source.shared, "reads": found.share.mean(),
                    **{f"true ≤ {y}": (tv <= y).mean() for y in LEVELS},
                    **{f"bound ≤ {y}": (found.attention_tv <= y).mean() for y in LEVELS},
                    "of outputs": float(np.median(found.output_error / np.maximum(output, 1e-9))),
                }  # fmt: skip


def reach(x: Head) -> Iterator[dict[str, object]]:
    """Yield the median half-width of the bounds of a logit, by the data stored about a key."""
    q, k = (np.asarray(a, np.float64) for a in (x.Q[FIRST:], x.K))
    page = np.arange(x.l) // 16
    lo, hi = boxes.page_boxes(k, 16)
    mean = np.add.reduceat(k, np.arange(0, x.l, 16)) / np.bincount(page)[:, None]
    ball = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k - mean[page], axis=1)
    yield {
        "bits": 0,
        "kept of a key": "distance from the mean of its page",
        "more": 1.0,
        **_med(ball),
    }
    for bits in (0, 2, 4):
        known = PageBoxes.from_keys(k, size=16, bits=bits) if bits else None
        lower, upper = known.bounds(q) if known else (y[:, page] for y in boxes.bounds(q, lo, hi))
        box = (upper - lower) / 2
        yield {"bits": bits, "kept of a key": "its box", "more": 0.0, **_med(box)}
        step = (hi - lo) / 2.0**bits
        code = 0.0 if known is None else known.codes
        off = k - (lo[page] + (code + 0.5) * step[page])
        order = np.argsort(-k.std(axis=0)).reshape(4, -1)
        for groups in ([np.arange(x.d)], list(order)):
            total = sum(
                np.minimum(
                    (np.abs(q[:, c]) @ (step[:, c] / 2).T)[:, page],
                    np.linalg.norm(q[:, None, c] * step[:, c], axis=2)[:, page]
                    * np.linalg.norm(off[:, c] / np.maximum(step[page][:, c], 1e-300), axis=1),
                )
                for c in groups
            )
            said = f"its box, and {len(groups)} length{'s' * (len(groups) > 1)} of what is left"
            yield {"bits": bits, "kept of a key": said, "more": float(len(groups)), **_med(total)}
    for bits in (2, 3, 4):
        weights = key_boxes.channels_so_far(x.Q, x.mask, 64)
        lower, upper = PageBoxes.from_keys(k, size=64, bits=bits, weights=weights).bounds(q)
        said = "its box in pages of 64, bits shared out"
        yield {"bits": bits, "kept of a key": said, "more": np.nan, **_med((upper - lower) / 2)}


def _med(x: Array) -> dict[str, float]:
    return {"reach": float(np.median(x))}


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
                    found = guards.spent(x, method)[late]
                    apart = errors(x.approximate(method), x)[0][late]
                    yield {
                        "method": name, "k": k, "coded": coded, "allowed": tv,
                        **guards.summary(found), "tv": apart.mean(), "most tv": apart.max(),
                        "rows": len(found), "above": int((apart > tv + 1e-9).sum()),
                    }  # fmt: skip


def by_source(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of shares by method, budget and source."""
    names = [f"{who} ≤ {y}" for y in LEVELS for who in ("true", "bound")]
    keys = ["method", "k", "size", "bits", "shared"]
    table = rows.groupby(keys, sort=False)[["reads", *names, "of outputs"]].mean().reset_index()
    table["shared"] = np.where(table.shared, "by channel", "evenly")
    return table.astype({"k": str, "size": str, "bits": str}).rename(columns={"shared": "bits lie"})


def by_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """Return shares for 32 keys before and after, by kind of head."""
    some = rows[(rows.k == 32) & (rows.bits == OF_KIND[0].bits)]
    names = [f"bound ≤ {y}" for y in LEVELS]
    keys = ["method", "kind", "shared"]
    wide = some.groupby(keys, sort=False)[["reads", *names]].mean().unstack("shared")
    wide.columns = [f"{name}, {'after' if new else 'before'}" for name, new in wide.columns]
    wide = wide.reset_index()
    order = {name: i for i, name in enumerate(head_kinds.KINDS)}
    wide["at"] = wide.kind.map(order)
    return wide.sort_values(["method", "at"], kind="stable").drop(columns="at")


def spending(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cheapest guard of each method for each tv: reads, exact rows, errors."""
    keys = ["allowed", "method", "k", "coded"]
    groups = rows.groupby(keys, sort=False)
    table = groups[["share", "exact", "tv"]].mean()
    for name in ("share", "exact", "tv"):
        table[f"{name} ±"] = groups[name].sem()
    table["most tv"] = groups["most tv"].max()
    best = table.loc[table.groupby(["allowed", "method"], sort=False).share.idxmin()].reset_index()
    best = best.rename(columns={"share": "reads", "share ±": "reads ±"})
    order = [
        "allowed",
        "method",
        "k",
        "coded",
        "reads",
        "reads ±",
        "exact",
        "exact ±",
        "tv",
        "tv ±",
    ]
    return best[[*order, "most tv"]].astype({"k": str, "coded": str})


def nearest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the setting of each method with the least mean tv, for each share of reads."""
    mean = rows.groupby(["method", "k", "coded", "allowed"], sort=False)[["share", "tv"]].mean()
    found = []
    for target in TARGETS:
        some = mean[mean.share <= target]
        best = some.loc[some.groupby("method", sort=False).tv.idxmin()].reset_index()
        found.append(best.sort_values("tv").assign(reads=f"≤ {target}"))
    table = pd.concat(found)
    order = ["reads", "method", "k", "coded", "allowed", "share", "tv"]
    return table[order].astype({"k": str, "coded": str})


def main(argv: Sequence[str] | None = None) -> None:
    """Measure some heads of a file, and write the tables."""
    parser = pages.parser(".guarded", __doc__)
    pages.add_heads(parser, 30, 512)
    arguments = parser.parse_args(argv)
    heads = pages.heads(arguments)
    known = pages.kinds(pd.read_csv(DATA / "smollm2.csv"))
    shares, spent, wide = [], [], []
    for x in tqdm.tqdm(heads, "heads", file=sys.stderr):
        shares += certified(x, known.get((x.layer, x.head), "mixed"))
        spent += guarded(x)
        wide += reach(x)
    rows, guard, reaches = (pd.DataFrame(y) for y in (shares, spent, wide))
    kept = reaches.groupby(["bits", "kept of a key", "more"], sort=False, dropna=False).mean()
    kept = kept.reset_index().rename(columns={"more": "more numbers a key"})
    pages.write(
        arguments,
        f"Certificates and guards on {len(heads)} heads of {arguments.file.stem}, queries {FIRST} "
        f"to {heads[0].n - 1}, measured on {pages.today()}; means over heads. Reads are shares of "
        "what exact attention reads, in bits: keys with values, boxes, codes. `top_k` and its "
        "selection see all logits; the reads of a selection are counted for guards only. Of "
        f"{int(guard.rows.sum())} guarded rows {int(guard.above.sum())} have more total variation "
        "than is allowed.",
        "Share of rows certified. Pages of 16 with as many bits in every channel are as before; "
        "pages of 64 with bits shared out among channels by the queries so far are new. The last "
        "column is the median of the bound on the error of the output over the error:",
        pages.numbers(by_source(rows)),
        f"By kind of head, 32 keys, {OF_KIND[0].bits} bits:",
        pages.numbers(by_kind(rows)),
        "What else could be kept of a key: the median half-width of the interval of a logit, mean "
        "over heads, in pages of 16 if nothing else is said. A bit in each channel halves it and "
        f"costs {heads[0].d // 16} numbers of 16 bits a key:",
        pages.numbers(kept.astype({"bits": str})),
        f"Guards with {BITS} bits: the least reads of each method for a tv that is allowed, over k "
        "and the keys that are added by their codes before a row is made exact; reads, exact rows "
        "and mean tv with standard errors over heads, and the largest tv of a row:",
        pages.numbers(spending(guard)),
        "At equal reads: the setting of each method with the least mean tv whose mean reads are "
        "no more than a share of exact attention's:",
        pages.numbers(nearest(guard)),
    )


if __name__ == "__main__":
    main()
