"""The methods of today beside those that they replace, at equal price in each currency."""

from collections.abc import Sequence

import pandas as pd

from analysis.costs import budget, candidates
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import Method, parse

CURRENCIES = ("stored", "reads", "multiply_adds", "bytes")
COLUMNS = (
    "input", "layer", "head", "n", "l", "asked", "method", "class", "oracle", "runnable",
    "currency", "keys", *CURRENCIES, "metric", "value", "output_relative_error",
)  # fmt: skip
ROWS = {"quick": 96, "default": 512}
KEYS = {"quick": (32,), "default": (16, 32, 64)}
SLOW = {"truncated_svd", "godec"}  # completed under a mask for each size; `classes` has them

# Beside the advisor's candidates for causal heads: what people use, by the names that they know.
ALSO = (
    "streaming_llm()",
    "snapkv()",
    "keydiff()",
    "expected_attention(sinks=1, recent=16, block=8)",
    "quest(size=8)",
    "minference()",
    "sparq(r=2)",
    "sparq(r=8)",
    "loki()",
    "wildcat()",
    "sampled(sparse=sink_window())",
    "hyper_attention()",
    "quantised(bits=4)",
)
# Their number of keys follows from the inputs: at their own price, once.
ADAPTIVE = (
    "magicpig(hashes=8, tables=75, sparse=sink_window(k=16))",
    "vattention(k=8, sparse=sink_window(k=16))",
)


def specs(x: Head) -> list[str]:
    """Return the specs that are compared on a head."""
    usual = [str(m) for m in candidates.methods(x.mask, references=True) if m.name not in SLOW]
    return [*usual, *(spec for spec in ALSO if str(parse(spec)) not in usual)]


def _rows(x: Head, currency: str, sizes: Sequence[int]) -> list[Row]:
    place = x.name, x.layer, x.head, x.n, x.l
    rows: list[Row] = []
    for keys in sizes:
        for spec in specs(x):
            matched = budget.match(
                [parse(spec)], budget.price_of_keys(keys, x, currency), x, currency
            )
            for method in matched.fitting:
                price = method.price(**x.shape.given)
                costs = [None if price is None else getattr(price, c) for c in CURRENCIES]
                rows.append((*place, *_measured(x, spec, method, currency, keys, costs)))
    if currency == "stored":
        none: list[float | None] = [None] * len(CURRENCIES)
        rows += [(*place, *_measured(x, s, parse(s), currency, -1, none)) for s in ADAPTIVE]
    return rows


def _measured(
    x: Head, spec: str, method: Method, currency: str, keys: int, costs: list[float | None]
) -> Row:
    estimate = x.approximate(method, rng=0)
    errors = x.compare(estimate)
    if costs[0] is None:
        costs = [budget.values_per_row(estimate), *costs[1:]]
    return (
        spec, str(method), method.class_name, method.oracle,
        candidates.runs(method, x.mask), currency, keys, *costs,
        "attention_tv", errors["attention_tv"], errors.get("output_relative_error"),
    )  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return the error of every method at equal price, in each currency, on causal heads.

    The heads are those of the profile that are causal, or else those of the bundled language model.
    """
    heads, sizes = profile.causal(ROWS[profile.grid]), KEYS[profile.grid]
    tasks = [(x, currency, sizes) for x in heads for currency in CURRENCIES]
    return profile.study(_rows, tasks, "today", COLUMNS)
