"""Names of curves and of points, and what leaves an axis."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from figures.drawing import style


@pytest.mark.parametrize("seed", range(5))
def test_names_at_ends_are_apart_in_order_and_within_the_panel(seed):
    values = np.random.default_rng(seed).uniform(0.0, 1.0, 8)
    with style.style():
        _, (ax,) = style.tiles(1, "", "")
        ax.set(xlim=(0, 1), ylim=(0, 1))
        style.direct(ax, [(repr(float(v)), v, "0") for v in values], apart=0.1)
    heights = {float(text.get_text()): text.xyann[1] for text in ax.texts}
    places = [heights[value] for value in sorted(heights)]
    assert np.all(np.diff(places) >= 0.1 - 1e-9)
    assert places[-1] <= 1.0 + 1e-9
    with style.style():
        style.direct(ax, [("alone", 0.25, "0")])
    assert ax.texts[-1].xyann[1] == pytest.approx(0.25)  # at its end


def test_the_name_of_a_point_is_on_no_other_name_and_no_curve():
    with style.style():
        figure, (ax,) = style.tiles(1, "", "")
        ax.plot([0, 1], [0, 1], label="a curve")
        ax.set(xlim=(0, 1), ylim=(0, 1))
        notes = [style.PointName(ax, f"point {i}", (0.5, 0.5)) for i in range(6)]
        figure.draw_without_rendering()
    boxes = [Text.get_window_extent(note) for note in notes]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    line = ax.lines[0].get_transform().transform_path(ax.lines[0].get_path())
    assert not any(line.intersects_bbox(box, filled=False) for box in boxes)
    assert not notes[0].arrow_patch.get_visible()  # beside its point
    assert notes[-1].arrow_patch.get_visible()  # a line leads to it


def test_what_leaves_an_axis_has_a_triangle_at_its_border():
    with style.style():
        _, (ax,) = style.tiles(1, "", "")
        style.curve(ax, pd.Series([0.1, 3.0, 9.0], [1, 2, 3]), (1.0, 5.0), label="a", color="0.5")
    assert [[*map(float, line.get_ydata())] for line in ax.lines] == [[0.1, 3, 9], [5], [1]]
    assert [line.get_marker() for line in ax.lines[1:]] == ["^", "v"]
