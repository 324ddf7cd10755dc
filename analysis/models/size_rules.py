"""Sizes of one method for all groups of heads of a model, by a rule: PyramidKV's and AdaKV's."""

import math
import os
from typing import Any

import numpy as np
import pandas as pd

from analysis.costs.budget import cost
from analysis.models import checkpoints
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.planner import Measurement, held_by, provenance
from analysis.models.replacement import SKIP, Passage
from approx import Mask, Method, checks, parse
from approx.checks import Array
from approx.method.evaluation import obstacle
from approx.method.filling import resized
from approx.method.prices import CURRENCIES
from approx.sparse.columns import Columns
from approx.sparse.eviction_scores import SnapKV

BETA = 20  # of PyramidKV: the last layer gets a share 1/β of the mean size
FLOOR = 0.2  # of AdaKV: the share of the mean size that each group gets whatever its attention
RULES = ("uniform", "pyramid", "ada")


def pyramid(layers: int, mean: float, most: float) -> Array:
    """Return the size of each layer by PyramidKV [1]_: it falls linearly, with the given mean.

    The last layer has mean/`BETA` and the first 2·mean minus that, but at most ``most`` ≥ mean; the
    last then has 2·mean − most. Sizes exclude keys that each layer keeps anyway.

    References
    ----------
    .. [1] Z. Cai et al., arXiv:2406.02069; Zefan-Cai/KVCache-Factory, ``pyramidkv_utils.py`` at
       c97f9d7, which rounds the step between layers down.

    Examples
    --------
    >>> pyramid(3, 20.0, 100.0), pyramid(3, 20.0, 30.0)
    (array([39., 20.,  1.]), array([30., 20., 10.]))
    """
    first = min(2 * mean - mean / BETA, most)
    return np.linspace(first, 2 * mean - first, layers)


