"""One style for all figures: colours, names as users know them, and byte-identical files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import files
from figures import fonts
from figures.language import spoken, tr

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
ARRANGED: dict[Any, Any] = {"figure.constrained_layout.use": False}  # None, then, is no engine
# petroff10, safe for colour-blind readers; line styles and markers carry the same information.
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip

# spec pattern -> (name as users know it, colour, line style, marker)
KNOWN: dict[str, tuple[str, str, Any, str]] = {
    r"zero\(\)": ("zero matrix", "0.6", (":"), ""),
    r"one\(\)": ("all ones", "0.75", ":", ""),
    r"constant\(\)": ("best constant", "0.5", "-.", ""),
    r"uniform\(\)": ("uniform attention", "0.35", "--", ""),
    r"positive\(.*'orthogonal'.*": ("orthogonal positive features", PALETTE[2], "-", "s"),
    r"positive\(.*'simplex'.*": ("simplex positive features", PALETTE[4], "-", "D"),
    r"positive\(.*'zero_mean'.*": ("zero-mean positive features", PALETTE[6], "--", "^"),
    r"positive\(.*'antithetic'.*": ("antithetic positive features", PALETTE[7], "-.", "v"),
    r"positive\(.*'moment_matched'.*": (
        "moment-matched positive features", PALETTE[8], (0, (3, 1, 1, 1)), "P",
    ),
    r"positive\(.*'regularized'.*": ("positive features of length √d", PALETTE[5], "-", "X"),
    r"positive\(.*": ("Performer (positive features)", PALETTE[0], "-", "o"),
    r"hyperbolic\(.*": ("hyperbolic features", PALETTE[0], "--", "^"),
    r"generalized_exponential\(.*": ("FAVOR++ features", PALETTE[0], ":", "s"),
    r"dense_exponential\(.*": ("FAVOR# features", PALETTE[2], ":", "s"),
    r"shifted_positive\(.*a=None.*": ("shifted FAVOR++ features", PALETTE[4], "-.", "D"),
    r"shifted_positive\(.*": ("shifted positive features", PALETTE[0], "-.", "v"),
    r"regularized\(.*": ("regularized positive features", PALETTE[5], "-", "X"),
    r"leverage\(.*": ("leverage-score features", PALETTE[3], "-", "<"),
    r"centered\(.*": ("centred features", PALETTE[8], "-", ">"),
    r"trigonometric\(.*": ("random Fourier features", PALETTE[9], "-", "v"),
    r"random_phase\(.*": ("random-phase Fourier features", PALETTE[9], "--", "v"),
    r"generalized_trigonometric\(.*": ("generalized Fourier features", PALETTE[9], ":", "v"),
    r"poisson\(.*": ("Poisson features", PALETTE[1], "-", "<"),
    r"geometric\(.*": ("geometric features", PALETTE[1], "--", ">"),
    r"angular_hybrid\(.*": ("angular hybrid features", PALETTE[5], "-.", "d"),
    r"scatterbrain\((?!.*(?:sparse=(?!top_k)|taylor|trig|svd|uniform)).*": (
        "Scatterbrain (Performer + top-k)", PALETTE[4], "-", "D",
    ),
    r"scatterbrain\((?!.*(?:taylor|trig|svd)).*sliding_window.*": (
        "Scatterbrain (Performer + window)", PALETTE[5], "-", "X",
    ),
    r"top_k\(.*": ("top-k of each row", PALETTE[6], "-", "^"),
    r"sliding_window\(.*": ("sliding window", PALETTE[7], "-", "s"),
    r"threshold\(.*": ("weights above a level", PALETTE[6], ":", "v"),
    r"chunk\(.*": ("chunks", PALETTE[7], "--", "P"),
    r"strided\(.*": ("strides", PALETTE[3], "-", "d"),
    r"random\(.*": ("random keys", "0.5", "--", ""),
    r"lsh\(.*xbox.*": ("LSH after XBOX+", PALETTE[0], "--", "o"),
    r"lsh\(.*": ("LSH (angles)", PALETTE[0], "-", "o"),
    r"smyrf\(.*": ("SMYRF clusters", PALETTE[1], "-", "<"),
    r"reformer\(.*": ("Reformer buckets", PALETTE[2], "-", "X"),
    r"truncated_svd\(.*": ("low-rank oracle (SVD)", PALETTE[2], "--", ""),
    r"nystrom\(.*": ("Nyström", PALETTE[8], "-.", "<"),
    r"godec\(rank=0.*": ("sparse oracle (largest entries)", PALETTE[6], "--", ""),
    r"godec\(.*": ("sparse + low-rank oracle (GoDec)", "black", "-", ""),
    r"robust_pca\(.*": ("Robust PCA (pursuit)", PALETTE[8], "", "P"),
    r"taylor\(degree=(\d+)\)": ("Taylor, degree {0}", PALETTE[1], "-", "p"),
    r"random_maclaurin\(.*poisson.*": ("random Maclaurin, Poisson", PALETTE[1], "--", "<"),
    r"random_maclaurin\(.*": ("random Maclaurin, geometric", PALETTE[1], "-", ">"),
    r"product_sketch\(.*gaussian.*": ("Gaussian product sketch", PALETTE[5], "--", "d"),
    r"product_sketch\(.*": ("product sketch", PALETTE[5], "-", "d"),
    r"tensor_sketch\(.*": ("TensorSketch", PALETTE[2], "-", "s"),
    r"squared_sketch\(.*": ("squared sketch", PALETTE[4], "-", "D"),
    r"tensor_power\(n=(\d+)\)": ("tensor power (1 + x/n)ⁿ, n = {0}", PALETTE[3], "-", "h"),
    r"richardson\(n=(\d+)\)": ("Richardson of two powers, n = {0}", PALETTE[3], "--", "H"),
    r"richardson\(n=(\d+), .*": ("Richardson of three powers, n = {0}", PALETTE[3], ":", "H"),
    r"chebyshev\(degree=(\d+).*": ("Chebyshev, degree {0}", PALETTE[0], "-.", "8"),
    r"minimax\(degree=(\d+).*absolute.*": ("absolute minimax, degree {0}", PALETTE[2], ":", "D"),
    r"minimax\(degree=(\d+).*": ("relative minimax, degree {0}", PALETTE[2], "-.", "D"),
    r"least_squares\(degree=(\d+).*": ("least squares, degree {0}", PALETTE[6], "-.", "v"),
    r"elu\(\)": ("linear attention, elu + 1", PALETTE[1], "-", "o"),
    r"relu\(\)": ("linear attention, relu", PALETTE[1], "--", "s"),
    r"cosformer\(.*": ("cosFormer", PALETTE[1], ":", "^"),
    r"flowformer\(\)": ("Flowformer", PALETTE[1], "-.", "v"),
    r"flash\(.*": ("FLASH mixed chunks", PALETTE[8], "-", "P"),
    r"rfa\(.*": ("random feature attention", PALETTE[9], "-.", "o"),
    r"lara\(.*": ("LARA", PALETTE[4], "--", "s"),
    r"linformer\(.*gaussian.*": ("Linformer, Gaussian", PALETTE[5], "--", "<"),
    r"linformer\(.*": ("Linformer, means", PALETTE[5], "-", ">"),
    r"nystromformer\(.*iterations.*": ("Nyströmformer, iterated", PALETTE[2], "--", "p"),
    r"nystromformer\(.*": ("Nyströmformer", PALETTE[2], "-", "h"),
    r"randomized_attention\(.*": ("randomized attention", PALETTE[4], ":", "*"),
    r"eva\(.*": ("EVA (chunks + groups)", PALETTE[4], "-", "d"),
}  # fmt: skip


def look(method: str) -> dict[str, Any]:
    """Return label, colour, line style and marker of a method's spec; an unknown one gets its own.

    Examples
    --------
    >>> look("positive(m=16)")["label"]
    'Performer (positive features)'
    >>> look("mine(m=3)")["label"]
    'mine(m=3)'
    """
    for pattern, (label, colour, line, marker) in KNOWN.items():
        if found := re.fullmatch(pattern, method):
            label = tr(label).format(*found.groups())
            return {"label": label, "color": colour, "linestyle": line, "marker": marker}
    index = int(hashlib.sha256(method.encode()).hexdigest(), 16) % len(PALETTE)
    return {"label": method, "color": PALETTE[index], "linestyle": (0, (3, 1)), "marker": "*"}


def label(method: str) -> str:
    """Return the name of a method's spec as users know it."""
    return str(look(method)["label"])


