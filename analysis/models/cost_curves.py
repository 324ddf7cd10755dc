"""What each head of a language model could be computed by, at which price, with which damage."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.compute import executors
from analysis.costs import candidates
from analysis.inputs import Heads
from analysis.models.replacement import Passage
from analysis.models.sensitivity import SAMPLES, Gradients, fisher, gradients, moved
from approx import Mask, Method, checks, parse
from approx.checks import Array
from approx.estimate import exact
from approx.method.prices import CURRENCIES, Shape

METHODS = (  # what decoding can run; each at the sizes that shares of the budget buy
    "sink_window()",
    "sink_window(sinks=4)",
    "columns(by='h2o', recent=4)",
    "columns(by='h2o', recent=8)",
    "columns(by='h2o', recent=16)",
    "hierarchical(basis='mean', sinks=1)",
    "hierarchical(basis='pivots', sinks=1)",
    "projected_top_k(by='channels', r=2)",
    "projected_top_k(by='channels', r=4)",
    "projected_top_k(by='channels', r=8)",
    "projected_top_k(by='channels', r=16)",
)
SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 3 / 2, 2, 3, 4, 6, 8)  # of the budget
EXACT = "exact()"


def curves(
    passages: Sequence[Passage],
    budget: float,
    *,
    currency: str = "reads",
    methods: Sequence[Method] | None = None,
    samples: int = SAMPLES,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the choices that each head has: prices and predicted damages.

    Parameters
    ----------
    passages : sequence of Passage
        Texts that one model reads; the damage is the mean over them.
    budget : float
        What a query row of a head may cost on average.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
    methods : sequence of Method, optional
        Templates are filled to several shares of the budget, from 1/16 to 8; what has its size
        stays as it is. The default is `METHODS` and, by bytes, keys and values in few bits. Exact
        attention is always a choice.
    samples : int
        Backward passes per passage.
    progress : bool

    Returns
    -------
    DataFrame
        One row per head and choice: ``layer``, ``head``, ``method``, ``price`` in the currency and
        ``damage``, the ``fisher`` of `analysis.models.sensitivity.singles`: an estimate of KL(model
        ‖ replaced) with this head alone replaced, to second order in its error. It is 0 of exact
        attention.

    Raises
    ------
    ValueError
        There is no passage, they have different models or lengths, a method reads the future or
        all logits, or its price is not known.

    Notes
    -----
    Cost: one backward pass per sample, and each choice of each head once; no further pass through
    the model.
    """
    if not passages or len({id(passage.model) for passage in passages}) > 1:
        raise ValueError("curves need one model and at least one passage of it")
    if len(lengths := {len(passage.ids) for passage in passages}) > 1:
        raise ValueError(
            f"the passages must have one length, from which prices follow, got {sorted(lengths)}"
        )
    width = min(shape.d for shape in passages[0].shapes)
    asked = choices(budget, currency, methods, width=width)
    drawn = [gradients(passage, samples) for passage in passages]
    layers = range(passages[0].model.layers)
    bar = tqdm(layers, disable=not progress, desc="curves", leave=False)
    return pd.concat([of_layer(passages, drawn, layer, asked) for layer in bar], ignore_index=True)


class Choices(NamedTuple):
    """What the heads may have: templates and methods, the average price, and what it is counted in.

    `choices` makes it.
    """

    budget: float
    currency: str
    methods: tuple[Method, ...]


def choices(
    budget: float,
    currency: str = "reads",
    methods: Sequence[Method] | None = None,
    *,
    width: float = math.inf,
) -> Choices:
    """Return what heads of a width may have, checked, by default those of `METHODS` that can.

    Raises
    ------
    ValueError
        The budget is not positive, the currency is unknown, or no model can run a method.
    """
    checks.positive("budget", budget)
    checks.one_of("currency", currency, CURRENCIES)
    usual = [*map(parse, METHODS), *candidates.in_few_bits(currency)]
    chosen = usual if methods is None else list(methods)
    if methods is None:  # r channels of a key need so many
        chosen = [method for method in chosen if (getattr(method, "r", None) or 0) <= width]
    for method in chosen:
        checks.instance("every method", method, Method, "a method")
        if why := method.obstacle(Mask.causal(2, 2)):
            raise ValueError(f"no model can run {method}: {why}; leave it out")
    return Choices(float(budget), currency, tuple(chosen))


def of_layer(
    passages: Sequence[Passage],
    drawn: Sequence[Gradients],
    layer: int,
    asked: Choices,
    heads: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Return the curves of the heads of one layer, or of some of them, as `curves` does.

    Parameters
    ----------
    passages, drawn
        The texts, and the `gradients` of each.
    layer : int
    asked : Choices
    heads : sequence of int, optional
    """
    parts = []
    for passage, mine in zip(passages, drawn):
        sized = _sized(asked, passage.shapes[layer])
        x = passage.inputs(layer)
        some = range(passage.model.heads) if heads is None else heads
        work = _Work(passage, x, sized, [sample[layer] for sample in mine])
        for rows in executors.threads(functools.partial(_of_head, work, layer), some, passage.jobs):
            parts += rows
    found = pd.DataFrame(parts, columns=["layer", "head", "method", "price", "damage"])
    keys = ["layer", "head", "method"]
    return found.groupby(keys, sort=False, as_index=False).agg({"price": "mean", "damage": "mean"})


class _Work(NamedTuple):
    """What the heads of a layer share."""

    passage: Passage
    x: Heads
    sized: dict[str, tuple[Method, float]]
    gradients: list[Array]


def _of_head(work: _Work, layer: int, head: int) -> list[tuple[int, int, str, float, float]]:
    """Return the curve of a head: layer, head, spec, price and damage of each choice."""
    passage = work.passage
    one = work.x.at(layer, head)
    mine = np.array([g[head] for g in work.gradients], np.float64)
    assert one.V is not None
    exactly = exact.attention(one.Q, one.K, one.V, mask=one.mask)
    draws = passage.draws(layer, head)
    unused = np.random.default_rng(draws)  # by what draws nothing
    rows = []
    for spec, (method, price) in work.sized.items():
        damage = 0.0
        if spec != EXACT:
            estimate = one.approximate(method, rng=draws if method.uses_rng else unused)
            damage = fisher(moved(one, estimate, exactly), mine) / len(passage.positions)
        rows.append((layer, head, spec, price, damage))
    return rows


@functools.lru_cache(maxsize=8)  # the layers of a model have one shape or two
def _sized(asked: Choices, shape: Shape) -> dict[str, tuple[Method, float]]:
    """Return {spec: (method, price)} of all sizes, and of exact attention."""
    budget, currency, methods = asked
    found: dict[str, tuple[Method, float]] = {}
    for method in [*methods, parse(EXACT)]:
        for share in SHARES:
            filled = method
            if method.is_template:
                within = method.within(share * budget, currency=currency, **shape.given)
                if within is None:
                    continue
                filled = within
            price = filled.price(**shape.given)
            cost = None if price is None else getattr(price, currency)
            if cost is None:
                raise ValueError(f"{filled} has no price in {currency}: leave it out")
            found[str(filled)] = filled, float(cost)
    return found
