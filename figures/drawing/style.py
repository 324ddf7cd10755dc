"""One style for all figures: colours, names as users know them, and byte-identical files."""

import contextlib
import io
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
from PIL import Image, PngImagePlugin

from analysis.runs import output_files
from analysis.sweeps.table import harmless
from figures import fonts
from figures.words.terminal_columns import balanced, ends
from figures.words.translation import spoken, tr

FORMATS = ("pdf", "svg", "png")

RC: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "svg.hashsalt": "expqk",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}
REACHES = (4, 7, 11, 16, 22, 29, 37, 46, 56, 68, 82, 98, 116)  # points from a point to its name
FORMULA = re.compile(r"(?<!\\)\$(.*?)(?<!\\)\$", re.DOTALL)  # a dollar of a name is escaped
NAME = 18  # columns of an input's name in a figure
SMALL = 7.9  # points in a figure 7 inches wide: 7 on paper, where it is 160 mm wide
ARRANGED: dict[Any, Any] = {"figure.constrained_layout.use": False}  # None, then, is no engine


def dots(colour: str, marker: str, size: float) -> dict[str, Any]:
    """Return the look of markers that no line joins."""
    return {"color": colour, "marker": marker, "linestyle": "", "markersize": size}


def drawable(table: pd.DataFrame, size: int | None = None) -> pd.DataFrame:
    r"""Return a table whose names of inputs are drawn as they are: dollars begin no formula.

    Names of more columns than ``size`` are cut in the middle, if no two are alike then.

    Examples
    --------
    >>> drawable(pd.DataFrame({"input": ["a $x$"]})).input[0]
    'a \\$x\\$'
    >>> drawable(pd.DataFrame({"input": ["a long name 0.1"]}), 8).input[0]
    'a l… 0.1'
    """
    if "input" not in table:
        return table
    names = {name: name for name in table.input.unique()}
    cut = {name: name if size is None else ends(name, size) for name in names}
    known = cut if len(set(cut.values())) == len(names) else names
    return table.assign(input=[known[name].replace("$", r"\$") for name in table.input])


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw within the project's style and language, whatever the user's own settings are.

    A character that no font has, such as an emoji in the name of a file, is an empty box.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(RC)  # type: ignore[arg-type]
        mpl.rcParams["font.family"] = fonts.in_figures(spoken())
        yield


def row(count: int, height: float, **shared: Any) -> tuple[Figure, list[Any]]:
    """Return (figure, axes), panels beside each other, as wide as a page of text."""
    figure = Figure(figsize=(7.0, height))
    return figure, list(figure.subplots(1, count, squeeze=False, **shared)[0])


def panels(
    rows: int, columns: int, x: str = "", y: str = "", *, height: float = 1.9
) -> tuple[Figure, Any]:
    """Return (figure, axes), a grid that shares its axes' scales, named below and on the left."""
    figure = Figure(figsize=(7.0, height * rows + 0.7))
    axes = figure.subplots(rows, columns, sharex="col", sharey="col", squeeze=False)
    for ax in axes[-1]:
        ax.set_xlabel(x)
    for ax in axes[:, 0]:
        ax.set_ylabel(y)
    return figure, axes