def power(value: float) -> str:
    """Return a power of ten, or 0, for a label.

    Examples
    --------
    >>> power(1e-4)
    '$10^{-4}$'
    """
    return "0" if value == 0 else f"$10^{{{math.log10(value):.0f}}}$"


def order(methods: Iterator[str] | pd.Series | list[str]) -> list[str]:
    """Return specs in the order of `KNOWN`, unknown ones last."""
    patterns = list(KNOWN)

    def place(method: str) -> int:
        hits = (i for i, p in enumerate(patterns) if re.fullmatch(p, method))
        return next(hits, len(patterns))

    return sorted(dict.fromkeys(methods), key=place)


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw within the project's style and language, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)  # type: ignore[arg-type]
        if spoken() == "zh":
            mpl.rcParams["font.family"] = fonts.in_figures()
        yield


def panels(
    rows: int, columns: int, *, width: float = 7.0, height: float = 1.9
) -> tuple[Figure, Any]:
    """Return (figure, axes), a grid that shares its axes' scales; sizes in inches."""
    figure = Figure(figsize=(width, height * rows + 0.7))
    return figure, figure.subplots(rows, columns, sharex="col", sharey="col", squeeze=False)


def legend(figure: Figure, axes: Axes | list[Axes], columns: int = 3) -> None:
    """Put one legend for all panels below them."""
    found: dict[str, Any] = {}
    for ax in axes if isinstance(axes, list) else [axes]:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            found.setdefault(label, handle)
    figure.legend(
        list(found.values()), list(found), loc="outside lower center", ncols=columns,
        handlelength=2.6, columnspacing=1.4,
    )  # fmt: skip


