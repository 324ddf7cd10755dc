"""The tables that ``expqk substitute --retrieval`` prints."""

from collections.abc import Iterator

import pandas as pd

from analysis.models.retrieval import EXACT, LEVEL, ORACLE, comparisons
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import mark, tr

LINES = mark("holds"), mark("broken"), mark("open")
TESTED = mark("first"), mark("second"), mark("first higher"), mark("second higher"), mark("line")


def cells(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a head, and a row for each kind, length and method: log-probability and rank by depth.

    A number of several trials is their mean log-probability with the worst rank. What was not asked
    is left empty.
    """
    depths = list(dict.fromkeys(found.depth))
    titles = (tr("depth {depth:g}", depth=depth) for depth in depths)
    yield tr("kind"), tr("tokens"), *titles, tr("method")
    for (kind, tokens, method), part in found.groupby(["kind", "tokens", "method"], sort=False):
        by = {
            depth: f"{few.log_probability.mean():.1f} ({few['rank'].max()})"
            for depth, few in part.groupby("depth")
        }
        yield str(kind), str(tokens), *(by.get(depth, "") for depth in depths), str(method)


def tests(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a head, and a row for each pair of `comparisons`."""
    first, second, *higher, line = map(tr, TESTED)
    yield first, second, *higher, "p", line
    for row in comparisons(found).itertuples():
        counts = str(row.first_higher), str(row.second_higher)
        yield str(row.first), str(row.second), *counts, f"{row.p:.2g}", tr(str(row.line))


def text(found: pd.DataFrame) -> str:
    """Return both tables and what their numbers are."""
    exact = found[found.method == EXACT]
    about = tr(
        "Facts such as “The secret number of the old mill is 2710.” stand in the text, and its end "
        "asks for a number. needle: one fact. needles: four facts, one of which is asked for. "
        "chain: a second fact refers to the first, beside another such pair. repeated: two "
        "numbers of one thing, one of which the question gives. At depth 0 the fact with the "
        "answer stands in front, at depth 1 right before the question."
    )
    numbers = tr(
        "Numbers: the log-probability of all tokens of the answer, and in brackets the worst rank "
        "among them; 1 means that each is the likeliest. Exact attention finds the answer, with "
        "rank 1, in {found} of {cells} cells; the others judge no method, and none ran there.",
        found=int((exact["rank"] == 1).sum()), cells=len(exact),
    )  # fmt: skip
    parts = [aligned(list(cells(found)), cut=-1), paragraphs([about, numbers])]
    if len(lines := list(tests(found))) > 1:
        said = tr(
            "A check of the questions: exact attention should be above {oracle}, which needs all "
            "logits, and {oracle} above each method that costs at most as much; no theorem says "
            "so. Sign test over the cells that count. Hypothesis: in a cell, either of two is "
            "equally likely to have the higher log-probability; p is two-sided. The line holds or "
            "is broken if p is at most {level:g}, and is open otherwise. Cells share words of the "
            "text, so that they are not independent, as the test assumes.",
            oracle=ORACLE, level=LEVEL,
        )  # fmt: skip
        parts += [aligned(lines, cut=1), paragraphs([said])]
    return "\n\n".join(parts)
