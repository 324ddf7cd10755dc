"""The choices of each head of a language model: methods, their prices, and predicted damages."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.costs import candidates
from analysis.costs.allocation import hull
from analysis.inputs import Head
from analysis.models.language_model import HeadIndex
from analysis.models.replacement import Passage, Replacements
from analysis.models.sensitivity import SAMPLES, Gradients, fisher, gradients, moved
from analysis.runs import engines, tasks
from analysis.runs.store import Store
from approx import Mask, Method, checks, parse
from approx.checks import Array
from approx.estimate import exact
from approx.method.evaluation import obstacle
from approx.method.prices import CURRENCIES, Shape

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
FIRST = SHARES[2::2]  # measured on every head; they contain the shares at which plans are measured
LEAST_DAMAGE = 0.7  # the least damage of a size, as a share of that of the next larger size
EXACT = "exact()"
COLUMNS = ["layer", "head", "method", "price", "damage"]


def curves(
    passages: Sequence[Passage],
    budget: float,
    *,
    currency: str = "reads",
    methods: Sequence[Method] | None = None,
    since: float | None = None,
    start: Replacements | None = None,
    samples: int = SAMPLES,
    screen: bool = False,
    scheduler: Any = None,
    done: Store | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the prices and predicted damages of all choices of each head.

    Parameters
    ----------
    passages : sequence of Passage
        Texts for one model; the damage is the mean over them.
    budget : float
        The average price per query of a head.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
    methods : sequence of Method, optional
        Templates are filled to several shares of the budget, from 1/16 to 8. The default is
        `METHODS` and, in bytes, keys and values in few bits. Exact attention is always a choice.
    since : float, optional
        The budget of earlier curves. Their sizes are used again; sizes for ``budget`` are added
        outside their range of prices only.
    start : mapping of (layer, head) to Method, optional
        An earlier plan: each of its heads may also keep that method.
    samples : int
        Backward passes per passage.
    screen : bool
        Whether to leave out sizes that cannot help a head, see Notes; for a single passage only.
    scheduler : str or distributed.Client, optional
        A Dask cluster, on which each head is a task; by default processes of this machine.
    done : Store, optional
        A store of the curves; a choice that it holds is not computed again.
    progress : bool

    Returns
    -------
    DataFrame
        One row per head and choice: ``layer``, ``head``, ``method``, ``price`` in the currency and
        ``damage``, that of `analysis.models.sensitivity.fisher`: an estimate of KL(model
        ‖ replaced) with only this head replaced, to second order in its error. It is 0 for exact
        attention.

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

    Cost: one backward pass per sample, and one evaluation per choice and head; no other pass
    through the model.
    """
    if not passages or len({id(passage.model) for passage in passages}) > 1:
        raise ValueError("curves need one model and at least one passage of it")
    if len(lengths := {len(passage.ids) for passage in passages}) > 1:
        raise ValueError(
            f"the passages must have one length, from which prices follow, got {sorted(lengths)}"
        )
    width = min(shape.d for shape in passages[0].shapes)
    asked = choices(budget, currency, methods, width=width, since=since)
    drawn = [gradients(passage, samples) for passage in passages]
    layers = range(passages[0].model.layers)
    with (
        engines.client(scheduler, passages[0].jobs) as cluster,
        tqdm(total=len(layers), disable=not progress, desc="curves", leave=False) as bar,
    ):

        def of_layer(layer: int) -> pd.DataFrame:
            part = layer_curves(
                passages, drawn, layer, asked,
                start=start, screen=screen, scheduler=cluster, done=done,
            )  # fmt: skip
            bar.update()
            return part

        parts = [of_layer(layer) for layer in layers]
    return pd.concat(parts, ignore_index=True)


class Choices(NamedTuple):
    """The methods that heads may choose, the average price, and its currency.

    Built by `choices`. ``since`` is as in `curves`.
    """

    budget: float
    currency: str
    methods: tuple[Method, ...]
    since: float | None = None

    def amounts(self) -> list[float]:
        """Return the prices to which templates are filled.

        Examples
        --------
        >>> choices(64.0, since=32.0).amounts()[-3:]
        [256.0, 384.0, 512.0]
        """
        mine = [share * self.budget for share in SHARES]
        before = mine if self.since is None else [share * self.since for share in SHARES]
        return before + [x for x in mine if not before[0] <= x <= before[-1]]

    def first(self) -> set[float]:
        """Return the prices whose sizes are measured on every head."""
        mine = {share * self.budget for share in FIRST}
        return mine if self.since is None else mine | {share * self.since for share in FIRST}


def choices(
    budget: float,
    currency: str = "reads",
    methods: Sequence[Method] | None = None,
    *,
    width: float = math.inf,
    since: float | None = None,
) -> Choices:
    """Return the checked choices for heads of a width, by default those of `METHODS` that fit it.

    Raises
    ------
    ValueError
        The budget is not positive, the currency is unknown, or no model can run a method.
    """
    checks.positive("budget", budget)
    checks.one_of("currency", currency, CURRENCIES)
    usual = [*map(parse, METHODS), *candidates.in_few_bits(currency)]
    chosen = usual if methods is None else list(methods)
    if methods is None:  # choosing r channels needs keys of that width
        chosen = [method for method in chosen if (getattr(method, "r", None) or 0) <= width]
    for method in chosen:
        checks.instance("every method", method, Method, "a method")
        if why := obstacle(method, Mask.causal(2, 2)):
            raise ValueError(f"no model can run {method}: {why}; leave it out")
    return Choices(float(budget), currency, tuple(chosen), since)


