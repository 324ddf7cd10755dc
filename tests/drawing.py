"""What every figure must do, checked where its table is made: tables are dear."""

import functools
import inspect
import re
import shutil
import subprocess
from collections import Counter

import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from analysis.sweeps.sweep import COLUMNS
from figures import fonts
from figures.drawing import style
from figures.gallery import FIGURES
from figures.words import translation
from figures.words.translation import speaking

PRINTED = 160 / 25.4  # inches: the width of a figure in the PDF


def drawn_from_its_csv(name, table, folder):
    """Check that a CSV holds every bit, and that what is read from it can be laid out.

    Whatever a figure is, its bytes are written by one function: test_report holds it to them.
    """
    again = pd.read_csv(style.save_table(name, table, folder))
    pd.testing.assert_frame_equal(again, table, check_exact=True)
    nothing_overlaps(name, again)


def nothing_overlaps(name, table):
    """Check that every text of a figure is whole, and on no text and no curve."""
    with style.style():
        figure = FIGURES[name].draw(table)
        figure.draw_without_rendering()  # which alone puts its labels in their places
    texts = [text for text in drawn_texts(figure) if text.get_rotation() % 90 == 0]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
    (left, bottom), (right, top) = figure.bbox.min - 1, figure.bbox.max + 1
    for i, (text, box) in enumerate(boxes):
        whole = left < box.x0 and box.x1 < right and bottom < box.y0 and box.y1 < top
        assert whole, f"{text!r} is cut"
        for other, its in boxes[i + 1 :]:
            wide = min(box.x1, its.x1) - max(box.x0, its.x0)
            high = min(box.y1, its.y1) - max(box.y0, its.y0)
            assert min(wide, high) < (0.5 if wide < high else 2.0), f"{text!r} is over {other!r}"
    for name, panel, path in curves(figure):
        for text, box in boxes:
            inside = Bbox.intersection(box.padded(-1.5), panel)
            if inside is not None and inside.width > 0:
                assert not path.intersects_bbox(inside, filled=False), f"{text!r} is on {name!r}"


def drawn_texts(figure):
    """Return every text that is seen: of ticks those within the limits of their axis."""
    texts, axes, panels = [], [], figure.findobj(Axes)  # also those within others
    for ax in panels:
        axes += [*ax.xaxis.findobj(Text), *ax.yaxis.findobj(Text)]
        if ax.get_visible() and ax.axison:
            texts += [ax.xaxis.label, ax.yaxis.label]
            for axis in (ax.xaxis, ax.yaxis):
                low, high = sorted(axis.get_view_interval())
                ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
                ticks = [tick for tick in ticks if low <= tick.get_loc() <= high]
                texts += [text for tick in ticks for text in (tick.label1, tick.label2)]
    hidden = {*axes, *(x for ax in panels if not ax.get_visible() for x in ax.findobj(Text))}
    texts += [text for text in figure.findobj(Text) if text not in hidden]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def curves(figure):
    """Yield the name, the panel and the path of every curve that has a name and is seen."""
    for ax in filter(lambda ax: ax.get_visible(), figure.axes):
        for line in ax.lines:
            named = line.get_visible() and not str(line.get_label()).startswith("_")
            if named and line.get_linestyle() != "None":
                path = line.get_transform().transform_path(line.get_path())
                yield line.get_label(), ax.get_window_extent(), path


def has_the_columns(name, table):
    """Check the columns of a table; one that was stored may lack those that came later."""
    computing = inspect.getmodule(FIGURES[name].compute)  # this figure's, or an experiment
    assert [x for x in getattr(computing, "COLUMNS", COLUMNS) if x in table] == [*table.columns]


def long(text):
    """Return the words of a caption in English, or its characters in Chinese, and other words."""
    plain = re.sub(r"[*^]|\$[^$]*\$", "", text)
    han = len(re.findall("[一-鿿]", plain))
    words = re.findall(r"[A-Za-z0-9][^\s一-鿿，。：；、（）]*" if han else r"\S+", plain)
    return han + len(words)


