"""How likely a fact in a text is when it is asked for, as a table."""

from collections.abc import Iterator

import pandas as pd

from analysis.models.needle import ANSWER, FACT
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import tr


def cells(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a head, and a row for each length and method: log-probability and rank by depth.

    What was not asked is left empty.
    """
    depths = list(dict.fromkeys(found.depth))
    yield tr("tokens"), *(tr("depth {depth:g}", depth=depth) for depth in depths), tr("method")
    for (tokens, method), part in found.groupby(["tokens", "method"], sort=False):
        by = {x.depth: f"{x.log_probability:.1f} ({x.rank})" for x in part.itertuples()}
        yield str(tokens), *(by.get(depth, "") for depth in depths), str(method)


def text(found: pd.DataFrame) -> str:
    """Return the table and what its numbers are."""
    said = tr(
        "The text contains “{fact}{answer}.” At depth 0 it stands in front, at depth 1 right "
        "before the question, “{fact}”. Numbers: the log-probability of all tokens of the "
        "answer, and in brackets the worst rank among them; 1 means that each is the "
        "likeliest.",
        fact=FACT.strip(), answer=ANSWER,
    )  # fmt: skip
    return f"{aligned(list(cells(found)), cut=-1)}\n\n{paragraphs([said])}"