def tiles(count: int, x: str, y: str, *, height: float = 2.1) -> tuple[Figure, list[Axes]]:
    """Return (figure, axes), up to four panels beside each other, all alike."""
    columns = min(count, 4)
    rows = -(-count // columns)
    figure = Figure(figsize=(7.0, height * rows + 0.7))
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_visible(False)
    for ax in axes[:count]:
        ax.xaxis.set_tick_params(labelbottom=True)
    for ax in axes[:count][-columns:]:
        ax.set_xlabel(lines(x, 18) if columns > 2 else x)
    for ax in axes[:count][::columns]:
        ax.set_ylabel(y)
    return figure, axes[:count]


def curve(ax: Axes, values: pd.Series, limits: tuple[float, float], **look: Any) -> None:
    """Draw heights by their x, with a triangle at the border where they leave the axis's limits."""
    ax.plot(values.index, values, **look)
    beyond(ax, values, limits, color=look["color"], label=f"_{look['label']}")


def beyond(ax: Axes, values: pd.Series, limits: tuple[float, float], **look: Any) -> None:
    """Draw a triangle at the border for each value that is beyond it."""
    least, most = limits
    own: dict[str, Any] = {"linestyle": "", "markersize": 4.5, "clip_on": False, "gid": "beyond"}
    for place, marker, off in ((most, "^", values > most), (least, "v", values < least)):
        if off.any():
            ax.plot(values.index[off], [place] * off.sum(), **(look | own | {"marker": marker}))


def key(ax: Axes, *, line: str = "", mark: str = "", hollow: str = "") -> None:
    """Say in the legend what lines, marks and hollow marks of all colours stand for."""
    mark_alone: dict[str, Any] = dots("0.4", "o", 4.5)
    for text, look in (
        (line, {"color": "0.4"}),
        (mark, mark_alone),
        (hollow, mark_alone | {"markerfacecolor": "white"}),
    ):
        if text:
            ax.plot([], [], label=text, **look)


def direct(ax: Axes, lines: Sequence[tuple[str, float, Any]], *, apart: float = 0.085) -> None:
    """Write the names of lines right of a panel, each at its end or as near as others allow.

    Parameters
    ----------
    ax : Axes
        Whose limits are set.
    lines : sequence of (name, last value, colour)
    apart : float
        Least distance of two names, in heights of the panel.
    """
    transform = ax.transScale + ax.transLimits
    right = ax.get_xlim()[1]
    ends = np.array([float(transform.transform((right, value))[1]) for _, value, _ in lines])
    order = np.argsort(ends, kind="stable")
    steps = apart * np.arange(len(lines))
    places = np.empty(len(lines))
    places[order] = np.minimum(  # above the name below it, and not above the panel
        np.maximum.accumulate(ends[order] - steps) + steps, 1.0 - steps[::-1]
    )
    for (name, value, colour), place in zip(lines, places):
        ax.annotate(
            name, (right, value), (1.05, place), textcoords="axes fraction", va="center",
            fontsize=SMALL, color=colour, annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "lw": 0.5, "color": colour, "shrinkA": 1, "shrinkB": 0,
                "relpos": (0.0, 0.5),
            },
        )  # fmt: skip


def lines(label: str, size: int) -> str:
    r"""Return a label in equal lines of at most so many columns.

    Examples
    --------
    >>> lines("stored values per query row", 14)
    'stored values\nper query row'
    """
    return "\n".join(balanced(label, size))


