"""What to deploy if bandwidth is scarce, if memory is, and if neither is."""

import math
from collections.abc import Hashable
from typing import Any

import pandas as pd

from figures.words.numbers import or_infinity
from figures.words.translation import mark, tr

ERRORS = {
    "kl": mark("KL"), "attention_tv": mark("tv"), "output_relative_error": mark("output error"),
}  # fmt: skip
NEGLIGIBLE = dict.fromkeys(ERRORS, 0.01)  # errors so small are called negligible
LEAST = {  # by what is scarce: the column that is limited, and the sentence
    "bytes_read": mark(
        "If bandwidth is scarce: {name}. Of the measured choices that read at most {limit:,.0f} "
        "bytes per new query of a group of heads, it has the least {error}, {value}."
    ),
    "bytes": mark(
        "If memory is scarce: {name}. Of the measured choices whose cache holds at most "
        "{limit:,.0f} bytes for a group of heads, it has the least {error}, {value}."
    ),
}
NONE = {
    "bytes_read": mark("If bandwidth is scarce: no measured choice reads at most {limit:,.0f} "
                       "bytes per new query of a group of heads."),
    "bytes": mark("If memory is scarce: no measured choice has a cache of at most {limit:,.0f} "
                  "bytes for a group of heads."),
}  # fmt: skip

MODERATE = 0.1  # above this an error is too large for many uses
MORE = mark(
    "For a {error} of at most {most}, read more: {name} reads {share:.0%} of what exact attention "
    "does, holds {held:.0%}, and has {value}."
)
NEITHER = mark(
    "If neither is scarce: {name}. It reads {share:.0%} of what exact attention reads, and no "
    "measured choice that reads less has a {error} of at most {most}; its own is {value}."
)
EXACT = mark(
    "If neither is scarce: exact attention. No cheaper measured choice has a {error} of at most "
    "{most}."
)


def of_heads() -> str:
    """Return why commands that look at heads may name another method than those of a model."""
    return tr(
        "These are errors of heads. Which method changes the model least is another question, "
        "which `expqk model` and `expqk plan` answer with the KL of the model: they may name "
        "another one."
    )


def sentences(table: pd.DataFrame, limit: float, error: str = "kl") -> list[str]:
    """Return what to use if bandwidth is scarce, if memory is, and if neither is.

    Before the last stands what has a moderate error, if nothing within the limit has.

    Parameters
    ----------
    table : DataFrame
        A row per measured choice: ``name``; ``bytes_read`` and ``bytes`` of a group of heads; and
        the error, NaN where it is not measured. The row with the most bytes read is exact.
    limit : float
        Bytes that may be read per new query, and that may be held, for a group of heads.
    error : {"kl", "attention_tv", "output_relative_error"}
    """
    rows = table.dropna(subset=[error]).to_dict("records")
    said = []
    for scarce, sentence in LEAST.items():
        fits = [row for row in rows if row[scarce] <= limit * (1 + 1e-9)]
        best = min(fits, key=lambda row: row[error], default=None)
        said.append(_of(sentence if best else NONE[scarce], best, error, limit=limit))
    *cheap, exact = sorted(rows, key=lambda row: row["bytes_read"])
    most = NEGLIGIBLE[error]
    best, more = (next((x for x in cheap if x[error] <= y), None) for y in (most, MODERATE))
    if more and more is not best and more["bytes_read"] > limit * (1 + 1e-9):
        share, held = (more[x] / exact[x] for x in LEAST)
        said.append(_of(MORE, more, error, share=share, held=held, most=MODERATE))
    share = best["bytes_read"] / exact["bytes_read"] if best else 1.0
    return [*said, _of(NEITHER if best else EXACT, best, error, share=share, most=most)]


def _of(sentence: str, row: dict[Hashable, Any] | None, error: str, **known: float) -> str:
    best: dict[Hashable, Any] = {"name": "", error: 0.0} if row is None else row
    value = or_infinity(best[error] if math.isfinite(best[error]) else None, ".2g")
    return tr(sentence, name=best["name"], error=tr(ERRORS[error]), value=value, **known)
