"""What predicts the damage of a head: formulas by loops, and Fisher's information in a model."""

import math

import numpy as np
import pytest
from test_substitute import passage
from tiny_models import build, with_torch

from analysis.inputs import Head
from analysis.models import sensitivity
from approx import Mask, parse


def test_the_prediction_is_its_definition():
    rng = np.random.default_rng(0)
    q, k = 2 * rng.standard_normal((2, 12, 3))
    x = Head("x", q, k, rng.standard_normal((12, 4)), 1 / math.sqrt(3), Mask.causal(12, 12))
    gradients = rng.standard_normal((2, 12, 4))
    change = np.zeros((12, 4))
    for i in range(12):
        weights = np.exp([q[i] @ k[j] / math.sqrt(3) for j in range(i + 1)])
        kept = [0, *range(max(1, i - 1), i + 1)] if i else [0]
        cut = np.zeros(i + 1)
        cut[kept] = weights[kept] / weights[kept].sum()
        change[i] = (cut - weights / weights.sum()) @ x.v[: i + 1]
    found = sensitivity.moved(x, x.approximate(parse("sink_window(k=3)")))
    np.testing.assert_allclose(found, change, rtol=1e-12, atol=1e-14)
    squares = sum((g[i] @ change[i]) ** 2 for g in gradients for i in range(12))
    assert sensitivity.fisher(found, gradients) == pytest.approx(squares / 4, rel=1e-12)


@with_torch
def test_gradients_at_drawn_tokens_have_the_divergence_as_their_mean_square():
    """E[(Σ g·Δ)²]/2 = Σ KL to second order, with a standard error of √(2/samples) of it."""
    p = passage(build(), jobs=1)  # more threads only wait for each other
    method = parse("quantised(bits=9)")
    (pair,) = alone = {(1, 2): method}
    x = p.inputs(1).at(*pair)
    change = x.approximate(method).attend(x.V) - x.approximate(parse("exact()")).attend(x.V)
    rng = np.random.default_rng(0)
    count = 200
    products = [np.sum(p.gradients([p.sampled(rng)])[0][1][2] * change) for _ in range(count)]
    kl = p.replace(alone).kl.sum()
    assert abs(np.mean(np.square(products)) / 2 / kl - 1) < 4 * math.sqrt(2 / count) + 0.02
