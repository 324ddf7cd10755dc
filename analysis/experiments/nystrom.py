"""Trace error of Nyström's method against rank, for each way to choose the pivots."""

import math

import numpy as np
import pandas as pd
import scipy.linalg

from analysis.experiments.profile import Profile, nearest_to_one
from analysis.inputs import Head
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.table import Row
from approx.checks import Array
from approx.low_rank.pivots import Pick, cholesky
from approx.supports.patterns import rounded

COLUMNS = ("input", "n", "temperature", "pivots", "rank", "metric", "value", "stderr")
RANKS = tuple(2**i for i in range(8))
PIVOTS = ("uniform", "leverage", "random", "greedy")
DRAWS = 16  # draws a trial of the profile
N, LEAST = 512, 4  # queries that are taken, with their keys; the least number of different ones


def kernel(K: Array) -> Array:
    """Return exp(k·k' − max |k|²), (l, l), of keys (l, d)."""
    logits = K @ K.T
    return np.asarray(np.exp(logits - logits.diagonal().max()))


def leverage(w: Array, U: Array, rank: int) -> Array:
    """Return ridge leverage scores Σ_i U²_ji w_i/(w_i + γ), γ = Σ_{i>rank} w_i/rank, w descending.

    References
    ----------
    .. [1] C. Musco, C. Musco, "Recursive sampling for the Nyström method", NIPS 2017, definition 1.
    """
    ridge = float(w[rank:].sum()) / rank + len(w) * np.finfo(np.float64).eps * float(w[0])
    return np.asarray(np.square(U) @ (w / (w + ridge)))


def trace_errors(
    A: Array, pivots: str, spectrum: tuple[Array, Array], rng: np.random.Generator
) -> Array:
    """Return tr(A − A_S)/tr A at each of `RANKS` that is at most l, A_S of as many pivots.

    ``uniform`` draws different keys, ``leverage`` too, in proportion to the scores for that rank.
    Of what is left of the diagonal, ``greedy`` takes the largest entry, ``random`` draws.
    """
    l, total = len(A), float(A.trace())
    ranks = [r for r in RANKS if r <= l]

    def factor(picks: list[Pick]) -> Array:
        """Return the trace left after each pivot; a pivot near the span of others takes nothing."""
        takes: list[bool] = []

        def watched(pick: Pick) -> Pick:
            def chosen(rest: Array) -> int:
                p = int(pick(rest))
                takes.append(rest[p] > 0)  # a point in the span is skipped
                return p

            return chosen

        _, C = cholesky(A.__getitem__, l, [*map(watched, picks)], A.diagonal())
        taken = np.append(0.0, np.cumsum(np.square(C).sum(axis=0)))
        return np.asarray(1 - taken[np.cumsum(takes)] / total)

    def in_turn(places: Array) -> list[Pick]:
        turns = iter(places.tolist())
        return [lambda _: next(turns)] * len(places)

    def random(rest: Array) -> int:
        return int(rng.choice(l, p=rest / rest.sum())) if rest.any() else 0

    def largest(rest: Array) -> int:
        return int(rounded(rest).argmax())

    if pivots == "leverage":
        values = []
        for r in ranks:
            scores = np.maximum(leverage(*spectrum, r), 1e-300)
            places = rng.choice(l, r, replace=False, p=scores / scores.sum())
            values.append(factor(in_turn(places))[-1])
        return np.array(values)
    picks: list[Pick] = [random if pivots == "random" else largest] * ranks[-1]
    if pivots == "uniform":
        picks = in_turn(rng.permutation(l)[: ranks[-1]])
    return np.asarray(factor(picks)[np.array(ranks) - 1])


def bound(w: Array, ranks: list[int]) -> list[float]:
    """Return Σ Φ^r(w)/Σ w, Φ(w)_i = w_i − w_i²/Σ w, for eigenvalues w of A.

    With one pivot drawn in proportion to the diagonal E[A − A_S] = Φ(A), and Φ is monotone and
    concave, so that E tr(A − A_S) ≤ tr Φ^r(A) for r pivots.

    References
    ----------
    .. [1] Y. Chen, E. Epperly, J. Tropp, R. Webber, "Randomly pivoted Cholesky: practical
       approximation of a kernel matrix with few entry evaluations", CPAM 2025, section 5.
    """
    rest, values = np.maximum(w, 0.0), [1.0]
    for _ in range(max(ranks)):
        rest = rest - rest**2 / rest.sum()
        values.append(float(rest.sum() / w.sum()))
    return [values[r] for r in ranks]


def _study(x: Head, t: float, draws: int, seed: int) -> list[Row]:
    at = x.at_temperature(t)
    A = kernel(at.K)
    w, U = (a[..., ::-1] for a in scipy.linalg.eigh(A))
    w = np.maximum(w, 0.0)
    ranks = [r for r in RANKS if r <= len(A)]
    rows: list[Row] = []

    def add(pivots: str, metric: str, values: list[float], errors: list[float]) -> None:
        for r, value, stderr in zip(ranks, values, errors):
            rows.append((x.name, len(A), t, pivots, r, metric, max(value, 0.0), stderr))

    nothing = [math.nan] * len(ranks)
    add("any", "best", [float(w[r:].sum() / w.sum()) for r in ranks], nothing)
    add("random", "bound", bound(w, ranks), nothing)
    rng = np.random.default_rng(seed_sequence(seed, at.digest(), "nystrom"))
    for pivots in PIVOTS:
        count = 1 if pivots == "greedy" else draws
        found = np.array([trace_errors(A, pivots, (w, U), rng) for _ in range(count)])
        spread = found.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else nothing
        add(pivots, "error", [*found.mean(axis=0)], [*spread])
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return trace errors of exp(k·k') of one head's keys, at t = 1 and at the hottest."""
    ts = nearest_to_one(profile.temperatures), max(profile.temperatures)
    keys = profile.real_head(LEAST, N)
    tasks = [(keys, t, DRAWS * profile.trials, profile.seed) for t in dict.fromkeys(ts)]
    return profile.study(_study, tasks, "pivots", COLUMNS)
