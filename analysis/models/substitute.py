"""The effect of cheaper attention on a language model: some heads by methods, the rest exact.

`substitute` runs a local model once for each of several methods or plans. It returns one table with
the KL of the next token, the perplexity, and the errors of heads and layers. To keep a model loaded
between calls, use `analysis.models.replacement`.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.costs.budget import KEYS, amount_text, price_of_keys
from analysis.models import checkpoints
from analysis.models.checkpoints import Place
from analysis.models.language_model import HeadIndex, LanguageModel
from analysis.models.plan import Plan, check_weights, other_model
from analysis.models.replacement import (
    Estimated,
    Pass,
    Passage,
    Replacements,
    outcomes,
    perplexity,
)
from analysis.runs.store import Store
from analysis.sweeps import table
from approx import Method, checks, parse
from approx.method.prices import price_at
from approx.method.tags import AUTOREGRESSIVE, ORACLE


def substitute(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str],
    choices: Method | Plan | Sequence[Method | Plan] | Mapping[str, Method | Plan],
    *,
    heads: Sequence[HeadIndex] | None = None,
    layers: Sequence[int] | None = None,
    budget: float | None = None,
    currency: str = "stored",
    max_tokens: int = 512,
    skip: int | None = None,
    setting: str = "rows",
    prompt_tokens: int | None = None,
    errors: bool = True,
    dtype: str = "float32",
    seed: int = 0,
    jobs: int | None = None,
    scheduler: Any = None,
    progress: bool = False,
    finished: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the damage to a local language model whose heads are computed by methods.

    Parameters
    ----------
    model_dir : path
        A folder in the format of Hugging Face, or a GGUF file, see `LanguageModel.open`.
    text : path
        A UTF-8 file; its first tokens are read.
    choices : Method or Plan, or a sequence of them, or a mapping from their labels
        One run for each. A method computes all ``heads``, a plan its own heads. The label of a
        template that the budget fills is the filled spec.
    heads, layers : sequence of (layer, head), sequence of int; optional
        The heads that methods compute, or the layers in which methods compute all heads; not both.
    budget : float, optional
        The largest cost per query; templates are filled to it. By default the cost of 32 exact
        keys.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
    max_tokens : int
        The text is cut to ``max_tokens`` tokens.
    skip, setting, prompt_tokens
        As for `Passage`: which positions count, and whether the prompt is read exactly.
    errors : bool
        Whether to measure the errors of heads, which takes as long as everything else.
    dtype : {"float32", "float64"}
        The dtype of the model and of the estimates.
    seed, jobs
        As for `Passage`.
    scheduler : str or distributed.Client, optional
        A Dask cluster whose tasks are the runs, see `analysis.sweeps.sweep.sweep`.
    progress : bool
        Whether to show a bar on stderr.
    finished : path, optional
        A folder that keeps the numbers of each run, so that a stopped call can resume.

    Returns
    -------
    DataFrame
        One row per number, in the columns of `analysis.sweeps.table`; `by_run` has one row per
        run.

        - Of the whole model (layer and head are −1): ``kl``, ``same_top_1``, ``perplexity``,
          ``exact_perplexity``; ``heads``, the number of replaced heads; ``oracle_heads``, those by
          methods that need all logits; ``future_heads``, those by methods that read later tokens;
          ``reads_share``, the reads of a new query as a share of exact attention's; ``seconds``
        - Of a layer: ``residual_relative_error`` of the state after it
        - Of a head: ``attention_tv`` and ``output_relative_error``, with the prefix ``own_`` at the
          head's inputs in the model itself, and ``drifted_`` at its inputs with the other heads
          replaced

    Raises
    ------
    ImportError, ValueError
        The model cannot be used, it lacks a head, a plan is for another model, a template has no
        size that fits the budget, or a method is undefined under the mask.
    """
    one = isinstance(choices, Method | Plan)
    named = choices if isinstance(choices, Mapping) else _named([choices] if one else choices)  # type: ignore[list-item, arg-type]
    for choice in named.values():
        checks.instance("every choice", choice, (Method, Plan), "a method or a plan")  # type: ignore[arg-type]
    if heads is not None and layers is not None:
        raise ValueError("layers follow from heads: leave them out")
    [words] = checkpoints.texts(model_dir, text)
    check_weights([x for x in named.values() if isinstance(x, Plan)], [Place.from_path(model_dir)])
    model = LanguageModel.open(model_dir, dtype=dtype)
    if layers is not None:
        heads = [(layer, head) for layer in layers for head in range(model.heads)]
    ids = model.tokens_of(words, max_tokens)
    passage = Passage(
        model, ids, skip=skip, setting=setting, prompt_tokens=prompt_tokens, seed=seed, jobs=jobs
    )
    runs = {}
    if budget is None and any(isinstance(x, Method) and x.is_template for x in named.values()):
        budget = price_of_keys(KEYS, passage.inputs(0).at(0, 0), currency)
    for label, choice in named.items():
        if isinstance(choice, Plan):
            runs[label] = heads_of_plan(passage, choice)
            continue
        sized = choice if budget is None else fill_to_budget(passage, choice, budget, currency)
        runs[str(sized) if choice.is_template else label] = passage.everywhere(sized, heads)
    found = measure(
        passage, runs, errors=errors, progress=progress, scheduler=scheduler,
        done=None if finished is None else Store(finished),
    )  # fmt: skip
    found["budget"] = -1.0 if budget is None else float(budget)
    return table.with_currency(found, currency)


