"""The length beyond which a cheaper attention costs less than exact attention."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import operations
from figures import style
from figures.profile import Profile

TITLE = "Break-even lengths"
COLUMNS = ("kind", "d", "m", "s", "c", "n", "metric", "value")
D, M, S, C = 64, 128, 64, 256
SIZES = (16, 32, 64, 128, 256, 512)
LENGTHS = tuple(2**k for k in range(8, 17))
LOOKS = ((style.PALETTE[0], "o"), (style.PALETTE[4], "D"), (style.PALETTE[2], "s"),
         (style.PALETTE[1], "^"))  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return cost over that of exact attention against n, and break-even lengths against m."""
    rows = []
    for kind in operations.kinds(D, M, S, C):
        place = (kind.name, D, M, S, C)
        lengths = [n for n in LENGTHS if n % kind.step == 0]
        rows += [(*place, n, "ratio", kind.cost(n) / kind.exact(n)) for n in lengths]
        n = operations.break_even(kind.cost, kind.exact, step=kind.step)
        assert n is not None
        rows.append((*place, n, "break_even", float(n)))
    for m in SIZES:
        for kind in operations.kinds(D, m, m // 2, C)[:2]:
            n = operations.break_even(kind.cost, kind.exact)
            assert n is not None
            place = (kind.name.split(",")[0], D, m, m // 2, C)
            rows.append((*place, n, "of_size", float(n)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw(table: pd.DataFrame) -> Figure:
    """Draw the ratio against n, and the break-even length against the number of features."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.4))
        left, right = figure.subplots(1, 2)
        ratios = table[table.metric == "ratio"].groupby("kind", sort=False)
        for (colour, marker), (name, part) in zip(LOOKS, ratios):
            left.plot(part.n, part.value, color=colour, marker=marker, label=str(name))
        left.axhline(1, color="0.3", linewidth=0.8)
        left.set(xscale="log", yscale="log", xlabel="length n")
        left.set_ylabel("cost over that of what it replaces")
        left.set_xticks(LENGTHS[::2], [f"{n}" for n in LENGTHS[::2]])
        left.minorticks_off()
        sizes = table[table.metric == "of_size"].groupby("kind", sort=False)
        for (colour, marker), (name, part) in zip(LOOKS, sizes):
            what = "Scatterbrain, s = m/2" if name == "Scatterbrain" else "linear"
            right.plot(part.m, part.value, color=colour, marker=marker, linestyle="--", label=what)
        right.set(xscale="log", yscale="log", xlabel="features m", ylabel="break-even length")
        right.set_xticks(SIZES, [f"{m}" for m in SIZES])
        right.minorticks_off()
        style.legend(figure, [left, right], columns=2)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    lengths = table[table.metric == "break_even"]
    named = "; ".join(f"{kind}: {n:.0f}" for kind, n in zip(lengths.kind, lengths.value))
    longest = table[(table.metric == "ratio") & (table.n == max(LENGTHS))]
    linear, both = longest.value.iloc[0], longest.value.iloc[1]
    sizes = table[table.metric == "of_size"].set_index(["kind", "m"]).value
    most = max(SIZES)
    return (
        f"Left: cost over that of what is replaced, d = {D}, counted in exact integers of "
        f"multiply-adds (the last in numbers held); below 1 it is cheaper. Least lengths n from "
        f"which that is so, of FLASH in whole chunks: {named}. At n = {max(LENGTHS)} linear "
        f"attention takes {linear:.2%} of exact attention's multiply-adds, Scatterbrain "
        f"{both:.2%}. Right: exact attention is cheaper up to n = 2m for any d; with s = m/2 "
        f"corrected entries a row the length is {sizes['Scatterbrain', most]:.0f} at m = {most} "
        f"instead of {sizes['linear', most]:.0f}. Seconds follow these counts only as far as the "
        f"machine does all products equally well."
    )