def layer_curves(
    passages: Sequence[Passage],
    drawn: Sequence[Gradients],
    layer: int,
    asked: Choices,
    heads: Sequence[int] | None = None,
    *,
    start: Replacements | None = None,
    screen: bool = False,
    scheduler: Any = None,
    done: Store | None = None,
) -> pd.DataFrame:
    """Return the curves of all or some heads of one layer, as `curves` does.

    Parameters
    ----------
    passages, drawn
        The texts, and the `gradients` for each.
    layer : int
    asked : Choices
    heads : sequence of int, optional
    start, screen, scheduler, done
        As in `curves`.
    """
    done = done or Store(None)
    some = range(passages[0].model.heads) if heads is None else heads
    shape = passages[0].shapes[layer]
    sized, before = _sized(asked, shape), start or {}
    # a size may help on the mean of texts, though on no single one
    if not screen or len(passages) > 1:
        sized = {spec: size._replace(first=True) for spec, size in sized.items()}
    work: list[_Work] = []
    for passage, mine in zip(passages, drawn):
        x = passage.inputs(layer)
        for head in some:
            given = np.array([sample[layer][head] for sample in mine], np.float64)
            where, draws = (layer, head), passage.draws(layer, head)
            one, count = x.at(*where), len(passage.positions)
            also = {str(before[where]): before[where]} if where in before else {}
            task = _Work(len(work), where, one, given, draws, count, also, {})
            known = (done.get(task.key) or {}) if done else {}
            work.append(dataclasses.replace(task, known=known))
    damages: list[Any] = [task.known for task in work]
    left = [task for task in work if not task.wanted(sized, task.known) <= {*task.known}]
    jobs = max(1, min(passages[0].jobs, len(left)))
    made = engines.stream(left, [sized], jobs=jobs, scheduler=scheduler)
    for task, curve_of_head in made:
        damages[task.number] = curve_of_head
        if done:
            done.put(task.key, curve_of_head)
    rows = []
    for task in work:
        prices = {spec: size.price for spec, size in sized.items()}
        prices |= {spec: _priced(method, asked, shape) for spec, method in task.own.items()}
        mine = damages[task.number]
        wanted = task.wanted(sized, mine)
        rows += [
            (*task.where, spec, price, mine[spec])
            for spec, price in prices.items()
            if spec in wanted
        ]
    found = pd.DataFrame(rows, columns=COLUMNS)
    return found.groupby(COLUMNS[:3], sort=False, as_index=False).agg(
        {"price": "mean", "damage": "mean"}
    )


class _Size(NamedTuple):
    """A method, its price, its template, and whether it is measured on every head."""

    method: Method
    price: float
    template: str
    first: bool


Sized = dict[str, _Size]


@dataclasses.dataclass(frozen=True, eq=False)
class _Work(tasks.Task):
    """A head on one text: a task that returns its curve. All tasks share the table of sizes."""

    number: int
    where: HeadIndex
    x: Head
    gradients: Array
    draws: np.random.SeedSequence
    positions: int
    own: Mapping[str, Method]
    known: Mapping[str, float]

    @property
    def key(self) -> str:
        """Return the hash of everything that decides the damage of a choice."""
        about = self.where, self.positions, self.draws
        return tasks.key(*about, self.x.digest(), self.gradients)

    def run(self, sized: Sized) -> dict[str, float]:
        """Return the damage of each choice by its spec, known ones included."""
        methods = {spec: size.method for spec, size in sized.items()} | dict(self.own)
        found = {**self.known}
        for _ in range(2):  # the first sizes decide which others may help
            wanted = self.wanted(sized, found)
            left = {x: method for x, method in methods.items() if x in wanted - {*found}}
            found |= dict(self._damages(left))
        return found

    def wanted(self, sized: Sized, found: Mapping[str, float]) -> set[str]:
        """Return the first sizes and, once these are known, the others that may help."""
        first = {spec for spec, size in sized.items() if size.first} | {*self.own}
        return first | _useful(sized, found) if first <= {*found} else first

    def _damages(self, methods: Mapping[str, Method]) -> Iterator[tuple[str, float]]:
        one = self.x
        assert one.V is not None
        exactly = exact.attention(one.Q, one.K, one.V, mask=one.mask, sink=one.sink)
        unused = np.random.default_rng(self.draws)  # these methods draw nothing
        for spec, method in methods.items():
            damage = 0.0
            if spec != EXACT:
                rng = unused if method.deterministic else self.draws
                change = moved(one, one.approximate(method, rng=rng), exactly)
                damage = fisher(change, self.gradients) / self.positions
            yield spec, damage


def _useful(sized: Sized, found: Mapping[str, float]) -> set[str]:
    """Return the sizes that may be on the lower convex hull, from the damages of the first ones."""
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
        if size.price < prices[0] or least < np.interp(size.price, prices, damages):
            useful.add(spec)
    return useful


@functools.lru_cache(maxsize=8)  # the layers of a model have one shape or two
def _sized(asked: Choices, shape: Shape) -> Sized:
    """Return all sizes by spec, and exact attention."""
    found: Sized = {}
    for method in [*asked.methods, parse(EXACT)]:
        for amount in asked.amounts():
            filled = method
            if method.is_template:
                within = method.within(amount, currency=asked.currency, **shape.given)
                if within is None:
                    continue
                filled = within
            spec, first = str(filled), amount in asked.first()
            first = first or (spec in found and found[spec].first)
            found[spec] = _Size(filled, _priced(filled, asked, shape), str(method), first)
    return found


def _priced(method: Method, asked: Choices, shape: Shape) -> float:
    price = method.price(**shape.given)
    cost = None if price is None else getattr(price, asked.currency)
    if cost is None:
        raise ValueError(f"{method} has no price in {asked.currency}: leave it out")
    return float(cost)
