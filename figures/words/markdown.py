"""Generated text in pages of Markdown that people write: tables, and what stands between marks."""

import re
from collections.abc import Iterable

_BAR = re.compile(r"(\\.)|\|")


def table(titles: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    r"""Return a table of Markdown, of cells in which a bar may be escaped or not.

    Examples
    --------
    >>> print(table(["head", "tv"], [[r"0.1 | \| \\|", 0.5]]))
    | head | tv |
    |---|---|
    | 0.1 \| \| \\\| | 0.5 |
    """
    named = list(titles)
    escaped = [[_BAR.sub(lambda m: m[1] or r"\|", str(x)) for x in row] for row in (named, *rows)]
    lines = [f"| {' | '.join(cells)} |" for cells in escaped]
    return "\n".join([lines[0], "|---" * len(named) + "|", *lines[1:]])


def insert(text: str, begin: str, end: str, block: str) -> str:
    r"""Return a text with what stands between two marks replaced.

    Raises
    ------
    ValueError
        The text has not both marks once.

    Examples
    --------
    >>> insert("a <b> old </b> c", "<b>", "</b>", "new")
    'a <b>\nnew\n</b> c'
    """
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page must have one line {begin!r} and one line {end!r}")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{block}\n{end}{rest.split(end)[1]}"
