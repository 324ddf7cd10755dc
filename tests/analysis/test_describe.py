"""What makes an input hard, against loops over what a query sees."""

import math

import numpy as np
import pytest

from analysis.describe import describe
from analysis.inputs import Inputs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_describe_is_its_definition(causal, scale):
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((7, 3)) * scale, rng.standard_normal((7, 3)) * scale
    x = Inputs("x", q, k, causal=causal).at_temperature(2.0)
    logits = [[float(a @ b) for j, b in enumerate(x.K) if j <= i or not causal]
              for i, a in enumerate(x.Q)]  # fmt: skip
    sums = [float(np.sum((a + b) ** 2)) for i, a in enumerate(x.Q)
            for j, b in enumerate(x.K) if j <= i or not causal]  # fmt: skip
    entropies = []
    for row in logits:
        if len(row) > 1:
            weights = [math.exp(v - max(row)) for v in row]
            shares = [w / sum(weights) for w in weights if w > 0]
            entropies.append(-sum(p * math.log(p) for p in shares) / math.log(len(row)))
    flat = [v for row in logits for v in row]
    found = describe(x)
    # sums of at most 49 terms: a few hundred roundings of the largest
    close = {"rel": 1e-12, "abs": 1e-12}
    assert found["logit_min"] == pytest.approx(min(flat), **close)
    assert found["logit_max"] == pytest.approx(max(flat), **close)
    assert found["logit_std"] == pytest.approx(np.std(flat), **close)
    assert found["row_entropy"] == pytest.approx(np.mean(entropies), **close)
    assert found["median_squared_sum"] == pytest.approx(np.median(sums), rel=1e-9)
