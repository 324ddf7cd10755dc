"""Where sparse, low-rank or both approximate clustered sequences best: the map over β and Δ."""

import dataclasses
import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.experiments.profile import Profile
from analysis.sweeps.crossovers import crossing, oracles
from approx.checks import Array
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Regimes of clustered sequences"
ORDER = 150
COLUMNS = ("input", "n", "l", "d", "size", "delta", "beta", "budget", "method", "metric", "value")
D, SIZE = 64, 2
ERROR = "kernel_relative_frobenius"
KINDS = {"generative Q=K": True, "generative": False}  # whether Q = K
NAMES = {"generative Q=K": "Q = K", "generative": "Q ≠ K"}
GRIDS = {  # n, β, Δ
    "quick": (64, (0.5, 1.0, 2.0, 3.0, 4.0, 6.0), (0.1, 0.3, 1.0)),
    "default": (
        256,
        (*(j / 2 for j in range(1, 9)), *(float(b) for b in range(5, 15))),
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0),
    ),
}
SHARE = 8  # the budget is l/8 values a row: 2·16 of 256


def compute(profile: Profile) -> pd.DataFrame:
    """Return the errors of the three oracles in exp(β·q·k), the kernel of Scatterbrain's theorem.

    Methods: sparse, low-rank, both, as in `analysis.sweeps.crossovers.oracles`. Metrics: the error;
    gain, of both over the better single one; log_ratio, ln(sparse/low-rank), the sign of which says
    which single one is better. The same draw for every Δ.
    """
    n, betas, deltas = GRIDS[profile.grid]
    made = {
        (name, delta): data.generative(n, D, delta, SIZE, shared=shared, rng=profile.seed)
        for name, shared in KINDS.items()
        for delta in deltas
    }
    labelled = [dataclasses.replace(x, name=f"{name} {delta}") for (name, delta), x in made.items()]
    swept = oracles(
        labelled, [1 / b for b in betas], [n / SHARE], space="kernel",
        jobs=profile.jobs, progress=profile.progress,
    )  # fmt: skip
    keys = {x.name: key for x, key in zip(labelled, made)}
    errors = swept[swept.metric == ERROR].assign(
        size=SIZE,
        delta=swept.input.map(lambda name: keys[name][1]),
        beta=swept.temperature.map({1 / b: b for b in betas}),
        input=swept.input.map(lambda name: keys[name][0]),
    )
    index = ["input", "n", "l", "d", "size", "delta", "beta", "budget"]
    wide = errors.pivot(index=index, columns="method", values="value")
    derived = pd.DataFrame(
        {
            "gain": wide[["sparse", "low-rank"]].min(axis=1) / wide["both"],
            "log_ratio": np.log(wide["sparse"] / wide["low-rank"]),
        }
    )
    rows = derived.melt(ignore_index=False, var_name="metric").reset_index().assign(method="both")
    return pd.concat([errors[list(COLUMNS)], rows[list(COLUMNS)]], ignore_index=True)


def lines(n: int, size: int, deltas: Array) -> dict[str, Array]:
    """Return β of the theory's borders at each Δ, by name."""
    return {
        "β = log n": np.full(len(deltas), math.log(n)),
        "β = (1 − Δ²) log n": (1 - deltas**2) * math.log(n),
        mark("β = ½ log(n/cluster size)"): np.full(len(deltas), math.log(n / size) / 2),
    }


def draw(table: pd.DataFrame) -> Figure:
    """Draw the gain over (β, Δ), one panel for Q = K and one for Q ≠ K."""
    gains = table[table.metric == "gain"]
    top = max(float(gains.value.max()), 1.01)
    norm = LogNorm(1.0, top)
    with style.style():
        figure = Figure(figsize=(7.0, 3.6))
        axes = list(figure.subplots(1, len(KINDS), sharey=True))
        bar_label = tr("× below the better single one")
        for ax, name in zip(axes, KINDS):
            wide = _wide(gains, name)
            mesh = ax.pcolormesh(
                wide.columns, wide.index, wide, cmap="viridis", norm=norm, shading="nearest",
                rasterized=True,
            )  # fmt: skip
            _borders(ax, table, name)
            ax.set(xlabel=tr("inverse temperature β"), title=NAMES[name])
            ax.set_xticks(range(2, int(table.beta.max()) + 1, 2))
            ax.grid(False)
        axes[0].set_ylabel(tr("spread Δ within a cluster"))
        bar = figure.colorbar(mesh, ax=axes, label=bar_label, fraction=0.05)
        ticks = [t for t in (1, 1.5, 2, 3, 4, 6, 8) if t <= top]
        bar.set_ticks(ticks, labels=[f"{t:g}" for t in ticks])
        bar.ax.minorticks_off()
        style.legend(figure, axes, columns=2)
    return figure


def _wide(part: pd.DataFrame, name: str) -> pd.DataFrame:
    return part[part.input == name].pivot(index="delta", columns="beta", values="value")


def _borders(ax: Axes, table: pd.DataFrame, name: str) -> None:
    ratio = _wide(table[table.metric == "log_ratio"], name)
    border = ax.contour(ratio.columns, ratio.index, ratio, levels=[0.0], colors="white")
    border.set_linewidth(2.2)
    ax.plot([], [], color="0.75", linewidth=2.2, label=tr("sparse = low-rank (white)"))
    limits = ax.get_xlim(), ax.get_ylim()
    deltas = np.linspace(*limits[1], 50).clip(0.0, 1.0)
    looks = (("black", "-"), ("black", "--"), (style.PALETTE[2], "-."))
    borders = lines(int(table.n.iloc[0]), int(table["size"].iloc[0]), deltas)
    for (label, betas), (colour, line) in zip(borders.items(), looks):
        heights = np.linspace(*limits[1], 50)
        ax.plot(betas, heights, color=colour, linestyle=line, label=tr(label))
    ax.set(xlim=limits[0], ylim=limits[1])
    for x, text in ((0.045, tr("low-rank better")), (0.965, tr("sparse better"))):
        ax.text(
            x, 0.04, text, transform=ax.transAxes, color="white", rotation=90, fontsize=7.5,
            ha="center", va="bottom",
        )  # fmt: skip


def border(table: pd.DataFrame, name: str, delta: float) -> float:
    """Return β, interpolated, from which sparse is better than low-rank; NaN if nowhere."""
    part = table[(table.metric == ERROR) & (table.input == name) & (table.delta == delta)]
    wide = part.pivot(index="beta", columns="method", values="value").sort_index(ascending=False)
    return 1 / crossing(1 / wide.index.to_numpy(), wide["sparse"], wide["low-rank"])


def finding(table: pd.DataFrame) -> str:
    gains = table[(table.metric == "gain") & table.input.isin(KINDS)]
    best = gains.sort_values("value", kind="stable").iloc[-1]
    return tr(
        "On clusters, GoDec is up to {gain:.2f}× below the better of sparse and low-rank in "
        "relative Frobenius error (β = {beta:g}, Δ = {delta:g}).",
        gain=best.value,
        beta=best.beta,
        delta=best.delta,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Colour: how many times, for exp(β·q·k) of {n} points in clusters of {size}, at {budget:g} "
        "stored values per query row.",
        n=int(table.n.iloc[0]),
        size=int(table["size"].iloc[0]),
        budget=float(table.budget.iloc[0]),
    )