def span(sizes: Iterable[int]) -> str:
    """Return the range of sizes, one number where they agree.

    Examples
    --------
    >>> span([128, 128]), span([128, 40, 56])
    ('128', '40–128')
    """
    found = sorted(set(sizes))
    return f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"


def save_table(name: str, table: pd.DataFrame, folder: Path) -> Path:
    """Write FOLDER/data/NAME.csv as `save` does; the same bytes each time."""
    path = files.inside(folder, folder / "data" / f"{name}.csv")
    with files.replacing(path) as temporary:
        table.to_csv(temporary, index=False, encoding="utf-8", lineterminator="\n")
    return path


def save(
    name: str,
    table: pd.DataFrame,
    figure: Figure,
    folder: Path,
    formats: tuple[str, ...] = FORMATS,
    caption: str | None = None,
    title: str | None = None,
) -> list[Path]:
    """Write a figure in every format, and the CSV it was drawn from; the same bytes each time.

    Files appear whole or not at all, and only under ``folder``: a link there to somewhere else is
    an error. Floats are written so that they read back to the last bit. A caption becomes
    NAME.txt, in plain text; a title is kept in each file, where screen readers find it. The figure
    is laid out here, once: afterwards it has no layout engine, and what is added moves nothing.
    """
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", name, re.ASCII):
        raise ValueError(f"the name of a figure must be letters, digits and ._-, got {name[:80]!r}")
    written = [save_table(name, table, folder)]
    plots = folder / "figures"
    if caption is not None:
        written.append(files.inside(folder, plots / f"{name}.txt"))
        with files.replacing(written[-1]) as temporary:
            temporary.write_text(plain(caption) + "\n", encoding="utf-8")
    with style(), mpl.rc_context(ARRANGED):
        figure.draw_without_rendering()  # places are found once, not for each format
        figure.set_layout_engine(None)
    for kind in formats:
        path = files.inside(folder, plots / f"{name}.{kind}")
        with files.replacing(path) as temporary:
            temporary.write_bytes(drawing(figure, kind, title))
        written.append(path)
    return written


def plain(caption: str) -> str:
    r"""Return a caption, in pandoc's Markdown, as plain text.

    Examples
    --------
    >>> plain("2.1·10^-4.5^ at eps = $10^{-6}$, B^0.79 and B^0.50")
    '2.1·10^-4.5 at eps = 10^-6, B^0.79 and B^0.50'
    """
    text = re.sub(r"\$([^$]*)\$", lambda m: re.sub(r"\^\{([^}]*)\}", r"^\1", m[1]), caption)
    return re.sub(r"\^([^\s^()]+)\^", r"^\1", text)


def drawing(figure: Figure, kind: str, title: str | None = None) -> bytes:
    """Return a figure as a file of that format; the same bytes each time."""
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    titled = {} if title is None else {"Title": title}
    content = io.BytesIO()  # zlib, not the system, would say that a disk is full
    with style(), mpl.rc_context(ARRANGED):
        figure.savefig(content, format=kind, metadata={**undated[kind], **titled})
    return content.getvalue()
