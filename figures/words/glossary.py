"""Every symbol and word of the project, once: glossary.toml, and the pages that are made from it.

``python -m figures.words.glossary`` writes docs/words.md and its twin.
"""

import functools
import tomllib
from pathlib import Path

from figures.words.markdown import table
from figures.words.translation import LANGUAGES, speaking, tr, twin

PAGE = Path("docs/words.md")


@functools.cache
def terms(language: str) -> dict[str, tuple[str, str]]:
    """Return {word: (symbol, meaning)} in a language, in the order of a first reading."""
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    prefix = "zh_" if language == "zh" else ""
    return {
        term[language]: (term.get("symbol", ""), term[f"{prefix}says"])
        for term in tomllib.loads(text)["term"]
    }


def page(language: str) -> str:
    """Return docs/words.md or its twin."""
    rows = [
        (word, f"`{symbol}`" if symbol else "", meaning)
        for word, (symbol, meaning) in terms(language).items()
    ]
    with speaking(language):
        titles = tr("word"), tr("symbol"), tr("meaning")
        head = tr(
            "# Words\n\n[中文](words.zh-CN.md)\n\nEach symbol and word of the project, once, in "
            "the order of a first reading."
        )
    return f"{head}\n\n{table(titles, rows)}\n"


def main() -> None:
    """Write docs/words.md and its twin."""
    for language in LANGUAGES:
        with speaking(language):
            path = Path(__file__).parents[2] / twin(PAGE)
        path.write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
