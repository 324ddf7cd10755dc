"""Warnings of the advisor: when not to trust a number or not to use a method."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.advice.pitfalls import concentration, with_eps
from analysis.costs.candidates import TRIVIAL
from analysis.inputs import Head
from analysis.sentences import Sentence, power_of_ten
from approx import Method
from approx.method.tags import AUTOREGRESSIVE, ORACLE
from approx.random_features.positive import Positive

TARGET = 0.1  # the relative Frobenius error of the kernel for which features are counted
EPS = (1e-6, 1e-4)  # public code adds one of these to features
WIDTH = 256  # the number of such features
COLLAPSED, PEAKED = 0.05, 0.2  # 1 − normalised entropy, with eps and of exact attention
SPREAD = 1.5  # a larger ratio of the largest to the least error over draws gives a warning


PRICES = {  # all currencies except storage, each with the warning if exact attention costs less
    "reads": Sentence("costs {times:.3g} times exact attention's reads"),
    "multiply_adds": Sentence("costs {times:.3g} times exact attention's multiply-adds"),
    "bytes": Sentence("costs {times:.3g} times exact attention's memory"),
}

READ = "bytes_read"

LOSES = {  # by the metric that ranks methods
    "attention_tv": Sentence("total variation no better than uniform attention's"),
    "output_relative_error": Sentence("output error no better than uniform attention's"),
}


def collapsing_eps(x: Head, entropy: float) -> float | None:
    """Return the least eps used in public code that makes peaked attention uniform, or None."""
    if not x.mask.is_full or 1 - entropy < PEAKED:
        return None
    for eps in EPS:
        if concentration(with_eps(Positive(m=WIDTH), x.Q, x.K, eps=eps, rng=0)) < COLLAPSED:
            return eps
    return None


def price_ratios(row: Mapping[Any, Any]) -> dict[str, float]:
    """Return the known prices of a method, except storage, as multiples of exact attention's.

    Reads are compared in bytes if bytes are known, because a number may have few bits.

    Examples
    --------
    >>> price_ratios({"reads": 8.0, "exact_reads": 64.0, "bytes": math.nan, "exact_bytes": 388.0})
    {'reads': 0.125}
    """
    known = [name for name in PRICES if name in row and not math.isnan(row[name])]
    columns = {name: name for name in known} | ({"reads": READ} if READ in row else {})
    return {name: float(row[columns[name]] / row[f"exact_{columns[name]}"]) for name in known}


def price_warnings(row: Mapping[Any, Any]) -> list[Sentence]:
    """Return a warning for each currency, except storage, in which exact attention costs less."""
    return [
        Sentence(PRICES[name].message, times=many)
        for name, many in price_ratios(row).items()
        if round(many, 2) > 1
    ]


def warnings(
    x: Head,
    method: Method,
    row: dict[str, Any],
    uniform: float,
    eps: float | None,
    metric: str = "attention_tv",
) -> Iterator[Sentence]:
    """Yield the warnings about a method and its numbers.

    `metric` ranks methods; `uniform` is uniform attention's error.
    """
    loses = row[metric] >= uniform and row["spec"] != TRIVIAL
    if not row["runnable"]:
        if ORACLE in method.tags:
            yield Sentence("needs all logits: a reference, the best found of its class")
        elif _runs_by_blocks(method):
            yield Sentence(
                "reads the future: a causal model can run it token by token only if block is given"
            )
        else:
            yield Sentence("reads the future: a causal model cannot run it token by token")
    if (features := row["features_needed"]) > x.l:
        # of one frequency, which may have two of the columns that features are
        variance = power_of_ten(features * TARGET**2 / getattr(method, "per_frequency", 1))
        yield (
            Sentence(
                "relative variance {variance}: no affordable number of random features beats "
                "uniform attention here",
                variance=variance,
            )
            if loses
            else Sentence(
                "relative variance {variance}: 10 % error needs {features} features",
                variance=variance,
                features=power_of_ten(features),
            )
        )
    elif loses:
        yield LOSES[metric]
    if (rows := row["nonpositive_rows"]) >= 1:
        yield Sentence(
            "{rows:.0f} of {n} rows have no positive sum: their output is 0", rows=rows, n=x.n
        )
    if row["attention_tv"] > 1 and row["negative_fraction"] > 0:
        yield Sentence("its rows are not distributions: entries are negative, and tv exceeds 1")
    if row["attention_tv_most"] > SPREAD * row["attention_tv_least"] > 0:
        yield Sentence(
            "draws differ: total variation {least:.2g} to {most:.2g}",
            least=row["attention_tv_least"],
            most=row["attention_tv_most"],
        )
    if x.l < row["pays_from"] < math.inf and row["runnable"]:
        yield Sentence(
            "exact attention needs fewer operations up to n = {n:.0f}", n=row["pays_from"] - 1
        )
    if row["runnable"]:
        yield from price_warnings(row)
    if eps is not None and isinstance(method, Positive):
        yield Sentence(
            "adding eps = {eps:g} after the shift turns this head into uniform attention", eps=eps
        )


def _runs_by_blocks(method: Method) -> bool:
    """Return whether the method would be autoregressive if its empty field `block` were given."""
    if getattr(method, "block", 0) is not None:
        return False
    size = method.sized_by
    opened = {} if size is None else {size.field: None}
    try:
        given: Method = dataclasses.replace(method, block=1, **opened)  # type: ignore[type-var]
    except ValueError:  # another of its fields sees all keys
        return False
    return AUTOREGRESSIVE in given.tags
