"""Rank of logits with positions at the input and at the logits, before and after exp."""

import numpy as np
import pandas as pd

from analysis.compute.seeds import seed_sequence
from analysis.experiments.profile import Profile
from analysis.ranks import position_rank
from analysis.sweeps.table import Row

COLUMNS = ("n", "d", "d_h", "d_p", "heads", "where", "metric", "value")
N, D, D_H, D_P = 32, 16, 4, 6
WIDTHS = (0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32)  # d_p
HEADS = (1, 2, 3, 4, 6, 8)


def _of_width(d_p: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed_sequence(seed, "position_rank", d_p))
    head = position_rank.generic(N, D, D_H, d_p, rng=rng)
    rows: list[Row] = []
    for where, logits in (("input", head.at_input()), ("logits", head.at_logits())):
        place = (N, D, D_H, d_p, 1, where)
        rows += [(*place, name, float(rank)) for name, rank in position_rank.ranks(logits).items()]
    built = position_rank.construction(N, D, D_H, d_p)
    built_rank = position_rank.ranks(built.at_logits())["logits"]
    bound = min(D_H + d_p, N)
    place = (N, D, D_H, d_p, 1, "logits")
    return [*rows, (*place, "construction", float(built_rank)), (*place, "bound", float(bound))]


def _of_heads(heads: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed_sequence(seed, "position_rank", "heads", heads))
    head = position_rank.generic(N, D, D_H, D_P, rng=rng, heads=heads)
    rows: list[Row] = []
    for where, logits in (("input", head.at_input()), ("logits", head.at_logits())):
        each = [position_rank.ranks(head)["logits"] for head in logits]
        place = (N, D, D_H, D_P, heads, where)
        rows.append((*place, "sum", float(position_rank.ranks(logits.sum(axis=0))["logits"])))
        rows.append((*place, "largest_head", float(max(each))))
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return ranks against the width d_p of positions, and against the number of heads."""
    widths = [(d_p, profile.seed) for d_p in WIDTHS]
    heads = [(count, profile.seed) for count in HEADS]
    by_width = profile.study(_of_width, widths, "widths", COLUMNS)
    by_heads = profile.study(_of_heads, heads, "heads", COLUMNS)
    return pd.concat([by_width, by_heads], ignore_index=True)
