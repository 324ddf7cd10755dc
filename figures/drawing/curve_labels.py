"""Names of curves beside the panels, each with a line to the end of its curve, and of points.

Places are found whenever the figure is drawn, after its layout: names are as near to the ends as
they can be, in least squares, without one on top of another.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import Collection
from matplotlib.colors import to_rgba
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox, IdentityTransform

from approx.checks import Array
from figures.words.terminal_columns import balanced

COLUMNS = 24  # of a line of a name
LEAD, SAMPLE, GAP = 12.0, 16.0, 4.0  # points: from a panel to a sample, its length, to the name
NARROW = 1.5  # inches: a panel and what is left of it
LINE = 1.16  # from one line of a name to the next, in font sizes


class Names(Artist):
    """What is beside the panels: a text, a sample and a lead for each name.

    Each row of panels has its own names if there is room for all of them beside each row;
    otherwise one list names the curves of all rows.

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
        panels = _last_column(axes)
        for ax in panels:
            ax.get_xlim()  # limits follow the curves from here on
        samples = {name: _sample(handle) for name, handle in handles.items()}
        shown = {name: "\n".join(balanced(name, COLUMNS)) for name in handles}
        heights = {name: size * LINE * (1 + text.count("\n")) for name, text in shown.items()}
        seen = {ax: [n for n in handles if _end(ax, n, samples[n])] for ax in panels}
        last = [name for name in handles if not any(name in some for some in seen.values())]
        self.complete = not last  # whether a lead goes to every name
        self.groups = [([ax], seen[ax] + last * (ax is panels[-1])) for ax in panels]
        room = figure.get_figheight() * 72 / len(panels)
        if any(sum(heights[name] for name in some) > room for _, some in self.groups):
            self.groups = [(panels, list(handles))]
        self.names = [name for _, some in self.groups for name in some]
        self.texts = [
            Text(0, 0, shown[name], va="center_baseline", size=size, linespacing=1.0)
            for name in self.names
        ]
        self.samples = [_sample(handles[name]) for name in self.names]
        self.leads = [Line2D([], [], lw=0.5, color=sample.get_color()) for sample in self.samples]
        self.sizes = [heights[name] for name in self.names]
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
        return [*self.leads, *self.samples, *self.texts]

    def draw(self, renderer: RendererBase) -> None:
        """Place everything, and draw it."""
        self._place(renderer)
        for child in self.get_children():
            child.draw(renderer)

    def _place(self, renderer: RendererBase) -> None:
        point = float(renderer.points_to_pixels(1.0))  # type: ignore[arg-type]
        figure = self.get_figure(root=True)
        assert figure is not None
        boxes = [[ax.get_window_extent() for ax in panels] for panels, _ in self.groups]
        right = max(box.x1 for row in boxes for box in row)
        between = [(above[-1].y0 + below[0].y1) / 2 for above, below in itertools.pairwise(boxes)]
        limits = [figure.get_figheight() * figure.dpi - 2 * point, *between, 2 * point]
        first = 0
        for (panels, names), (high, low) in zip(self.groups, itertools.pairwise(limits)):
            places = range(first, first + len(names))
            self._row(panels, places, (low, high), right, point)
            first += len(names)

    def _row(
        self,
        panels: list[Axes],
        places: range,
        limits: tuple[float, float],
        right: float,
        point: float,
    ) -> None:
        """Place the names of one row, or of all rows, within limits, right of its panels."""
        ends = self._ends(panels, places)
        # what has no end is named last, below the rest
        wanted = {i: end[1] if end else -1.0 for i, end in ends.items()}
        order = sorted(places, key=lambda i: wanted[i])
        sizes = [self.sizes[i] * point for i in order]
        ended = [place for place in wanted.values() if place >= 0]
        least = min(ended, default=sum(limits) / 2)
        found = spread([max(wanted[i], least) for i in order], sizes, *limits)
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

    def _ends(self, panels: list[Axes], places: range) -> dict[int, tuple[float, float] | None]:
        """Return where each curve ends, in the panel in which most do, or else in another."""
        every = {ax: {i: _end(ax, self.names[i], self.samples[i]) for i in places} for ax in panels}
        first = max(
            panels, key=lambda ax: (sum(map(bool, every[ax].values())), _apart(every[ax].values()))
        )
        order = [first, *(ax for ax in panels if ax is not first)]
        return {i: next((x for ax in order if (x := every[ax][i])), None) for i in places}


