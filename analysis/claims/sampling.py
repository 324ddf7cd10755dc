"""vAttention, MagicPIG, HyperAttention, KDEformer: some keys exact, the rest drawn and weighted.

The papers are of 2023 to 2026. A source is quoted as far as it could be read: an abstract, or a
file of public code, its line and commit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis import pitfalls
from analysis.claims.evidence import Check, claim, printed, sampled

V_ATTENTION = "vAttention (arXiv 2510.05688), abstract"
HUB = "skylight-org/sparse-attention-hub f5abf91"


# vAttention


@claim(
    "VA-Ea",
    "Keys drawn with replacement have to add up: where a repeated draw is assigned, the mean of a "
    "sum is (1 − (1 − 1/N)^b)·N/b of it, b draws from N keys.",
    HUB + ", mask_attention_utils.py:156 and mask.py:606",
)
def repeats() -> Iterator[Check]:
    """Compare the mean weight of a key with the closed form, at densities of 2, 10 and 50 %."""
    keys, trials = 500, 400
    for draws in (10, 50, 250):
        rng = np.random.default_rng(draws)
        means = [pitfalls.assigned(keys, draws, rng=rng).mean() for _ in range(trials)]
        error = float(np.std(means, ddof=1)) / trials**0.5
        mean, predicted = float(np.mean(means)), pitfalls.assigned_mean(keys, draws)
        yield sampled(f"mean weight, {draws} draws of 500", predicted, mean, error)
    yield printed(sampled("mean weight, 250 draws, as printed", 1.0, mean, error))
