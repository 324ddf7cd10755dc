"""Make the fonts of this folder: see README.md."""

import sys
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

FAMILIES = {  # own names, as the machine may have another version of these fonts
    "Noto Sans SC": "Expqk Sans SC",
    "Noto Serif SC": "Expqk Serif SC",
}


def characters() -> set[int]:
    """Return the symbols and Chinese characters of GB 2312, and Latin, Greek and signs."""
    found = set()
    for row in (*range(1, 10), *range(16, 88)):
        for cell in range(1, 95):
            pair = bytes((0xA0 + row, 0xA0 + cell))
            found |= {ord(character) for character in pair.decode("gb2312", "ignore")}
    kana_and_cyrillic = {*range(0x3040, 0x3100), *range(0x0400, 0x0500)}
    # as wide as a character in this font, yet signs of formulas here: ‖, … and the operators
    wide = {0x2016, 0x2026, *range(0x2200, 0x2300)} - {0x2212}
    signs = {
        *range(0x20, 0x250),
        *range(0x370, 0x400),
        *range(0x2000, 0x2400),
        *range(0xFF00, 0xFF61),
    }
    return (found | signs) - kana_and_cyrillic - wide


def subset(source: Path, out: Path) -> None:
    """Write the part of a font that has those characters, under a name of its own."""
    font = TTFont(source)
    options = Options()
    options.hinting = False
    options.layout_features = ["kern", "locl", "mark", "ccmp"]
    options.name_IDs = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=characters())
    subsetter.subset(font)
    family, style = (font["name"].getDebugName(place) for place in (1, 2))
    family = FAMILIES[family]
    _narrow(font, "·")
    plain = family.replace(" ", "")
    for place, text in {
        1: family, 3: f"{plain}-{style}", 4: f"{family} {style}", 6: f"{plain}-{style}"
    }.items():  # fmt: skip
        font["name"].setName(text, place, 3, 1, 0x409)
    font["name"].names = [n for n in font["name"].names if n.platformID == 3 and n.langID == 0x409]
    font["head"].modified = font["head"].created  # the same bytes each time
    font.recalcTimestamp = False
    font.save(out)


def _narrow(font: TTFont, character: str) -> None:
    """Take a third of the width away on each side: the dot of q·k stands between letters."""
    name = font.getBestCmap()[ord(character)]
    width, bearing = font["hmtx"][name]
    font["hmtx"][name] = width - 2 * (width // 3), bearing - width // 3
    font["glyf"][name].coordinates.translate((-(width // 3), 0))
    font["glyf"][name].recalcBounds(font["glyf"])


if __name__ == "__main__":
    subset(Path(sys.argv[1]), Path(sys.argv[2]))
