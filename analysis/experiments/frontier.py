"""Prices of an error in each currency: the whole registry on causal heads, at several sizes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.advice.verdict import TIE
from analysis.costs import budget, candidates
from analysis.errors.metrics import compare_all
from analysis.experiments.profile import Profile, trials
from analysis.inputs import Head
from analysis.sweeps.table import Row
from approx import METHODS, Approximation, Method, checks, parse
from approx.combinations.guarded import Guarded
from approx.method import Rng
from approx.method.evaluation import checked_inputs, obstacle, why_not
from approx.method.prices import price_at
from approx.method.tags import ORACLE
from approx.supports.key_boxes import DEPTH

CURRENCIES = ("stored", "reads", "multiply_adds", "bytes")
COLUMNS = (
    "input", "layer", "head", "n", "l", "d", "asked", "method", "class", "oracle", "runnable",
    "keys", *CURRENCIES, "metric", "value",
)  # fmt: skip
METRIC = "attention_tv"
NUMBER_BITS = 16  # of a number that is read
DRAWS = 3  # at most, of a random method that can be run
PARTS = 4  # parts of the methods of a head, each a task
ROWS = {"quick": 96, "default": 256}
HEADS = {"quick": 2, "default": None}
KEYS = {"quick": (3, 16), "default": (4, 8, 16, 32)}  # what as many exact keys store
# What decomposes a matrix has one size. Pursuit, of seconds a head, is left out, and guards, whose
# price before they run is above that of exact attention: one of them stands in `OWN`.
SLOW = {"truncated_svd", "godec", "leverage"}
LEFT_OUT = {"robust_pca", "stable_pca", "guarded"}
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
# Sizes of what no such budget fills, and what chooses its own.
OWN = (
    "exact()", "taylor(degree=1)", "taylor(degree=2)", "tensor_power(n=1)", "tensor_power(n=2)",
    "richardson(n=2)", "chebyshev(degree=1)", "minimax(degree=1)", "least_squares(degree=1)",
    "channels(r=8)", "channels(r=16)", "channels(r=32)", "think(r=16)", "quantised(bits=2)",
    "quantised(bits=4)", "quantised(bits=8)", "qjl(m=128)", "turboquant(bits=2)", "top_p(p=0.5)",
    "top_p()",
    "acc_alt_proj(rank=8)", "elu()", "relu()", "cosformer()", "flowformer()", "flash(size=32)",
    "randomized_attention()", *ADAPTIVE,
)  # fmt: skip


def specs(x: Head) -> list[str]:
    """Return the specs that are filled on a head: candidates, familiar ones, the whole registry."""
    usual = [*map(str, candidates.methods(x.mask, references=True)), *ALSO]
    bare = [str(method()) for name, method in METHODS.items() if name not in LEFT_OUT]
    # under the familiar name, if there is one
    named = {str(parse(spec)): spec for spec in [*bare, *usual]}
    return [s for s in named.values() if why_not(parse(s), x.mask) is None]


def _sizes(x: Head, spec: str, sizes: Sequence[int]) -> dict[str, tuple[Method, int]]:
    """Return the members of a method, by spec, and how many exact keys store as much as each."""
    template = parse(spec)
    if not template.is_template:
        return {str(template): (template, -1)} if _suits(template, x) else {}
    found: dict[str, tuple[Method, int]] = {}
    for keys in sizes[len(sizes) // 2 :][:1] if template.name in SLOW else sizes:
        for method in budget.match([template], budget.price_of_keys(keys, x), x).fitting:
            if _suits(method, x):
                found.setdefault(str(method), (method, keys))
    return found


def _suits(method: Method, x: Head) -> bool:
    """Return whether a head has as many keys, and is as wide, as the sizes of a method ask."""
    try:
        checked_inputs(method, x.Q, x.K)
    except ValueError:
        return False
    return all(_suits(part, x) for part in method.parts.values())


def costs(x: Head, method: Method, estimates: Sequence[Approximation]) -> list[float | None]:
    """Return the price of a method in each currency, None where it follows from the inputs.

    Then what its estimates store is known all the same. The price of a guarded method is the most
    that it may read; here it is what a row read on average, as a share of exact attention's reads.
    """
    price = price_at(method, x.shape)
    if price is not None and not isinstance(method, Guarded):
        return [getattr(price, name) for name in CURRENCIES]
    known = {"stored": float(np.mean([budget.stored(one) for one in estimates]))}
    if isinstance(method, Guarded):
        known["reads"] = float(guarded_reads(x, method).share.to_numpy().mean()) * x.shape.exact
    return [known.get(name) for name in CURRENCIES]


def guarded_reads(x: Head, method: Method, rng: Rng = None) -> pd.DataFrame:
    """Return the reads of a guarded method in each row of a head, and the bound that it found.

    Parameters
    ----------
    x : Head
    method : Guarded
        A method with a size.
    rng : optional
        As for `approximate`.

    Returns
    -------
    DataFrame
        A row per query: ``bound`` (on total variation, before the guard acts), ``exact`` (whether
        the guard made the row exact), ``reads`` (in numbers of 16 bits), and ``share`` (reads over
        those of exact attention).

    Notes
    -----
    A row reads:

    - what its method reads to choose keys (the upper bound that `Method.price` uses);
    - the chosen keys and their values, and the keys of its own page;
    - for each earlier page with an unread key: the box, the allocation of the bits, and all codes;
    - all other keys and values, if the bound is not small enough.

    Codes are counted by their bits. Boxes of values are not needed.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> from approx import parse
    >>> x = gaussian(64, 4, rng=0)
    >>> found = guarded_reads(x, parse("guarded(top_k(k=32), tv=0.5, size=8)"))
    >>> bool(found.exact.any()), bool((found.share < 1).any())
    (False, True)
    """
    checks.instance("method", method, Guarded, "a guarded method")
    assert isinstance(method, Guarded)
    rows = method.rows(x.Q, x.K, x.mask, rng)
    d, width = x.d, x.d + x.shape.c
    choosing = method.selection_reads(x.shape) or 0.0
    of_page = 2.0 * d
    if method.bits:
        of_page += d * (DEPTH + method.size * method.bits) / NUMBER_BITS
    reads = choosing + rows.kept * width + rows.near * d + rows.pages * of_page
    rest = rows.exact * (x.mask.counts - rows.kept) * width - rows.exact * rows.near * d
    reads = reads + rest
    share = reads / (x.mask.counts * width)
    return pd.DataFrame({"bound": rows.bound, "exact": rows.exact, "reads": reads, "share": share})


def _rows(x: Head, specs: Sequence[str], sizes: Sequence[int], draws: int, seed: int) -> list[Row]:
    rows, estimates, counts = [], [], []
    for spec in specs:
        for method, keys in _sizes(x, spec, sizes).values():
            count = 1 if ORACLE in method.tags else draws
            made = [x.approximate(method, rng=r) for _, r in trials(method, x, count, seed)]
            estimates += made
            counts.append(len(made))
            rows.append((
                x.name, x.layer, x.head, x.n, x.l, x.d, spec, str(method),
                method.class_name, ORACLE in method.tags, not obstacle(method, x.mask), keys,
                *costs(x, method, made), METRIC,
            ))  # fmt: skip
    errors = [one[METRIC] for one in compare_all(estimates, x.Q, x.K, mask=x.mask)]
    of_each = np.split(errors, np.cumsum(counts)[:-1])
    return [(*row, float(np.median(some))) for row, some in zip(rows, of_each, strict=True)]


def compute(profile: Profile) -> pd.DataFrame:
    """Return error and price of every method at several sizes, on causal heads at t = 1.

    The heads are those of the profile that are causal, or else those of the bundled language model.
    Errors of random methods are medians over three draws at most. Prices are NaN where they are not
    known before a method is run, but for what it has stored.
    """
    grid, draws, tasks = profile.grid, min(DRAWS, profile.trials), []
    for x in profile.causal(ROWS[grid])[: HEADS[grid]]:
        asked = list(dict.fromkeys([*specs(x), *OWN]))
        tasks += [(x, asked[part::PARTS], KEYS[grid], draws, profile.seed) for part in range(PARTS)]
    return profile.study(_rows, tasks, "frontier", COLUMNS)


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return medians over heads of error and price, a row a method and size.

    Columns as in the table, with ``attention_tv`` for the error.
    """
    keys = ["asked", "class", "oracle", "runnable", "keys"]
    middle = table.groupby(keys, sort=False)[["value", *CURRENCIES]].median()
    heads = len(table.drop_duplicates(["input", "layer", "head"]))
    middle = middle[table.groupby(keys, sort=False).size() == heads]
    return middle.rename(columns={"value": "attention_tv"}).reset_index()


def frontier(points: pd.DataFrame, currency: str) -> pd.DataFrame:
    """Return the runnable methods that are worth their price, cheapest first, in one currency.

    It is nearer than all that costs no more, by more than what the advisor calls a tie. Uniform
    attention costs nothing, and exact attention has no error: what is no nearer than the one, or no
    cheaper than the other, is not worth its price.

    Parameters
    ----------
    points : DataFrame
        The result of `medians`.
    """
    bound = points.set_index("asked")
    some = points[points.runnable & (points.attention_tv < bound.attention_tv["uniform()"])]
    some = some[some[currency] < bound[currency]["exact()"]]
    some = some.sort_values([currency, "attention_tv"], kind="stable")
    kept, least = [], float("inf")
    for place, tv in some.attention_tv.items():
        if TIE * tv < least:
            kept.append(place)
            least = tv
    found: pd.DataFrame = some.loc[kept]
    return found
