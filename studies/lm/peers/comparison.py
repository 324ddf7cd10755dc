"""The comparison: the same heads on both sides, supports row by row, and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis import inputs
from analysis.inputs import Head
from approx import parse
from approx.checks import Array
from figures.words.markdown import table

NOT_ASKED = -1  # rows of a comparison of numbers only


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The results of both sides for one head, by the compared functions.

    ``same`` of ``rows`` supports are equal, and ours have the share ``common`` of the keys in the
    authors'. ``difference`` is the largest of numbers, in rows of equal supports, over the authors'
    largest; ``why`` explains it.
    """

    compared: str
    rows: int
    same: int
    common: float
    difference: float
    why: str = ""


def heads() -> list[Head]:
    """Return the four heads of SmolLM2, and a small random causal case."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 192, 16))
    return [
        *inputs.sample("smollm2").heads(),
        Head("random", 2.0 * q, 2.0 * k, v, mask="causal"),
    ]


def compare(
    compared: str,
    theirs: tuple[Array | None, Any],
    ours: tuple[Array | None, Any],
    why: str = "",
) -> Comparison:
    """Compare (support, numbers) of both sides; a support is boolean (rows, l), or None."""
    if theirs[0] is None or ours[0] is None:
        off = difference(theirs[1], ours[1])
        return Comparison(compared, NOT_ASKED, NOT_ASKED, np.nan, off, why)
    a, b = np.asarray(theirs[0]), np.asarray(ours[0])
    equal = (a == b).all(axis=-1)
    off = difference(*(None if x is None else np.asarray(x)[equal] for x in (theirs[1], ours[1])))
    common = float((a & b).sum() / a.sum())
    return Comparison(compared, equal.size, int(equal.sum()), common, off, why)


def difference(theirs: Any, ours: Any) -> float:
    """Return the largest difference, divided by the largest absolute value of ``theirs``."""
    if theirs is None or ours is None or not np.size(theirs):
        return float("nan")
    a, b = (np.asarray(each, dtype=np.float64) for each in (theirs, ours))
    return float(np.abs(a - b).max() / max(np.abs(a).max(), np.finfo(float).tiny))


def support_and_output(
    spec: str, x: Head, *, mask: bool = True, rng: Any = 0
) -> tuple[Array, Array]:
    """Return the support of our method on a head, (n, l), and its output, (n, c)."""
    assert x.v is not None
    seen = x.mask if mask else None
    estimate = parse(spec).approximate(x.Q, x.K, mask=seen, rng=rng, V=x.v)
    assert estimate.sparse is not None
    return on(estimate.sparse), np.asarray(estimate.attend(x.v))


def on(sparse: Any) -> Array:
    """Return a boolean array of the entries that a sparse array stores."""
    found = np.zeros(sparse.shape, dtype=bool)
    found[np.repeat(np.arange(sparse.shape[0]), np.diff(sparse.indptr)), sparse.indices] = True
    return found


def restricted(support: Array, x: Head) -> Array:
    """Return attention restricted to a support, (rows, c) for the last rows, by definition."""
    assert x.v is not None
    logits = np.where(support, x.Q[-len(support) :] @ x.K.T, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) @ x.v)


def summed(found: list[Comparison]) -> Iterator[Comparison]:
    """Join the comparisons of the same functions on all heads."""
    by_name: dict[str, list[Comparison]] = {}
    for each in found:
        by_name.setdefault(each.compared, []).append(each)
    for compared, several in by_name.items():
        asked = [each for each in several if each.rows != NOT_ASKED]
        differences = [each.difference for each in several if not np.isnan(each.difference)]
        yield Comparison(
            compared,
            sum(each.rows for each in asked) if asked else NOT_ASKED,
            sum(each.same for each in asked) if asked else NOT_ASKED,
            float(np.mean([each.common for each in asked])) if asked else np.nan,
            max(differences, default=float("nan")),
            max((each.why for each in several), key=len),
        )


def markdown(found: Sequence[tuple[str, str, Comparison]]) -> str:
    """Return a table of (system, commit, comparison)."""
    rows = []
    for system, commit, each in found:
        same = "" if each.rows == NOT_ASKED else f"{each.same} of {each.rows} rows"
        if each.rows != each.same:
            same += f", {100 * each.common:.1f} % of the keys"
        off = "" if np.isnan(each.difference) else f"{each.difference:.1e}"
        rows.append((system, commit, each.compared, same, off, each.why))
    titles = "system", "commit", "compared", "same support?", "largest difference", "explanation"
    return table(titles, rows)
