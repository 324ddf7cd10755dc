"""Scatterbrain against what sparse + low-rank could do: the split at its budget, Robust PCA."""

import numpy as np
import pandas as pd

from analysis import inputs as data
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.inputs.statistics import temperature_at
from analysis.sweeps import sweep
from analysis.sweeps.table import Row, head
from approx import Approximation, parse
from approx.low_rank import target
from approx.low_rank.godec import GoDec, godec
from approx.low_rank.robust_pca import RobustPCA
from approx.low_rank.subspace import leading

COLUMNS = (*sweep.COLUMNS, "entropy")
ERROR = "attention_relative_frobenius"
COUNT, D, SHARE, DELTA = 256, 64, 8, 0.3
GRIDS = {"quick": (0.5, 0.95), "default": (0.2, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99, 0.997)}
FRACTIONS = (0.125, 0.25, 0.5, 0.75, 0.875)  # of the budget, for factors
AT_BUDGET = (
    "uniform",
    "scatterbrain(low_rank=positive(), sparse=top_k())",
    "truncated_svd(space='attention')",
    "godec(rank=0, space='attention')",
    "godec(space='attention')",
)
PURSUIT = "robust_pca(space='attention')"
CUT = "robust_pca, cut to the budget"


def _rows(inputs: Head, entropy: float, count: int, seed: int) -> list[Row]:
    x = inputs.at_temperature(temperature_at(inputs, entropy))
    budget, rows = x.mask.entries / x.n / SHARE, list[Row]()

    def add(method: object, trial: int, estimate: Approximation) -> None:
        place = head(x, method, budget, trial)
        values = {
            ERROR: x.compare(estimate)[ERROR],
            "rank": float(estimate.rank),
            "nnz": float(estimate.nnz),
            "share": estimate.parameters / x.mask.entries,
        }
        rows.extend((*place, name, value, np.nan, entropy) for name, value in values.items())

    for spec in AT_BUDGET:
        method = parse(spec).within(budget, n=x.n, l=x.l, d=x.d, mask=x.mask)
        if method is None:
            continue
        for trial, stream in trials(method, x, count, seed):
            add(method, trial, x.approximate(method, rng=stream))
    pursuit = x.approximate(RobustPCA(space="attention"))
    add(PURSUIT, -1, pursuit)
    if (both := cut(x, pursuit, budget)) is not None:
        add(CUT, -1, both)
    return rows


def cut(x: Head, pursuit: Approximation, budget: float) -> Approximation | None:
    """Return the low-rank part of Robust PCA cut to a rank, and the largest entries beside it.

    min over r of ‖D − SVD_r(L) − S‖_F with S the largest entries of D − SVD_r(L) that the budget
    leaves room for; None if it does not buy rank 1.
    """
    D, _ = target.matrix(x.Q, x.K, "attention", x.mask)
    left, right = pursuit.factors()
    L = np.asarray(left @ right.T, np.float64)
    column = (x.n + x.l) / x.n
    parts = []
    for r in sorted({max(1, round(share * budget / column)) for share in FRACTIONS}):
        # where queries see few keys, the others have room for more entries
        split = GoDec(rank=r).within(budget, n=x.n, l=x.l, d=x.d, mask=x.mask)
        if split is not None and split.k is not None:
            U, s, V = leading(L, r)
            entries = godec(D - (U * s) @ V.T, 0, split.k, mask=x.mask)
            parts.append((entries.objective, U * s, V, entries.sparse))
    if not parts:
        return None
    _, U, V, S = min(parts, key=lambda part: part[0])
    both = target.parts(U, V, S, 0.0, np.dtype(np.float64), "attention")
    return Approximation.from_parts(both, mask=x.mask)


def kinds(profile: Profile) -> list[Head]:
    """Return Gaussian, generative and clustered inputs, then the profile's heads but the first."""
    n, seed = min(COUNT, max(x.n for x in profile.inputs)), profile.seed
    made = [
        data.gaussian(n, D, rng=seed),
        data.generative(n, D, DELTA, shared=False, rng=seed),
        data.clustered(n, D, shared=True, rng=seed),
    ]
    known = {x.name for x in made}
    return made + [x.first(n) for x in profile.inputs if x.name not in known][-2:]


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors at 1/8 of the values of exact attention, and the price of Robust PCA.

    Metrics: the error of row-normalised attention; rank, nnz; share, the stored values over those
    of the exact matrix, as many as queries see. Column entropy: of exact attention, over its
    largest value.
    """
    grid = GRIDS[profile.grid]
    tasks = [(x, h, profile.trials, profile.seed) for x in kinds(profile) for h in grid]
    return profile.study(_rows, tasks, "oracles", COLUMNS)
