"""The methods of today beside those that they replace, at equal price in each currency."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.bounds import guards
from analysis.costs import budget, candidates
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import Approximation, Method, parse
from approx.combinations.guarded import Guarded

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
    "guarded(sink_window(k=64, sinks=4), tv=0.1, bits=5, coded=64)",
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
                rows.append((*place, *_measured(x, spec, method, currency, keys)))
    if currency == "stored":
        rows += [(*place, *_measured(x, spec, parse(spec), currency, -1)) for spec in ADAPTIVE]
    return rows


def costs(x: Head, method: Method, estimates: Sequence[Approximation]) -> list[float | None]:
    """Return the price of a method in each currency, None where it follows from the inputs.

    Then what its estimates store is known all the same. The price of a guarded method is the most
    that it may read; here it is what a row read on average, as a share of exact attention's reads.
    """
    price = method.price(**x.shape.given)
    if price is not None and not isinstance(method, Guarded):
        return [getattr(price, name) for name in CURRENCIES]
    known = {"stored": float(np.mean([budget.values_per_row(one) for one in estimates]))}
    if isinstance(method, Guarded):
        known["reads"] = guards.summary(guards.spent(x, method))["share"] * x.shape.exact
    return [known.get(name) for name in CURRENCIES]


def _measured(x: Head, spec: str, method: Method, currency: str, keys: int) -> Row:
    estimate = x.approximate(method, rng=0)
    errors = x.compare(estimate)
    return (
        spec, str(method), method.class_name, method.oracle,
        candidates.runs(method, x.mask), currency, keys, *costs(x, method, [estimate]),
        "attention_tv", errors["attention_tv"], errors.get("output_relative_error"),
    )  # fmt: skip


def compute(profile: Profile) -> pd.DataFrame:
    """Return the error of every method at equal price, in each currency, on causal heads.

    The heads are those of the profile that are causal, or else those of the bundled language model.
    """
    heads, sizes = profile.causal(ROWS[profile.grid]), KEYS[profile.grid]
    tasks = [(x, currency, sizes) for x in heads for currency in CURRENCIES]
    return profile.study(_rows, tasks, "today", COLUMNS)
