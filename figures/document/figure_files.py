"""The files of a figure: its table, its pictures, and what it says of them."""

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.runs import output_files
from analysis.sentences import one_line
from figures.drawing import style
from figures.gallery import FIGURES
from figures.words.translation import tr

PARTS = "finding", "caption"  # what it found, what is drawn


def listing() -> str:
    """Return the names and titles of all figures, one a line.

    Examples
    --------
    >>> listing().splitlines()[0]
    'summary          The best approximations, and the best that can be run'
    """
    width = max(map(len, FIGURES))
    return "\n".join(f"{name:{width}}  {tr(module.TITLE)}" for name, module in FIGURES.items())


def save(
    name: str,
    table: pd.DataFrame,
    folder: Path,
    formats: tuple[str, ...] = style.FORMATS,
    caption: str | None = None,
    *,
    read: bool = False,
) -> list[Path]:
    """Draw a figure and write it as `style.save` does; its panels, if any, as NAME/t=….svg.

    A table that was read from FOLDER/data/NAME.csv is not written.
    """
    module = FIGURES[name]
    title = tr(module.TITLE)
    said = style.plain_text(wording(name, table, PARTS[:1]))
    own = None if read else table
    written = style.save(name, own, draw(name, table), folder, formats, caption, said)
    if panels := getattr(module, "panels", None):
        for old in folder.glob(f"figures/{name}/t=*.svg"):  # of a run at other temperatures
            if not output_files.edited(folder, old.relative_to(folder).as_posix()):
                old.unlink()
        with style.style():
            for t, panel in panels(style.drawable(table, style.NAME)):
                content = style.drawing(panel, "svg", tr("{title}, t = {t:g}", title=title, t=t))
                with output_files.recorded(folder, f"figures/{name}/t={t:g}.svg") as temporary:
                    temporary.write_bytes(content)
                written.append(folder / "figures" / name / f"t={t:g}.svg")
    return written


def files(name: str, folder: Path, formats: Sequence[str] = style.FORMATS) -> list[str]:
    """Return the names of all files of a figure that `save` may write, and of its panels there."""
    panels = folder.glob(f"figures/{name}/t=*.svg")
    return style.files(name, formats) + [path.relative_to(folder).as_posix() for path in panels]


def draw(name: str, table: pd.DataFrame) -> Figure:
    """Draw a figure; the names of its inputs may have any characters and length."""
    with style.style():
        figure: Figure = FIGURES[name].draw(style.drawable(table, style.NAME))
    return figure


def wording(name: str, table: pd.DataFrame, parts: Sequence[str] = PARTS) -> str:
    """Return all that a figure says of its table, or some parts of it."""
    return " ".join(getattr(FIGURES[name], part)(style.drawable(table)) for part in parts)


def title_and_text(name: str, table: pd.DataFrame) -> str:
    """Return the title of a figure and all that it says of its table."""
    return f"{tr(FIGURES[name].TITLE)}\n\n{wording(name, table)}"


def saved(name: str, folder: Path) -> pd.DataFrame | None:
    """Return the table in FOLDER/data/NAME.csv, or None where there is none.

    Raises
    ------
    ValueError
        The file is no table that the figure can draw.
    """
    path = folder / "data" / f"{name}.csv"
    if not os.path.lexists(path):
        return None
    try:
        if not path.is_file():  # a pipe would never end
            raise ValueError("it is no file")
        table = pd.read_csv(  # an input may be called 1.10 or NA
            path, dtype={"input": str}, keep_default_na=False, na_values=[""]
        )
        if "input" in table:  # see `harmless`
            table["input"] = table["input"].str.replace(r"^'(?=[=+@-])", "", regex=True)
        wording(name, table)  # cheap, and needs the columns and rows that drawing does
    except Exception as error:  # whatever a parser or a figure raises on an edited file
        raise ValueError(
            f"{one_line(path)} is no table of the figure {name} "
            f"({one_line(error, 80)}): move it, and it is computed anew"
        ) from error
    return table
