"""Names of many curves beside the panels, each with a line to the end of its curve.

Places are found whenever the figure is drawn, after its layout: names are as near to the ends as
they can be, in least squares, without one on top of another.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import Collection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

from approx.checks import Array
from figures.words.terminal_columns import wrap
from figures.words.translation import tr

COLUMNS = 29  # of a line of a name
LEAD, SAMPLE, GAP = 12.0, 16.0, 4.0  # points: from a panel to a sample, its length, to the name
NARROW = 1.3  # inches: a panel and what is left of it
LINE = 1.16  # from one line of a name to the next, in font sizes


class Names(Artist):
    """What is beside the panels: a text, a sample and a lead for each name.

    Parameters
    ----------
    figure : Figure
        Which has panels and no layout yet.
    axes : sequence of Axes
        The panels whose curves are named.
    handles : mapping
        What a legend would show beside each name.
    size : float
        Of the font, in points.
    """

    def __init__(
        self, figure: Figure, axes: Sequence[Axes], handles: Mapping[str, Any], size: float
    ) -> None:
        super().__init__()
        self.panels = _last_column(axes)
        self.names = list(handles)
        said = ["\n".join(wrap(name, COLUMNS)) for name in self.names]
        self.texts = [
            Text(0, 0, text, va="center_baseline", size=size, linespacing=1.0) for text in said
        ]
        self.samples = [_sample(handle) for handle in handles.values()]
        note = "\n".join(wrap(tr("the same lines"), COLUMNS))
        grey: dict[str, Any] = {"va": "center", "size": size, "color": "0.35"}
        self.notes = [Text(0, 0, note, **grey) for _ in self.panels[1:]]
        self.leads = [Line2D([], [], lw=0.5, color=sample.get_color()) for sample in self.samples]
        self.sizes = [size * LINE * (1 + text.count("\n")) for text in said]
        for child in self.get_children():
            child.set_figure(figure)
            child.set_transform(IdentityTransform())
        widest = max(text.get_window_extent().width for text in self.texts) * 72 / figure.dpi
        self.room = (LEAD + SAMPLE + GAP + widest + 2) / 72
        self.parent = figure

    def added(self) -> bool:
        """Add all to the figure, unless its panels would be too narrow; return whether it was."""
        width, engine = self.parent.get_figwidth(), self.parent.get_layout_engine()
        columns = {x.colspan for ax in self.parent.axes if (x := ax.get_subplotspec()) is not None}
        if engine is None or (width - self.room) / len(columns) < NARROW:
            return False
        engine.set(rect=(0, 0, 1 - self.room / width, 1))  # type: ignore[call-arg]
        self.parent.add_artist(self)
        return True

    def get_children(self) -> list[Artist]:
        """Return all that is drawn."""
        return [*self.leads, *self.samples, *self.texts, *self.notes]

    def draw(self, renderer: RendererBase) -> None:
        """Place everything, and draw it."""
        self._place(renderer)
        for child in self.get_children():
            child.draw(renderer)

    def _place(self, renderer: RendererBase) -> None:
        point = float(renderer.points_to_pixels(1.0))  # type: ignore[arg-type]
        figure = self.get_figure(root=True)
        assert figure is not None
        ends, others = self._ends()
        boxes = [ax.get_window_extent() for ax in self.panels]
        right = max(box.x1 for box in boxes)
        height = figure.get_figheight() * figure.dpi
        # what has no end is named last, below the rest
        wanted = [end[1] if end else -1.0 for end in ends]
        order = sorted(range(len(ends)), key=lambda i: wanted[i])
        sizes = [self.sizes[i] * point for i in order]
        least = min(wanted[i] for i in order if wanted[i] >= 0) if any(ends) else 0.0
        places = [max(wanted[i], least) for i in order]
        found = spread(places, sizes, 2 * point, height - 2 * point)
        low, high = found[0] - sizes[0], found[-1] + sizes[-1]
        for note, ax in zip(self.notes, others):
            y = sum(ax.get_window_extent().intervaly) / 2
            note.set_position((right + LEAD * point, y))
            note.set_visible(not low < y < high)
        for i, y in zip(order, found):
            start = right + LEAD * point
            stop = start + SAMPLE * point
            self.samples[i].set_data([start, (start + stop) / 2, stop], [y, y, y])
            self.texts[i].set_position((stop + GAP * point, y))
            end = ends[i]
            self.leads[i].set_visible(end is not None)
            if end:
                self.leads[i].set_data(
                    [end[0], right + 2 * point, start - point], [end[1], end[1], y]
                )

    def _ends(self) -> tuple[list[tuple[float, float] | None], list[Axes]]:
        """Return where each curve ends, in the panel in which most do, and the other panels."""
        every = {
            ax: [_end(ax, name, sample) for name, sample in zip(self.names, self.samples)]
            for ax in self.panels
        }
        first = max(every, key=lambda ax: (sum(map(bool, every[ax])), _apart(every[ax])))
        others = [ax for ax in self.panels if ax is not first]
        ends = [
            next((ends[i] for ends in (every[ax] for ax in (first, *others)) if ends[i]), None)
            for i in range(len(self.names))
        ]
        return ends, others


def spread(places: Iterable[float], sizes: Iterable[float], least: float, most: float) -> Array:
    """Return the nearest centres, in least squares, of things of these sizes that do not overlap.

    Examples
    --------
    >>> spread([1.0, 1.0, 5.0], [2.0, 2.0, 2.0], 0.0, 10.0).tolist()
    [1.0, 3.0, 5.0]
    """
    size = np.asarray(list(sizes), dtype=float)
    offsets = np.cumsum(size) - size / 2
    blocks: list[list[float]] = []  # sum and count of what is pushed together
    for place in np.asarray(list(places), dtype=float) - offsets:
        blocks.append([float(place), 1.0])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] > blocks[-1][0] * blocks[-2][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    means = np.repeat([total / count for total, count in blocks], [int(n) for _, n in blocks])
    found: Array = means.clip(least, max(least, most - size.sum())) + offsets
    return found


def _last_column(axes: Sequence[Axes]) -> list[Axes]:
    """Return the panels that have none to their right."""
    stops = {ax: spec.colspan.stop for ax in axes if (spec := ax.get_subplotspec()) is not None}
    return [ax for ax, stop in stops.items() if stop == max(stops.values())]


def _sample(handle: Any) -> Line2D:
    """Return a short line that looks like a curve, or like what a legend shows."""
    line = handle.lines[0] if isinstance(handle, ErrorbarContainer) else handle
    if isinstance(line, Line2D):
        sample = Line2D([], [])
        sample.update_from(line)
        sample.set(clip_on=False, markevery=[1], label="_")
        if sample.get_linewidth() > LINE:
            sample.set_linewidth(min(sample.get_linewidth(), 4.0))
        return sample
    colours = line.get_facecolor()
    colour = tuple(colours[0]) if isinstance(line, Collection) else colours
    return Line2D([], [], lw=5, color=colour, solid_capstyle="butt", label="_")


def _end(ax: Axes, name: str, sample: Line2D) -> tuple[float, float] | None:
    """Return the last place that is seen of the curve of a name, or one that looks like it."""
    lines = [line for line in ax.lines if line.get_label() == name]
    for group in ax.containers:
        if isinstance(group, ErrorbarContainer) and group.get_label() == name:
            lines += [group.lines[0]]
    lines = lines or [line for line in ax.lines if _looks(line) == _looks(sample)]
    box = ax.get_window_extent()
    for line in lines:
        places = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
        seen = np.isfinite(places).all(axis=1)
        seen &= (places[:, 0] > box.x0 - 1) & (places[:, 0] < box.x1 + 1)
        seen &= (places[:, 1] > box.y0 - 1) & (places[:, 1] < box.y1 + 1)
        if seen.any():
            last = places[seen][np.argmax(places[seen][:, 0])]
            return float(last[0]), float(last[1])
    return None


def _looks(line: Line2D) -> tuple[object, ...]:
    return line.get_color(), line.get_linestyle(), line.get_marker(), line.get_markersize()


def _apart(ends: Iterable[tuple[float, float] | None]) -> float:
    """Return the mean distance of neighbouring ends, in logarithms: how well they can be told."""
    heights = sorted(end[1] for end in ends if end)
    return float(np.log(np.diff(heights) + 1.0).mean()) if len(heights) > 1 else 0.0
