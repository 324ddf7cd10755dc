"""Retrieval of a fact: it stands inside a text, and a question at the end asks for it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.replacement import Pass, Passage, Replacements, outcomes
from analysis.models.substitute import heads_of_plan
from analysis.runs.store import Store
from approx import Method, checks
from approx.checks import Array

FACT = " The secret number of the blue house is"
ANSWER = " 4917"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
SHORTEST = 512


def lengths(most: int) -> list[int]:
    """Return 512, 1024, … up to `most` tokens, or only `most` if it is less than 512.

    Examples
    --------
    >>> lengths(4096), lengths(200)
    ([512, 1024, 2048, 4096], [200])
    """
    if most < SHORTEST:
        return [most]
    return [SHORTEST << i for i in range((most // SHORTEST).bit_length())]


def hidden(model: LanguageModel, filler: str, tokens: int, depth: float) -> tuple[Array, int]:
    """Return the tokens of a text with a fact, its question and answer, and the answer's length.

    Parameters
    ----------
    model : LanguageModel
    filler : str
    tokens : int
        The total number of tokens, the answer included.
    depth : float
        0 puts the fact at the start, 1 right before the question.

    Raises
    ------
    ValueError
        The filler is too short.
    """
    checks.integer("tokens", tokens, least=2)
    fact, question, answer = (
        np.asarray(model.tokenizer(words, add_special_tokens=False)["input_ids"], np.int64)
        for words in (f"{FACT}{ANSWER}.", FACT, ANSWER)
    )
    room = tokens - len(fact) - len(question) - len(answer)
    text = model.tokens_of(filler, max(room, 2))
    if len(text) != room:
        raise ValueError(
            f"the text must fill {room} tokens beside the fact, got {len(text)}: give a longer "
            "one, or lower max_tokens"
        )
    at = round(depth * room)
    return np.concatenate([text[:at], fact, text[at:], question, answer]), len(answer)


def question(
    model: LanguageModel, filler: str, tokens: int, depth: float, **options: Any
) -> Passage:
    """Return a text with a fact at a depth, its question, and its answer without the last token.

    Only the positions that predict the answer count. The options are those of `Passage`.
    """
    ids, count = hidden(model, filler, tokens + 1, depth)
    return Passage(model, ids[:-1], skip=tokens - count, **options)


def needle(
    model: LanguageModel,
    filler: str,
    choices: Mapping[str, Method | Plan],
    *,
    max_tokens: int = SHORTEST,
    tokens: Sequence[int] | None = None,
    depths: Sequence[float] = DEPTHS,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool = False,
    finished: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the probability of the right answer by the fact's depth and the text's length.

    Parameters
    ----------
    model : LanguageModel
    filler : str
        The text around the fact.
    choices : mapping from a label to a method of all heads, or to a plan
    max_tokens : int
        The length of the longest text, see `lengths`.
    tokens : sequence of int, optional
        The lengths of the texts, instead of ``max_tokens``.
    depths : sequence of float
    seed, jobs, progress, finished
        As for `analysis.models.substitute.substitute`.

    Returns
    -------
    DataFrame
        ``method``, "exact" first, ``tokens``, ``depth``; ``log_probability`` of the whole answer;
        ``rank``, the worst rank of a token of the answer: 1 if each is the likeliest.

    Notes
    -----
    The answer is read, not generated: each of its tokens follows the right earlier tokens.
    """
    rows, done = [], Store(finished)
    every = lengths(max_tokens) if tokens is None else tokens
    pairs = [(most, depth) for most in every for depth in depths]
    for most, depth in tqdm(pairs, disable=not progress, desc="depths", leave=False):
        ids, count = hidden(model, filler, most, depth)
        passage = Passage(model, ids, skip=len(ids) - count - 1, seed=seed, jobs=jobs)
        runs: dict[str, Replacements] = {"exact": {}}
        for label, choice in choices.items():
            if isinstance(choice, Plan):
                runs[label] = heads_of_plan(passage, choice)
            else:
                runs[label] = passage.everywhere(choice)
        asked = [Answer(passage.digest, heads, count) for heads in runs.values()]
        answers = outcomes(asked, passage, store=done)
        rows += [(label, most, depth, *answer) for label, answer in zip(runs, answers)]
    columns = ["method", "tokens", "depth", "log_probability", "rank"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True, eq=False)
class Answer(Pass):
    """A pass over a text that ends with an answer of ``count`` tokens."""

    count: int

    def run(self, passage: Passage) -> tuple[float, int]:
        """Return the log-probability of these tokens together, and the worst of their ranks."""
        ids, model, count = passage.ids, passage.model, self.count
        state = passage.replace(self.heads).state
        places = np.arange(len(ids) - count - 1, len(ids) - 1)
        logits = np.asarray(model.logits(ids, state, places).double().numpy())
        shares = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        right = shares[np.arange(count), ids[-count:]]
        rank = 1 + int((shares > right[:, None]).sum(axis=1).max())
        total = float(right.sum())
        return total if math.isfinite(total) else -math.inf, rank
