"""Attention to 32 keys on held-out queries of SmolLM2: keys unchanged, weighted, or fitted.

    python -m studies.lm.projection out/lm/smollm2-512.safetensors --summary \\
        studies/lm/projection.md

One fit of the first half of a text to its queries is measured on the queries of the second half.
Fits in blocks, while a text is read, are compared with caches at equal reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import scipy.linalg

from analysis import inputs
from analysis.experiments.certificates import errors
from analysis.inputs import Head
from approx import parse
from approx.checks import Array
from approx.estimate import exact
from approx.low_rank.projection import PIVOTS, ColumnProjection, Compaction, pivots
from studies.lm import pages

KEYS, BLOCK = 32, 64
STREAMED = (
    "columns(by='h2o', recent=16)", "columns(by='snapkv', recent=16, window=16, block=16)",
    "sink_window(sinks=4)", "coreset(tau=2.0, block=8)",
    "projection(rank=32, pivots='qr', block=64)", "projection(rank=32, block=64)",
)  # fmt: skip
Rows = Callable[[Array], Array]


def kept(k: Array, chosen: Array) -> Rows:
    """Return attention to some keys as a function of queries, (n, l)."""

    def rows(q: Array) -> Array:
        found = np.zeros((len(q), len(k)))
        found[:, chosen] = exact.softmax(q, k[chosen])
        return found

    return rows


def of_outputs(P: Array, V: Array, rank: int) -> Array:
    """Return columns chosen in turn to minimise the residual of the projection of P V."""
    chosen: list[int] = []
    R, rest = P @ V, P.copy()
    for _ in range(rank):
        size = np.square(rest).sum(axis=0)
        gain = np.square(rest.T @ R).sum(axis=1) / np.where(size > 1e-14, size, np.inf)
        gain[chosen] = -1.0
        j = int(np.argmax(gain))
        chosen.append(j)
        unit = rest[:, j] / max(np.linalg.norm(rest[:, j]), 1e-30)
        R = R - np.outer(unit, unit @ R)
        rest = rest - np.outer(unit, unit @ rest)
    return np.sort(chosen)


def fits(q: Array, k: Array, v: Array) -> dict[str, Rows]:
    """Return {name: attention to 32 keys}, for every way to choose and fit them to queries q."""
    P = exact.softmax(q, k)
    lengths = {
        "": np.ones(len(v)),
        " times the distance of v from its mean": np.linalg.norm(v - v.mean(axis=0), axis=1),
        " times the length of v": np.linalg.norm(v, axis=1),
    }
    ways = {
        f"columns, by attention{name}": kept(k, np.argsort(-P.sum(axis=0) * size)[:KEYS])
        for name, size in lengths.items()
    }
    core = parse(f"coreset(rank={KEYS})")
    ways["coreset"] = lambda x: shares(core.approximate(x, k, rng=0).to_dense())
    choices = {by: pivots(P, KEYS, by) for by in PIVOTS}
    choices["greedy on outputs, seeing values"] = of_outputs(P, v, KEYS)
    for by, chosen in choices.items():
        fit = Compaction.on(chosen, P.copy(), q, k, ColumnProjection().ridge)
        ways[f"projection, {by}"] = fit.rows
    chosen = choices["greedy"]
    fit = Compaction.on(chosen, P.copy(), q, k, ColumnProjection().ridge)
    alone = np.eye(len(k))[chosen]
    ways["projection, greedy, weights only"] = dataclasses.replace(fit, weights=alone).rows
    ways["projection, greedy, no ridge"] = Compaction.on(chosen, P.copy(), q, k, 1e-9).rows
    return ways


def shares(estimate: Array) -> Array:
    """Return rows divided by their sums."""
    return np.asarray(estimate / estimate.sum(axis=1, keepdims=True))


def measured(P: Array, found: Array, v: Array) -> tuple[float, float, float]:
    """Return the mean tv, and relative errors of rows and of outputs in Frobenius norm."""
    output = P @ v
    return (
        float(np.abs(found - P).sum(axis=1).mean() / 2),
        float(np.linalg.norm(found - P) / np.linalg.norm(P)),
        float(np.linalg.norm(found @ v - output) / np.linalg.norm(output)),
    )


def held_out(x: Head) -> list[tuple[object, ...]]:
    """Return the errors of every way, on the queries of the second half and on its own queries."""
    half = x.n // 2
    q, k, v = (np.asarray(a, np.float64) for a in (x.Q, x.K, x.V))
    seen, new, k, v = q[:half], q[half:], k[:half], v[:half]
    P, own = exact.softmax(new, k), exact.softmax(seen, k)
    rows: list[tuple[object, ...]] = []
    ways = fits(seen, k, v)
    for name, way in ways.items():
        rows.append((x.name, name, *measured(P, way(new), v), *measured(own, way(seen), v)))
    U, s, right = scipy.linalg.svd(P, full_matrices=False)
    best = (U[:, :KEYS] * s[:KEYS]) @ right[:KEYS]
    rows.append((x.name, "SVD of the held-out rows (bound)", *measured(P, best, v), *[np.nan] * 3))
    return rows


def streamed(x: Head) -> list[tuple[object, ...]]:
    """Return mean errors over queries that see more keys than the budget, at equal reads."""
    budget = parse(STREAMED[-1]).priced(x.shape).reads
    late, rows = x.mask.counts > BLOCK + KEYS, []
    for spec in STREAMED:
        method = parse(spec).within(budget, **x.shape.given, currency="reads")
        if method is None:
            continue
        tv, output = errors(x.approximate(method, rng=0), x)
        size = np.linalg.norm(exact.attention(x.Q, x.K, x.V, mask=x.mask)[late])
        reads = method.priced(x.shape).reads / (x.l * (x.d + x.V.shape[1]))
        off = float(np.linalg.norm(output[late]) / size)
        rows.append((x.name, spec, str(method), reads, float(tv[late].mean()), off))
    return rows


NAMES = ["head", "method", "tv", "rows", "outputs", "own tv", "own rows", "own outputs"]


def table(found: pd.DataFrame, columns: Sequence[str]) -> str:
    """Return medians over heads, and the number of heads on which each method is best."""
    methods = list(dict.fromkeys(found.method))
    medians = found.groupby("method")[list(columns)].median().loc[methods].reset_index()
    runs = found[~found.method.str.startswith("SVD")]
    for name in ("tv", "outputs"):
        best = runs.loc[runs.groupby("head")[name].idxmin()].method.value_counts()
        medians[f"least {name}"] = [str(best.get(m, 0)) for m in methods]
    return pages.numbers(medians)


def by_head(found: pd.DataFrame) -> str:
    """Return the output error of each head for the main methods of this study."""
    names = [
        "columns, by attention", "coreset", "projection, qr", "projection, greedy",
        "SVD of the held-out rows (bound)",
    ]  # fmt: skip
    wide = found.pivot(index="head", columns="method", values="outputs")[names]
    tv = found.pivot(index="head", columns="method", values="tv")[names]
    both = {"head": list(wide.index)}
    for name in names:
        both[f"{name}: tv, outputs"] = [
            f"{a:.3f}, {b:.3f}" for a, b in zip(tv[name], wide[name], strict=True)
        ]
    return pages.numbers(pd.DataFrame(both))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = pages.parser(".projection", "Attention to 32 keys on held-out queries of SmolLM2.")
    pages.add_heads(parser, 90, 512)
    arguments = parser.parse_args(argv)
    some = pages.heads(arguments)
    bundled = [x.first(arguments.tokens) for x in inputs.sample("smollm2").heads()]
    some = [x for x in some if not any(np.allclose(x.k, y.k, atol=0.1) for y in bundled)]
    heads = [*bundled, *some]
    found = pd.DataFrame([row for x in heads for row in held_out(x)], columns=NAMES)
    stream = pd.DataFrame(
        [row for x in heads for row in streamed(x)],
        columns=["head", "method", "filled", "reads", "tv", "outputs"],
    )
    half, n = heads[0].n // 2, heads[0].n
    shown = np.linspace(0, len(heads) - 1, 12).round().astype(int)
    pages.write(
        arguments,
        f"{len(heads)} heads of SmolLM2 ({len(bundled)} bundled, {len(some)} of "
        f"{arguments.file.stem}), measured on {pages.today()}. The first {half} keys are cut to "
        f"{KEYS} for the queries of the first {half} tokens, each of which is asked for all of "
        f"them. Held-out queries are those of tokens {half} to {n - 1}, which attend to these "
        "keys. Medians over heads: total variation, and relative errors of rows and of outputs in "
        "Frobenius norm; the same on the queries of the fit; and on how many heads a method has "
        "the least error. The SVD knows the held-out rows; no matrix of its rank has less error "
        "of rows.",
        table(found, NAMES[2:]),
        "Twelve of them, at equal distances:",
        by_head(found[found["head"].isin([heads[i].name for i in shown])]),
        f"While a text is read (causal, queries that see more than {BLOCK + KEYS} keys), methods "
        f"filled to the reads of a projection with {KEYS} keys and blocks of {BLOCK}; reads as a "
        "share of exact attention's:",
        table(stream, ["reads", "tv", "outputs"]),
    )


if __name__ == "__main__":
    main()
