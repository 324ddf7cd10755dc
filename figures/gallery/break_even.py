"""The length beyond which a cheaper attention costs less than exact attention."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.costs.break_even import break_even
from analysis.experiments.profile import Profile
from approx import parse
from approx.checks import required
from approx.method.prices import Shape
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Break-even lengths"
ORDER = 470
COLUMNS = ("kind", "d", "m", "s", "c", "n", "metric", "value")
D, M, S, C = 64, 128, 64, 256
KINDS = (  # in the order of `compute`
    mark("linear attention"),
    mark("Scatterbrain, with m/2 entries a row"),
    mark("FLASH, chunks of {c}, against FLASH-Quad"),
    mark("memory of causal linear, all tokens at once"),
)
SIZES = (16, 32, 64, 128, 256, 512)
LENGTHS = tuple(2**k for k in range(8, 17))
LOOKS = ((looks.PALETTE[0], "o"), (looks.PALETTE[4], "D"), (looks.PALETTE[2], "s"),
         (looks.PALETTE[1], "^"))  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return cost over that of exact attention against n, and break-even lengths against m."""
    rows: list[tuple[Any, ...]] = []
    memory = "memory of causal linear, all tokens at once"  # d × d sums a token, or n weights
    flash = f"FLASH, c = {C}, against FLASH-Quad", f"flash(size={C})", 2 * D, C
    for name, spec, c, step in (*_of_size(M, S), flash):
        place = (name, D, M, S, C)
        rows += [(*place, n, "ratio", _work(spec, n, c) / _work("exact()", n, c)) for n in LENGTHS]
        n = int(break_even(parse(spec), Shape(1, 1, D, c), step=step))
        rows.append((*place, n, "break_even", float(n)))
    place = (memory, D, M, S, C)
    rows += [(*place, n, "ratio", D**2 / n) for n in LENGTHS]
    rows.append((*place, D**2 + 1, "break_even", float(D**2 + 1)))
    for m in SIZES:
        for name, spec, c, _ in _of_size(m, m // 2):
            n = int(break_even(parse(spec), Shape(1, 1, D, c)))
            rows.append((name.split(",")[0], D, m, m // 2, C, n, "of_size", float(n)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_size(m: int, s: int) -> list[tuple[str, str, int, int]]:
    """Return name, spec, width of values and step of length of the methods with m features."""
    features = f"positive(m={m})"
    return [
        (f"linear, m = {m}", features, D, 1),
        (f"Scatterbrain, m = {m}, s = {s}", f"scatterbrain({features}, top_k(k={s}))", D, 1),
    ]


def _work(spec: str, n: int, c: int) -> float:
    """Return the multiply-adds of one of n queries."""
    return required(required(parse(spec).price(n=n, l=n, d=D, c=c)).multiply_adds)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the ratio against n, and the break-even length against the number of features."""
    figure, (left, right) = style.row(2, 3.4)
    ratios = table[table.metric == "ratio"].groupby("kind", sort=False)
    for (colour, marker), kind, (_, part) in zip(LOOKS, KINDS, ratios):
        left.plot(part.n, part.value, color=colour, marker=marker, label=tr(kind, c=C))
    left.axhline(1, color="0.3", linewidth=0.8, label=tr("equal cost"))
    left.set(xscale="log", yscale="log", xlabel=tr("length n"))
    left.set_title(tr("m = {m} features", m=M))
    left.set_ylabel(tr("cost over that of what it replaces"))
    style.ticks(left, LENGTHS[::2])
    sizes = table[table.metric == "of_size"].groupby("kind", sort=False)
    for (colour, marker), (_, part) in zip(LOOKS, sizes):
        right.plot(part.m, part.value, color=colour, marker=marker)
    right.set(xscale="log", yscale="log", xlabel=tr("features m"), ylabel=tr("break-even length"))
    style.ticks(right, SIZES)
    style.legend(figure, [left, right], columns=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    lengths = table[table.metric == "break_even"].value
    return tr(
        "With m = {m} features linear attention is cheaper from n = {linear:.0f} on, Scatterbrain "
        "from n = {both:.0f}.",
        m=M,
        linear=lengths.iloc[0],
        both=lengths.iloc[1],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Left: cost in multiply-adds, divided by the cost of exact attention (the last "
        "curve: numbers held), d = {d}. Right: the length of equal cost.",
        d=D,
    )
