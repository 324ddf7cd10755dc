"""A font with Chinese characters, so that every machine shows them; see README.md and OFL.txt."""

from __future__ import annotations

import functools
from pathlib import Path

FONT = Path(__file__).parent / "ExpqkSansSC-Regular.ttf"
FAMILY = "Expqk Sans SC"


@functools.cache
def in_figures() -> list[str]:
    """Return the font families of figures, after telling matplotlib where the first one is.

    The Chinese one comes first: beside a formula matplotlib takes no other for plain text.
    """
    from matplotlib import font_manager

    font_manager.fontManager.addfont(FONT)
    return [FAMILY, "DejaVu Sans"]
