"""Generated text between two marks of a page that people write."""

from __future__ import annotations


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
