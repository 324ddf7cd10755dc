"""Which pairs a support holds, and what that is worth: the theorem of Scatterbrain, checked."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.dependent_supports import LargestEstimates, OneStream
from analysis.moments import monte_carlo
from analysis.seeds import seed_sequence
from analysis.squared_error import squared_error
from approx import parse
from approx.checks import Array
from approx.method import Method
from approx.random_features.positive import Positive
from approx.scatterbrain import Scatterbrain
from approx.sparse.lsh import LSH
from approx.sparse.support import SupportMethod
from approx.sparse.top_k import TopK
from figures import style
from figures.language import mark, tr
from figures.profile import Profile, Row

TITLE = "Which pairs a support holds, and what that is worth"
COLUMNS = ("part", "case", "logit", "metric", "value", "stderr")
D = 16
FAMILIES = {
    "sign": (mark("sign"), style.PALETTE[0], "o"),
    "cross_polytope": (mark("cross-polytope"), style.PALETTE[2], "s"),
    "e2": ("E2", style.PALETTE[4], "^"),
}
TRANSFORMS = {"none": (mark("as they are"), "-"), "xbox": (mark("after XBOX+"), "--")}
ARC, EVERY = 41, 5  # keys around the query; of which every fifth has a marker
CLUSTERED = {
    "smyrf(size=8)": (mark("SMYRF, one round"), style.PALETTE[1], "D"),
    "smyrf(size=2, rounds=4)": (mark("SMYRF, four small rounds"), style.PALETTE[5], "v"),
    "random(k=8)": (mark("random keys"), style.PALETTE[3], "X"),
}
POINTS, BINS = 32, 8
SUPPORTS = {  # the theorem
    "lsh(hashes=2, rounds=2, transform='none')": FAMILIES["sign"],
    "lsh(family='cross_polytope', hashes=1, rounds=2, transform='none')":
        FAMILIES["cross_polytope"],
    "lsh(family='e2', hashes=1, rounds=2, transform='none')": FAMILIES["e2"],
    "random(k=6)": CLUSTERED["random(k=8)"],
    "smyrf(size=4, rounds=2)": ("SMYRF", *CLUSTERED["smyrf(size=8)"][1:]),
}  # fmt: skip
SMALL, LENGTH, FEATURES, SHOWN = 12, 0.45, 16, 8  # |q + k|² ≤ 0.81; pairs shown
DEPENDENT = {
    "independent": (mark("independent"), "black", "o"),
    "one stream": (mark("hashes = first frequencies"), style.PALETTE[2], "s"),
    "largest estimates": (mark("largest estimates"), style.PALETTE[1], "D"),
}
ANGLES = tuple(np.linspace(0.1, 0.9, 9).tolist())  # of the third part, over π
FEW, LONG = 2, 0.7  # frequencies; length of q and k there
AXES = ("one_minus_p", "mse_ratio")  # of the theorem
TIMES = 2  # draws of the profile
MORE = 8  # of the last part


class _Task(NamedTuple):
    part: str
    case: str
    draws: int
    seed: int

    def rng(self, *what: str) -> np.random.Generator:
        """Return the generator of this piece of work."""
        return np.random.default_rng(seed_sequence(self.seed, self.part, self.case, *what))


def arc(length: float, angles: Array) -> tuple[Array, Array]:
    """Return one query and keys of that length at these angles from it."""
    Q, K = np.zeros((1, D)), np.zeros((len(angles), D))
    Q[0, 0] = length
    K[:, 0], K[:, 1] = length * np.cos(angles), length * np.sin(angles)
    return Q, K


def cloud(seed: int) -> tuple[Array, Array]:
    """Return few short queries and keys in four dimensions, where every collision happens."""
    x = data.sphere(SMALL, 4, rng=seed)
    return x.q * (LENGTH / 2), x.k * (LENGTH / 2)  # from the sphere of radius √4


def frequency(
    method: SupportMethod, Q: Array, K: Array, draws: int, rng: np.random.Generator
) -> Array:
    """Return how often each pair is in the support, (n, l)."""
    found = np.zeros((len(Q), len(K)))
    for child in rng.spawn(draws):
        indptr, indices = method.columns(Q, K, child)
        found[np.repeat(np.arange(len(Q)), np.diff(indptr)), indices] += 1
    return found / draws


def _family(task: _Task) -> list[Row]:
    family, transform = task.case.split()
    method = LSH(family, hashes=1, transform=transform)
    Q, K = arc(1.0, np.linspace(0, math.pi, ARC))
    logits, p = (Q @ K.T)[0], method.probability(Q, K)[0]
    rows = _rows(task, logits, "collision", p)
    share = frequency(method, Q, K, task.draws, task.rng())[0]
    errors = np.sqrt(np.maximum(p * (1 - p), 0) / task.draws)
    some = slice(None, None, EVERY)
    return rows + _rows(task, logits[some], "frequency", share[some], errors[some])


def _clusters(task: _Task) -> list[Row]:
    """Return the mean frequency of the pairs between quantiles of q·k."""
    x = data.gaussian(POINTS, D, rng=task.seed)
    method = parse(task.case)
    assert isinstance(method, SupportMethod)
    logits = (x.Q @ x.K.T).ravel()
    halves = [
        frequency(method, x.Q, x.K, max(task.draws // 8, 2), rng).ravel()
        for rng in task.rng().spawn(8)
    ]
    rows: list[Row] = []
    for members in np.array_split(np.argsort(logits, kind="stable"), BINS):
        means = [half[members].mean() for half in halves]
        error = float(np.std(means, ddof=1) / math.sqrt(len(means)))
        at = float(logits[members].mean())
        rows.append((task.part, task.case, at, "frequency", float(np.mean(means)), error))
    return rows


def _theorem(task: _Task) -> list[Row]:
    """Return error of Scatterbrain over that of its features, and 1 − p, of a few pairs."""
    Q, K = cloud(task.seed)
    low, sparse = Positive(FEATURES), parse(task.case)
    assert isinstance(sparse, SupportMethod)
    p, error = sparse.probability(Q, K), np.zeros((SMALL, SMALL))
    if p is None:
        p = frequency(sparse, Q, K, task.draws, task.rng("p"))
        error = np.sqrt(np.maximum(p * (1 - p), 0) / task.draws)
    unit = squared_error(low, Q, K)
    assert unit is not None
    found = monte_carlo(Scatterbrain(low, sparse), Q, K, draws=task.draws, rng=task.rng())
    square = found.variance * (1 - 1 / task.draws) + (found.mean - 1) ** 2
    ratio = square / np.exp(unit.log_mean)
    fourth = np.exp(np.logaddexp(unit.log_relative_variance, 0.0))  # E e⁴/(E e²)²
    errors = np.sqrt((1 - p) * np.maximum(fourth - (1 - p), 0) / task.draws)
    place = np.argsort(p, axis=None, kind="stable")[np.linspace(0, p.size - 1, SHOWN).astype(int)]
    logits = (Q @ K.T).ravel()[place]
    return _rows(task, logits, "one_minus_p", (1 - p).ravel()[place], error.ravel()[place]) + _rows(
        task, logits, "mse_ratio", ratio.ravel()[place], errors.ravel()[place]
    )


def dependent(case: str) -> Method:
    """Return an honest Scatterbrain, or one whose support knows its features."""
    low, sparse = Positive(FEW), LSH(hashes=1, transform="none")
    if case == "largest estimates":
        return LargestEstimates(low, TopK(2))
    return (OneStream if case == "one stream" else Scatterbrain)(low, sparse)


def _dependence(task: _Task) -> list[Row]:
    Q, K = arc(LONG, math.pi * np.array(ANGLES))
    found = monte_carlo(dependent(task.case), Q, K, draws=task.draws, rng=task.rng())
    errors = found.mean_stderr[0]
    return _rows(task, (Q @ K.T)[0], "relative_bias", found.mean[0] - 1, errors)


def _rows(
    task: _Task, logits: Array, metric: str, values: Array, errors: Array | None = None
) -> list[Row]:
    errors = np.full(len(logits), np.nan) if errors is None else errors
    return [(task.part, task.case, x, metric, v, e) for x, v, e in zip(logits, values, errors)]


PARTS = {
    "family": _family,
    "clusters": _clusters,
    "theorem": _theorem,
    "dependence": _dependence,
}


def _study(task: _Task) -> list[Row]:
    return PARTS[task.part](task)


def compute(profile: Profile) -> pd.DataFrame:
    """Return probabilities of collision, and the errors of Scatterbrain that follow from them.

    Parts: family (one hash, collision in closed form, its frequency), clusters (frequency among
    32 Gaussian queries and keys, by q·k), theorem (mse_ratio, error of Scatterbrain over that of
    its features, and one_minus_p), dependence (relative_bias where the support is independent of
    the features, and where it is not).
    """
    draws = TIMES * profile.draws
    cases = {
        "family": [f"{family} {transform}" for family in FAMILIES for transform in TRANSFORMS],
        "clusters": list(CLUSTERED),
        "theorem": list(SUPPORTS),
        "dependence": list(DEPENDENT),
    }
    times = {"dependence": MORE // TIMES}
    tasks = [
        _Task(part, case, draws * times.get(part, 1), profile.seed)
        for part, found in cases.items()
        for case in found
    ]
    return profile.study(_study, tasks, "supports", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw collisions above, the theorem and its condition below."""
    with style.style():
        figure = Figure(figsize=(7.2, 7.0))
        (family, clusters), (theorem, dependence) = figure.subplots(2, 2)
        _draw_families(family, table[table.part == "family"])
        _draw_clusters(clusters, table[table.part == "clusters"])
        _draw_theorem(theorem, table[table.part == "theorem"])
        _draw_dependence(dependence, table[table.part == "dependence"])
        for ax in (family, clusters, theorem, dependence):
            ax.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, fontsize=7,
                handlelength=1.8, columnspacing=1.0, handletextpad=0.5,
            )  # fmt: skip
    return figure