class Note(Annotation):
    """The name of a point of a panel, where it covers no curve, no mark and no other text.

    The place is the nearest one; where there is none, that which covers least. A line joins the
    point and a name that is not beside it.

    Parameters
    ----------
    ax : Axes
    text : str
    point : (x, y)
        In the panel's own scales.
    size : float
        Of the font, in points.
    **look
        Of the text.
    """

    REACH = (
        4,
        7,
        11,
        16,
        22,
        29,
        37,
        46,
        56,
        68,
        82,
        98,
        116,
    )  # points
    ANGLES = np.pi / 12 * np.arange(24)
    COVERED = 60.0  # points further away rather than on a curve, or on five marks

    def __init__(
        self, ax: Axes, text: str, point: tuple[float, float], size: float, **look: Any
    ) -> None:
        lead = {"arrowstyle": "-", "lw": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 1.5}
        white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
        super().__init__(
            text, point, (0, 0), textcoords="offset points", ha="center", va="center",
            size=size, arrowprops=lead, bbox=white,
            linespacing=1.0, **look,
        )  # fmt: skip
        self.lead: Path | None = None
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: RendererBase) -> None:
        """Place the name, and draw it."""
        self._place(renderer)
        super().draw(renderer)

    def _place(self, renderer: RendererBase) -> None:
        ax, scale = self.axes, float(renderer.points_to_pixels(1.0))  # type: ignore[arg-type]
        assert ax is not None
        size = np.array(Text.get_window_extent(self, renderer).size) + scale
        start = ax.transData.transform(self.xy)
        panel = ax.get_window_extent()
        before = list(itertools.takewhile(lambda text: text is not self, ax.texts))
        leads = [note.lead for note in before if isinstance(note, Note) and note.lead is not None]
        joined = [line for line in ax.lines if line.get_linestyle() != "None"]
        named = [not str(line.get_label()).startswith("_") for line in joined]
        curves = [line.get_transform().transform_path(line.get_path()) for line in joined]
        paths = [*((lead, 1) for lead in leads), *zip(curves, 1 + 3 * np.array(named, dtype=int))]
        marks = np.concatenate(
            [x.get_transform().transform(x.get_xydata()) for x in ax.lines if x.get_marker()]
            or [np.empty((0, 2))]
        )
        others = [x for x in ax.texts if x in before or not isinstance(x, Note)]
        texts = [Text.get_window_extent(x, renderer) for x in others if x is not self]
        best = np.inf, start, 0
        for reach, angle in itertools.product(self.REACH, self.ANGLES):
            if reach >= best[0]:
                break
            way = np.array([np.cos(angle), np.sin(angle)])
            centre = start + way * (reach * scale + size / 2)
            box = Bbox([centre - size / 2, centre + size / 2])
            corners = panel.contains(box.x0, box.y0) and panel.contains(box.x1, box.y1)
            if not corners or any(box.overlaps(text) for text in texts):
                continue
            lead = Path([start, centre])
            crossed = sum(int(n) for path, n in paths if path.intersects_bbox(box, filled=False))
            crossed += sum(lead.intersects_bbox(text, filled=False) for text in texts)
            crossed += sum(lead.intersects_path(path, filled=False) for path in leads)
            price = reach + self.COVERED * (crossed + box.count_contains(marks) / 5)
            if price < best[0]:
                best = price, centre, reach
        self.lead = Path([start, best[1]]) if best[2] > self.REACH[1] else None
        self.xyann = tuple((best[1] - start) / scale)
        assert self.arrow_patch is not None
        self.arrow_patch.set_visible(self.lead is not None)


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
    return to_rgba(line.get_color()), line.get_linestyle(), line.get_marker(), line.get_markersize()


def _apart(ends: Iterable[tuple[float, float] | None]) -> float:
    """Return the mean distance of neighbouring ends, in logarithms: how well they can be told."""
    heights = sorted(end[1] for end in ends if end)
    return float(np.log(np.diff(heights) + 1.0).mean()) if len(heights) > 1 else 0.0
