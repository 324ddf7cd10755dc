"""Make the bundled sample of SmolLM2: its four heads, and the numbers that chose them.

``python -m studies.lm.sample MODEL`` writes smollm2.npz and smollm2.csv into analysis/data,
and prints the rows of the table in its README.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.models.capture import Capture, capture, save
from approx import Mask
from approx.estimate import exact
from studies.lm import head_kinds

DATA = Path(__file__).parents[2] / "analysis" / "data"
TOKENS = 1024
LABELS = {  # head → the statistic in which it is largest
    "sink": "sink",
    "local": "recent",
    "broad": "effective_keys",
    "retrieval": "induction",
}


def weights(captured: Capture, layer: int, head: int) -> np.ndarray:
    """Return causal softmax (n, n) of one head in float64; ``layer`` is an index of the capture."""
    q = captured.q[layer, head].astype(np.float64) * captured.scaling
    k = captured.k[layer, head // (captured.q.shape[1] // captured.k.shape[1])]
    return np.asarray(exact.softmax(q, k.astype(np.float64), Mask.causal(len(q), len(k))))


def table(captured: Capture) -> pd.DataFrame:
    """Return the layer, the head and the shares of attention of every head."""
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

    A head that attends only to key 0 is easy for every method, so the sink head is chosen among
    heads with at least two effective keys.
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
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    print(target.name, digest, target.stat().st_size, "bytes")


if __name__ == "__main__":
    main(sys.argv[1])
