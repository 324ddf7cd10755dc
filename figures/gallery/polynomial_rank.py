"""The rank of polynomial kernels, and the ε-rank of exp(q·k) that polynomials promise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis import modular
from analysis.bounds import epsilon_rank_bound
from analysis.inputs import Inputs
from analysis.rank import exact_singular_values, summary
from approx import exact
from approx.polynomials.taylor import Taylor
from figures import style
from figures.language import mark, tr
from figures.profile import Profile, Row, first

TITLE = "Rank of polynomials, and of exp(q·k)"
COLUMNS = ("input", "n", "l", "d", "temperature", "degree", "method", "metric", "value")
EPSILON = 1e-2
COUNT = 256
GENERIC = ((4, 6), (8, 4))  # d, highest degree
TEMPERATURES = tuple((2.0 ** np.arange(-2, 11)).tolist())
BOUNDS = {"taylor": "Taylor", "chebyshev": "Chebyshev", "minimax": mark("minimax")}


class _Task(NamedTuple):
    inputs: Inputs | None
    temperature: float
    d: int
    degree: int
    rows: int
    seed: int


def _study(task: _Task) -> list[Row]:
    return _generic(task) if task.inputs is None else _real(task)


def _generic(task: _Task) -> list[Row]:
    d, degree, n = task.d, task.degree, task.rows
    rows: list[Row] = []
    for name, sphere in (("generic points", False), ("sphere", True)):
        x = (data.sphere if sphere else data.gaussian)(n, d, rng=task.seed).at_temperature(0.5)
        estimate = Taylor(degree).approximate(x.Q, x.K)
        Q, K = (modular.points(n, d, sphere=sphere, rng=task.seed + i) for i in range(2))
        found = {
            "predicted": Taylor(degree).polynomial().rank(n, n, d, sphere=sphere),
            "numerical": summary(estimate.to_dense())["numerical_rank"],
            "modular": modular.modular_rank(modular.taylor_kernel(degree, Q, K)),
        }
        head = (name, n, n, d, 0.5, degree, "taylor")
        rows += [(*head, metric, float(value)) for metric, value in found.items()]
    return rows


def _real(task: _Task) -> list[Row]:
    assert task.inputs is not None
    x = task.inputs.at_temperature(task.temperature)
    s = exact_singular_values(x)
    logits = np.asarray(exact.logits(x.Q, x.K), np.float64)
    head = (x.name, x.n, x.l, x.d, task.temperature, -1)
    rows: list[Row] = [(*head, "exact", "epsilon_rank", float(np.sum(s > EPSILON * s[0])))]
    # s is over the largest entry, the bound over e^B
    largest = s[0] * np.exp(logits.max() - np.abs(logits).max())
    for method in BOUNDS:
        bound = epsilon_rank_bound(method, logits, x.d, EPSILON, largest=float(largest))
        rows.append((*head, method, "rank_bound", float(bound)))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ranks of Taylor kernels three ways, and ε-ranks of exp(q·k) beside their bounds."""
    count = min(COUNT, max(x.n for x in profile.inputs))
    small = data.gaussian(count, 4, rng=profile.seed)
    heads = [small, *(first(x, count) for x in profile.inputs if x.name != small.name)]
    tasks = [
        _Task(None, 1.0, d, n, count, profile.seed)
        for d, most in GENERIC
        for n in range(1, most + 1)
    ]
    tasks += [_Task(x, t, x.d, -1, count, profile.seed) for x in heads for t in TEMPERATURES]
    return profile.study(_study, tasks, "ranks", COLUMNS)


def _ranks(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.degree >= 0]


