"""Examples of positions at which a plan changes the model's likeliest next token."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from approx.checks import Array

BEFORE = 24  # tokens of context to show


class Change(NamedTuple):
    """A position of the text at which the plan's likeliest next token differs from the model's.

    Attributes
    ----------
    position : int
        The position of the last token that was read.
    before, following : str
        The text up to this token, and the next token in the text.
    own, plan : str
        The likeliest next token of the model and of the plan.
    own_probability, plan_probability : float
        The model's probability of ``own``, and the plan's probability of ``plan``.
    kl : float
        KL(model ‖ plan) of the next token there.
    """

    position: int
    before: str
    following: str
    own: str
    own_probability: float
    plan: str
    plan_probability: float
    kl: float


def changed(ids: Array, read: pd.DataFrame, decode: Callable[[Sequence[int]], str]) -> list[Change]:
    """Return three positions where the next token differs: with the most, median and least KL.

    Fewer if there are fewer such positions. Tokens that cannot be shown, such as parts of a
    character, and the last position, which has no next token, are left out.

    Parameters
    ----------
    ids : (n,)
    read : DataFrame
        Columns ``kl``, ``own_token``, ``own_probability``, ``plan_token``, ``plan_probability``;
        the index is the position.
    decode : callable
        Maps token ids to text.
    """
    differing = read[(read.own_token != read.plan_token) & np.isfinite(read.kl)]
    every = []
    for position, row in differing.sort_values("kl", ascending=False, kind="stable").iterrows():
        at = int(str(position))
        if at + 1 >= len(ids):
            continue
        own, plan, following = (
            decode([int(token)]) for token in (row.own_token, row.plan_token, ids[at + 1])
        )
        before = decode([int(token) for token in ids[max(0, at + 1 - BEFORE) : at + 1]])
        if all(map(_shown, (own, plan, following))):
            every.append(
                Change(
                    at, before.lstrip("\N{REPLACEMENT CHARACTER}"), following, own,
                    float(row.own_probability), plan, float(row.plan_probability), float(row.kl),
                )
            )  # fmt: skip
    return [every[i] for i in sorted({0, len(every) // 2, len(every) - 1})] if every else []


def _shown(word: str) -> bool:
    return bool(word.strip()) and word.isprintable() and "\N{REPLACEMENT CHARACTER}" not in word
