"""Keys and values in few bits beside methods that read few keys, at equal bytes read."""

import pandas as pd

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import parse

ROWS = {"quick": 128, "default": 1024}
BITS = (2, 3, 4, 8)
CODES = {  # by family, specs at b bits
    "channel": "quantised(bits={b}, by='channel', group=32)",
    "token": "quantised(bits={b})",
    "mse": "turboquant(bits={b}, rotation='hadamard')",
    "eden": "turboquant(bits={b}, form='eden', rotation='hadamard')",
    "product": "turboquant(bits={b}, form='product', rotation='hadamard')",
}
VALUES = (16, 4, 2)  # bits of the values beside
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of what exact attention reads
CHOSEN = {
    "sparq": "sparq(r=8)",
    "h2o": "h2o()",
    "window": "streaming_llm()",
}
COLUMNS = (
    "input", "layer", "head", "n", "l", "family", "bits", "value_bits", "share", "method",
    "bytes_read", "metric", "value",
)  # fmt: skip
METRICS = "attention_tv", "output_relative_error"


def specs(x: Head) -> list[tuple[str, int, int, float, str]]:
    """Return family, bits of keys and values, share of exact attention, and spec of each method."""
    found = [
        ("exact", 16, 16, 1.0, "exact()"),
        ("exact", 8, 8, 1.0, "rounded_values(quantised(bits=8), bits=8)"),
    ]
    for family, spec in CODES.items():
        for bits in BITS:
            keys = spec.format(b=bits)
            found += [
                (family, bits, v, 0.0, keys if v == 16 else f"rounded_values({keys}, bits={v})")
                for v in VALUES
            ]
    price = parse("exact()").price(**x.shape.given)
    assert price is not None
    assert price.bytes_read is not None
    for family, spec in CHOSEN.items():
        for share in SHARES:
            budget = share * price.bytes_read
            sized = parse(spec).within(budget, currency="bytes_read", **x.shape.given)
            if sized is not None:
                found.append((family, 16, 16, share, str(sized)))
    return found


def _rows(x: Head, family: str, bits: int, values: int, share: float, spec: str) -> list[Row]:
    method = parse(spec)
    price = method.price(**x.shape.given)
    errors = x.compare(x.approximate(method, rng=0))
    place = x.name, x.layer, x.head, x.n, x.l, family, bits, values, share, spec
    return [(*place, price and price.bytes_read, name, errors[name]) for name in METRICS]


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors and bytes read of causal heads with values, at t = 1.

    The heads are those of the profile that are causal, or else those of the bundled language model.
    """
    heads = [x for x in profile.causal(ROWS[profile.grid]) if x.v is not None]
    return profile.study(
        _rows, [(x, *spec) for x in heads for spec in specs(x)], "bytes read", COLUMNS
    )


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return medians over heads of bytes read and of both errors."""
    keys = ["family", "bits", "value_bits", "share"]
    wide = table.pivot_table(index=keys, columns="metric", values="value", aggfunc="median")
    price = table.groupby(keys).bytes_read.median()
    found: pd.DataFrame = wide.assign(bytes_read=price).reset_index()
    return found
