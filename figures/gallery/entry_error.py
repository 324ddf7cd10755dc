"""Error of one entry against q·k: LSH alone, random features, and Scatterbrain of the two."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.moments import monte_carlo
from analysis.seeds import seed_sequence
from analysis.squared_error import squared_error
from approx.checks import Array
from approx.method import Method
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.positive import Positive
from approx.scatterbrain import Scatterbrain
from approx.sparse.lsh import LSH
from figures import style
from figures.language import mark, tr
from figures.profile import Profile, Row

TITLE = "Error of one entry against q·k"
COLUMNS = ("norm", "hashes", "logit", "curve", "metric", "value", "stderr")
D, M, ROUNDS = 16, 44, 4
HASHES = (1, 2, 3)
PUBLISHED = 23  # hashes joined in the published script, which means it as a number of buckets
NORMS = (0.5, 1.0, 1.5, 2.0)
UNIT = 1.0  # |q| = |k| of the published figure
DOTS = 201
SAMPLED = (-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75)  # cosines
TIMES = 2  # draws of the profile
BELIEVED = 0.1  # relative standard error, in closed form
LOOKS = {
    "lsh": (mark("LSH alone (Reformer in the paper)"), style.PALETTE[6], "-", "^"),
    "performer": ("Performer", style.PALETTE[0], "-", "o"),
    "hyperbolic": (mark("hyperbolic features"), style.PALETTE[0], "--", "v"),
    "scatterbrain": (mark("Scatterbrain: Performer + LSH"), style.PALETTE[4], "-", "D"),
    "scatterbrain_hyperbolic": (
        mark("Scatterbrain: hyperbolic features + LSH"), style.PALETTE[4], "--", "s",
    ),
}  # fmt: skip
PLAIN = ("performer", "hyperbolic")  # without LSH


class _Task(NamedTuple):
    curve: str
    hashes: int
    draws: int
    seed: int


def pairs(norm: float, cosines: Array) -> tuple[Array, Array]:
    """Return one query and keys, all of that length, at these cosines."""
    Q, K = np.zeros((1, D)), np.zeros((len(cosines), D))
    Q[0, 0] = norm
    K[:, 0], K[:, 1] = norm * cosines, norm * np.sqrt(1 - np.square(cosines))
    return Q, K


def method(curve: str, hashes: int, columns: int = M) -> Method:
    """Return what a curve is of; hyperbolic features have as many columns as the others."""
    sparse = LSH("cross_polytope", hashes=max(hashes, 1), rounds=ROUNDS, transform="none")
    low = Hyperbolic(columns) if "hyperbolic" in curve else Positive(columns)
    if curve == "lsh":
        return sparse
    return Scatterbrain(low, sparse) if curve.startswith("scatterbrain") else low


def mse(of: Method, norm: float, cosines: Array) -> Array:
    """Return E(estimate − exact)² in closed form."""
    known = squared_error(of, *pairs(norm, cosines))
    assert known is not None
    return np.asarray(np.exp(known.log_mean[0] + 2 * norm**2 * cosines))


def published_collision(cosines: Array) -> Array:
    """Return p as the script has it: ln(1/p₁) = t²/(4 − t²) ln d, p = 1 − (1 − p₁²³)⁴."""
    square = 2 - 2 * np.asarray(cosines, np.float64)
    with np.errstate(divide="ignore"):
        p = np.exp(-PUBLISHED * square / (4 - square) * math.log(D))
    return np.asarray(-np.expm1(ROUNDS * np.log1p(-np.minimum(p, 1 - 1e-16))))


def hyperbolic_factor(cosines: Array | None) -> Array:
    """Return ½(1 − e^{−|q+k|²}) for unit vectors; None: the script's constant ½(1 − e^{−1}).

    The error of hyperbolic features over that of positive ones with as many frequencies, hence
    half the columns.
    """
    square = 1.0 if cosines is None else 2 + 2 * np.asarray(cosines)
    return np.asarray(-np.expm1(-square) / 2)


def published_mse(curve: str, cosines: Array) -> Array:
    """Return the error of a curve as the script has it."""
    off = 1 - published_collision(cosines)
    if curve == "lsh":
        return np.asarray(off * np.exp(2 * cosines))
    found = mse(Positive(M), UNIT, cosines)
    found = found * hyperbolic_factor(None) if "hyperbolic" in curve else found
    return np.asarray(found * off if curve.startswith("scatterbrain") else found)


def _study(task: _Task) -> list[Row]:
    return _closed(task) + (_sampled(task) if task.draws else [])


def _closed(task: _Task) -> list[Row]:
    of, cosines = method(task.curve, task.hashes), np.linspace(-1, 1, DOTS)
    rows: list[Row] = []
    for norm in NORMS:
        values = mse(of, norm, cosines)
        rows += _curve(norm, task.hashes, cosines, task.curve, "mse", values)
    if isinstance(of, LSH):
        p = of.probability(*pairs(UNIT, cosines))[0]
        for metric, values in (
            ("collision", p), ("bias_squared", (1 - p) ** 2), ("variance", p * (1 - p)),
        ):  # fmt: skip
            rows += _curve(UNIT, task.hashes, cosines, task.curve, metric, values)
    return rows


def _sampled(task: _Task) -> list[Row]:
    """Return the mean square of the draws, and its standard error in closed form."""
    of, cosines = method(task.curve, task.hashes), np.array(SAMPLED)
    Q, K = (np.vstack(x) for x in zip(*(pairs(norm, cosines) for norm in NORMS)))
    rng = np.random.default_rng(seed_sequence(task.seed, task.curve, task.hashes))
    found, known = monte_carlo(of, Q, K, draws=task.draws, rng=rng), squared_error(of, Q, K)
    assert known is not None
    rows: list[Row] = []
    for i, norm in enumerate(NORMS):
        at = (i, slice(i * len(SAMPLED), (i + 1) * len(SAMPLED)))
        spread = found.variance[at] * (1 - 1 / task.draws)
        square = (spread + (found.mean[at] - 1) ** 2) * np.exp(2 * norm**2 * cosines)
        relative = np.exp((known.log_relative_variance[at] - math.log(task.draws)) / 2)
        errors = relative * mse(of, norm, cosines)
        head = (norm, task.hashes)
        rows += _curve(*head, cosines, task.curve, "sampled_mse", square, errors)
        believable = (relative <= BELIEVED).astype(float)
        rows += _curve(*head, cosines, task.curve, "believable", believable)
    return rows


def _curve(
    norm: float,
    hashes: int,
    cosines: Array,
    curve: str,
    metric: str,
    values: Array,
    errors: Array | None = None,
) -> list[Row]:
    errors = np.full(len(cosines), np.nan) if errors is None else errors
    return [
        (norm, hashes, norm**2 * c, curve, metric, v, e) for c, v, e in zip(cosines, values, errors)
    ]


def _script() -> list[Row]:
    """Return the curves as the script has them, and by exact formulas at its own parameters."""
    cosines, rows = np.linspace(-1, 1, DOTS), list[Row]()
    for curve in LOOKS:
        double = 2 * M if "hyperbolic" in curve else M  # the script counts frequencies
        exact = mse(method(curve, PUBLISHED, double), UNIT, cosines)
        coded = published_mse(curve, cosines)
        for metric, values in (("published_mse", coded), ("corrected_mse", exact)):
            rows += _curve(UNIT, PUBLISHED, cosines, curve, metric, values)
    sparse = method("lsh", PUBLISHED)
    assert isinstance(sparse, LSH)
    for metric, values in (
        ("published_collision", published_collision(cosines)),
        ("collision", sparse.probability(*pairs(UNIT, cosines))[0]),
    ):
        rows += _curve(UNIT, PUBLISHED, cosines, "lsh", metric, values)
    coded = np.full(DOTS, hyperbolic_factor(None))
    for metric, values in (
        ("published_factor", coded), ("factor", hyperbolic_factor(cosines)),
    ):  # fmt: skip
        rows += _curve(UNIT, 0, cosines, "hyperbolic", metric, values)
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return the mean squared error of one entry, in closed form and sampled.

    Columns: norm r = |q| = |k|; hashes joined in a round, 0 where there is no LSH; logit q·k;
    curve. Metrics: mse; sampled_mse with the standard error of its closed form, and whether that
    is at most 10 %; at norm 1 collision p and, over e^{2q·k}, bias_squared (1 − p)² and variance
    p(1 − p) of LSH alone; published_* as the script has it, and at its parameters corrected_mse,
    collision and factor by the exact formulas.
    """
    draws = TIMES * profile.draws
    plain = [_Task(c, 0, draws, profile.seed) for c in PLAIN]
    mixed = [
        _Task(c, hashes, draws, profile.seed) for c in LOOKS if c not in PLAIN for hashes in HASHES
    ]
    tasks = plain + mixed
    table = profile.study(_study, tasks, "curves", COLUMNS)
    script = pd.DataFrame(_script(), columns=table.columns)
    return pd.concat([table, script], ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel a norm and a number of hashes; below, what the script has."""
    with style.style():
        figure = Figure(figsize=(7.2, 8.6))
        axes = figure.subplots(len(HASHES) + 1, len(NORMS))
        for row, hashes in enumerate(HASHES):
            for column, norm in enumerate(NORMS):
                ax = axes[row, column]
                part = table[(table.norm == norm) & table.hashes.isin([0, hashes])]
                _lines(ax, part, "mse")
                _dots(ax, part)
                ax.set(yscale="log", ylim=(1e-5, None))
                ax.minorticks_off()
                if row == 0:
                    ax.set_title(f"|q| = |k| = {norm:g}")
            joined = tr("one hash") if hashes == 1 else tr("{hashes} hashes", hashes=hashes)
            axes[row, 0].set_ylabel(tr("{joined} a round\nmean squared error", joined=joined))
        coded, exact, collision, split = axes[-1]
        _lines(coded, table, "published_mse")
        _lines(exact, table, "corrected_mse")
        for ax, title in ((coded, tr("as published")), (exact, tr("same, right formulas"))):
            ax.set(yscale="log", ylim=(1e-5, 20), title=title)
            ax.minorticks_off()
        coded.set_ylabel(tr("{published} hashes a round\nmean squared error", published=PUBLISHED))
        _probabilities(collision, table)
        _parts(split, table)
        for ax in axes[-2:].flat:
            ax.set_xlabel("q·k")
        style.legend(figure, list(axes[:-1].flat), columns=2)
    return figure


def _lines(ax: Axes, table: pd.DataFrame, metric: str) -> None:
    for curve, (label, colour, line, _) in LOOKS.items():
        part = table[(table.curve == curve) & (table.metric == metric)]
        below = curve in PLAIN  # a wider line, seen where Scatterbrain's is on top of it
        look: dict[str, Any] = {"linewidth": 2.6, "alpha": 0.6} if below else {"linewidth": 1.2}
        ax.plot(part.logit, part.value, color=colour, linestyle=line, label=tr(label), **look)


def _dots(ax: Axes, table: pd.DataFrame) -> None:
    believable = table[table.metric == "believable"].set_index(["curve", "logit"]).value
    for curve, (_, colour, _, marker) in LOOKS.items():
        part = table[(table.curve == curve) & (table.metric == "sampled_mse")]
        full = believable[curve].reindex(part.logit).to_numpy() == 1.0
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "linestyle": "",
            "markersize": 2.8,
        }
        solid, hollow = part[full], part[~full]
        ax.errorbar(solid.logit, solid.value, solid.stderr, elinewidth=0.8, **look)
        ax.plot(hollow.logit, hollow.value, markerfacecolor="white", markeredgewidth=0.7, **look)


def _shades() -> dict[int, tuple[float, ...]]:
    known = (*HASHES, PUBLISHED)
    return dict(zip(known, colormaps["viridis"](np.linspace(0, 0.85, len(known)))))


def _probabilities(ax: Axes, table: pd.DataFrame) -> None:
    for hashes, shade in _shades().items():
        part = table[(table.metric == "collision") & (table.hashes == hashes)]
        ax.plot(part.logit, part.value, color=shade, label=f"{hashes}")
    part = table[table.metric == "published_collision"]
    ax.plot(
        part.logit,
        part.value,
        color="black",
        linestyle=":",
        label=tr("{published}, coded", published=PUBLISHED),
    )
    ax.set(title=tr("P[collision]"), ylim=(0, 1.05))
    small: dict[str, Any] = {"fontsize": 6.5, "title_fontsize": 6.5, "borderaxespad": 0.1}
    ax.legend(loc="upper left", title=tr("hashes"), handlelength=1.4, **small)


def _parts(ax: Axes, table: pd.DataFrame) -> None:
    for metric, line, label in (
        ("bias_squared", "-", mark("bias²")),
        ("variance", "--", mark("variance")),
    ):
        for hashes, shade in _shades().items():
            part = table[(table.metric == metric) & (table.hashes == hashes)]
            first = hashes == HASHES[0]
            ax.plot(
                part.logit,
                part.value,
                color=shade,
                linestyle=line,
                label=tr(label) if first else None,
            )
    ax.set(title=tr("error of LSH alone"), ylabel=tr(r"over $e^{2q\cdot k}$"), ylim=(0, 1.05))
    ax.legend(loc="center left", fontsize=6.5, handlelength=1.8, borderaxespad=0.1)


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    at = table.set_index(["metric", "curve", "norm", "hashes", "logit"]).value.sort_index()
    factors = tr(", ").join(
        f"{at['factor', 'hyperbolic', UNIT, 0, x]:.3f}" for x in (-1.0, 0.0, 1.0)
    )
    coded = at["published_factor", "hyperbolic", UNIT, 0, 0.0]
    logits = [0.5, 0.8, 0.9, 0.95]
    dots = table[(table.norm == UNIT) & (table.curve == "lsh")]
    p = [
        [_near(dots[(dots.metric == m) & (dots.hashes == h)], x) for x in logits]
        for m, h in (
            ("published_collision", PUBLISHED), ("collision", PUBLISHED), ("collision", HASHES[0]),
        )
    ]  # fmt: skip
    old, exact, one = (tr(", ").join(f"{v:.2g}" for v in values) for values in p)
    gains = [_gain(table, norm) for norm in NORMS]
    z, hollow = z_scores(table), int((table[table.metric == "believable"].value == 0).sum())
    return tr(
        "Mean squared error of the estimate of exp(q·k), not normalised, d = {d}, m = {m} "
        "columns of features, {rounds} rounds of cross-polytope hashes of q and k as they "
        "are. Lines: closed form; LSH alone has (1 − p)e^{{2q·k}}, Scatterbrain 1 − p of "
        "the error of its features. Markers: Monte Carlo with one standard error, hollow "
        "where that, in closed form, is above {believed:.0%}: {hollow} of {markers}; "
        "largest $|z|$ of the others {z:.1f}. Performer features have the smaller "
        "error than LSH alone (one hash a round) on {gains} of the range at |q| = |k| = "
        "{norms}. Last row: the published script takes the factor of hyperbolic features "
        "for the constant {coded:.3f} (exact: {factors} at q·k = −1, 0, 1), and a number "
        "of buckets, {published}, for the hashes of a round: its p is {old} at q·k = "
        "{logits}, where the exact one is {exact}, and {one} with one hash. With "
        "{published} hashes LSH is all bias but for the nearest pairs.",
        d=D,
        m=M,
        rounds=ROUNDS,
        believed=BELIEVED,
        hollow=hollow,
        markers=hollow + len(z),
        z=z.max(),
        gains=tr(", ").join(f"{g:.0%}" for g in gains),
        norms=tr(", ").join(f"{n:g}" for n in NORMS),
        coded=coded,
        factors=factors,
        published=PUBLISHED,
        old=old,
        logits=tr(", ").join(f"{x:g}" for x in logits),
        exact=exact,
        one=one,
    )


def _near(part: pd.DataFrame, logit: float) -> float:
    return float(part.value.iloc[(part.logit - logit).abs().argmin()])


def _gain(table: pd.DataFrame, norm: float) -> float:
    part = table[(table.metric == "mse") & (table.norm == norm)]
    sparse = part[(part.curve == "lsh") & (part.hashes == HASHES[0])].value.to_numpy()
    return float((part[part.curve == "performer"].value.to_numpy() < sparse).mean())


def z_scores(table: pd.DataFrame) -> Array:
    """Return |sampled − closed| in standard errors of the closed form, where to be believed."""
    keys = ["norm", "hashes", "curve", "logit"]
    dots = table[table.metric == "sampled_mse"].assign(logit=lambda t: t.logit.round(9))
    full = table[table.metric == "believable"].value.to_numpy() == 1.0
    dots = dots[full].set_index(keys)
    lines = table[table.metric == "mse"].assign(logit=lambda t: t.logit.round(9))
    closed = lines.set_index(keys).value.reindex(dots.index)
    return np.asarray((dots.value - closed).abs() / dots.stderr)
