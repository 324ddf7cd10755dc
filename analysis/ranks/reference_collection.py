"""A reference collection of attention heads, with known numbers to check other code against.

Twelve heads are real: heads of the bundled models on the first 256 tokens of public-domain texts.
Twelve are made, each to break something. All numbers of q, k and v are float32, so that programs in
other languages have the same heads bit by bit. The stored table was computed twice, by `row` and by
slow code that shares nothing with it; all stored digits agreed.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from importlib import resources

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.inputs import Head, statistics
from analysis.inputs.loading import SAMPLES
from analysis.ranks import rank, state_rank
from analysis.ranks.attention_weights import Weights
from approx import Mask, checks, parse
from approx.checks import Array

PRICES = (4, 16, 64)  # stored values per query
TOKENS = 256  # of a real head
SIZE, WIDTH = 128, 16  # of a made head; its scaling is 1/4, so that logits are exact
DIGITS = 6  # of every stored number
ZERO = 1e-9  # smaller numbers are stored as 0

OF_PRICES = {  # column, without its price, and the definition
    "top_k_tv": "Mean over rows of ½Σ|w − p|, where w is softmax over the {price} largest logits "
    "of the row: the least of any weights on {price} keys a row.",
    "top_k_output": "‖wV − pV‖_F/‖pV‖_F of the same w.",
    "columns_tv": "The same as top_k_tv on one set of {price} keys for all rows, those with the "
    "largest column sums Σ_i p_ij; a row that sees none of them has w = 0 and counts 1.",
    "window_tv": "The same as top_k_tv on the first key that a row sees and the {price} − 1 last "
    "ones; without a mask on key 0 and the {price} − 1 keys j with −⌊w/2⌋ ≤ j − ⌊i·l/n⌋ < ⌈w/2⌉, "
    "w = {price} − 1.",
    "rank_frobenius": "√(Σ_R Σ_{{i>m}} σ_i(p_R)²)/‖p‖_F, m = ⌊{price}·n/(n + l)⌋, the rank whose "
    "factors store {price} values a row: a lower bound for every matrix of rank m, or under a mask "
    "every recurrence of m states. Without a mask R is the whole matrix, and the bound is "
    "attained. Under one R runs through the dyadic rectangles: a stretch of keys [a, z), at first "
    "[0, the least power of 2 that no stop is above), is halved at c again and again; the queries "
    "with c < stop ≤ z and first < c, and the keys from max(a, their largest first) to c − 1, are "
    "one R.",
}
COLUMNS = {
    "head": "The name of the head.",
    "origin": "Model, layer and head, counted from 0; or made.",
    "about": "What the head is there for.",
    "n": "Queries.",
    "l": "Keys.",
    "d": "Width of q and k.",
    "c": "Width of v.",
    "scaling": "Logits are x = scaling·q·k.",
    "mask": "Query i sees the keys first_i ≤ j < stop_i: all; causal, those up to its own place "
    "where the n queries are the last of l places; or window(w), the last w of them.",
    "q_sha256": "SHA-256 of q as little-endian float32, row by row.",
    "k_sha256": "The same of k.",
    "v_sha256": "The same of v.",
    "mask_sha256": "SHA-256 of first, then stop, as little-endian int64.",
    "logit_min": "The least logit that a query sees.",
    "logit_max": "The largest.",
    "logit_std": "Their standard deviation over all pairs that are seen.",
    "row_entropy": "Mean over rows that see two keys or more of −Σ p log p / log(keys seen), where "
    "p = softmax(x) over the keys that are seen, 0 elsewhere.",
    "effective_keys": "Mean over rows of exp(−Σ p log p).",
    "n_eff": "Median over rows of 1/Σp².",
    "stable_rank": "Σσ²/σ₁² of the singular values σ of the matrix p.",
    "rank_1e-2": "How many σ are above 10⁻²·σ₁.",
    "rank_1e-6": "How many σ are above 10⁻⁶·σ₁.",
    "numerical_rank": "How many σ are above max(n, l)·2⁻⁵²·σ₁.",
    "states_1e-2": "The largest, over k = 1 … l − 1, of how many singular values of the block "
    "p[queries that see key k, keys before k] are above 10⁻² of its first; no value where a query "
    "does not see the first key, or there is no mask.",
    "states_1e-6": "The same for 10⁻⁶.",
    "mean_tv": "Mean over rows of ½Σ|w − p|, w the same for all keys that the row sees.",
    **{
        f"{name}_{price}": text.format(price=price)
        for price in PRICES
        for name, text in OF_PRICES.items()
    },
}
TEXTS = "head", "origin", "about", "mask", "q_sha256", "k_sha256", "v_sha256", "mask_sha256"
NUMBERS = tuple(name for name in COLUMNS if name not in TEXTS)

MORE = ("previous", "deep", "peaked", "all-on-first", "typical")  # of collection.npz
REAL = {
    "minilm-easy": "near uniform attention",
    "minilm-middling": "the middle of 72 heads by the spread of logits",
    "minilm-hard": "nearly one key a row, logits to 69",
    "smollm2-sink": "most attention on key 0, beside a head that does nothing else",
    "smollm2-local": "most attention on the last 31 keys",
    "smollm2-broad": "most effective keys",
    "smollm2-retrieval": "most attention on what came after the same token",
    "smollm2-previous": "most attention on the token before",
    "smollm2-deep": "largest stable rank of 270 heads",
    "smollm2-peaked": "largest logit of 270 heads",
    "smollm2-all-on-first": "all attention on key 0",
    "smollm2-typical": "the middle of 270 heads by effective keys",
}


def _normal(name: str, rows: int, columns: int = WIDTH) -> Array:
    """Return numbers near N(0, 1), multiples of 1/256: sums of 12 bytes of SHAKE-256 of a name.

    They need no random number generator, and are the same in any language.
    """
    stream = hashlib.shake_256(name.encode()).digest(12 * rows * columns)
    sums = np.frombuffer(stream, np.uint8).reshape(rows, columns, 12).sum(axis=2, dtype=np.int64)
    return np.asarray((sums - 1530) / 256)


def _points(name: str, n: int = SIZE) -> tuple[Array, Array]:
    return _normal(f"{name} q", n), _normal(f"{name} k", SIZE)


def _equal_keys(name: str) -> tuple[Array, Array, Mask]:
    q, k = _points(name)
    return q, np.repeat(k[:1], SIZE, axis=0), Mask.causal(SIZE, SIZE)


def _one_huge_key(name: str) -> tuple[Array, Array, None]:
    q, k = _points(name)
    k[40] = 2.0**14 * np.eye(WIDTH)[0]
    return q, k, None


def _late_key(name: str) -> tuple[Array, Array, Mask]:
    q, k = _points(name)
    q[:, 0], k[120] = 1.0, 1600.0 * np.eye(WIDTH)[0]
    return q, k, Mask.causal(SIZE, SIZE)


def _noisy_low_rank(name: str) -> tuple[Array, Array, None]:
    q, k = _points(name)
    return q * np.repeat([2.0, 1.0], [4, 12]), k * np.repeat([2.0, 1.0], [4, 12]), None


def _sink_window(name: str) -> tuple[Array, Array, Mask]:
    """Return points with logits −(i − j)²/64 plus noise for keys j ≥ 1, and 2 for key 0."""
    q, k = _points(name)
    i = np.arange(float(SIZE))
    q[:, :4] = np.stack([i**2, i, np.ones(SIZE), np.ones(SIZE)], axis=1)
    k[:, :4] = np.stack([np.full(SIZE, -1 / 16), i / 8, -(i**2) / 16, np.zeros(SIZE)], axis=1)
    k[:, 4:] /= 4
    k[0] = 8.0 * np.eye(WIDTH)[3]
    return q, k, Mask.causal(SIZE, SIZE)


def _needle(name: str) -> tuple[Array, Array, None]:
    _, k = _points(name)
    return 4 * k[(37 * np.arange(SIZE) + 11) % SIZE], k, None


def _huge_logits(name: str) -> tuple[Array, Array, None]:
    q, k = _points(name)
    return 48 * q, 48 * k, None


def _near_ties(name: str) -> tuple[Array, Array, None]:
    q, k = np.zeros((2, SIZE, WIDTH))
    q[:, 0] = 1.0 - 2.0 * (np.arange(SIZE) % 2)
    k[:, 0] = (37 * np.arange(SIZE) % SIZE) * 2.0**-18
    return q, k, None


def _copy(name: str) -> tuple[Array, Array, Mask]:
    _, k = _points(name)
    return 4 * k[np.maximum(np.arange(SIZE) - 32, 0)], k, Mask.causal(SIZE, SIZE)


def _outlier_channel(name: str) -> tuple[Array, Array, Mask]:
    q, k = _points(name)
    k[:, 0] = 512.0
    return q, k, Mask.causal(SIZE, SIZE)


def _window(name: str) -> tuple[Array, Array, Mask]:
    q, k = _points(name)
    return 2 * q, k, Mask.window(SIZE, SIZE, 16)


def _decode(name: str) -> tuple[Array, Array, Mask]:
    q, k = _points(name, 16)
    return 2 * q, k, Mask.causal(16, SIZE)


MADE: dict[str, tuple[Callable[[str], tuple[Array, Array, Mask | None]], str]] = {
    "equal-keys": (_equal_keys, "all keys equal: uniform attention, ties everywhere"),
    "one-huge-key": (_one_huge_key, "one key takes a row whole or is at exp(-10^4)"),
    "late-key": (_late_key, "key 120 has logit 400; earlier rows must not notice"),
    "noisy-low-rank": (_noisy_low_rank, "logits of rank 4 and 12 channels of noise"),
    "sink-window": (_sink_window, "half on key 0, half on a smooth window"),
    "needle": (_needle, "each query has one far key of its own"),
    "huge-logits": (_huge_logits, "logits of ±10^4 everywhere"),
    "near-ties": (_near_ties, "logits apart by 2^-20: the top k exist, and do not matter"),
    "copy": (_copy, "each query has the key 32 places before: many states"),
    "outlier-channel": (_outlier_channel, "a constant channel moves all logits of a row by ±400"),
    "window": (_window, "a sliding window of 16 keys: intervals that begin late"),
    "decode": (_decode, "16 queries after 112 earlier keys"),
}
NAMES = (*REAL, *MADE)


def head(name: str) -> Head:
    """Return a head of the collection.

    Parameters
    ----------
    name : str
        One of `NAMES`.

    Examples
    --------
    >>> x = head("window")
    >>> x.name, x.q.shape, str(x.mask)
    ('window', (128, 16), 'window(16)')
    """
    if name not in NAMES:
        listed = f"`NAMES` lists all {len(NAMES)}"
        raise ValueError(checks.unknown("head", name, NAMES, listed))
    if name in MADE:
        q, k, mask = MADE[name][0](name)
        return Head(name, q, k, _normal(f"{name} v", SIZE), mask=mask)
    model, _, label = name.partition("-")
    if label in MORE:
        with resources.as_file(resources.files("analysis") / "data" / "collection.npz") as path:
            every = inputs.load(path)
        found = [*every.heads()][MORE.index(label)]
    else:
        labels = SAMPLES[model][1]
        found = [*inputs.sample(model).heads()][labels.index(label)].first(TOKENS)
    return dataclasses.replace(found, name=name)


def heads() -> Iterator[Head]:
    """Yield every head of the collection, the real heads first."""
    return map(head, NAMES)


def digests(x: Head) -> dict[str, str]:
    """Return the SHA-256 of q, k, v and the mask of a head, as `COLUMNS` defines them.

    Examples
    --------
    >>> digests(head("near-ties"))["q_sha256"][:16]
    '8483fc2d546e4b45'
    """
    checks.instance("x", x, Head, "a Head")
    if x.v is None:
        raise ValueError(f"{x.name} has no values v, which the collection has of every head")
    found = {
        f"{name}_sha256": hashlib.sha256(array.astype("<f4").tobytes()).hexdigest()
        for name, array in (("q", x.q), ("k", x.k), ("v", x.v))
    }
    seen = np.stack([x.mask.first, x.mask.stop]).astype("<i8")
    return {**found, "mask_sha256": hashlib.sha256(seen.tobytes()).hexdigest()}


def row(x: Head) -> dict[str, float]:
    """Return the numbers of one head by column, computed with this project's functions.

    Parameters
    ----------
    x : Head
        Any head with values.

    Notes
    -----
    Cost: a decomposition of the weights; for a causal head, one more of each of l − 1 blocks.

    Examples
    --------
    >>> found = row(head("equal-keys"))
    >>> found["n_eff"], found["stable_rank"] > 1, found["states_1e-6"], found["mean_tv"]
    (64.5..., True, 1.0, 0.0)
    """
    checks.instance("x", x, Head, "a Head")
    if x.v is None or x.V is None:
        raise ValueError(f"{x.name} has no values v, which an error of the output needs")
    P = Weights.from_head(x).matrix
    facts = statistics.describe(x)
    logits = x.logits()
    x.mask.hide(logits, fill=-np.inf)
    of_rows = statistics.weight_statistics(logits)
    wide, fine = (rank.summary(P, epsilon=epsilon) for epsilon in (1e-2, 1e-6))
    states = [np.nan, np.nan]
    if x.mask.looks_back and not x.mask.first.any():
        states = [
            float(state_rank.profile(P, x.mask, epsilon=e, positions=x.l).epsilon_rank.max())
            for e in (1e-2, 1e-6)
        ]
    scaling = x.d**-0.5 if x.scaling is None else x.scaling
    found = {
        "n": x.n, "l": x.l, "d": x.d, "c": x.v.shape[1], "scaling": scaling,
        **{name: facts[name] for name in ("logit_min", "logit_max", "logit_std", "row_entropy")},
        "effective_keys": float(np.exp(of_rows["entropy"]).mean()),
        "n_eff": float(np.median(of_rows["sparsity"] ** 2 * x.mask.counts)),
        "stable_rank": wide["stable_rank"],
        "rank_1e-2": wide["epsilon_rank"], "rank_1e-6": fine["epsilon_rank"],
        "numerical_rank": wide["numerical_rank"],
        "states_1e-2": states[0], "states_1e-6": states[1],
        "mean_tv": _error(x, "uniform()")["attention_tv"],
    }  # fmt: skip
    bounds = state_rank.lower_bound(P, [b * x.n // (x.n + x.l) for b in PRICES], mask=x.mask)
    for price, bound in zip(PRICES, bounds):
        largest = _error(x, f"top_k(k={price})")
        found |= {
            f"top_k_tv_{price}": largest["attention_tv"],
            f"top_k_output_{price}": largest["output_relative_error"],
            f"columns_tv_{price}": _error(x, f"columns(k={price})")["attention_tv"],
            f"window_tv_{price}": _error(x, f"sink_window(k={price})")["attention_tv"],
            f"rank_frobenius_{price}": float(bound),
        }
    return found


def _error(x: Head, spec: str) -> dict[str, float]:
    return x.compare(x.approximate(parse(spec)))


def printed(x: float) -> str:
    """Return a number in the table's format: six digits, 0 below 10⁻⁹, "" for no value.

    Examples
    --------
    >>> printed(1 / 3), printed(1e-10), printed(128.0), printed(float("nan"))
    ('0.333333', '0', '128', '')
    """
    if np.isnan(x):
        return ""
    return "0" if abs(x) < ZERO else f"{float(x):.{DIGITS}g}"


def table() -> pd.DataFrame:
    """Return the stored table: a row for each head, with the columns of `COLUMNS`.

    Examples
    --------
    >>> found = table()
    >>> found.shape == (len(NAMES), len(COLUMNS)), found["head"].tolist() == list(NAMES)
    (True, True)
    """
    with (resources.files("analysis") / "data" / "collection.csv").open("rb") as file:
        return pd.read_csv(file, keep_default_na=False, na_values={c: [""] for c in NUMBERS})


def stored(x: Head) -> dict[str, str]:
    """Compute the row of a head of the collection and return it in the table's format.

    ``pd.DataFrame(map(stored, heads()))`` is the table.

    Examples
    --------
    >>> found = stored(head("near-ties"))
    >>> found["origin"], found["n_eff"]
    ('made', '128')
    """
    real = x.name in REAL
    model = SAMPLES.get(x.name.partition("-")[0], ("",))[0]
    found = {
        "head": x.name,
        "origin": f"{model} {x.layer}.{x.head}" if real else "made",
        "about": REAL[x.name] if real else MADE[x.name][1],
        "mask": "all" if str(x.mask) == "full" else str(x.mask),
        **digests(x),
        **{name: printed(number) for name, number in row(x).items()},
    }
    return {name: found[name] for name in COLUMNS}