def spoken(name, table):
    """Return all that a figure says: its finding a sentence, short with the caption, no nan."""
    finding, caption = (getattr(FIGURES[name], part)(table) for part in ("finding", "caption"))
    said, chinese = f"{finding} {caption}", translation.spoken() == "zh"
    assert long(said) <= (80 if chinese else 45), said
    assert finding.endswith("。" if chinese else "."), finding
    assert not re.search("nan|none of these", said), said
    return said


# what stays as it is in Chinese: names of inputs, of methods in part, and of formats
KEPT = {
    "gaussian", "sphere", "clustered", "generative", "centre", "easy", "middling", "hard",
    "softmax", "float", "bfloat", "delta", "cross", "polytope", "antithetic",
    "relu", "mformer", "diag", "sink", "local", "broad", "retrieval",
}  # fmt: skip


def speaks_chinese(name, table, said):
    """Check that labels and caption are Chinese, have their glyphs, and the English numbers."""
    module = FIGURES[name]
    with speaking("zh"), style.style():
        chinese, figure = spoken(name, table), module.draw(table)
    assert not numbers(said) - numbers(chinese)
    counts = numbers(chinese) - numbers(said)  # digits in Chinese, words in English
    assert counts.keys() <= set(map(str, range(13))), counts
    texts = texts_of(figure)
    assert english(" ".join([*texts, chinese])) == set()
    for text in set(texts):
        assert without_glyph(text) == set(), text
    fits_the_page(figure)


def texts_of(artist):
    """Return every text of a figure; those of ticks by their formatters, without making ticks."""
    if isinstance(artist, Text):
        return [artist.get_text()]
    if not isinstance(artist, Axis):
        return [text for child in artist.get_children() for text in texts_of(child)]
    ticks = (
        (artist.get_major_formatter(), artist.get_majorticklocs()),
        (artist.get_minor_formatter(), artist.get_minorticklocs()),
    )
    return [artist.label.get_text(), *(x for form, at in ticks for x in form.format_ticks(at))]


def fits_the_page(figure):
    """Check that a figure has four panels, six named curves in each, and text of 7 points."""
    assert all(len(legend.get_texts()) <= 9 for legend in figure.legends)
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]
    assert len(panels) <= 4
    for ax in panels:
        curves = [line for line in ax.lines if line.get_linestyle() != "None"]
        named = {str(line.get_label()) for line in curves if len(line.get_xdata()) > 2}
        assert sum(not name.startswith("_") for name in named) <= 6, sorted(named)
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    smallest = min(text.get_fontsize() for text in shown)
    assert smallest * PRINTED / figure.get_figwidth() >= 7


def text_of(pdf):
    """Return the text of a PDF, or None on a machine without pdftotext."""
    if shutil.which("pdftotext") is None:
        return None
    command = ["pdftotext", "-enc", "UTF-8", "-", "-"]
    return subprocess.run(command, input=pdf, capture_output=True, check=True).stdout.decode()


def numbers(text):
    """Return how often each number stands in a text."""
    return Counter(re.findall(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?", text))


def english(text):
    """Return the words of a text that are neither formulas nor names nor known."""
    words = re.findall(r"[A-Za-z]{4,}", re.sub(r"\$[^$]*\$", "", text))
    return {word for word in words if word.islower()} - KEPT


def without_glyph(text):
    """Return the characters of a label that no font shows; beside a formula there is one font."""
    plain, *formula = re.split(r"\$[^$]*\$", text, maxsplit=1)
    shown = _characters(fonts.FONT)
    if not formula:
        shown = shown | _characters(font_manager.findfont("DejaVu Sans"))
    return set(plain + "".join(formula)) - shown - {"\n"}


@functools.cache
def _characters(file):
    return {chr(code) for code in font_manager.get_font(file).get_charmap()}