def ticks(ax: Axes, places: Sequence[float]) -> None:
    """Draw ticks with numbers at these places of the x axis, and no minor ones on either axis.

    In a narrow panel at most five places have one.
    """
    if (place := ax.get_subplotspec()) is not None and place.get_gridspec().ncols > 2:
        places = places[:: max(1, -(-(len(places) - 1) // 4))]
    ax.set_xticks(places, [f"{place:g}" for place in places])
    ax.minorticks_off()


class PointName(Annotation):
    """The name of a point of a panel: at the nearest place that covers no text and no named curve.

    A line joins the point and a name that is not beside it.
    """

    def __init__(self, ax: Axes, text: str, point: tuple[float, float], **look: Any) -> None:
        lead = {"arrowstyle": "-", "lw": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 1.5}
        super().__init__(
            text, point, (0, 0), textcoords="offset points", ha="center", va="center", size=SMALL,
            arrowprops=lead, linespacing=1.0, **look,
        )  # fmt: skip
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: RendererBase) -> None:
        """Place the name, and draw it."""
        ax, point = self.axes, float(renderer.points_to_pixels(1.0))  # type: ignore[arg-type]
        assert ax is not None
        assert self.arrow_patch is not None
        size = np.array(Text.get_window_extent(self, renderer).size) + point
        start, panel = ax.transData.transform(self.xy), ax.get_window_extent()
        curves = [line for line in ax.lines if line.get_linestyle() != "None"]
        paths = [line.get_transform().transform_path(line.get_path()) for line in curves]
        weights = [1 if str(line.get_label()).startswith("_") else 4 for line in curves]
        before = itertools.takewhile(lambda text: text is not self, ax.texts)
        texts = [Text.get_window_extent(text, renderer) for text in before]
        marks = np.concatenate(
            [line.get_transform().transform(line.get_xydata()) for line in ax.lines]
        )
        best = math.inf, start, 0.0
        for reach, angle in itertools.product(REACHES, np.pi / 12 * np.arange(24)):
            if reach >= best[0]:
                break
            way = np.array([np.cos(angle), np.sin(angle)])
            centre = start + way * (reach * point + size / 2)
            box = Bbox([centre - size / 2, centre + size / 2])
            if not (panel.contains(*box.min) and panel.contains(*box.max)) or any(
                box.overlaps(text) for text in texts
            ):
                continue
            covered = sum(
                w for w, path in zip(weights, paths) if path.intersects_bbox(box, filled=False)
            )
            price = reach + 60 * (covered + box.count_contains(marks) / 5)
            best = min(best, (price, centre, reach), key=lambda one: one[0])
        self.xyann = tuple((best[1] - start) / point)
        self.arrow_patch.set_visible(best[2] > REACHES[1])
        super().draw(renderer)


def legend(figure: Figure, axes: Axes | list[Axes], columns: int = 3) -> None:
    """Name the curves of panels below them, and what triangles are."""
    handles: dict[str, Any] = {}
    panels = axes if isinstance(axes, list) else [axes]
    for ax in panels:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if not handles:
        return
    if any(line.get_gid() == "beyond" for ax in panels for line in ax.lines):
        handles[tr("off the scale")] = Line2D([], [], **dots("0.4", "^", 4.5))
    figure.legend(
        list(handles.values()), list(handles),
        loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.4,
    )  # fmt: skip


def save_table(name: str, table: pd.DataFrame, folder: Path) -> Path:
    """Write FOLDER/data/NAME.csv as `save` does; the same bytes each time."""
    with output_files.recorded(folder, f"data/{name}.csv") as temporary:
        shown = harmless(table)
        shown.to_csv(temporary, index=False, encoding="utf-8", lineterminator="\n")
    return folder / "data" / f"{name}.csv"


def save(
    name: str,
    table: pd.DataFrame | None,
    figure: Figure,
    folder: Path,
    formats: tuple[str, ...] = FORMATS,
    caption: str | None = None,
    title: str | None = None,
) -> list[Path]:
    """Write a figure in every format, and the CSV it was drawn from; the same bytes each time.

    Without a table, FOLDER/data/NAME.csv is left as it is.
    Files appear whole and only under ``folder``; one that expqk did not write is an error. Floats
    read back to the last bit. A caption becomes NAME.txt, in plain text; a title is kept in each
    file, where screen readers find it.
    """
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", name, re.ASCII):
        raise ValueError(f"the name of a figure must be letters, digits and ._-, got {name[:80]!r}")
    written = [] if table is None else [save_table(name, table, folder)]
    contents = {kind: drawing(figure, kind, title) for kind in formats}
    if caption is not None:
        contents = {"txt": f"{plain_text(caption)}\n".encode(), **contents}
    for kind, content in contents.items():
        with output_files.recorded(folder, f"figures/{name}.{kind}") as temporary:
            temporary.write_bytes(content)
        written.append(folder / "figures" / f"{name}.{kind}")
    return written


def files(name: str, formats: Iterable[str] = FORMATS) -> list[str]:
    """Return the names of all files that `save` may write of a figure."""
    return [f"data/{name}.csv", *(f"figures/{name}.{kind}" for kind in (*formats, "txt"))]


def plain_text(caption: str) -> str:
    r"""Return a caption, in pandoc's Markdown, as plain text.

    Examples
    --------
    >>> plain_text(r"2.1·10^-4.5^ at eps = $10^{-6}$, B^0.79 and \$5")
    '2.1·10^-4.5 at eps = 10^-6, B^0.79 and $5'
    """
    text = FORMULA.sub(lambda m: re.sub(r"\^\{([^}]*)\}", r"^\1", m[1]), caption)
    return re.sub(r"\^([^\s^()]+)\^", r"^\1", text).replace(r"\$", "$")


def small(figure: Figure, dpi: int, texts: Mapping[str, str] | None = None) -> bytes:
    """Return a figure as a PNG of 256 colours, for a page in git, with texts that it carries."""
    content, few = io.BytesIO(), io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    carried = PngImagePlugin.PngInfo()
    for key, text in (texts or {}).items():
        carried.add_text(key, text)
    image = Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(few, format="PNG", optimize=True, pnginfo=carried)
    return few.getvalue()


def arrange(figure: Figure) -> None:
    """Lay a figure out, once: afterwards it has no layout engine, and what is added moves nothing.

    Otherwise matplotlib would lay it out again for each format.
    """
    if figure.get_layout_engine() is not None:
        with style(), mpl.rc_context(ARRANGED):
            figure.draw_without_rendering()
            figure.set_layout_engine(None)


def drawing(figure: Figure, kind: str, title: str | None = None) -> bytes:
    """Return a figure as a file of that format; the same bytes each time."""
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    titled = {} if title is None else {"Title": title}
    content = io.BytesIO()  # zlib, not the system, would say that a disk is full
    arrange(figure)
    with style(), mpl.rc_context(ARRANGED):
        figure.savefig(content, format=kind, metadata={**undated[kind], **titled})
    return content.getvalue()
