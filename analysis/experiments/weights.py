"""Replaced or weighed: which is nearer on rows of real heads, and what the rule says of them."""

import numpy as np
import pandas as pd

from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.moments.correction_weights import Row, rows
from analysis.sweeps.table import Row as Line, numbers
from approx import Mask, parse
from approx.checks import Array
from approx.combinations.designs.design import Rest, Uniform

COLUMNS = (
    "input", "layer", "head", "n", "temperature", "support", "low_rank", "query", "metric",
    "value", "stderr",
)  # fmt: skip
DRAWN = 16
SUPPORTS = ("top_k(k=16)", "sink_window(k=16)")
NOTHING, POLYNOMIAL, FEATURES = LOW_RANK = "zero()", "taylor(degree=2)", "positive(m=64)"
TEMPERATURES = {"quick": (1.0, 4.0), "default": (0.5, 1.0, 2.0, 4.0)}
QUERIES = {"quick": 4, "default": 32}  # of each head
MOST = {"quick": 128, "default": 1024}  # queries and keys
DRAWS = {"quick": 100, "default": 400}  # of the outputs
FIRST = 3 * DRAWN  # a query that sees this many keys has more than are exact and drawn


def sampled_outputs(
    row: Row, V: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return squared errors of the normalised output, weighed and replaced, by draw (draws,).

    Nothing stands for what is not drawn; both have the same keys in each draw.
    """
    p = row.p[row.rest]
    output = row.p @ V
    # Σ p_j (v_j − output) over all keys is 0, so that exact keys drop out of the numerator
    y = p[:, None] * (V[row.rest] - output)
    drawn = Uniform(int(row.drawn)).draw(Rest.all_seen(Mask.full(draws, row.keys)), rng)
    numerator, total = drawn @ y, drawn @ p
    missing, exact = y.sum(axis=0), 1.0 - p.sum()
    of_weighed, of_replaced = (
        np.square((c * numerator - missing) / (exact + c * total)[:, None]).sum(axis=1)
        for c in (1.0, row.pi)
    )
    return of_weighed, of_replaced


def _rows(
    x: Head, queries: tuple[int, ...], sparse: str, low_rank: str, draws: int, seed: int
) -> list[Line]:
    found: list[Line] = []
    for i, row in rows(x, parse(sparse), DRAWN, low_rank=parse(low_rank), queries=queries):
        place = x.name, x.layer, x.head, x.n, x.temperature, sparse, low_rank, i
        found += numbers(
            place,
            mass=row.p[row.rest].sum(),
            effective_number=row.effective_number,
            rule=row.rule,
            exact_rule=row.effective_errors / row.threshold,
            row_sum=row.row_sum().ratio,
        )
        if low_rank == NOTHING and x.V is not None:
            rng = np.random.default_rng(seed_sequence(seed, x.digest(), f"{sparse} {i}"))
            weighed, replaced = sampled_outputs(row, np.asarray(x.V, np.float64), draws, rng)
            ratio = weighed.mean() / replaced.mean()
            spread = np.std(weighed - ratio * replaced, ddof=1) / replaced.mean()
            output = ratio, spread / np.sqrt(draws)
            found += numbers(place, output=output, output_to_first_order=row.output(x.V).ratio)
    return found


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors of weighing over those of replacing, row by row, beside what the rule says.

    ``row_sum`` is in closed form, ``output`` by Monte Carlo (its stderr beside it), and only where
    nothing stands for what is not drawn. ``rule`` is N_eff/(1 + (1 + v/b²)/π), and ``exact_rule``
    the effective number of errors over its threshold. Of the real heads of the profile, and four
    causal ones.
    """
    grid = profile.grid
    heads = profile.real_and_causal(MOST[grid])
    tasks = []
    for x in heads:
        first = min(FIRST, x.n) - 1 if x.mask.looks_back else 0
        queries = tuple(np.unique(np.linspace(first, x.n - 1, QUERIES[grid]).astype(int)).tolist())
        for t in TEMPERATURES[grid]:
            y = x.at_temperature(t)
            tasks += [
                (y, queries, sparse, low, DRAWS[grid], profile.seed)
                for sparse in SUPPORTS
                for low in LOW_RANK
            ]
    return profile.study(_rows, tasks, "weights", COLUMNS)
