"""The pictures of docs/two_lines.md, drawn from what the code of that page computes.

``python docs/pictures.py`` runs the page from top to bottom, and draws after each block of code
the picture below it, in both languages, from the names that the code has made. Each file says which
section it shows, so that a test notices a picture of another text.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.runs import output_files
from approx.estimate import exact
from figures.drawing import looks, style
from figures.words.translation import LANGUAGES, speaking, tr, twin

PAGE = Path(__file__).with_name("two_lines.md")
PICTURES = PAGE.parent / "two_lines"
DPI, WIDTH, HEIGHT = 110, 5.0, 2.3  # inches
SHOWS = "Shows"  # the entry of a picture that has the digest of its section
BLUE, AMBER, RED, GREY = (looks.PALETTE[i] for i in (0, 1, 2, 8))

Names = dict[str, Any]
Draw = Callable[[Axes, Names], None]


class Section(NamedTuple):
    """A result of the page.

    Attributes
    ----------
    title, code, printed, picture : str
        The sentence; what computes it; what that prints; the name of the picture.
    """

    title: str
    code: str
    printed: str
    picture: str

    @property
    def digest(self) -> str:
        """The first digits of the SHA-256 of what the picture must agree with."""
        return hashlib.sha256(f"{self.code}\n{self.printed}".encode()).hexdigest()[:16]


def sections(page: str) -> tuple[str, list[Section]]:
    """Return the code that comes first, and every result of the page."""
    head, *rest = re.split(r"^## ", page, flags=re.MULTILINE)
    block = r"^```{}\n(.*?)^```$"

    def one(pattern: str, text: str) -> str:
        (found,) = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
        return str(found)

    return one(block.format("python"), head), [
        Section(
            text.partition("\n")[0],
            one(block.format("python"), text),
            one(block.format("text"), text),
            one(r"^!\[[^]\n]+\]\(two_lines/(\w+)\.png\)$", text),
        )
        for text in rest
    ]


def _rank(ax: Axes, names: Names) -> None:
    ax.plot(names["temperatures"], names["ranks"], "o-", color=BLUE)
    ax.axhline(names["easy"].d, color=GREY, linestyle="--", linewidth=1)
    ax.text(8, names["easy"].d + 3, tr("rank of the logits"), ha="right", color=GREY, fontsize=8)
    _temperatures(ax, names)
    ax.set_ylabel(tr("singular values above 1 %"))


def _variance(ax: Axes, names: Names) -> None:
    heads = (names[name].name for name in ("easy", "middling", "hard"))
    for label, log, colour in zip(heads, names["logs"], (BLUE, AMBER, RED), strict=True):
        ax.hist(
            log.ravel() / np.log(10), bins=60, density=True, color=colour, alpha=0.8, label=label
        )
    ax.set(xlabel=tr("log10 of the relative variance of a pair"), xlim=(0, None))
    ax.set_yticks([])
    ax.legend()


def _mean(ax: Axes, names: Names) -> None:
    ax.axhline(1, color=GREY, linestyle="--", linewidth=1)
    ax.text(0, 0.9, tr("exact"), color=GREY, fontsize=8, va="top")
    ax.plot(names["norms"], [x.mean[0, 0] for x in names["found"]], "o-", color=RED)
    ax.set(xlabel="|q + k|", ylabel=tr("mean of the draws"), ylim=(0, 1.1))


def _states(ax: Axes, names: Names) -> None:
    whole = names["average"]
    half = len(whole) // 2
    for matrix, label, colour, marker in (
        (whole, tr("whole matrix"), BLUE, ""),
        (whole[half:, :half], tr("later queries × earlier keys"), RED, "o"),
    ):
        values = np.linalg.svd(matrix, compute_uv=False)
        values = values[values > 1e-12 * values[0]]
        places = np.arange(1, len(values) + 1)
        ax.plot(places, values / values[0], color=colour, marker=marker, label=label)
    ax.set(xlabel=tr("index i"), ylabel="$s_i/s_1$", yscale="log", ylim=(3e-4, 2))
    ax.legend()


def _crossing(ax: Axes, names: Names) -> None:
    t = names["temperatures"]
    few, low = zip(*map(names["errors"], t))
    ax.plot(t, few, "^-", color=RED, label=tr("largest entries (sees all logits)"))
    ax.plot(t, low, "s-", color=BLUE, label=tr("low rank (sees all logits)"))
    ax.axvline(
        names["crossovers"].crossing(t, few, low, errors=names["errors"]),
        color=GREY, linestyle="--", linewidth=1,
    )  # fmt: skip
    _temperatures(ax, names)
    ax.set(ylabel=tr("total variation"), yscale="log", ylim=(1e-4, 1.5))
    ax.legend()


def _sink(ax: Axes, names: Names) -> None:
    head = names["sink"]
    P = exact.softmax(head.Q, head.K, head.mask)[32:]
    places = np.arange(32, 32 + len(P))
    window = np.array([row[i - 31 : i + 1].sum() for i, row in zip(places, P, strict=True)])
    parts = window, P[:, 0], 1 - window - P[:, 0]
    labels = tr("window"), tr("first key"), tr("all other keys")
    ax.stackplot(places, parts, labels=labels, colors=(BLUE, RED, "0.85"))
    ax.set(
        xlabel=tr("each query"), ylabel=tr("share of attention"), xlim=(32, places[-1]), ylim=(0, 1)
    )
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)


def _bits(ax: Axes, names: Names) -> None:
    errors = names["errors"]
    ax.plot(names["every"], errors, "o-", color=BLUE, label=tr("all keys in that many bits"))
    few = names["tv"](names["broad"], "top_k(k=32)")
    ax.axhline(few, color=RED, linestyle="--", linewidth=1, label=tr("top-k of each row"))
    ax.set(xlabel=tr("bits per coordinate of a key"), ylabel=tr("total variation"), yscale="log")
    ax.legend()


def _certificate(ax: Axes, names: Names) -> None:
    head, best = names["local"], names["best"]
    P = exact.softmax(head.Q, head.K, head.mask)
    kept = np.zeros_like(P)
    pattern = best.sparse.tocoo()
    kept[pattern.row, pattern.col] = P[pattern.row, pattern.col]
    true = 1 - kept.sum(axis=1)  # on a support the total variation is what it leaves out
    rows = np.arange(len(true))
    labels = (
        tr("bound from boxes of {size} keys", size=16),
        *(tr("bound from boxes and {bits} bits a coordinate", bits=bits) for bits in (2, 4)),
    )
    for bound, label, colour in zip(names["rows"], labels, (AMBER, BLUE, GREY), strict=True):
        ax.plot(rows, bound, ".", markersize=3, color=colour, label=style.lines(label, 28))
    ax.plot(rows, true, color=RED, linewidth=1, label=tr("error"))
    ax.set(xlabel=tr("each query"), ylabel=tr("total variation"), yscale="log", ylim=(1e-4, 1.5))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _taylor(ax: Axes, names: Names) -> None:
    logits = exact.logits(names["middling"].Q, names["middling"].K)
    x = np.linspace(logits.min(), logits.max(), 200)
    total, term = np.ones_like(x), np.ones_like(x)
    for degree, colour in zip((1, 2, 3, 4), (GREY, BLUE, RED, AMBER), strict=True):
        term = term * x / degree
        total = total + term
        ax.plot(x, total, color=colour, label=tr("Taylor, degree {degree}", degree=degree))
    ax.plot(x, np.exp(x), color="black", linestyle="--", label="exp")
    ax.axhline(0, color="0.5", linewidth=0.6)
    ax.set(xlabel=tr("logits"), ylim=(-40, 40))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _decoding(ax: Axes, names: Names) -> None:
    for spec, row, (colour, marker) in zip(
        names["specs"], names["prices"],
        zip((GREY, AMBER, BLUE, RED), "osd^", strict=True), strict=True,
    ):  # fmt: skip
        ax.plot(
            names["lengths"],
            [price.reads for price in row],
            color=colour,
            marker=marker,
            label=spec,
        )
    ax.set(xscale="log", yscale="log", xlabel=tr("length n"), ylabel=tr("numbers read"))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


DRAWN: dict[str, Draw] = {
    "rank": _rank,
    "variance": _variance,
    "mean": _mean,
    "states": _states,
    "crossing": _crossing,
    "sink": _sink,
    "bits": _bits,
    "certificate": _certificate,
    "taylor": _taylor,
    "decoding": _decoding,
}


def _temperatures(ax: Axes, names: Names) -> None:
    ax.set(xscale="log", xlabel=tr("temperature t"))
    style.ticks(ax, names["temperatures"])


def picture(section: Section, names: Names) -> bytes:
    """Return a small PNG of a section, in the language in force, from the names of its code."""
    with style.style():
        figure = Figure(figsize=(WIDTH, HEIGHT))
        DRAWN[section.picture](figure.subplots(), names)
        return style.small(figure, DPI, {SHOWS: section.digest})


def write(page: Path = PAGE, folder: Path = PICTURES) -> list[Path]:
    """Run the code of the page, and write every picture; return the files."""
    first, results = sections(page.read_text("utf-8"))
    names: Names = {"__name__": "two_lines"}
    exec(compile(first, page.name, "exec"), names)
    written = []
    for section in results:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(section.code, page.name, "exec"), names)
        for language in LANGUAGES:
            with speaking(language):
                path, drawn = twin(folder / f"{section.picture}.png"), picture(section, names)
            written.append(output_files.inside(folder, path))
            with output_files.replacing(path) as temporary:
                temporary.write_bytes(drawn)
    return written


if __name__ == "__main__":
    for path in write():
        sys.stdout.write(f"{path.relative_to(PAGE.parents[1])}\n")
