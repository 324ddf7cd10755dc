"""The effect of cheaper attention on a language model: some heads by methods, the rest exact.

`substitute` runs a local model once for each of several methods or plans. It returns one table with
the KL of the next token, the perplexity, the bytes that are read and held, and the errors of heads
and layers. To keep a model loaded between calls, use `analysis.models.replacement`.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.costs.budget import KEYS, amount_text, price_of_keys
from analysis.costs.candidates import rivals
from analysis.models import checkpoints
from analysis.models.checkpoints import Place
from analysis.models.cost_curves import METHODS
from analysis.models.forecast import Forecast
from analysis.models.head_caches import EXACT, after_prompt, footprint, in_groups
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
from approx.checks import Array
from approx.method.prices import BITS, Shape
from approx.method.tags import AUTOREGRESSIVE, ORACLE

MORE = "columns(by='tova')", "pages(size=8, current=True)"  # by default, beside those of `plan`
AFTER_PROMPT = "columns(by='snapkv', recent=8, window=16)", "columns(by='key_norm', recent=8)"
ESTIMATES = "kl", "same_top_1", "perplexity"  # with standard errors


def substitute(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str],
    choices: Method | Plan | Sequence[Method | Plan] | Mapping[str, Method | Plan] | None = None,
    *,
    heads: Sequence[HeadIndex] | None = None,
    layers: Sequence[int] | None = None,
    budget: float | None = None,
    currency: str = "bytes_read",
    max_tokens: int = 512,
    skip: int | None = None,
    setting: str = "rows",
    prompt_tokens: int | None = None,
    errors: bool = False,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    jobs: int | None = None,
    scheduler: Any = None,
    progress: bool = False,
    announce: Callable[[float], None] | None = None,
    finished: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the damage to a local language model whose heads are computed by methods.

    Parameters
    ----------
    model_dir : path
        A folder in the format of Hugging Face, or a GGUF file, see `LanguageModel.open`.
    text : path
        A UTF-8 file; its first tokens are read.
    choices : Method or Plan, or a sequence of them, or a mapping from their labels; optional
        One run for each. A method computes all ``heads``, a plan its own heads. The label of a
        template that the budget fills is the filled spec. By default `usual`: methods that
        decoding can run, beside keys and values in few bits and exact ones.
    heads, layers : sequence of (layer, head), sequence of int; optional
        The heads that methods compute, or the layers in which methods compute all heads; not both.
    budget : float, optional
        The largest cost, in bytes and numbers read that of a group of heads which share keys;
        templates are filled to it. By default the cost of 32 exact keys.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
    max_tokens : int
        The text is cut to ``max_tokens`` tokens.
    skip, setting, prompt_tokens
        As for `Passage`: which positions count, and whether the prompt is read exactly.
    errors : bool
        Whether to measure the errors of heads, which takes longer than everything else.
    dtype : {"float32", "float64"}
        The dtype of the model and of the estimates.
    device : str
        As for `LanguageModel.open`; methods compute on the CPU.
    seed, jobs
        As for `Passage`.
    scheduler : str or distributed.Client, optional
        A Dask cluster whose tasks are the runs, see `analysis.sweeps.sweep.sweep`.
    progress : bool
        Whether to show a bar of layers on stderr.
    announce : callable, optional
        Called with the expected seconds, if they are many; see `Forecast`. Not with a scheduler.
    finished : path, optional
        A folder that keeps the numbers of each run, so that a stopped call can resume.

    Returns
    -------
    DataFrame
        One row per number, in the columns of `analysis.sweeps.table`; `by_run` has one row per
        run.

        - Of the whole model (layer and head are −1): ``kl``, ``kl_median``, ``kl_99``, the 99 %
          quantile, and ``kl_largest``; ``same_top_1``; ``perplexity``, ``exact_perplexity``, and
          ``surprisal_correlation``, between both models over positions; ``first_position`` that
          counts, and ``prompt_tokens``, 0 in the setting ``rows``; ``heads``, the number of
          replaced heads; ``oracle_heads``, those by methods that need all logits;
          ``future_heads``, those by methods that read later tokens; ``seconds``
        - Of a group of heads that share keys, as a mean over all groups of the model, after the
          last token: ``bytes_read`` for a new query, and ``bytes`` held; ``exact_bytes_read``;
          ``bytes_read_share`` of it. Of all groups together: ``bytes_4096`` and so on, held after
          so many tokens (with a prompt of the same share); ``exact_bytes_4096`` and so on;
          ``bytes_of_keys``, which 32 exact keys read
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
    one, default = isinstance(choices, Method | Plan), choices is None
    choices = [] if choices is None else choices
    named = choices if isinstance(choices, Mapping) else _named([choices] if one else choices)  # type: ignore[list-item, arg-type]
    for choice in named.values():
        checks.instance("every choice", choice, (Method, Plan), "a method or a plan")  # type: ignore[arg-type]
    if heads is not None and layers is not None:
        raise ValueError("layers follow from heads: leave them out")
    [words] = checkpoints.texts(model_dir, text)
    check_weights([x for x in named.values() if isinstance(x, Plan)], [Place.from_path(model_dir)])
    model = LanguageModel.open(model_dir, dtype=dtype, device=device)
    if layers is not None:
        heads = [(layer, head) for layer in layers for head in range(model.heads)]
    ids = model.tokens_of(words, max_tokens)
    passage = Passage(
        model, ids, skip=skip, setting=setting, prompt_tokens=prompt_tokens, seed=seed, jobs=jobs
    )
    runs = {}
    templates = any(isinstance(x, Method) and x.is_template for x in named.values())
    if budget is None and (default or templates):
        budget = price_of_keys(KEYS, passage.inputs(0).at(0, 0), currency)
    if default:
        assert budget is not None
        named = _named(usual(passage, budget, currency))
    for label, choice in named.items():
        if isinstance(choice, Plan):
            runs[label] = heads_of_plan(passage, choice)
            continue
        sized = choice if budget is None else fill_to_budget(passage, choice, budget, currency)
        runs[str(sized) if choice.is_template else label] = passage.everywhere(sized, heads)
    found = measure(
        passage, runs, errors=errors, progress=progress, announce=announce, scheduler=scheduler,
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


def usual(passage: Passage, budget: float, currency: str = "bytes_read") -> list[Method]:
    """Return rivals at their own price, and methods that decoding can run, filled to a budget.

    Those that fit at no size are left out.
    """
    more = AFTER_PROMPT if passage.prompt else ()
    every = (*rivals(), *(parse(spec) for spec in (*METHODS, *MORE, *more)))
    given = {"currency": currency, **passage.shapes[0].given}
    sized = (one.within(budget, **given) if one.is_template else one for one in every)
    return list(dict.fromkeys(one for one in sized if one is not None))


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
    errors: bool = False,
    progress: bool = False,
    announce: Callable[[float], None] | None = None,
    scheduler: Any = None,
    done: Store | None = None,
) -> pd.DataFrame:
    """Return the table of `substitute` for an existing passage, with one run per label."""
    passes = [Damage(passage.digest, heads, errors) for heads in runs.values()]
    if scheduler is not None:
        found = outcomes(passes, passage, scheduler=scheduler, store=done, progress=progress)
    else:
        layers = sum(
            (1 + errors) * passage.model.layers
            for key in {one.key for one in passes}
            if done is None or not done.done(key)
        )
        forecast = Forecast(layers, announce)
        with tqdm(total=layers, unit=" layers", disable=not progress, leave=False) as bar:

            def step() -> None:
                bar.update()
                forecast.add(1)

            with passage.watched(step):
                found = outcomes(passes, passage, store=done)
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
        ``method``; every number of the whole model and of groups under its name; ``kl_stderr``,
        ``same_top_1_stderr`` and ``perplexity_stderr``; the mean errors of the replaced heads; and
        ``residual_relative_error`` after the last layer.
    """
    rows: list[dict[Any, Any]] = []
    for label, part in found.groupby("method", sort=False):
        whole = part[part.layer < 0].set_index("metric")
        row: dict[Any, Any] = {"method": label} | dict(whole.value.items())
        for name in ESTIMATES:
            row[f"{name}_stderr"] = whole.stderr[name]
        row |= dict(part[part["head"] >= 0].groupby("metric").value.mean().items())
        behind = part[part.metric == "residual_relative_error"]
        row["residual_relative_error"] = behind.value.iloc[behind.layer.argmax()]
        rows.append(row)
    return pd.DataFrame(rows)


