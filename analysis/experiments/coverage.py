"""How often bounds of sampled rows hold, and how wide they are, over many draws of real rows."""

import math

import numpy as np
import pandas as pd
from scipy.stats import beta

from analysis.bounds import inclusion, sampling_intervals
from analysis.bounds.concentration import PROVED
from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import Mask, parse
from approx.checks import Array
from approx.combinations.designs.design import Rest
from approx.combinations.sampled import Sampled
from approx.estimate import exact

COLUMNS = (
    "input", "layer", "head", "n", "query", "support", "kind", "largest", "delta", "draws",
    "metric", "value", "low", "high",
)  # fmt: skip
KEYS = 32  # that are held, and as many that are drawn
LEAST = 3 * KEYS  # that a row sees, so that something is left of the rest
EPSILON = 0.1  # of the rule that chooses how many are drawn
HEAVY, PLACES = SUPPORTS = f"top_k(k={KEYS})", f"sink_window(k={KEYS}, sinks=4)"
DELTAS = {"quick": (0.2, 0.05), "default": (0.2, 0.1, 0.05, 0.01)}
DRAWS = {"quick": 50, "default": 1000}
QUERIES = {"quick": 1, "default": 5}  # of each head
STEP = {"quick": 3, "default": 1}  # between heads
MOST = {"quick": 128, "default": 1024}  # queries and keys
LEVEL = 0.95  # of the Clopper–Pearson intervals
RULE = "rule"  # vAttention's: as many draws as a pilot asks for
ITSELF, NONE = "itself", "none"  # what is no bound, and a range that is not asked for


def clopper_pearson(count: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson for a share.

    Examples
    --------
    >>> tuple(round(end, 4) for end in clopper_pearson(0, 100))
    (0.0, 0.0362)
    """
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, count, trials - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, trials - count)) if count < trials else 1.0
    return low, high


def repeated(x: Head, i: int, draws: int) -> tuple[Array, Array, Mask]:
    """Return so many copies of a query, the keys up to the last that it sees, and their mask."""
    first, stop = int(x.mask.first[i]), int(x.mask.stop[i])
    mask = Mask(np.full(draws, first), np.full(draws, stop), stop, True)
    Q, K = (np.asarray(a, np.float64) for a in (x.Q, x.K))
    return np.tile(Q[i], (draws, 1)), K[:stop], mask


def _rows(
    x: Head, i: int, support: str, deltas: tuple[float, ...], count: int, seed: int
) -> list[Row]:
    Q, K, mask = repeated(x, i, count)
    place = x.name, x.layer, x.head, x.n, i, support
    seeds = seed_sequence(seed, x.digest(), f"{support} {i}").spawn(1 + len(deltas))
    method = Sampled(sparse=parse(support), k=KEYS)  # type: ignore[arg-type]
    estimate = method.approximate(Q, K, mask=mask, rng=np.random.default_rng(seeds[0]))
    draws = inclusion.draws(estimate, Q, K, method)
    total = float(exact.log_row_sums(Q[:1, :], K[mask.first[0] :])[0])
    of_estimate = draws.log_sums(draws.logits + draws.log_weights)
    sums = np.abs(np.expm1(of_estimate - total))
    own = np.exp(draws.logits + draws.log_weights - of_estimate[draws.rows])
    above = np.maximum(own - np.exp(draws.logits - total), 0.0)
    tv = np.bincount(draws.rows, above, count)
    found: list[Row] = [
        (*place, ITSELF, NONE, math.nan, count, "largest_of_rest", _largest(draws, K @ Q[0], i=0),
         math.nan, math.nan),
        (*place, ITSELF, NONE, math.nan, count, "tv", np.median(tv), math.nan, math.nan),
    ]  # fmt: skip
    ranges = ("held", "boxes") if support == HEAVY else ("boxes",)
    for delta, child in zip(deltas, seeds[1:]):
        found.append((*place, ITSELF, NONE, delta, count, "error", np.quantile(sums, 1 - delta),
                      math.nan, math.nan))  # fmt: skip
        for kind in (*PROVED, "normal"):
            for largest in ranges if kind != "normal" else ("boxes",):
                bound = sampling_intervals.upper_bounds(
                    estimate, Q, K, method=method, delta=delta, kind=kind, largest=largest
                )
                head = *place, kind, largest, delta, count
                found += [
                    (*head, "failure", *_share(bound.row_sum < sums * (1 - 1e-9))),
                    (*head, "tv_failure", *_share(bound.attention_tv < tv * (1 - 1e-9))),
                    (*head, "row_sum", bound.row_sum.median(), math.nan, math.nan),
                    (*head, "attention_tv", bound.attention_tv.median(), math.nan, math.nan),
                ]
        rule = Sampled(sparse=method.sparse, k=KEYS, epsilon=EPSILON, delta=delta)
        asked = rule.approximate(Q, K, mask=mask, rng=np.random.default_rng(child))
        correction = inclusion.draws(asked, Q, K, rule)
        off = np.expm1(correction.log_sums(correction.logits + correction.log_weights) - total)
        head = *place, RULE, NONE, delta, count
        found.append((*head, "failure", *_share(np.abs(off) > EPSILON)))
        read = np.diff(correction.indptr).mean()
        found.append((*head, "read", read / mask.counts[0], math.nan, math.nan))
    return found


def _share(failed: Array | pd.Series) -> tuple[float, float, float]:
    count, trials = int(np.sum(failed)), len(failed)
    return (count / trials, *clopper_pearson(count, trials))


def _largest(draws: inclusion.Draws, logits: Array, i: int) -> float:
    """Return the share of the sum over the rest of row i that its largest key has."""
    mine = slice(draws.indptr[i], draws.indptr[i + 1])
    held = draws.keys[mine][draws.times[mine] == 0]
    begins = np.array([0, len(held)])
    row = Mask(draws.mask.first[i : i + 1], draws.mask.stop[i : i + 1], draws.mask.l, True)
    rest = Rest(row, (begins, held)).keys(0)
    p = np.exp(logits[rest] - logits[rest].max())
    return float(1 / p.sum())


def compute(profile: Profile) -> pd.DataFrame:
    """Return how often each bound fails over draws of one row, and its median, row by row.

    Of each row ``top_k`` or the first and last keys are held, and as many others drawn. Metrics:
    ``failure`` and ``tv_failure``, shares of draws in which the row sum, or the total variation, is
    beyond its bound, with Clopper–Pearson intervals (``low``, ``high``); ``row_sum`` and
    ``attention_tv``, medians of the bounds; ``error``, the 1 − δ quantile of the error of the row
    sum itself; ``tv``, the median of the total variation; ``largest_of_rest``, the share of the
    rest that its largest key has. Of kind ``rule``, which lets a pilot choose how many keys are
    drawn, ``failure`` is the share of sums that are not within 0.1, and ``read`` the share of keys
    that are read. Of the real heads of the profile, and four causal ones; rows that see 96 keys.
    """
    grid = profile.grid
    heads = profile.real_and_causal(MOST[grid])
    wide = [x for x in heads if x.mask.counts.max() >= LEAST]
    tasks = []
    for x in wide[:: STEP[grid]]:
        broad = np.flatnonzero(x.mask.counts >= LEAST)
        places = np.linspace(0, len(broad) - 1, QUERIES[grid] + 1).astype(int)[1:]
        queries = np.unique(broad[places])
        tasks += [
            (x, int(i), support, DELTAS[grid], DRAWS[grid], profile.seed)
            for i in queries
            for support in SUPPORTS
        ]
    return profile.study(_rows, tasks, "coverage", COLUMNS)
