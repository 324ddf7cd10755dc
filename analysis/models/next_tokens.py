"""Where a replaced model's next word is not the model's own: places of a text, in words."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from approx.checks import Array

BEFORE = 24  # tokens that stand before a next word


class Change(NamedTuple):
    """A place of the text where the plan's next word is not the model's.

    Attributes
    ----------
    position : int
        Of the last token that is read.
    before, following : str
        The words that end there, and the one that follows in the text.
    own, plan : str
        The likeliest next word of the model and of the plan.
    own_probability, plan_probability : float
        What each of them gives its own word.
    kl : float
        KL(model ‖ plan) there.
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
    """Return three places where the next word differs: by most, in the middle, and by least.

    Parameters
    ----------
    ids : (n,)
        The tokens of the text.
    read : DataFrame
        Columns ``kl``, ``own_token``, ``own_probability``, ``plan_token``, ``plan_probability``,
        its index the position.
    decode : callable
        What returns the words of tokens.

    Returns
    -------
    list of Change
        Fewer, if there are fewer places. Words that cannot be shown, as parts of a character, and
        the last position, which none follows, are left out.
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
