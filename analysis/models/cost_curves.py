"""The choices of each group of heads of a model: methods, their prices, and predicted damages.

A group are the heads of a layer that share keys and values. Its heads use one method, so that what
they share is read once.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.costs import candidates
from analysis.costs.allocation import allocate, hull
from analysis.inputs import Head
from analysis.models.forecast import Forecast
from analysis.models.replacement import Passage, Replacements
from analysis.models.sensitivity import SAMPLES, fisher, gradients, moved
from analysis.runs import engines, tasks
from analysis.runs.store import Store
from analysis.runs.threads import in_threads
from approx import Mask, Method, checks, parse
from approx.checks import Array
from approx.estimate import exact
from approx.method.evaluation import obstacle
from approx.method.prices import CURRENCIES, Shape, price_at

METHODS = (  # methods that decoding can run, each at the sizes that shares of the budget buy
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
# shares of the budget
SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 3 / 2, 2, 3, 4, 6, 8)
FIRST = SHARES[2::2]  # measured on every group; they contain the shares of the plans' frontier
NEAR = (1 / 2, 1, 2)  # those where only a plan at the budget is asked for
MOST = 4.0  # times the budget: dearer choices than this helped no group of SmolLM2 at a budget
LEAST_DAMAGE = 0.7  # the least damage of a size, as a share of that of the next larger size
EXACT = "exact()"
HERE = 2e10  # entries of the matrices of all choices; fewer are computed in this process
PASS = 4.0  # a pass takes as long as so many evaluations of a method on every head
COLUMNS = ["layer", "head", "heads", "method", "price", "damage"]


def curves(
    passages: Sequence[Passage],
    budget: float,
    *,
    currency: str = "bytes_read",
    methods: Sequence[Method] | None = None,
    most: float = math.inf,
    since: float | None = None,
    start: Replacements | None = None,
    samples: int = SAMPLES,
    screen: bool = False,
    scheduler: Any = None,
    done: Store | None = None,
    progress: bool = False,
    announce: Callable[[float], None] | None = None,
    looks: int = 1,
    passes: int = 0,
) -> pd.DataFrame:
    """Return the prices and predicted damages of all choices of each group of heads.

    Parameters
    ----------
    passages : sequence of Passage
        Texts for one model; the damage is the mean over them.
    budget : float
        The average price per query of a group; in ``stored`` and ``multiply_adds``, of a head.
    currency : {"bytes_read", "reads", "bytes", "stored", "multiply_adds"}
    methods : sequence of Method, optional
        Templates are filled to several shares of the budget, from 1/16 to 8. The default is
        `METHODS` and, in bytes, keys and values in few bits. Exact attention is always a choice.
    most : float
        Choices that cost more than this times the budget are left out, except those of
        `analysis.costs.candidates.rivals`: `MOST` where only a plan at the budget is asked for.
    since : float, optional
        The budget of earlier curves. Their sizes are used again; sizes for ``budget`` are added
        outside their range of prices only.
    start : mapping of (layer, head) to Method, optional
        An earlier plan: a group may also have any method that one of its heads has there.
    samples : int
        Backward passes per passage.
    screen : bool
        Whether to leave out sizes that cannot help a group, see Notes; for a single passage only.
    scheduler : str or distributed.Client, optional
        A Dask cluster, on which each group is a task; by default processes of this machine.
    done : Store, optional
        A choice that it holds is not computed again.
    progress : bool
    announce, looks, passes
        Gets the expected seconds of so many curves as these and so many passes that follow them,
        see `analysis.models.forecast.Forecast`.

    Returns
    -------
    DataFrame
        One row per group and choice: ``layer``; ``head``, its first; ``heads``, their number;
        ``method``; ``price`` of the group in the currency; and ``damage``, the sum over its heads
        of that of `analysis.models.sensitivity.fisher`: an estimate of KL(model ‖ replaced) with
        only this head replaced, to second order in its error. It is 0 for exact attention.

    Raises
    ------
    ValueError
        There is no passage, the passages have different models or lengths, a method reads later
        tokens or all logits, or its price is not known.

    Notes
    -----
    With ``screen``, sizes for 1/4, 1/2, 1, 2, 4 and 8 times the budget are always measured. Another
    size is left out if 0.7 of the damage of the next larger one is on or above the lower convex
    hull of the measured points: `analysis.costs.allocation.allocate` can use it only if its damage
    is 30 % below that of the larger size. On the 270 heads of SmolLM2-135M, on two texts and at two
    budgets, 1 of 6240 points of the hulls was lost, and a quarter of all sizes was left out.
    With ``most``, too, all groups are first measured at 1/2, 1 and 2 times the budget. They give
    the Lagrange multiplier λ; another size is left out if 0.7 of the damage of the next larger one
    plus λ times its price is above the group's least damage + λ·price. A method of fixed size that
    is no rival is left out if λ times its price alone is above that. On the 90 groups of
    SmolLM2-135M two thirds of all sizes were left out, without a loss in the plan's prediction.

    Cost: one backward pass per sample, and one evaluation per choice and head; no other pass
    through the model.
    """
    if not passages or len({id(passage.model) for passage in passages}) > 1:
        raise ValueError("curves need one model and at least one passage of it")
    if len(lengths := {len(passage.ids) for passage in passages}) > 1:
        raise ValueError(
            f"the passages must have one length, from which prices follow, got {sorted(lengths)}"
        )
    model, shapes = passages[0].model, passages[0].shapes
    store, before = done or Store(None), start or {}
    width = min(shape.d for shape in shapes)
    checks.positive("budget", budget)
    checks.one_of("currency", currency, CURRENCIES)
    asked = Choices(budget, currency, runnable_methods(methods, currency, width), most, since)
    screened = screen and len(passages) == 1  # a size may help only on the mean
    distinct = list(dict.fromkeys(shapes))
    sized = [_sized(asked, shape, screened) for shape in distinct]
    places = [distinct.index(shape) for shape in shapes]
    drawn = functools.cache(lambda text: gradients(passages[text], samples))
    every = [
        (layer, text, first)
        for layer, text in itertools.product(range(model.layers), range(len(passages)))
        for first in range(0, model.heads, shapes[layer].group)
    ]
    found: dict[tuple[int, int, int], dict[str, float]] = {}
    at_budget = screened and math.isfinite(most)
    counts = [sum(x.first for x in one.values()) * 1.5 if at_budget else len(one) for one in sized]
    whole = sum(counts[places[layer]] * shapes[layer].group for layer, _, _ in every)
    replaced = passes * PASS * model.layers * model.heads
    forecast = Forecast(looks * whole + replaced, announce)
    # a process of its own needs some seconds, to import and to load kernels
    short = scheduler is None and whole * len(passages[0].ids) ** 2 < HERE
    jobs = min(passages[0].jobs, len(every))

    def own(layer: int, first: int) -> dict[str, Method]:
        heads = range(first, first + shapes[layer].group)
        return {str(before[at]): before[at] for at in ((layer, head) for head in heads)
                if at in before}  # fmt: skip

    def left(multiplier: float | None) -> Iterator[Curve]:
        inputs = functools.lru_cache(maxsize=1)(lambda layer, text: passages[text].inputs(layer))
        for layer, text, first in every:
            place, passage, group = places[layer], passages[text], shapes[layer].group
            heads = range(first, first + group)
            key = tasks.key(passage.digest, layer, first, samples, *([group] if group > 1 else []))
            known = found[layer, text, first] = store.get(key) or {}
            if wanted(sized[place], own(layer, first), known, multiplier) <= {*known}:
                bar.update()
                continue
            yield Curve(
                place=place, name=key, where=(layer, text, first),
                group=[inputs(layer, text).at(layer, head) for head in heads],
                gradients=[
                    np.array([sample[layer][head] for sample in drawn(text)], np.float64)
                    for head in heads
                ],
                draws=[passage.draws(layer, head) for head in heads],
                positions=len(passage.positions), own=own(layer, first), known=known,
                multiplier=multiplier, threads=jobs if short else 1,
            )  # fmt: skip

    def table(multiplier: float | None) -> pd.DataFrame:
        """Return the mean over texts of what is wanted; measure what is not known."""
        for task, damages in engines.stream(
            left(multiplier), sized, jobs=1 if short else jobs, scheduler=scheduler
        ):
            found[task.where] = damages
            store.put(task.key, damages)
            bar.update()
            forecast.add((len(damages) - len(task.known)) * len(task.group))
        rows = []
        for layer, text, first in every:
            damages, shape, one = found[layer, text, first], shapes[layer], sized[places[layer]]
            prices = {spec: option.price for spec, option in one.items()}
            prices |= {x: _priced(method, asked, shape) for x, method in own(layer, first).items()}
            some = wanted(one, own(layer, first), damages, multiplier)
            rows += [
                (layer, first, shape.group, x, price, damages[x])
                for x, price in prices.items()
                if x in some
            ]
        means = pd.DataFrame(rows, columns=COLUMNS).groupby(COLUMNS[:4], sort=False, as_index=False)
        return means.agg({"price": "mean", "damage": "mean"})

    total = len(every) * (1 + at_budget)
    with tqdm(total=total, disable=not progress, desc="curves", leave=False) as bar:
        if at_budget:  # the first sizes decide what one unit of price is worth at this budget
            return table(allocate(table(math.inf), budget).multiplier)
        return table(None)


class Choices(NamedTuple):
    """The arguments of `curves` that decide which sizes heads may choose."""

    budget: float
    currency: str
    methods: tuple[Method, ...]
    most: float = math.inf
    since: float | None = None

    def amounts(self) -> list[float]:
        """Return the prices to which templates are filled.

        Examples
        --------
        >>> Choices(64.0, "reads", (), since=32.0).amounts()[-3:]
        [256.0, 384.0, 512.0]
        """
        mine = [share * self.budget for share in SHARES]
        before = mine if self.since is None else [share * self.since for share in SHARES]
        return before + [x for x in mine if not before[0] <= x <= before[-1]]

    def first(self) -> set[float]:
        """Return the prices whose sizes are measured on every group."""
        first = NEAR if math.isfinite(self.most) else FIRST
        mine = {share * self.budget for share in first}
        return mine if self.since is None else mine | {share * self.since for share in first}


def runnable_methods(
    methods: Sequence[Method] | None, currency: str, width: float = math.inf
) -> tuple[Method, ...]:
    """Return the methods, by default those of `METHODS` that heads of a width can have.

    Raises
    ------
    ValueError
        No model can run a method.
    """
    usual = [*map(parse, METHODS), *candidates.in_few_bits(currency)]
    if len(usual) > len(METHODS):  # few bits cost less where bytes are counted
        usual += candidates.rivals()
    chosen = list(dict.fromkeys(usual)) if methods is None else list(methods)
    if methods is None:  # choosing r channels needs keys of that width
        chosen = [method for method in chosen if (getattr(method, "r", None) or 0) <= width]
    for method in chosen:
        checks.instance("every method", method, Method, "a method")
        if why := obstacle(method, Mask.causal(2, 2)):
            raise ValueError(f"no model can run {method}: {why}; leave it out")
    return tuple(chosen)


class Option(NamedTuple):
    """A method, its price, its template, and whether it is measured on every group."""

    method: Method
    price: float
    template: str
    first: bool


Sized = dict[str, Option]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Curve(tasks.Task):
    """The damages of the choices of a group of heads on a text; a shape's groups share options.

    Attributes
    ----------
    name : str
        The key, which no choice decides: a store adds new choices to the old ones.
    where : (layer, text, head)
        The first head of the group.
    group : list of Head
    gradients : list of (samples, n, c)
    draws : list of SeedSequence
        The seeds of random methods, head by head.
    positions : int
        The number of positions that count.
    own : mapping of a spec to a method
        Further choices of this group.
    known : mapping of a spec to a damage
    multiplier : float or None
        See `wanted`.
    threads : int
        Threads that share the methods of each head.
    """

    place: int
    name: str
    where: tuple[int, int, int]
    group: Sequence[Head]
    gradients: Sequence[Array]
    draws: Sequence[np.random.SeedSequence]
    positions: int
    own: Mapping[str, Method]
    known: Mapping[str, float]
    multiplier: float | None = None
    threads: int = 1

    @property
    def key(self) -> str:
        return self.name

    def run(self, sized: Sized) -> dict[str, float]:
        """Return the damage of each choice by its spec, known ones included."""
        methods = {spec: option.method for spec, option in sized.items()} | dict(self.own)
        found = {**self.known}
        for _ in range(2):  # the first sizes decide which others may help
            some = wanted(sized, self.own, found, self.multiplier)
            left = {x: method for x, method in methods.items() if x in some - {*found}}
            if not left:
                break
            # a group may have fewer heads than there are threads: they share methods
            shares = [dict([*left.items()][i :: self.threads]) for i in range(self.threads)]
            parts = [*itertools.product(range(len(self.group)), filter(None, shares))]
            every = in_threads(lambda part: self._damages(*part), parts, self.threads)
            found |= {x: float(sum(part[x] for part in every if x in part)) for x in left}
        return found

    def _damages(self, head: int, methods: Mapping[str, Method]) -> dict[str, float]:
        """Return the damage of each method on one head of the group."""
        one, draws, slopes = self.group[head], self.draws[head], self.gradients[head]
        assert one.V is not None
        exactly = exact.attention(one.Q, one.K, one.V, mask=one.mask, sink=one.sink)
        unused = np.random.default_rng(draws)  # these methods draw nothing
        found = dict.fromkeys(methods, 0.0)
        for spec, method in methods.items():
            if spec != EXACT:
                rng = unused if method.deterministic else draws
                change = moved(one, one.approximate(method, rng=rng), exactly)
                found[spec] = fisher(change, slopes) / self.positions
        return found


def wanted(
    sized: Sized, own: Collection[str], found: Mapping[str, float], multiplier: float | None = None
) -> set[str]:
    """Return the first sizes and, once these are known, the others that may help a group.

    Without a multiplier these are the ones that may be on the lower convex hull of its damages.
    With λ they may have the least damage + λ·price; if λ is infinite, there are none.
    """
    first = {spec for spec, option in sized.items() if option.first} | {*own}
    if multiplier == math.inf:
        return first
    return first | _useful(sized, found, multiplier) if first <= {*found} else first


def _useful(sized: Sized, found: Mapping[str, float], multiplier: float | None) -> set[str]:
    first = {spec: size for spec, size in sized.items() if size.first}
    known = np.array([(size.price, found[spec]) for spec, size in first.items()])
    prices, damages = known[hull(*known.T)].T
    useful = set()
    for spec, size in sized.items():
        larger = [
            (other.price, found[x])
            for x, other in first.items()
            if other.template == size.template and other.price >= size.price
        ]
        least = LEAST_DAMAGE * min(larger)[1] if larger else 0.0
        if multiplier is not None:
            best = (known @ [multiplier, 1.0]).min()
            helps = least + multiplier * size.price < best
        else:
            helps = size.price < prices[0] or least < np.interp(size.price, prices, damages)
        if helps:
            useful.add(spec)
    return useful


def _sized(asked: Choices, shape: Shape, screened: bool) -> Sized:
    """Return all sizes by spec, and exact attention."""
    found: Sized = {}
    always = [method for method in candidates.rivals() if not method.is_template]
    for method in [*asked.methods, parse(EXACT)]:
        for amount in asked.amounts():
            filled = method
            if method.is_template:
                within = method.within(amount, currency=asked.currency, **shape.given)
                if within is None:
                    continue
                filled = within
            spec = str(filled)
            first = amount in asked.first() if method.is_template else method in always
            first = first or not screened or (spec in found and found[spec].first)
            price = _priced(filled, asked, shape)
            if price <= asked.most * asked.budget or method in always:
                found[spec] = Option(filled, price, str(method), first)
    return found


def _priced(method: Method, asked: Choices, shape: Shape) -> float:
    price = price_at(method, shape)
    cost = None if price is None else getattr(price, asked.currency)
    if cost is None:
        raise ValueError(f"{method} has no price in {asked.currency}: leave it out")
    return float(cost)
