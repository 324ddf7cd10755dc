"""Every symbol and word of the project, once: glossary.toml, and the pages that are made from it.

``python -m figures.words.glossary`` writes docs/words.md and its twin.
"""

import functools
import tomllib
from pathlib import Path

from figures.words.marked_text import table

TITLES = {"en": ("word", "symbol", "meaning"), "zh": ("词", "符号", "含义")}
PAGES = {
    "en": ("docs/words.md", "# Words", "[中文](words.zh-CN.md)", "Each symbol and word of the "
           "project, once, in the order of a first reading."),
    "zh": ("docs/words.zh-CN.md", "# 词汇表", "[English](words.md)", "本项目的每个符号和每个词，"
           "各列一次，按初次阅读的顺序排列。"),
}  # fmt: skip


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
    _, title, twin, about = PAGES[language]
    rows = [
        (word, f"`{symbol}`" if symbol else "", meaning)
        for word, (symbol, meaning) in terms(language).items()
    ]
    return "\n\n".join([title, twin, about, table(TITLES[language], rows)]) + "\n"


def main() -> None:
    """Write docs/words.md and its twin."""
    for language, (path, *_) in PAGES.items():
        (Path(__file__).parents[2] / path).write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
