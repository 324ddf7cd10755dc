"""Translation of figures and reports into the language in force."""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

LANGUAGES = ("en", "zh")
_CATALOGUES = {"zh": "zh_CN*.po"}  # of figures and report; of the claims
_spoken: ContextVar[str] = ContextVar("spoken", default="en")
_TOUCHING = re.compile(r"(?<=[0-9A-Za-z])(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])(?=[0-9A-Za-z])")


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Say everything in a language, "en" or "zh"."""
    from approx import checks  # `expqk --help` imports this module, and NumPy takes long

    if language in _CATALOGUES:
        _catalogue(language)  # fails here if polib is missing, not in the middle of a figure
    before = _spoken.set(checks.one_of("language", language, LANGUAGES))
    try:
        yield
    finally:
        _spoken.reset(before)


def twin(page: Path) -> Path:
    """Return a page or picture in the language in force: X.md, or X.zh-CN.md in Chinese."""
    return page.with_suffix(f".zh-CN{page.suffix}") if spoken() == "zh" else page


def spoken() -> str:
    """Return the language in force."""
    return _spoken.get()


def tr(message: str, /, **values: object) -> str:
    """Return a message in the language in force, with its values; English where there is no other.

    A message with values is a format: what the numbers look like is the translation's too. A
    space stands between a letter or a digit and a Chinese character.

    Examples
    --------
    >>> tr("{count} heads", count=32)
    '32 heads'
    >>> with speaking("zh"):
    ...     tr("{count} heads", count=32)
    '32 个头'
    """
    language = _spoken.get()
    said = _catalogue(language).get(message, message) if language in _CATALOGUES else message
    return _TOUCHING.sub(" ", said.format(**values)) if values else said


def mark(message: str) -> str:
    """Return a message as it is: `tr` translates it where it is used."""
    return message


_WORDS = (
    "none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip


def in_words(count: int) -> str:
    """Return a count as the language in force writes it: in English up to twelve in words.

    Examples
    --------
    >>> in_words(3), in_words(13)
    ('three', '13')
    """
    return _WORDS[count] if spoken() == "en" and count < len(_WORDS) else str(count)


def share(count: int, total: int, of: str = mark("inputs")) -> str:
    """Return how many of some things, which `mark` has translated.

    Examples
    --------
    >>> share(0, 4), share(4, 4), share(3, 4), share(3, 24, "cases")
    ('none of the four inputs', 'all four inputs', 'three of the four inputs', '3 of the 24 cases')
    """
    few = total < len(_WORDS)
    number, every = (in_words(x) if few else str(x) for x in (count, total))
    if total == 1:
        return tr("the one input") if count else tr("no input")
    if count == 0:
        return tr("none of the {total} {of}", total=every, of=tr(of))
    if count == total == 2:
        return tr("both {of}", of=tr(of))
    if count == total:
        return tr("all {total} {of}", total=every, of=tr(of))
    return tr("{count} of the {total} {of}", count=number, total=every, of=tr(of))


def share_of(where: Iterable[object], of: str = mark("inputs")) -> str:
    """Return in how many of some things it is so, as `share` does.

    Examples
    --------
    >>> share_of([True, False, True], "cases")
    'two of the three cases'
    """
    held = [bool(x) for x in where]
    return share(sum(held), len(held), of)


@functools.cache
def _catalogue(language: str) -> dict[str, str]:
    try:
        import polib
    except ImportError:
        raise ImportError(f"the language {language} needs: pip install -e '.[report]'") from None
    files = (Path(__file__).parents[1] / "locale").glob(_CATALOGUES[language])
    return {
        entry.msgid: entry.msgstr for file in sorted(files) for entry in polib.pofile(str(file))
    }
