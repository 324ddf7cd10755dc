"""Retrieval without generation: facts stand in a text, and a question at its end asks for one.

The kinds follow RULER (Hsieh et al., 2024, arXiv 2404.06654; scripts/data/synthetic of
github.com/NVIDIA/RULER), in words of our own:

- ``needle``: one fact (RULER: single needle).
- ``needles``: four facts about different things, one of which is asked for (multiple keys).
- ``chain``: a number, and a second fact that refers to it, beside another such pair (variable
  tracking with two chains and one hop; RULER asks for the names, this for the number).
- ``repeated``: two numbers of one thing, one of which the question gives (multiple values; RULER
  has all of them generated, in any order).

Nothing is generated: each token of the answer follows the right earlier tokens, and counts by its
log-probability and its rank. If the model's own attention does not rank each of them first, the
cell judges nobody, and methods do not run on it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from tqdm import tqdm

from analysis.costs.budget import KEYS, cost, price_of_keys
from analysis.models.forecast import Forecast
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.replacement import Pass, Passage, Replacements, outcomes
from analysis.models.substitute import fill_to_budget, heads_of_plan
from analysis.runs.seeds import seed_sequence
from analysis.runs.store import Store
from approx import Method, checks, parse
from approx.checks import Array

KINDS = "needle", "needles", "chain", "repeated"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
SHORTEST = 512
EXACT, ORACLE = "exact", "top_k()"
FACT = " The secret number of the blue house is"  # of plans; no drawn name is a house
ANSWER = " 4917"
LEVEL = 0.05  # of the sign test

_ADJECTIVES = "red", "old", "small", "quiet", "wooden", "white", "narrow", "northern"
_NOUNS = "tower", "bridge", "garden", "ship", "mill", "church", "market", "castle"


class Question(NamedTuple):
    """Facts with their depths in a text, the beginning of the answer, and the rest of it."""

    facts: tuple[tuple[float, str], ...]
    question: str  # words that the answer completes
    answer: str
    request: str = ""  # the question as the user of a chat asks it


def draw_question(kind: str, depth: float, trial: int = 0, seed: int = 0) -> Question:
    """Return facts, a question and an answer of a kind, with drawn names and numbers.

    Parameters
    ----------
    kind : {"needle", "needles", "chain", "repeated"}
    depth : float
        The depth of the fact that has the answer: 0 at the start of the text, 1 right before the
        question. Other facts stand a quarter of the text further each, and go on at the start. In
        a chain, the fact that refers to another stands half-way between it and the end.
    trial, seed : int
        They determine names and numbers, which are the same at all depths.

    Examples
    --------
    >>> chain = draw_question("chain", 0.5)
    >>> for where, fact in chain.facts:
    ...     print(where, fact)
    0.5  The secret number of the old tower is 5448.
    0.75  The quiet bridge has the same secret number as the old tower.
    0.0  The secret number of the northern church is 5851.
    0.5  The red castle has the same secret number as the northern church.
    >>> chain.question, chain.answer
    (' The secret number of the quiet bridge is', ' 5448')
    """
    checks.one_of("kind", kind, KINDS)
    rng = np.random.default_rng(seed_sequence(seed, "retrieval", trial))
    adjectives, nouns = (rng.permutation(words)[:4] for words in (_ADJECTIVES, _NOUNS))
    a, b, c, d = (f"{x} {y}" for x, y in zip(adjectives, nouns))
    x, *others = (str(number) for number in rng.choice(np.arange(1000, 10000), 4, replace=False))

    def number(name: str, value: str) -> str:
        return f" The secret number of the {name} is {value}."

    def same(name: str, other: str) -> str:
        return f" The {name} has the same secret number as the {other}."

    def later(quarters: int) -> float:
        return depth if quarters == 0 else (depth + quarters / 4) % 1

    name, facts = a, [(depth, number(a, x))]
    if kind == "needles":
        facts += [(later(i), number(*z)) for i, z in enumerate(zip((b, c, d), others), start=1)]
    if kind == "chain":
        name, half = b, later(2)
        facts.append(((1 + depth) / 2, same(b, a)))
        facts += [(half, number(c, others[0])), ((1 + half) / 2, same(d, c))]
    if kind == "repeated":
        facts = [
            (where, f" One secret number of the {a} is {value}.")
            for where, value in ((depth, x), (later(2), others[0]))
        ]
        question = f" The two secret numbers of the {a} are {others[0]} and"
        return Question(tuple(facts), question, f" {x}", f"Which secret numbers has the {a}?")
    question = f" The secret number of the {name} is"
    return Question(tuple(facts), question, f" {x}", f"What is the secret number of the {name}?")


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


class Prompt(NamedTuple):
    """A text with facts, a question and its answer."""

    ids: Array
    text: int  # number of first tokens, before the question begins
    answer: int  # number of last tokens


def prompt_with_facts(
    model: LanguageModel, filler: str, tokens: int, about: Question, *, chat: bool = False
) -> Prompt:
    """Return the tokens of a text with facts, a question and its answer.

    Parameters
    ----------
    model : LanguageModel
    filler : str
    tokens : int
        The total number of tokens, the answer included.
    about : Question
    chat : bool
        Whether the text and the question are the message of a user, in the tokenizer's chat
        template, and the model answers.

    Raises
    ------
    ValueError
        The filler is too short, or the tokenizer has no chat template.
    """
    checks.integer("tokens", tokens, least=2)

    def ids(words: str) -> Array:
        found = model.tokenizer(words, add_special_tokens=False)["input_ids"]
        return np.asarray(found, np.int64)

    head, tail = "", ""
    if chat:
        head, _, tail = model.chat("\0").partition("\0")
        tail = f"\n\n{about.request}{tail}"
    facts = [(depth, ids(fact)) for depth, fact in sorted(about.facts, key=lambda one: one[0])]
    before, after = ids(head), ids(tail)
    asked = about.question.lstrip() if chat else about.question
    question, answer = ids(asked), ids(about.answer)
    others = len(before) + len(after) + len(question) + len(answer)
    room = tokens - others - sum(len(fact) for _, fact in facts)
    text = ids(filler)[: max(room, 0)] if chat else model.tokens_of(filler, max(room, 2))
    if len(text) != room:
        raise ValueError(
            f"the text must fill {room} tokens beside the facts, got {len(text)}: give a longer "
            "one, or lower max_tokens"
        )
    parts, last = [before], 0
    for depth, fact in facts:
        at = round(depth * room)
        parts += [text[last:at], fact]
        last = at
    parts.append(text[last:])
    start = sum(map(len, parts))
    return Prompt(np.concatenate([*parts, after, question, answer]), start, len(answer))


def question(
    model: LanguageModel, filler: str, tokens: int, depth: float, **options: Any
) -> Passage:
    """Return a text with one fact at a depth, its question, and its answer without the last token.

    Only the positions that predict the answer count. The options are those of `Passage`.
    """
    fact = Question(((depth, f"{FACT}{ANSWER}."),), FACT, ANSWER)
    ids, _, count = prompt_with_facts(model, filler, tokens + 1, fact)
    return Passage(model, ids[:-1], skip=tokens - count, **options)


def retrieval(
    model: LanguageModel,
    filler: str,
    choices: Mapping[str, Method | Plan],
    *,
    kinds: Sequence[str] = KINDS,
    tokens: Sequence[int] = (SHORTEST,),
    depths: Sequence[float] = DEPTHS,
    trials: int = 1,
    setting: str = "rows",
    chat: bool = False,
    budget: float | None = None,
    currency: str = "bytes_read",
    seed: int = 0,
    jobs: int | None = None,
    progress: bool = False,
    announce: Callable[[float], None] | None = None,
    finished: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the probability of the right answer by kind, length, depth and method.

    Parameters
    ----------
    model : LanguageModel
    filler : str
        The text around the facts.
    choices : mapping from a label to a method of all heads, or to a plan
        Templates are filled to the budget, and so is the reference ``top_k()``, which needs all
        logits and is always among the runs.
    kinds : sequence of str
    tokens : sequence of int
        The lengths of the texts, the answer included.
    depths : sequence of float
        See `draw_question`.
    trials : int
        The number of draws of names and numbers.
    setting : {"rows", "prompt"}
        Whether methods compute all rows, or those after a prompt. The prompt is then the text
        without the question: what is kept of it is chosen before the question is read.
    chat : bool
        Whether to use the tokenizer's chat template, see `prompt_with_facts`.
    budget, currency
        As for `analysis.models.substitute.substitute`.
    seed, jobs, progress, finished
        As for `analysis.models.substitute.substitute`.
    announce : callable, optional
        See `analysis.models.forecast.Forecast`.

    Returns
    -------
    DataFrame
        ``kind``, ``tokens``, ``depth``, ``trial``; ``method``, "exact" first; ``log_probability``
        of the whole answer; ``rank``, the worst rank of a token of the answer: 1 if each is the
        likeliest; ``price`` in the currency, NaN for a plan, without keys that stay because they
        came after a prompt; and ``budget``. A cell where the rank of exact attention is above 1 has
        no other method.
    """
    checks.integer("trials", trials, least=1)
    for kind in kinds:
        checks.one_of("kind", kind, KINDS)
    rows, done = [], Store(finished)
    cells = [*itertools.product(kinds, tokens, depths, range(trials))]
    named = dict(choices)
    named.setdefault(ORACLE, parse(ORACLE))
    work = 1 + len(named)
    forecast = Forecast(work * sum(most for _, most, _, _ in cells), announce)
    for cell in tqdm(cells, disable=not progress, desc="questions", leave=False):
        kind, most, depth, trial = cell
        some = draw_question(kind, depth, trial, seed)
        ids, text, count = prompt_with_facts(model, filler, most, some, chat=chat)
        passage = Passage(
            model, ids, skip=len(ids) - count - 1, setting=setting,
            prompt_tokens=text if setting == "prompt" else None, seed=seed, jobs=jobs,
        )  # fmt: skip
        shape = passage.shapes[0]
        most_paid = (
            price_of_keys(KEYS, passage.inputs(0).at(0, 0), currency) if budget is None else budget
        )
        runs: dict[str, tuple[Replacements, float]] = {
            EXACT: ({}, cost(parse("exact()"), shape, currency))
        }
        for label, choice in named.items():
            if isinstance(choice, Plan):
                runs[label] = heads_of_plan(passage, choice), math.nan
            else:
                sized = fill_to_budget(passage, choice, most_paid, currency)
                runs[label] = passage.everywhere(sized), cost(sized, shape, currency)
        for label, (heads, price) in runs.items():
            [answer] = outcomes([Answer(passage.digest, heads, count)], passage, store=done)
            rows.append((*cell, label, *answer, price, most_paid))
            if label == EXACT and answer[1] > 1:
                break
        forecast.add(work * most)
    columns = ["kind", "tokens", "depth", "trial", "method", "log_probability", "rank"]
    return pd.DataFrame(rows, columns=[*columns, "price", "budget"])


