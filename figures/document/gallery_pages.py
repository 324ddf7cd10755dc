"""The pages that show all figures, and their pictures.

``python -m figures.document.gallery_pages FOLDER`` writes figures/README.md, its Chinese twin and
the pictures of both in docs/gallery from the tables in FOLDER/data; a figure without a table there
keeps what the pages have of it. `make gallery` computes those that are missing first.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.runs import output_files
from analysis.sentences import one_line
from figures.document.figure_files import PARTS, saved, wording
from figures.drawing import style
from figures.gallery import FIGURES
from figures.words.translation import LANGUAGES, mark, speaking, spoken, tr, twin

ROOT = Path(__file__).parents[2]
PAGE = Path("figures/README.md")
PICTURES = Path("docs/gallery")
DPI = 100  # of a picture on the page: all of them are to stay small in git
HEAD = mark("""\
# Gallery

<!-- Written by `make gallery`; edit figures/document/gallery_pages.py instead. -->

The {count} figures at the command's defaults: the bundled sample and Gaussian inputs, profile
`default`. Each is one module in `gallery/`. `expqk figures` lists them; `expqk figures NAME`
writes one as PDF, SVG and PNG, its table as CSV, and its finding and caption as text;
`expqk figures all` writes every one. [中文](README.zh-CN.md)
""")


def sentence(name: str) -> str:
    """Return the first line of a figure's module: one sentence on its content.

    Examples
    --------
    >>> sentence("error")
    'Error of row-normalised attention against temperature, at equal budget.'
    """
    return (inspect.getdoc(FIGURES[name]) or "").splitlines()[0]


def page(tables: Mapping[str, pd.DataFrame], before: Mapping[str, str]) -> str:
    """Return the page in Markdown, in the language in force, given the table of each figure.

    What has no table keeps its section of the page before.
    """
    chinese = spoken() == "zh"
    parts = [tr(HEAD, count=len(FIGURES))]
    for name, module in FIGURES.items():
        if name not in tables:
            parts.append(f"## {name}\n{before[name].rstrip()}\n")
            continue
        found, *rest = PARTS
        how = f"`expqk figures {name}{' --lang zh' if chinese else ''}`"
        finding = github(wording(name, tables[name], [found]))
        parts.append(
            f"## {name}\n\n{how if chinese else f'{sentence(name)} {how}'}\n\n"
            f"**{finding}**\n\n"
            f"![{tr(module.TITLE)}](../{twin(PICTURES / f'{name}.png').as_posix()})\n\n"
            f"{github(wording(name, tables[name], rest))}\n"
        )
    return "\n".join(parts)


def github(caption: str) -> str:
    r"""Return a caption, in pandoc's Markdown, as GitHub's, whose formulas need no script.

    Examples
    --------
    >>> github("10^4.5^ at $|z|$ ≤ $10^{-2}$, e^(−1/2), l^2 and *p*, e^x：e^{x}")
    '10<sup>4.5</sup> at \\|z\\| ≤ 10<sup>-2</sup>, e^(−1/2), l^2 and \\*p\\*, e^x：e^{x}'
    """
    text = re.sub(r"\$([^$]*)\$", lambda m: re.sub(r"\^\{([^}]*)\}", r"^\1^", m[1]), caption)
    text = re.sub(r"([\\*_|<>])", r"\\\1", text)
    return re.sub(r"\^([^\s^(){}\u3000-\uffef]+)\^", r"<sup>\1</sup>", text)


def picture(table: pd.DataFrame, name: str) -> bytes:
    """Return a figure as a small PNG in the language in force: few dots, 256 colours."""
    with style.style():
        return style.small(FIGURES[name].draw(table), DPI)


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write pages and pictures from the tables in FOLDER/data; return what was written."""
    tables = {name: table for name in FIGURES if (table := saved(name, folder)) is not None}
    before = {language: _sections(root / path) for language, path in pages().items()}
    known = set.intersection(*map(set, before.values())) if tables else set()
    missing = [name for name in FIGURES if name not in {*tables, *known}]
    if missing:
        raise ValueError(f"{folder}/data has no table of {', '.join(missing)}: run make gallery")
    written = []
    for language, path in pages().items():
        with speaking(language):
            new = {root / twin(PICTURES / f"{n}.png"): picture(t, n) for n, t in tables.items()}
            new[root / path] = page(tables, before[language]).encode()
        for file, content in new.items():
            written.append(output_files.inside(root, file))
            with output_files.replacing(file) as temporary:
                temporary.write_bytes(content)
    return written


def pages() -> dict[str, Path]:
    """Return the page of each language."""
    paths = {}
    for language in LANGUAGES:
        with speaking(language):
            paths[language] = twin(PAGE)
    return paths


def _sections(page: Path) -> dict[str, str]:
    """Return the section of each figure on a page, by name; none where there is no page."""
    text = page.read_text("utf-8") if page.exists() else ""
    _, *parts = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2]))


def main(argv: list[str] | None = None) -> int:
    """Write the page from a folder that `expqk figures all` has filled; return 0, or 1."""
    parser = argparse.ArgumentParser(
        prog="python -m figures.document.gallery_pages", description=__doc__
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="--out of expqk figures all")
    try:
        for path in write(parser.parse_args(argv).folder):
            print(path.relative_to(ROOT))
    except (ValueError, OSError) as error:
        print(f"figures.document.gallery_pages: {one_line(error, 400)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
