"""The errors of a method on the measured queries of a head, in the median over draws."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.bounds import certificates
from analysis.compute.seeds import seed_sequence
from analysis.costs import candidates
from analysis.errors import metrics
from analysis.inputs import Head, Heads
from analysis.ranks.attention_weights import MOST_ENTRIES
from analysis.sentences import Sentence
from approx import Approximation, Method, checks
from approx.checks import Array
from approx.estimate import memory
from approx.method.prices import CURRENCIES

TRIALS = 5
MOST_TRIALS = 1024  # more draws would not improve medians and ranges, and would take hours
SAMPLE = 256  # queries that are measured where there are more than MOST_QUERIES
MOST_QUERIES = 4096
SHARE = 8  # an 8th of the memory limit holds the estimates that are compared together


class Sampled(NamedTuple):
    """A head, the queries that are measured, and the head with those alone.

    Attributes
    ----------
    whole : Head
    picked : (rows,)
        The queries.
    part : Head
    """

    whole: Head
    picked: Array
    part: Head

    @classmethod
    def of(cls, x: Head, rows: int | Array | None) -> Sampled:
        """Return a head with so many queries, evenly spaced, or with those of an index array.

        None are all up to 4096, and 256 of more.
        """
        if isinstance(rows, np.ndarray):
            picked = np.unique(np.asarray(checks.index("rows", rows, x.n)))
            return cls(x, picked, dataclasses.replace(x, q=x.q[picked], mask=x.mask.take(picked)))
        if rows is None:
            rows = x.n if x.n <= MOST_QUERIES else SAMPLE
        if rows >= x.n:
            return cls(x, np.arange(x.n), x)
        picked = (np.arange(rows) * x.n + x.n // 2) // rows
        part = dataclasses.replace(x, q=x.q[picked], mask=x.mask.take(picked))
        return cls(x, picked, part)

    def inputs(self, method: Method) -> Head:
        """Return the head, without the other queries if the method does not need them."""
        return self.part if method.row_local else self.whole

    def rows(self, method: Method) -> slice | Array:
        """Return which queries of `inputs` are measured."""
        return slice(None) if method.row_local else self.picked


class Measured(NamedTuple):
    """A method on a head.

    Attributes
    ----------
    row : dict
        Columns of `analysis.advice.diagnose.diagnose`: medians over the draws, and prices.
    estimate : Approximation
        That of the last draw, of the measured queries alone where the method needs no others.
    entries : int
        Of the measured queries, in the draw that has most of them.
    """

    row: dict[str, Any]
    estimate: Approximation
    entries: int


def measure_all(
    head: Sampled, methods: Sequence[Method], *, trials: int, seed: int
) -> Iterator[Measured]:
    """Yield the errors and the price of each method on a head.

    Parameters
    ----------
    head : Sampled
    methods : sequence of Method
    trials : int
        Draws of a random method.
    seed : int
    """
    found = all_draws(head, methods, trials=trials, seed=seed)
    for method, drawn in zip(methods, found):
        yield _measured(head, method, *drawn)


def _measured(
    head: Sampled,
    method: Method,
    errors: list[dict[str, float]],
    estimate: Approximation,
    entries: int,
) -> Measured:
    """Return the medians over the draws, and the price."""

    def middle(name: str, otherwise: float = math.nan) -> float:
        known = [of_draw[name] for of_draw in errors if name in of_draw]
        return statistics.median(known) if known else otherwise

    tv = [of_draw["attention_tv"] for of_draw in errors]
    output = middle("output_relative_error")
    row = {
        "values_per_row": stored(estimate, head.whole),
        **prices(method, head.whole),
        "attention_tv": middle("attention_tv"),
        "tv_least": min(tv),
        "tv_most": max(tv),
        "tv_stderr": middle("attention_tv_stderr", 0.0),
        "negative_fraction": middle("negative_fraction"),
        "kernel_error": middle("kernel_relative_frobenius"),
        "output_error": output,
        "output_stderr": middle("output_relative_error_stderr", 0 * output),  # NaN without V
        "nonpositive_rows": middle("nonpositive_rows"),
    }
    return Measured(row, estimate, entries)


class Draws(NamedTuple):
    """The draws of a method on a head.

    Attributes
    ----------
    errors : list of dict
        What `metrics.compare` says of each draw; of a method that draws nothing there is one. Of
        more trials the first ones are the same.
    estimate, entries
        As in `Measured`.
    """

    errors: list[dict[str, float]]
    estimate: Approximation
    entries: int


def draws(head: Sampled, method: Method, *, trials: int, seed: int) -> Draws:
    """Return the errors of each draw of a method on a head."""
    return next(all_draws(head, [method], trials=trials, seed=seed))


def all_draws(
    head: Sampled, methods: Sequence[Method], *, trials: int, seed: int
) -> Iterator[Draws]:
    """Yield the errors of each draw of each method on a head.

    Estimates of several methods are compared in one pass, which has the same bits as one for each
    of them, as long as together they fit an eighth of the memory limit.
    """
    complete: list[Draws] = []  # but for the errors of what is held
    held: list[tuple[Approximation, list[dict[str, float]]]] = []
    size = 0

    def compare(at: Head) -> None:
        nonlocal size
        found = _compared(at, [estimate for estimate, _ in held], head)
        for (_, errors), row in zip(held, found):
            errors.append(row)
        held.clear()
        size = 0

    before: Head | None = None
    for method in methods:
        at, rows = head.inputs(method), head.rows(method)
        if before is not None and at is not before:
            compare(before)
            yield from complete
            complete = []
        errors: list[dict[str, float]] = []
        entries, before = 0, at
        for estimate in _estimates(head, method, trials, seed):
            held.append((estimate, errors))
            estimate.low.prepare()  # what a comparison would build, so that it is counted
            entries = max(entries, _entries(estimate, rows))
            size += estimate.nbytes
            if size > memory.limit() // SHARE:
                compare(at)
                yield from complete
                complete = []
        complete.append(Draws(errors, estimate, entries))
    if before is not None:
        compare(before)
    yield from complete


def certificate(head: Sampled, method: Method, *, trials: int, seed: int) -> float:
    """Return what the estimates that `measure_all` compared prove of their total variation.

    It is the mean over the measured queries of `analysis.bounds.certificates.of`, in the median
    over the same draws, and so never below their ``attention_tv``; NaN where nothing is proven.
    """
    at, rows = head.inputs(method), head.rows(method)
    proven: list[float] = []
    for estimate in _estimates(head, method, trials, seed):
        of_rows = certificates.of(estimate, at.Q, at.K).attention_tv.to_numpy()[rows]
        proven.append(float(of_rows.mean()))
        if math.isnan(proven[-1]):
            break
    return float(np.median(proven))


def _estimates(head: Sampled, method: Method, trials: int, seed: int) -> Iterator[Approximation]:
    at = head.inputs(method)
    rng = np.random.default_rng(seed_sequence(seed, head.whole.digest(), str(method)))
    for child in rng.spawn(trials if method.uses_rng else 1):
        yield at.approximate(method, rng=child)


def _entries(estimate: Approximation, rows: slice | Array) -> int:
    """Return how many entries some rows have."""
    s = estimate.correction
    return 0 if s is None else int(np.diff(s.matrix.indptr)[rows].sum())


def measurable(
    head: Sampled, methods: Sequence[Method] | None
) -> tuple[list[Method], list[Sentence]]:
    """Return the methods, by default the candidates, that a head allows, and why others are not."""
    mask, left_out = head.whole.mask, []
    possible: list[Method] = []
    for method in candidates.methods(mask) if methods is None else methods:
        large = len(head.picked) * head.whole.l > MOST_ENTRIES
        if (reason := candidates.why_not(method, mask)) is not None:
            left_out.append(Sentence("{spec}: {reason}", spec=str(method), reason=reason))
        elif method.oracle and not method.row_local and large:
            left_out.append(
                Sentence(
                    "{spec}: it decomposes a matrix of more than {entries} entries",
                    spec=str(method),
                    entries=MOST_ENTRIES,
                )
            )
        else:
            possible.append(method)
    return possible, left_out


def each_head(inputs: Head | Heads | Sequence[Head | Heads]) -> list[Head]:
    """Return every head of what `analysis.advice.diagnose.diagnose` was asked about.

    Raises
    ------
    TypeError, ValueError
        It is no Head, no Heads and no sequence of them, or there is no head.
    """
    files = [inputs] if isinstance(inputs, Head | Heads) else inputs
    checks.instance("inputs", files, Sequence, "a Head, Heads or a sequence of them")
    for file in files:
        checks.instance("every input", file, Head | Heads, "a Head or Heads")
    heads = [x for file in files for x in file.heads()]
    if not heads:
        raise ValueError("inputs must not be empty")
    return heads


def require_values(metric: str, heads: Sequence[Head]) -> None:
    """Refuse an error of the output where a head has no values.

    Raises
    ------
    ValueError
    """
    if metric.startswith("output") and (lacking := [x.name for x in heads if x.V is None]):
        raise ValueError(
            f"the error of the output needs values, and {lacking[0]} has no v: save v beside q and "
            "k, or ask for attention_tv (--metric tv)"
        )


def all_methods(methods: Sequence[Method] | None) -> tuple[Method, ...] | None:
    """Return the methods that `diagnose` was asked about; None: the candidates.

    Raises
    ------
    TypeError
        They are no sequence of methods.
    """
    if methods is None:
        return None
    checks.instance("methods", methods, Sequence, "a sequence of methods")
    for method in methods:
        checks.instance("every method", method, Method, "a method")
    return tuple(methods)


def _compared(x: Head, estimates: Sequence[Approximation], head: Sampled) -> list[dict[str, float]]:
    """Return the errors of estimates, on the queries that are measured."""
    if not estimates:
        return []
    if x is head.part:
        population, rows = head.whole.n, None
    else:
        population, rows = None, head.picked
    return metrics.compare_all(
        estimates, x.Q, x.K, x.V, mask=x.mask, rows=rows, population=population
    )


def stored(estimate: Approximation, x: Head) -> float:
    """Return the stored values per query of x, of which an estimate may have some rows only."""
    rows = estimate.shape[0]
    factors = estimate.low.parameters * (x.n + x.l) / (x.n * (rows + x.l))
    return factors + estimate.nnz / rows


def prices(method: Method, x: Head) -> dict[str, float]:
    """Return what a method reads, multiplies and keeps in bytes, NaN where it is not known."""
    price = method.price(**x.shape.given)
    known = {name: getattr(price, name, None) for name in CURRENCIES if name != "stored"}
    return {name: math.nan if cost is None else float(cost) for name, cost in known.items()}