def draw(table: pd.DataFrame) -> Figure:
    """Draw ranks against degree, then ε-rank and bounds against temperature, a panel an input."""
    heads = table[table.degree < 0].input.unique().tolist()
    with style.style():
        rows = 1 + len(heads) // 2
        figure = Figure(figsize=(7.0, 2.4 * rows + 0.6))
        axes = figure.subplots(rows, 2, squeeze=False).ravel()
        looks = {mark("generic points"): style.PALETTE[0], mark("sphere"): style.PALETTE[2]}
        for (name, d), part in _ranks(table).groupby(["input", "d"]):
            wide = part.pivot(index="degree", columns="metric", values="value")
            color, dash = looks[str(name)], "-" if d == 4 else "--"
            axes[0].plot(wide.index, wide.predicted, color=color, linestyle=dash,
                         label=tr("{name}, d = {d}: formula", name=tr(str(name)), d=d))  # fmt: skip
            axes[0].plot(wide.index, wide.numerical, "o", color=color, mfc="none", markersize=7,
                         label=tr("numerical rank"))  # fmt: skip
            axes[0].plot(wide.index, wide.modular, "x", color="black", label=tr("rank mod 2³¹ − 1"))
        axes[0].set(
            xlabel=tr("degree"), ylabel=tr("rank"), yscale="log", title=tr("Taylor kernels")
        )
        for ax, name in zip(axes[1:], heads):
            part = table[(table.input == name) & (table.degree < 0)]
            true = part[part.method == "exact"]
            ax.plot(true.temperature, true.value, color="black", marker=".",
                    label=tr("ε-rank of exp(q·k), ε = {epsilon:g}", epsilon=EPSILON))  # fmt: skip
            for i, (method, label) in enumerate(BOUNDS.items()):
                line = part[part.method == method]
                ax.plot(line.temperature, line.value, color=style.PALETTE[(1, 0, 2)[i]],
                        marker="pos"[i], markersize=(5, 7, 3)[i], linestyle="--",
                        label=tr("bound by {label}", label=tr(label)))  # fmt: skip
            ax.set(xscale="log", yscale="log", xlabel=tr("temperature t"), ylabel=tr("rank"))
            ax.set_xscale("log", base=2)
            ax.set_title(f"{name}, n = l = {true.n.iloc[0]}, d = {true.d.iloc[0]}")
        for ax in axes[1 + len(heads) :]:
            ax.set_visible(False)
        style.legend(figure, list(axes), columns=3)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    ranks = _ranks(table).pivot_table(
        index=["input", "d", "degree"], columns="metric", values="value"
    )
    agree = (ranks.predicted == ranks.numerical) & (ranks.predicted == ranks.modular)
    d, degree = 4, 4
    pair = [ranks.predicted[name, d, degree] for name in ("generic points", "sphere")]
    sentences = []
    for name, part in table[table.degree < 0].groupby("input", sort=False):
        wide = part.pivot(index="temperature", columns="method", values="value")
        n = part.n.iloc[0]
        useful = (wide.minimax < n)[::-1].cummin()  # from the highest t down
        if useful.any():
            t = useful.index[useful].min()
            sentences.append(
                tr(
                    "{name} (d = {d}) from t = {t:g} on, where it is {minimax:.0f} beside an ε-"
                    "rank of {exact:.0f}",
                    name=name,
                    d=part.d.iloc[0],
                    t=t,
                    minimax=wide.minimax[t],
                    exact=wide.exact[t],
                )
            )
        else:
            t = wide.index.max()
            sentences.append(
                tr(
                    "{name} (d = {d}) nowhere up to t = {t:g}, where the ε-rank is {exact:.0f}",
                    name=name,
                    d=part.d.iloc[0],
                    t=t,
                    exact=wide.exact[t],
                )
            )
    return tr(
        "Ranks of Taylor kernels: formula, numerical rank and exact rank modulo 2³¹ − 1 "
        "agree in {agreeing} of {cases} cases, min(n, l, C(d + p, p)) for generic "
        "points; on a sphere fewer: {sphere:.0f} instead of {generic:.0f} at d = {d}, p = "
        "{degree}. Other panels: #{{s > {epsilon:g} s₁}} of exp(q·k), and its bound, "
        "min(n, l, C(d + p, p)) for the least degree p whose error on [−B, B], B the "
        "largest |logit|, is at most {epsilon:g} s₁/√(nl). It is below n for {sentences}. "
        "Before, the bound says nothing: it counts all monomials of d variables, the "
        "kernel needs far fewer.",
        agreeing=agree.sum(),
        cases=len(agree),
        sphere=pair[1],
        generic=pair[0],
        d=d,
        degree=degree,
        epsilon=EPSILON,
        sentences=tr("; ").join(sentences),
    )