def fill_to_budget(
    passage: Passage, method: Method, budget: float, currency: str = "stored"
) -> Method:
    """Return a template filled to a budget, at the shape of the first layer's heads.

    A sized method is returned unchanged; ValueError if no size of the template fits.
    """
    if not method.is_template:
        return method
    sized = method.within(budget, currency=currency, **passage.shapes[0].given)
    if sized is None:
        raise ValueError(f"{method} has no size that costs at most {amount_text(budget, currency)}")
    return sized


def heads_of_plan(passage: Passage, plan: Plan) -> Replacements:
    """Return the heads of a plan; raise ValueError if it is for another model."""
    if why := other_model(plan, {passage.model.name}):
        raise ValueError(why)
    passage.check(plan.heads)
    return plan.heads


def measure(
    passage: Passage,
    runs: Mapping[str, Replacements],
    *,
    errors: bool = True,
    progress: bool = False,
    scheduler: Any = None,
    done: Store | None = None,
) -> pd.DataFrame:
    """Return the table of `substitute` for an existing passage, with one run per label."""
    found = outcomes(
        [Damage(passage.digest, heads, errors) for heads in runs.values()],
        passage, scheduler=scheduler, store=done, progress=progress,
    )  # fmt: skip
    every = []
    for label, rows in zip(runs, found):
        for layer, head, metric, value, stderr in rows:
            n, l, d, _ = passage.shapes[max(layer, 0)]
            where = (passage.model.name, layer, head, n, l, d, 1.0, label, -1.0, -1)
            every.append((*where, metric, value, stderr))
    return table.frame(every)


def by_run(found: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `substitute` with one row per run, in its order.

    Returns
    -------
    DataFrame
        ``method``; every number of the whole model under its name; ``kl_stderr``,
        ``same_top_1_stderr`` and ``perplexity_stderr``; the mean errors of the replaced heads; and
        ``residual_relative_error`` after the last layer.
    """
    rows: list[dict[Any, Any]] = []
    for label, part in found.groupby("method", sort=False):
        whole = part[part.layer < 0].set_index("metric")
        row: dict[Any, Any] = {"method": label} | dict(whole.value.items())
        for name in ("kl", "same_top_1", "perplexity"):
            row[f"{name}_stderr"] = whole.stderr[name]
        row |= dict(part[part["head"] >= 0].groupby("metric").value.mean().items())
        behind = part[part.metric == "residual_relative_error"]
        row["residual_relative_error"] = behind.value.iloc[behind.layer.argmax()]
        rows.append(row)
    return pd.DataFrame(rows)


def reads_share(passage: Passage, heads: Replacements) -> float:
    """Return the reads of a new query as a share of exact attention's, over all heads.

    It is NaN if the price of a method is not known. Reads that a group of heads could share count
    for each head, in both terms.
    """
    exact = parse("exact()")
    total = part = 0.0
    for layer, shape in enumerate(passage.shapes):
        whole = price_at(exact, shape)
        assert whole is not None
        assert whole.reads is not None
        for head in range(passage.model.heads):
            total += whole.reads
            price = whole if (layer, head) not in heads else price_at(heads[layer, head], shape)
            part += math.nan if price is None or price.reads is None else price.reads
    return part / total


def _named(choices: Sequence[Method | Plan]) -> dict[str, Method | Plan]:
    found: dict[str, Method | Plan] = {}
    for choice in choices:
        plain = str(choice.facts.get("name", "plan")) if isinstance(choice, Plan) else str(choice)
        label = plain if plain not in found else f"{plain} ({len(found) + 1})"
        found[label] = choice
    return found


@dataclass(frozen=True, eq=False)
class Damage(Pass):
    """A run of `substitute`: layer, head, name, value and standard error of every number.

    With ``errors``, the errors of the heads are also measured at their inputs in the model itself.
    """

    errors: bool

    def run(self, passage: Passage) -> list[tuple[int, int, str, float, float]]:
        """Return all numbers of the run."""
        start = time.perf_counter()
        own = passage.own_errors(self.heads) if self.errors else {}
        done = passage.replace(self.heads, errors=self.errors)
        seconds = time.perf_counter() - start
        kl, same = Estimated.from_positions(done.kl), Estimated.from_positions(done.same_top)
        whole: dict[str, tuple[float, float]] = {"kl": kl, "same_top_1": same}
        for name, surprisal in (
            ("perplexity", done.surprisal),
            ("exact_perplexity", passage.surprisal),
        ):
            value, stderr = perplexity(surprisal), Estimated.from_positions(surprisal).stderr
            whole[name] = value, value * stderr  # to first order
        methods = self.heads.values()
        for name, value in (
            ("heads", len(methods)),
            ("oracle_heads", sum(ORACLE in method.tags for method in methods)),
            ("future_heads", sum(AUTOREGRESSIVE not in method.tags for method in methods)),
            ("reads_share", reads_share(passage, self.heads)),
            ("seconds", seconds),
        ):
            whole[name] = value, math.nan
        rows = [(-1, -1, name, *number) for name, number in whole.items()]
        rows += [
            (layer, -1, "residual_relative_error", float(error), math.nan)
            for layer, error in enumerate(done.residual[1:])
        ]
        return rows + [
            (*where, f"{prefix}_{name}", error, math.nan)
            for prefix, errors in (("own", own), ("drifted", done.errors))
            for where, named in errors.items()
            for name, error in named.items()
        ]
