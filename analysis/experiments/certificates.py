"""Certificates of estimates beside their true errors, row by row."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.bounds import certificates, residuals
from analysis.errors.row_sums import Comparison
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import Approximation, parse
from approx.checks import Array
from approx.supports import key_boxes
from approx.supports.key_boxes import DEPTH, PageBoxes

COLUMNS = ("input", "layer", "head", "n", "method", "bits", "position", "truth", "value")
ROWS = {"quick": 96, "default": 512}
QUERIES = {"quick": 16, "default": 64}
MOST_HEADS = 4
FIRST = 64  # the first query that counts: the ones before it see little that they do not read
NUMBER = 16  # bits of a number, as in the caches of today's models


class Source(NamedTuple):
    """From what a bound is made: boxes of so many keys, codes of so many bits; or norms.

    Bits may be shared out among channels, by the queries before a page was complete.
    """

    name: str
    size: int = 16
    bits: int = 0
    shared: bool = False


BOXES, NORMS, ENTRIES = (Source(name) for name in ("boxes", "dropped", "entries"))
CODES = Source("boxes", bits=4)
METHODS = "top_k(k=32)", "pages(k=64, current=True)", "sink_window(k=32)"


def row_errors(estimate: Approximation, x: Head) -> tuple[Array, Array]:
    """Return tv and ‖output − exact output‖₂ of every row, as `metrics` measures them."""
    sums = Comparison.from_estimates(
        [estimate], x.Q, x.K, x.V, temperatures=None, mask=None, attention=True, rows=None
    ).tables(jobs=1)[0]
    if x.V is None:
        return sums["tv"], np.full(len(sums), np.nan)
    return sums["tv"], np.sqrt(sums["output"]) * float(np.abs(x.V).max())


def bounds(estimate: Approximation, x: Head, source: Source) -> pd.DataFrame:
    """Return the certificates of an estimate from one source.

    ``share`` is what is read to answer with a bound, of what exact attention reads, all in numbers
    of 16 bits: keys with their values, boxes and codes. It is NaN for entries, which all are read.
    """
    weights = key_boxes.channels_so_far(x.Q, x.mask, source.size) if source.shared else None
    known = PageBoxes.from_keys(x.K, x.V, size=source.size, bits=source.bits, weights=weights)
    left = residuals.off_support(estimate, x.Q, x.K) if source.name == "dropped" else None
    found = certificates.row_bounds(
        estimate, x.Q, x.K, x.V, known=known, dropped=left, entries=source.name == "entries"
    )
    width = x.d + (0 if x.V is None else x.V.shape[1])
    read = (found["keys"] * width + found.numbers) * NUMBER + found.bits
    read += found.pages * (DEPTH * x.d if source.shared else 0)
    share = read / (x.mask.counts * width * NUMBER)
    return found.assign(share=np.nan if source.name == "entries" else share)


def compared(x: Head, spec: str, sources: tuple[Source, ...]) -> pd.DataFrame:
    """Return the errors of every row beside their bounds from each source."""
    estimate = x.approximate(parse(spec), rng=0)
    tv, output = row_errors(estimate, x)
    tables = []
    for source in sources:
        found = bounds(estimate, x, source)
        place = {"method": spec, "source": source.name, "size": source.size, "bits": source.bits}
        position = {"position": x.mask.positions, "share": found.share}
        for metric, truth in (("attention_tv", tv), ("output_absolute_error", output)):
            if metric in found:
                errors_of = {"metric": metric, "truth": truth, "value": found[metric]}
                tables.append(pd.DataFrame(place | position | errors_of))
    return pd.concat(tables, ignore_index=True)


def _rows(x: Head, spec: str, queries: int) -> list[Row]:
    places = np.linspace(min(FIRST, x.n // 2), x.n - 1, min(queries, x.n // 2)).round().astype(int)
    found = compared(x, spec, (BOXES, CODES))
    found = found[found.position.isin(x.mask.positions[places]) & (found.metric == "attention_tv")]
    found = found[["method", "bits", "position", "truth", "value"]]
    head = x.name, x.layer, x.head, x.n
    return [(*head, *row) for row in found.itertuples(index=False)]


def compute(profile: Profile) -> pd.DataFrame:
    """Return total variation and its bounds, for some queries of causal heads.

    The heads are those of the profile that are causal, or else those of the bundled language model.
    """
    heads, queries = profile.causal(ROWS[profile.grid])[:MOST_HEADS], QUERIES[profile.grid]
    tasks = [(x, spec, queries) for x in heads for spec in METHODS]
    return profile.study(_rows, tasks, "certificates", COLUMNS)
