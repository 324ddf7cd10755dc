"""Make the bundled sample of SmolLM2: its four heads, and the numbers that chose them.

``python -m lm.sample MODEL`` writes smollm2.npz and smollm2.csv into analysis/data, and prints the
rows of the table in its README.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import head_kinds
from analysis.capture import Capture, capture, save
from approx import exact

DATA = Path(__file__).parent.parent / "analysis" / "data"
TOKENS = 1024
LABELS = {  # of each head, the number of which it has most
    "sink": "sink",
    "local": "recent",
    "broad": "effective_keys",
    "retrieval": "induction",
}


def weights(captured: Capture, layer: int, head: int) -> np.ndarray:
    """Return causal softmax (n, n) of one head, its layer counted in the capture, in float64."""
    q = captured.q[layer, head].astype(np.float64) * captured.scaling
    k = captured.k[layer, head // (captured.q.shape[1] // captured.k.shape[1])]
    logits = exact.logits(q, k.astype(np.float64))
    logits[~np.tri(len(q), dtype=bool)] = -np.inf
    found = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def table(captured: Capture) -> pd.DataFrame:
    """Return layer, head and the shares of attention of every head."""
    layers, heads = captured.q.shape[:2]
    numbers = captured.layers or range(layers)
    return pd.DataFrame(
        {"layer": number, "head": head}
        | head_kinds.shares(weights(captured, layer, head), captured.token_ids)
        for layer, number in enumerate(numbers)
        for head in range(heads)
    )


def choose(shares: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the four heads, in the order of `LABELS`.

    A head that gives everything to key 0 says nothing about any method: the sink head is chosen
    among those with two effective keys or more.
    """
    several = shares[shares.effective_keys >= 2]
    return shares.loc[[several[number].idxmax() for number in LABELS.values()]]


def main(model: str) -> None:
    """Write the sample and the table of all heads."""
    captured = capture(model, DATA / "persuasion.txt", max_tokens=TOKENS)
    shares = table(captured)
    shares.to_csv(DATA / "smollm2.csv", index=False, float_format="%.4f")
    chosen = choose(shares)
    target = DATA / "smollm2.npz"
    heads = list(zip(chosen.layer.tolist(), chosen["head"].tolist()))
    save(captured, target, heads=heads)
    for label, row in zip(LABELS, chosen.itertuples()):
        print(
            f"| {label} | {row.layer} | {row.head} | {row.sink:.3f} | {row.recent:.3f} "
            f"| {row.far:.3f} | {row.effective_keys:.1f} | {row.induction:.3f} |"
        )
    print(hashlib.sha256(target.read_bytes()).hexdigest(), target.stat().st_size, "bytes")


if __name__ == "__main__":
    main(sys.argv[1])
