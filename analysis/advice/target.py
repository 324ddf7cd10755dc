"""Target search: the smallest size of each method that reaches a target error, and its price.

It is the inverse of `analysis.advice.diagnose`, which returns the error at a budget. Exact
attention is one of the methods, and its price is the ceiling: if no size that costs less reaches
the target, the answer is "not with less than exact attention".
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit
from tqdm import tqdm

from analysis.advice import measurement
from analysis.advice.measurement import TRIALS, HeadSample, HeadTask, draws, measurable
from analysis.costs.budget import MEMORY, amounts, cost, memory, price_of_keys, stored
from analysis.costs.candidates import BOUND, FOUND, standing
from analysis.inputs import Head, Heads
from analysis.sentences import Sentence
from approx import Approximation, Method, checks
from approx.checks import Array
from approx.method.evaluation import obstacle
from approx.method.filling import least_size, resized
from approx.method.prices import low_rank, price_at
from approx.method.tags import ORACLE, ROW_LOCAL
from approx.sparse.exact import Exact

METRICS = (  # the metrics of `analysis.errors.metrics.compare` that can have a target
    "attention_tv", "attention_kl", "attention_kl_reverse", "attention_relative_frobenius",
    "output_relative_error", "kernel_relative_frobenius", "kernel_relative_max",
)  # fmt: skip
SURE = 0.95  # the one-sided confidence of ``sure``
NEAR = 1.3  # the search looks for a dip around smaller sizes with at most 1.3 times the target
LOOKS = 8  # the largest number of such looks without success


def needed(
    inputs: Head | Heads | Sequence[Head | Heads],
    target: float | Sequence[float],
    *,
    metric: str = "attention_tv",
    currency: str = "stored",
    methods: Sequence[Method] | None = None,
    references: bool = False,
    temperature: float = 1.0,
    trials: int = TRIALS,
    rows: int | Array | None = None,
    seed: int = 0,
    jobs: int = 1,
    scheduler: Any = None,
    progress: bool = False,
    finished: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the smallest size of every method that reaches a target on every head, and its price.

    Parameters
    ----------
    inputs : Head, Heads or a sequence of them
    target : float or sequence of float
        The largest allowed error. Several targets share their measurements.
    metric : str
        One of `METRICS`, as `analysis.errors.metrics.compare` defines them.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
        The currency of prices. A size must cost less than exact attention in it.
    methods : sequence of Method, optional
        Templates are sized; a sized method stays as it is. The default is
        `analysis.costs.candidates.methods`: all methods that can be run under the mask. Exact
        attention is always added.
    references : bool
        Adds the references to the default, as in `analysis.advice.diagnose.diagnose`.
    rows : int or index array, optional
        The number of measured queries, as in `analysis.advice.diagnose.diagnose`, or their indices.
    temperature, trials, seed, jobs, scheduler, progress, finished
        As in `analysis.advice.diagnose.diagnose`; ``trials`` counts the draws at each size.

    Returns
    -------
    DataFrame
        One row per (layer, head, target, method); methods that reach the target come first, sorted
        by price in the currency. Columns of the method:

        - ``method``: as it was given; ``spec``: the smallest size that reaches the target or, if
          no size does, the size with the least measured error
        - ``size``: the number in the size field; for a method whose parts share a budget, that
          budget in exact keys; NaN if the method has no size
        - ``class``, ``oracle``, ``runnable``: as in `analysis.advice.diagnose.diagnose`;
          ``standing`` in the metric, see `analysis.costs.candidates.standing`
        - ``reached``; ``error``: the mean over draws; ``stderr``: its standard error over draws,
          and over queries if not all were measured
        - ``sure``: whether the error is at most the target with a confidence of 95 % (one-sided;
          Student's t for draws)
        - ``stored``, ``reads``, ``multiply_adds``, ``bytes``, ``bytes_read``: see `approx.Price`;
          ``bytes_4096``, …: the bytes that its cache holds after so many tokens; NaN if unknown
        - ``price``: the price in the currency; ``share``: its ratio to exact attention's price
        - ``sizes``: how many sizes were measured

        Columns of the head: ``group``, ``mask``, ``measured``, as in
        `analysis.advice.diagnose.diagnose`; ``metric``, ``target``, ``currency``; ``left_out``,
        sentences that name the methods that were not measured, with the reason.

    Raises
    ------
    ValueError
        A target or the temperature is out of range, the metric or the currency is unknown, or the
        metric is the output error and a head has no values.

    Notes
    -----
    `smallest` describes the search. For a random method, the search uses one set of draws, and the
    error at the chosen size is then measured on other draws, so that the choice does not bias it.
    If this error is above the target, the search continues.

    Cost: about ten to twenty sizes of each method, each as in `analysis.advice.diagnose.diagnose`.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> table = needed(gaussian(64, 8, rng=0), 0.1, methods=[parse("top_k"), parse("taylor")])
    >>> table[["spec", "reached", "price"]].values.tolist()
    [['top_k(k=43)', True, 43.0], ['exact()', True, 64.0], ['taylor(degree=1)', False, 18.0]]
    """
    several = list(target) if isinstance(target, Sequence) else [target]
    if not several:
        raise ValueError("target must be a number or several, got none")
    targets = tuple(checks.positive("target", one) for one in several)
    if metric == "attention_tv" and max(targets) >= 1:
        raise ValueError(f"a target tv must be < 1, which any weights reach, got {max(targets):g}")
    asked = TargetSearch(
        targets=targets, metric=metric, currency=currency, methods=methods, references=references,
        temperature=temperature, trials=trials, rows=rows, seed=seed,
    )  # fmt: skip
    return measurement.table(
        asked, inputs, jobs=jobs, scheduler=scheduler, progress=progress, folder=finished
    )


