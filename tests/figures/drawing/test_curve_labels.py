"""Names beside panels: near the ends of their curves, whole, and never on top of each other."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest

from figures.drawing import style
from figures.drawing.curve_labels import Names, spread

PRINTED = 160 / 25.4  # inches


@pytest.mark.parametrize("seed", range(3))
def test_places_are_the_nearest_that_do_not_overlap(seed):
    """Against all places on a grid."""
    rng = np.random.default_rng(seed)
    places, sizes = np.sort(rng.integers(0, 9, 3)), rng.integers(1, 4, 3)
    found = spread(places, sizes, 0.0, 9.0)
    grid = np.arange(0, 9.25, 0.25)
    best = np.inf
    for at in itertools.product(grid, repeat=3):
        edges = [(x - s / 2, x + s / 2) for x, s in zip(at, sizes)]
        inside = edges[0][0] >= 0 and edges[-1][1] <= 9
        if inside and all(a[1] <= b[0] for a, b in itertools.pairwise(edges)):
            best = min(best, float(np.sum((np.array(at) - places) ** 2)))
    assert np.all(np.diff(found) >= (sizes[1:] + sizes[:-1]) / 2 - 1e-9)
    assert found[0] - sizes[0] / 2 >= -1e-9
    assert found[-1] + sizes[-1] / 2 <= 9 + 1e-9
    assert np.sum((found - places) ** 2) <= best + 1e-9


def crowded(count):
    """Two rows of panels with curves that end in one place but for two."""
    names = [f"method {i}, whose name is so long that it takes lines" for i in range(count)]
    with style.style():
        figure, axes = style.tiles(4, "", "")
        for ax in axes:
            for i, name in enumerate(names):
                ends = 1.0 if i < count - 2 else i
                style_of = {"color": style.PALETTE[i % 10], "linestyle": ("-", "--")[i // 10]}
                ax.plot([0, 1, 2], [i, 2, ends], label=name, **style_of)
        style.legend(figure, axes)
    return figure, names


def test_many_names_stand_beside_the_panels():
    figure, names = crowded(9)
    with style.style():
        figure.draw_without_rendering()
    assert not figure.legends
    (beside,) = figure.findobj(Names)
    boxes = [text.get_window_extent() for text in beside.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    width, height = figure.get_size_inches() * figure.dpi
    panels = [ax.get_window_extent() for ax in figure.axes]
    assert all(box.x0 > max(panel.x1 for panel in panels) for box in boxes)
    assert all(box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)
    smallest = min(text.get_fontsize() for text in beside.texts)
    assert smallest * PRINTED / figure.get_figwidth() >= 7
    first = [lead.get_xydata()[0] for lead in beside.leads]
    transforms = [ax.transData for ax in figure.axes[1::2]]
    ends = [(2, 1.0 if i < 7 else i) for i in range(9)]
    assert any(np.allclose(first, transform.transform(ends)) for transform in transforms)
    heights = [text.get_position()[1] for text in beside.texts]
    assert heights[8] > heights[7] > max(heights[:7])  # in the order of the ends
    # on a page they switch their curves
    svg = style.drawing(figure, "svg").decode()
    said = {kind: re.findall(f'data-{kind}="([^"]*)"', svg) for kind in ("entry", "handle", "band")}
    assert said == {kind: names for kind in ("entry", "handle", "band")}
    assert set(re.findall('data-curve="([^"]*)"', svg)) == set(names)


def short(count, places):
    """Two rows of panels, in some places of which there are curves with short names."""
    with style.style():
        figure, axes = style.tiles(4, "", "")
        for place in places:
            for i in range(count):
                axes[place].plot([0, 1], [i, i + 1], label=f"m = {i}", color=style.PALETTE[i])
        style.legend(figure, axes)
        figure.draw_without_rendering()
    return figure, axes


def test_names_stand_beside_each_row_where_there_is_room():
    figure, axes = short(3, range(4))
    (beside,) = figure.findobj(Names)
    assert beside.names == ["m = 0", "m = 1", "m = 2"] * 2
    assert not figure.legends
    for ax, texts in ((axes[1], beside.texts[:3]), (axes[3], beside.texts[3:])):
        box = ax.get_window_extent()
        assert all(box.y0 <= text.get_position()[1] <= box.y1 for text in texts)


def test_few_names_are_a_legend_where_the_last_column_lacks_their_curves():
    figure, _ = short(3, [0, 2])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "m = 0",
        "m = 1",
        "m = 2",
    ]
    assert not figure.findobj(Names)


def test_curves_without_a_name_are_grey():
    with style.style():
        figure, (ax,) = style.tiles(1, "", "")
        for name, ends in (("a", [1, 2]), ("b", [2, 200])):
            look = {"label": name, "color": style.PALETTE[0]}
            style.curve(ax, pd.Series(ends, [0, 1]), (0, 100), **look)
        ax.set_ylim(0, 100)
        style.legend(figure, ax, faded=["b"])
    (beside,) = figure.findobj(Names)
    assert beside.names == ["a", "others (in the table)"]
    assert [(line.get_color(), line.get_visible()) for line in ax.lines] == [
        (style.PALETTE[0], True), ("0.8", True), (style.PALETTE[0], False),
    ]  # fmt: skip


def test_what_leaves_an_axis_has_a_triangle_at_its_border():
    with style.style():
        _, (ax,) = style.tiles(1, "", "")
        style.curve(ax, pd.Series([0.1, 3.0, 9.0], [1, 2, 3]), (1.0, 5.0), label="a", color="0.5")
    assert [[*map(float, line.get_ydata())] for line in ax.lines] == [[0.1, 3, 9], [5], [1]]
    assert [line.get_marker() for line in ax.lines[1:]] == ["^", "v"]
