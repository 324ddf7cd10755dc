"""How a plan is made: curves of every head, one multiplier, and what becomes of the model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.allocation import Allocation, allocate
from analysis.curves import EXACT, curves
from analysis.language_model import LanguageModel
from analysis.passage import SKIP, Estimated, Passage, perplexity
from analysis.plan import Head, Plan
from approx import Method, parse

FRONTIER = (0.25, 0.5, 1.0, 2.0, 4.0)  # shares of the budget at which plans are measured as well
File = str | os.PathLike[str]


def made(
    model_dir: File,
    texts: Sequence[File],
    *,
    budget: float,
    currency: str,
    methods: Sequence[Method] | None,
    held_out: File | None,
    max_tokens: int,
    seed: int,
    jobs: int | None,
    progress: bool,
) -> Plan:
    """Return the plan of `analysis.plan.plan`."""
    if not texts:
        raise ValueError("a plan needs a text to be chosen on")
    model = LanguageModel.open(model_dir)
    every = [*texts, *([] if held_out is None else [held_out])]
    tokens = [model.tokens(text, max_tokens) for text in every]
    shortest = min(map(len, tokens))  # sizes and prices follow from the length
    passages = [Passage(model, ids[:shortest], skip=SKIP, seed=seed, jobs=jobs) for ids in tokens]
    chosen_on, at = passages[: len(texts)], passages[0 if held_out is None else -1]
    found = curves(chosen_on, budget, currency=currency, methods=methods, progress=progress)
    frontier = []
    chosen: Allocation | None = None
    for share in tqdm(FRONTIER, disable=not progress, desc="measured", leave=False):
        try:
            some = allocate(found, share * budget)
        except ValueError:
            if share < 1:  # nothing is so cheap
                continue
            raise
        frontier.append(measured(at, some))
        if share == 1:
            chosen, facts = some, frontier[-1]
    assert chosen is not None
    exact = found[found.method == EXACT].price.mean()
    return Plan(
        model.name,
        heads(chosen.chosen),
        {
            "budget": budget,
            "currency": currency,
            "exact_price": float(exact),
            "chosen_on": [Path(text).name for text in texts],
            "measured_on": Path(texts[0] if held_out is None else held_out).name,
            "tokens": shortest,
            **facts,
            "exact_perplexity": perplexity(at.surprisal),
            "frontier": frontier,
        },
    )


def heads(chosen: pd.DataFrame) -> dict[Head, Method]:
    """Return the heads that do not stay exact, of rows of curves."""
    known = {str(spec): parse(str(spec)) for spec in chosen.method.unique()}
    return {
        (int(layer), int(head)): known[spec]
        for layer, head, spec in zip(chosen.layer, chosen["head"], chosen.method)
        if spec != EXACT
    }


def measured(passage: Passage, some: Allocation) -> dict[str, Any]:
    """Return price and prediction of a choice, and what becomes of a passage with it.

    Returns
    -------
    dict
        ``price``, ``predicted_kl``, ``least_predicted_kl``, ``exact_heads``, ``kl``,
        ``kl_stderr``, ``same_top_1``, ``perplexity``; what is not finite is None.
    """
    replaced = heads(some.chosen)
    done = passage.replace(replaced)
    kl = Estimated.of(done.kl)
    numbers = {
        "price": some.price,
        "predicted_kl": some.damage,
        "least_predicted_kl": max(some.least, 0.0),
        "exact_heads": len(some.chosen) - len(replaced),
        "kl": kl.mean,
        "kl_stderr": kl.stderr,
        "same_top_1": float(np.mean(done.same_top)),
        "perplexity": done.perplexity,
    }
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