def smallest(
    error: Callable[[int], float],
    target: float,
    most: int,
    *,
    falls: bool = False,
    near: int = 1,
) -> int | None:
    """Return the smallest size found, of 1, 2, …, with an error of at most the target, or None.

    Parameters
    ----------
    error : callable
        Maps a size to its error. It is called at most once per size.
    target : float
    most : int
        The largest size.
    falls : bool
        Whether the error never grows with the size: then the search has no second stage.
    near : int
        The size to begin with.

    Notes
    -----
    First stage: from ``near``, steps double upwards until a size reaches the target, or downwards
    until a size does not. Bisection between the last two sizes follows. If errors fall as sizes
    grow, its result is the smallest size.

    Second stage: a larger size may be worse, in particular with few keys or features. So if a
    smaller measured size has an error of at most 1.3 times the target, the gap beside it is
    bisected too, up to eight times since the last success. A dip that is narrower than the gaps may
    be missed.

    Examples
    --------
    >>> smallest(lambda size: 1 / size, 0.1, 64)
    10
    >>> smallest([1, 0.5, 0.11, 0.1, 0.12, 0.11, 0.1, 0.1].__getitem__, 0.1, 7)
    3
    """
    if most < 1:
        return None
    known: dict[int, float] = {}

    def fails(size: int) -> bool:
        if size not in known:
            known[size] = error(size)
        return not known[size] <= target

    def halved(below: int, above: int) -> int:
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (middle, above) if fails(middle) else (below, middle)
        return above

    below, above = 0, min(near, most)
    step = max(above // 16, 1)
    if fails(above):
        while above <= most and fails(above):
            end = most if above < most else most + 1
            below, above, step = above, min(above + step, end), 2 * step
    else:
        while (below := max(above - step, 0)) and not fails(below):
            above, step = below, 2 * step  # down to a size that fails, or to 0
    if above <= most:
        above = halved(below, above)
    looks = LOOKS if falls else 0
    while looks < LOOKS and (gap := _nearest(known, above, NEAR * target)):
        looks, (below, middle) = looks + 1, (gap[0], sum(gap) // 2)
        if not fails(middle):
            looks, above = 0, halved(below, middle)
    return above if above <= most else None


def _nearest(known: dict[int, float], above: int, near: float) -> tuple[int, int] | None:
    """Return the gap below a size that is beside the least error; None if this is not near."""
    sizes = sorted(size for size in known if size < above)
    gaps = [
        (min(known[end] for end in gap if end in sizes), gap)
        for gap in zip(sizes, [*sizes[1:], above])
        if gap[1] - gap[0] > 1
    ]
    error, gap = min(gaps, default=(math.inf, (0, 0)))
    return gap if error <= near else None


def cheapest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cheapest method that reaches each target on each head, from a table of `needed`.

    Returns
    -------
    DataFrame
        One row per (input, layer, head, target): ``method``, ``spec``, ``size``, ``error``,
        ``sure``, ``price`` and ``share`` of the cheapest runnable method, which is exact attention
        if no cheaper method reaches the target; ``oracle``, ``oracle_spec`` and ``oracle_share``:
        method, spec and share of the cheapest that needs all logits, "" and NaN if there is none.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> methods = [parse("top_k"), parse("sliding_window")]
    >>> cheapest(needed(gaussian(64, 8, rng=0), 0.1, methods=methods))[["spec", "oracle"]].values
    array([['exact()', 'top_k()']], dtype=object)
    """
    keys = ["input", "layer", "head", "target"]
    columns = ["method", "spec", "size", "error", "sure", "price", "share"]
    found = table[table.reached].sort_values(["price", "error"], kind="stable")
    best = found[found.runnable].drop_duplicates(keys).set_index(keys)[columns]
    oracles = found[found.oracle].drop_duplicates(keys).set_index(keys)
    named = {"method": "oracle", "spec": "oracle_spec", "share": "oracle_share"}
    joined = best.join(oracles[list(named)].rename(columns=named))
    places = pd.MultiIndex.from_frame(table[keys].drop_duplicates())
    return joined.reindex(places).fillna({"oracle": "", "oracle_spec": ""}).reset_index()


def by_method(table: pd.DataFrame) -> pd.DataFrame:
    """Return the number of heads on which each method reaches a target, and its price there.

    The table is that of `needed` for one target.

    Returns
    -------
    DataFrame
        One row per method; the method that is cheapest most often comes first, and methods that
        need all logits come last:

        - ``oracle``, ``standing``
        - ``cheapest``: the number of heads on which it is the cheapest runnable method
        - ``heads``: the number of heads on which it was measured; ``reached``, ``sure``: on how
          many of these it reaches the target, and surely
        - ``size``: the median over the heads that it reaches; ``lower``, ``share``, ``upper``: the
          quartiles of its price there as a share of exact attention's
    """
    best = cheapest(table).method.value_counts()
    rows = []
    for name, part in table.groupby("method", sort=False):
        found = part[part.reached]
        counts = int(best.get(name, 0)), len(part), len(found), int(found.sure.sum())
        share = found.share.quantile([0.25, 0.5, 0.75])
        what = bool(part.oracle.all()), str(part.standing.iloc[0])
        rows.append((name, *what, *counts, found["size"].median(), *share))
    names = ("method", "oracle", "standing", "cheapest", "heads", "reached", "sure", "size")
    made = pd.DataFrame(rows, columns=[*names, "lower", "share", "upper"])
    by, rising = ["oracle", "cheapest", "reached", "share"], [True, False, False, True]
    return made.sort_values(by, ascending=rising, kind="stable", ignore_index=True)


def choices(table: pd.DataFrame) -> pd.DataFrame:
    """Return the runnable methods with their prices if they are used where they reach the target.

    The table is that of `needed` for one target. On a head where a method does not reach the
    target, exact attention is kept.

    Returns
    -------
    DataFrame
        One row per method: ``reached``, on how many heads; the means over all heads of
        ``bytes_read``, ``bytes``, ``bytes_4096``, …. A method that reaches the target on no head,
        or has no price in bytes, is left out.
    """
    place, prices = ["input", "layer", "head"], ["bytes_read", "bytes", *MEMORY]
    exact = table[table.spec == str(Exact())].set_index(place)[prices]
    rows = []
    for method, part in table[table.runnable & table.reached].groupby("method", sort=False):
        known = part.set_index(place)[prices].reindex(exact.index).fillna(exact)
        if part.bytes_read.notna().all():
            rows.append({"method": method, "reached": len(part), **known.mean()})
    return pd.DataFrame(rows, columns=["method", "reached", *prices])


class Family(NamedTuple):
    """The sized methods of a template that may cost less than exact attention, smallest first.

    Attributes
    ----------
    sizes : range
        The values of the size field; for a method whose parts share a budget, that budget in exact
        keys. A sized method has the only value 0.
    make : callable
        Maps a size to the sized method, or to None if there is none.
    """

    sizes: range
    make: Callable[[int], Method | None]

    @classmethod
    def from_method(cls, method: Method, x: Head, currency: str) -> Self:
        """Return the family of a method for one head.

        Examples
        --------
        >>> from approx import parse
        >>> from analysis.inputs import gaussian
        >>> Family.from_method(parse("pages()"), gaussian(64, 4, rng=0), "stored").sizes
        range(16, 64, 16)
        """
        if not method.is_template:
            return cls(range(1), lambda _: method)
        ceiling = cost(Exact(), x.shape, currency)
        size, asked = method.sized_by, {**x.shape.given, "currency": currency}
        alone = size is not None and getattr(method, size.field) is None
        if size is None or not alone or resized(method, size.least).is_template:
            none, one = (price_of_keys(keys, x, currency) for keys in (0, 1))
            count = math.ceil((ceiling - none) / (one - none))
            return cls(
                range(1, count),
                lambda keys: method.within(price_of_keys(keys, x, currency), **asked),
            )
        most = method.within(math.nextafter(ceiling, 0.0), **asked)
        if most is None:
            return cls(range(0), partial(resized, method))
        fewest = max(0, -(-(least_size(method, x.d) - size.least) // size.step))
        sizes = range(size.least, getattr(most, size.field) + 1, size.step)
        return cls(sizes[fewest:], partial(resized, method))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetSearch(HeadTask):
    """A head on which sizes are searched, with the arguments of `needed`."""

    METRICS: ClassVar = METRICS

    targets: tuple[float, ...]

    def run(self, shared: bool) -> list[dict[str, Any]]:
        head = self.sampled()  # its Q and K last for this head only
        possible, left_out = measurable(head, self)
        methods = [*(method for method in possible if method != Exact()), Exact()]
        rows = []
        for method in tqdm(methods, disable=not shared, desc="methods", leave=False):
            spec = str(method)
            if self.metric.startswith("kernel") and method.space != "kernel":
                left_out.append(Sentence("{spec}: it does not estimate exp(q·k)", spec=spec))
            elif sizes := list(_sizes(head, method, self)):
                rows += sizes
            else:
                left_out.append(
                    Sentence("{spec}: no size costs less than exact attention", spec=spec)
                )
        place = head.place() | {
            "metric": self.metric, "currency": self.currency, "left_out": left_out
        }  # fmt: skip
        rows.sort(key=lambda row: (self.targets.index(row["target"]), *order(row)))
        return [place | row for row in rows]


def order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a target's rows: reached first, then the price, then the error."""
    price = float(row["price"])
    return not row["reached"], math.isnan(price), price, row["error"]


def _sizes(head: HeadSample, method: Method, asked: TargetSearch) -> Iterator[dict[str, Any]]:
    """Yield a method's row for each target; nothing if every size costs as much as exact."""
    x, currency = head.full, asked.currency
    ceiling = cost(Exact(), x.shape, currency)
    sizes, make = Family.from_method(method, x, currency)
    measured: dict[int, _MeasuredSize] = {}
    guesses: dict[int, _MeasuredSize] = {}  # on few queries
    # only these methods can do without the other queries
    few = head.few(asked.seed) if ROW_LOCAL in method.tags else None
    # The least error of a form falls as the form grows, because a larger form contains a smaller.
    falls = standing(method, asked.metric, x.mask) in (BOUND, FOUND)

    def error(
        number: int, at: HeadSample = head, known: dict[int, _MeasuredSize] = measured
    ) -> float:
        size = sizes[number - 1]
        if size not in known:
            member = make(size)
            if member is None or (member != Exact() and cost(member, x.shape, currency) >= ceiling):
                return math.inf
            known[size] = _measured(at, member, asked)
        return known[size].error

    def confirmed(size: int) -> _MeasuredSize:
        if not ((one := measured[size]).method.deterministic or one.again):
            measured[size] = one = _measured(head, one.method, asked, again=True)
        return one

    for target in asked.targets:
        near: int | None = 1
        if few is not None:
            roughly = functools.partial(error, at=few, known=guesses)
            near = smallest(roughly, target, len(sizes), falls=falls)
            if near is None and guesses:
                near = 1 + sizes.index(min(guesses, key=lambda size: guesses[size].error))
        while (
            number := smallest(error, target, len(sizes), falls=falls, near=near or 1)
        ) is not None:
            if confirmed(sizes[number - 1]).error <= target:
                break
        if not measured:
            return
        reached = number is not None
        nearest = min(measured, key=lambda size: measured[size].error)
        size = nearest if number is None else sizes[number - 1]
        one = confirmed(size)
        yield {
            "target": target, "method": str(method), "spec": str(one.method),
            "size": float(size) if method.is_template else math.nan,
            "class": method.class_name, "oracle": ORACLE in method.tags,
            "standing": standing(method, asked.metric, x.mask),
            "runnable": not obstacle(method, x.mask),
            "reached": reached, "error": one.error, "stderr": one.stderr,
            "sure": reached and one.most <= target,
            **one.price, **memory(one.method, x.shape), "price": one.price[currency],
            "share": one.price[currency] / ceiling, "sizes": len(measured),
        }  # fmt: skip


class _MeasuredSize(NamedTuple):
    """The error of a sized method on a head, and its price.

    ``most`` is an upper bound of the error with the confidence `SURE`; ``again`` says whether the
    draws differ from those that choose sizes.
    """

    method: Method
    error: float
    stderr: float
    most: float
    price: dict[str, float]
    again: bool


def _measured(
    head: HeadSample, method: Method, asked: TargetSearch, *, again: bool = False
) -> _MeasuredSize:
    """Return the mean error over draws; if measured again, over other draws."""
    trials = asked.trials
    count = 2 * trials if again else trials
    drawn = next(draws(head, [method], trials=count, seed=asked.seed))
    errors, estimate = drawn.errors, drawn.estimates[-1]
    values = np.array([of_draw[asked.metric] for of_draw in errors[trials if again else 0 :]])
    name = f"{asked.metric}_stderr"
    by_rows = float(np.mean([of_draw[name] for of_draw in errors if name in of_draw] or [0.0]))
    by_draws, quantile = 0.0, float(ndtri(SURE))
    if not method.deterministic:
        finite = trials > 1 and np.isfinite(values).all()
        by_draws = values.std(ddof=1) / math.sqrt(trials) if finite else math.inf
        quantile = float(stdtrit(max(trials - 1, 1), SURE))
    error, stderr = float(values.mean()), math.hypot(by_draws, by_rows)
    most = error + quantile * stderr
    return _MeasuredSize(method, error, stderr, most, _price(method, estimate, head), again)


def _price(method: Method, estimate: Approximation, head: HeadSample) -> dict[str, float]:
    """Return the price in each currency; NaN if not even the estimate tells it."""
    x = head.full
    price = price_at(method, x.shape)
    if price is None and not estimate.nnz:
        price = low_rank(estimate.rank, x.shape)  # such as uniform attention
    known = amounts(price)
    return known if price is not None else known | {"stored": stored(estimate, x.n)}
