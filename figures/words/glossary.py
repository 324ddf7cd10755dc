"""Every symbol and word of the project, once: glossary.toml, and the pages that are made from it.

``python -m figures.words.glossary`` writes docs/words.md and its twin. A report has an appendix
with the words that it uses.
"""

import functools
import re
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


def used(text: str, language: str) -> str:
    """Return a table of the words that a text uses, as Markdown."""
    word, _, meaning = TITLES[language]
    found = {match[0].lower() for match in _pattern(language).finditer(text)}
    rows = [(name, says) for name, (_, says) in terms(language).items() if _forms(name) & found]
    return table((word, meaning), rows)


def _forms(name: str) -> set[str]:
    """Return how a word is written: also its plural; none if it is more than one."""
    if len(name) == 1 or "," in name or "、" in name:
        return set()
    return {name.lower(), f"{name.lower()}s"}


@functools.cache
def _pattern(language: str) -> re.Pattern[str]:
    forms = {form for name in terms(language) for form in _forms(name)}
    words = "|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))
    return re.compile(words if language == "zh" else rf"(?<![\w-])(?:{words})(?![\w-])", re.I)


def main() -> None:
    """Write docs/words.md and its twin."""
    for language, (path, *_) in PAGES.items():
        (Path(__file__).parents[2] / path).write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