def _draw_families(ax: Axes, table: pd.DataFrame) -> None:
    for family, (label, colour, marker) in FAMILIES.items():
        for transform, (_, line) in TRANSFORMS.items():
            part = table[table.case == f"{family} {transform}"]
            known = part[part.metric == "collision"]
            ax.plot(known.logit, known.value, color=colour, linestyle=line)
            dots = part[part.metric == "frequency"]
            look: dict[str, Any] = {
                "color": colour,
                "marker": marker,
                "linestyle": "",
                "markersize": 3,
            }
            name = tr(label) if transform == "none" else None
            ax.errorbar(dots.logit, dots.value, 2 * dots.stderr, elinewidth=0.8, label=name, **look)
    for how, line in TRANSFORMS.values():
        ax.plot([], [], color="0.4", linestyle=line, label=tr(how))
    ax.set(
        title=tr("One hash, |q| = |k| = 1"),
        xlabel="q·k",
        ylabel=tr("P[collision]"),
        ylim=(-0.02, 1.03),
    )


def _draw_clusters(ax: Axes, table: pd.DataFrame) -> None:
    for case, (label, colour, marker) in CLUSTERED.items():
        part = table[table.case == case]
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "label": tr(label),
            "linewidth": 1.0,
        }
        ax.errorbar(part.logit, part.value, 2 * part.stderr, elinewidth=0.8, **look)
    ax.set(
        title=tr(
"Clusters of {points} Gaussian q and k",points=POINTS),
        xlabel=tr("q·k (mean of an eighth of the pairs)"),
        ylabel=tr("P[in the support], measured"), ylim=(0, None),
    )  # fmt: skip