def costs(passage: Passage, heads: Replacements) -> dict[str, float]:
    """Return the bytes of `substitute` that are read and held, with some heads replaced.

    They are NaN if the price of a method is not known.
    """
    count, whole = passage.model.heads, passage.model.layers * passage.model.heads
    found: dict[str, float] = {}
    for prefix, replaced in (("", heads), ("exact_", {})):
        groups: list[tuple[Method, Shape]] = []
        for layer, shape in enumerate(passage.shapes):
            groups += in_groups([replaced.get((layer, i), EXACT) for i in range(count)], shape)
        found |= {prefix + name: x for name, x in footprint(groups, passage.prompt).items()}
        for name in ("bytes_read", "bytes"):
            found[prefix + name] *= shape.group / whole
    found["bytes_read_share"] = found["bytes_read"] / found["exact_bytes_read"]
    return found | {"bytes_of_keys": BITS // 8 * KEYS * (shape.d + shape.c)}


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
        methods = [after_prompt(method, passage.prompt) for method in self.heads.values()]
        numbers = {
            "kl_median": _quantile(done.kl, 0.5),
            "kl_99": _quantile(done.kl, 0.99),
            "kl_largest": float(done.kl.max()),
            "surprisal_correlation": _correlation(passage.surprisal, done.surprisal),
            "first_position": passage.skip,
            "prompt_tokens": passage.prompt,
            "heads": len(methods),
            "oracle_heads": sum(ORACLE in method.tags for method in methods),
            "future_heads": sum(AUTOREGRESSIVE not in method.tags for method in methods),
            **costs(passage, self.heads),
            "seconds": seconds,
        }
        whole |= {name: (float(value), math.nan) for name, value in numbers.items()}
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


def _quantile(x: Array, share: float) -> float:
    with np.errstate(invalid="ignore"):  # of two infinite numbers
        found = float(np.quantile(x, share))
    return math.inf if math.isnan(found) else found


def _correlation(x: Array, y: Array) -> float:
    if not (len(x) > 1 and np.isfinite(x).all() and np.isfinite(y).all() and x.std() and y.std()):
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])
