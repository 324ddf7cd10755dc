"""Two fonts with Chinese characters, so that every machine shows them; see README.md and OFL.txt.

One without serifs is for figures, one with serifs for pages, beside their mathematics.
"""

import base64
import functools
import io
import re
from pathlib import Path

FONT = Path(__file__).parent / "ExpqkSansSC-Regular.ttf"
SERIF = Path(__file__).parent / "ExpqkSerifSC-Regular.ttf"  # with the same characters
FAMILY, SERIF_FAMILY = "Expqk Sans SC", "Expqk Serif SC"
# Han, kana and hangul, with their punctuation and full-width forms: what Latin fonts lack.
EAST_ASIAN = re.compile(
    "[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


@functools.cache
def in_figures(language: str) -> list[str]:
    """Return the font families of figures, after telling matplotlib where the Chinese one is.

    In Chinese it comes first: beside a formula matplotlib takes no other for plain text. Elsewhere
    it has the characters of a name, as a user's file has it, that the other lacks.
    """
    from matplotlib import font_manager

    font_manager.fontManager.addfont(FONT)
    return [FAMILY, "DejaVu Sans"] if language == "zh" else ["DejaVu Sans", FAMILY]


@functools.cache
def characters() -> frozenset[str]:
    """Return the characters that the fonts have."""
    from matplotlib import font_manager

    return frozenset(map(chr, font_manager.get_font(FONT).get_charmap()))


def lacks(text: str) -> set[str]:
    """Return the East Asian characters of a text that the fonts cannot show.

    Examples
    --------
    >>> lacks("注意力, attention, 어텐션") == set("어텐션")
    True
    """
    return set(EAST_ASIAN.findall(text)) - characters()


def face(text: str) -> str:
    """Return the style rule that gives a page the font for the East Asian characters of a text.

    The font is inside the rule, cut down to these characters; nothing, where there are none.
    """
    wanted = set(EAST_ASIAN.findall(text)) & characters()
    if not wanted:
        return ""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont

    font = TTFont(SERIF, recalcTimestamp=False)
    subsetter = Subsetter(Options())
    subsetter.populate(unicodes=[ord(character) for character in wanted])
    subsetter.subset(font)
    font.flavor = "woff"
    content = io.BytesIO()
    font.save(content)
    data = base64.b64encode(content.getvalue()).decode()
    source = f'url("data:font/woff;base64,{data}") format("woff")'
    return f'@font-face {{ font-family: "{SERIF_FAMILY}"; src: {source}; font-display: block; }}\n'