def _draw_theorem(ax: Axes, table: pd.DataFrame) -> None:
    ax.plot([0, 1], [0, 1], color="0.4", linewidth=0.9, label=tr("theorem: 1 − p"))
    for case, (label, colour, marker) in SUPPORTS.items():
        x, y = (table[(table.case == case) & (table.metric == m)] for m in AXES)
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "linestyle": "",
            "markersize": 3.2,
        }
        ax.errorbar(
            x.value, y.value, 2 * y.stderr, 2 * x.stderr, elinewidth=0.8, label=tr(label), **look
        )
    ax.set(
        title=tr("The theorem of Scatterbrain"), xlabel="1 − p",
         xlim=(-0.02, 1.03), ylim=(-0.02, 1.12),
        ylabel=tr("squared error over that of the features"),
    )  # fmt: skip


def _draw_dependence(ax: Axes, table: pd.DataFrame) -> None:
    ax.axhline(0.0, color="0.4", linewidth=0.9)
    for case, (label, colour, marker) in DEPENDENT.items():
        part = table[table.case == case]
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "linewidth": 1.0,
            "markersize": 3.2,
        }
        ax.errorbar(
            part.logit, part.value, 2 * part.stderr, elinewidth=0.8, label=tr(label), **look
        )
    ax.set(
        title=tr("Its condition: a support that knows nothing"), xlabel="q·k",
        ylabel=tr("relative bias of Scatterbrain"),
    )  # fmt: skip


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    shares = table[table.part == "clusters"].sort_values("logit").groupby("case").value
    first, last = shares.first(), shares.last()
    smyrf, random = "smyrf(size=8)", "random(k=8)"
    theorem, collisions = theorem_scores(table), frequency_scores(table)
    bias = table[table.part == "dependence"]
    z = (bias.value / bias.stderr).abs().groupby(bias.case).max()
    worst = bias.loc[bias.value.abs().groupby(bias.case).idxmax()].set_index("case").value
    return tr(
        "Above, left: probability that q and k share one hash, closed form (lines) and "
        "frequency (markers): largest $|z|$ {z_collision:.1f} of {collisions}. "
        "Right: where there is no closed form; of the pairs in the lowest and in the "
        "highest eighth of q·k, one round of SMYRF holds {first:.1%} and {last:.1%}, "
        "random keys {random_low:.1%} and {random_high:.1%}, each {points:.0%} of all. Below, "
        "left: mean squared error of Scatterbrain, by Monte Carlo, over that of its "
        "features, in closed form, is 1 − p for every support: largest $|z|$ "
        "{z_theorem:.1f} of {cases} (for SMYRF p is estimated from other draws). "
        "Right: that needs a support independent of the features ($|z|$ of the bias at "
        "most {z_independent:.1f}). Hashes that are the first frequencies give a bias of "
        "{one_stream:.1%} ($|z|$ up to {z_stream:.0f}), exact entries where the "
        "estimate is largest {largest_estimates:.1%} ({z_largest:.0f}). Bars: "
        "two standard errors.",
        z_collision=collisions.max(),
        collisions=len(collisions),
        first=first[smyrf],
        last=last[smyrf],
        random_low=first[random],
        random_high=last[random],
        points=8 / POINTS,
        z_theorem=theorem.max(),
        cases=len(theorem),
        z_independent=z["independent"],
        one_stream=worst["one stream"],
        z_stream=z["one stream"],
        largest_estimates=worst["largest estimates"],
        z_largest=z["largest estimates"],
    )


def theorem_scores(table: pd.DataFrame) -> pd.Series:
    """Return |ratio − (1 − p)| in standard errors of both, where there is an error at all."""
    part = table[table.part == "theorem"]
    x, y = (part[part.metric == m].reset_index(drop=True) for m in AXES)
    error = np.hypot(x.stderr, y.stderr)
    return ((y.value - x.value).abs() / error)[error > 0]


def frequency_scores(table: pd.DataFrame) -> pd.Series:
    """Return |frequency − closed form| in standard errors."""
    part = table[table.part == "family"]
    keys = ["case", "logit"]
    known = part[part.metric == "collision"].set_index(keys).value
    found = part[(part.metric == "frequency") & (part.stderr > 1e-9)].set_index(keys)
    return ((found.value - known.reindex(found.index)).abs() / found.stderr).reset_index(drop=True)