def comparisons(found: pd.DataFrame) -> pd.DataFrame:
    """Return exact sign tests of the line: exact attention, then the oracle, then each method.

    A benchmark that asks for what attention finds should have exact attention above the oracle
    ``top_k()``, which sees all logits, and the oracle above a method that costs at most as much.
    No theorem says so: a method may win by chance.

    Parameters
    ----------
    found : DataFrame
        The table of `retrieval`.

    Returns
    -------
    DataFrame
        One row per pair: ``first``, ``second``, the names; ``cells``, those where exact attention
        finds the answer and both ran; ``first_higher`` and ``second_higher``, how many of these
        have the higher log-probability for either; ``p`` of the two-sided binomial test, ties left
        out, of the hypothesis that in a cell both are equally likely to be the higher; and
        ``line``: "holds" or "broken" if p is at most 0.05 and the first or the second is the higher
        one, "open" otherwise. Methods whose price is above the oracle's budget, or not known, are
        compared with exact attention only.

    Notes
    -----
    Cells of one text share its words, so that they are not independent as the test assumes.
    """
    cell = ["kind", "tokens", "depth", "trial"]
    wide = found.pivot(index=cell, columns="method", values="log_probability")
    price = found.groupby("method", sort=False).price.max()
    methods = [name for name in price.index if name != EXACT]
    pairs = [(EXACT, name) for name in methods]
    if ORACLE in methods:
        under = [name for name in methods if name != ORACLE and price[name] <= found.budget.min()]
        pairs += [(ORACLE, name) for name in under]
    rows = []
    for first, second in pairs:
        x, y = wide[[first, second]].dropna().to_numpy().T
        higher, lower = int((x > y).sum()), int((x < y).sum())
        p = float(binomtest(higher, higher + lower).pvalue) if higher + lower else 1.0
        line = "open" if p > LEVEL else "holds" if higher > lower else "broken"
        rows.append((first, second, len(x), higher, lower, p, line))
    columns = ["first", "second", "cells", "first_higher", "second_higher", "p", "line"]
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