def adaptive(scores: Array, mean: float) -> Array:
    """Return the size of each group of a layer by AdaKV [1]_: one threshold for all their scores.

    The groups·mean largest scores (groups, keys) of the layer are counted for each group, which
    gets (1 − `FLOOR`)·count + `FLOOR`·mean. The authors' option ``normalize`` is off.

    References
    ----------
    .. [1] Y. Feng et al., arXiv:2407.11550; FFY0/AdaKV, ``snapkv_utils.py`` at efe4e2e.

    Examples
    --------
    The four largest scores are three of the first group and one of the second:

    >>> adaptive(np.array([[0.4, 0.3, 0.3], [0.9, 0.1, 0.0]]), 2.0)
    array([2.8, 1.2])
    """
    best = np.argsort(-scores, axis=None, kind="stable")[: round(scores.shape[0] * mean)]
    counts = np.bincount(best // scores.shape[1], minlength=len(scores))
    return np.asarray((1 - FLOOR) * counts + FLOOR * mean)


def attention(passage: Passage, layer: int, template: Columns) -> Array:
    """Return the attention that keys get by SnapKV's score, a mean over each group, (groups, l).

    Keys that the template always keeps get 0. The window and the pooling are the template's,
    whatever its own score.
    """
    score = SnapKV(template.window, template.kernel_size, template.pooling)
    heads = list(passage.inputs(layer).heads())
    l, group = heads[0].l, heads[0].group
    free = np.zeros(l, bool)
    free[template.sinks : l - template.recent] = True
    none = np.zeros(heads[0].n, np.intp)
    found = [np.where(free, score.scores(x.Q, x.K, x.mask, (none, none), free), 0.0) for x in heads]
    return np.asarray(np.mean(np.reshape(found, (-1, group, l)), axis=1))


def sized_plan(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str],
    *,
    rule: str,
    method: Method,
    budget: float,
    currency: str = "bytes_read",
    held_out: str | os.PathLike[str] | None = None,
    max_tokens: int = 512,
    seed: int = 0,
    jobs: int | None = None,
) -> Plan:
    """Return a plan in which every head has one method, with sizes by a rule within a budget.

    Parameters
    ----------
    model_dir, text : path
        The model, and the text whose length, and for "ada" whose attention, decides the sizes.
    rule : {"uniform", "pyramid", "ada"}
        One size for all; `pyramid` over layers; `adaptive` over the groups of each layer.
    method : Method
        A template whose size counts keys; for "ada" one of `columns`.
    budget, currency
        The largest mean price of a group of heads. The total of the sizes is the largest within it.
    held_out : path, optional
        The text on which the plan is measured; by default ``text``.
    max_tokens, seed, jobs
        As for `analysis.models.planner.plan`, whose facts the plan has, but for predictions and a
        frontier; ``sizes`` is the rule.

    Raises
    ------
    ImportError, ValueError
        The model or the method cannot be used, or the smallest sizes cost more than the budget.
    """
    checks.one_of("rule", rule, RULES)
    checks.one_of("currency", currency, CURRENCIES)
    checks.positive("budget", budget)
    size = method.sized_by
    if size is None or size.counts != "entries" or not method.is_template:
        raise ValueError(f"sizes by a rule need a template whose size counts keys, got {method}")
    if rule == "ada" and not isinstance(method, Columns):
        raise ValueError(f"ada is a rule for columns (h2o, tova, …), got {method}")
    if why := obstacle(method, Mask.causal(2, 2)):
        raise ValueError(f"no model can run {method}: {why}")
    every = checkpoints.texts(model_dir, text, held_out)
    model = LanguageModel.open(model_dir)
    passages = [
        Passage(model, model.tokens_of(words, max_tokens), skip=SKIP, seed=seed, jobs=jobs)
        for words in every
    ]
    passage, at, least = passages[0], passages[-1], size.least
    shapes, layers, group = passage.shapes, model.layers, passage.shapes[0].group
    groups, most = model.heads // group, min(shape.most for shape in shapes) - least
    seen: list[Array] = []
    if rule == "ada" and isinstance(method, Columns):
        seen = [attention(passage, layer, method) for layer in range(layers)]

    def sizes(total: int) -> Array:
        """Return the size of each group, (layers, groups), for a total beside the least ones."""
        mean = total / (layers * groups)
        if rule == "uniform":
            return np.full((layers, groups), least + math.floor(mean))
        real = np.tile(pyramid(layers, mean, most)[:, None], groups)
        if rule == "ada":
            real = np.array([adaptive(scores, mean) for scores in seen])
        return least + whole_sizes(real.clip(0, most))

    def price(found: Array) -> float:
        each = [(shape, k) for shape, row in zip(shapes, found.tolist()) for k in row]
        return float(np.mean([cost(resized(method, k), x, currency) for x, k in each]))

    low, high = 0, most * layers * groups
    if (cheapest := price(sizes(low))) > budget:
        raise ValueError(f"the smallest sizes cost {cheapest:g} a group: raise the budget")
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if price(sizes(middle)) <= budget else (low, middle - 1)
    chosen = sizes(low)
    heads = {
        (i, j): resized(method, int(chosen[i, j // group]))
        for i in range(layers)
        for j in range(model.heads)
    }
    done = Measurement(at.digest, heads).run(at)
    firsts = [(i, j, str(heads[i, j])) for i, j in heads if j % group == 0]
    facts: dict[str, Any] = {
        "sizes": rule,
        "budget": float(budget),
        "currency": currency,
        "price": price(chosen),
        "exact_price": cost(parse("exact()"), shapes[0], currency),
        "group": group,
        **provenance(model_dir, [text], held_out, len(at.ids)),
        **held_by(pd.DataFrame(firsts, columns=["layer", "head", "method"]), shapes),
        "exact_perplexity": done["exact_perplexity"],
        **done["numbers"],
    }
    return Plan(model.name, heads, facts)


def whole_sizes(sizes: Array) -> Array:
    """Return integers with the rounded sum of real sizes, by the largest remainders.

    Examples
    --------
    >>> whole_sizes(np.array([[1.5, 2.25], [0.25, 3.0]]))
    array([[2, 2],
           [0, 3]])
    """
    whole = np.floor(sizes).astype(int)
    more = round(float(sizes.sum())) - int(whole.sum())
    whole.ravel()[np.argsort(whole - sizes, axis=None, kind="stable")[:more]] += 1
    return whole
