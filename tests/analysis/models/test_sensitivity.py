"""What predicts the damage of a head: formulas by loops, and Fisher's information in a model."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from test_substitute import build, passage, with_torch

from analysis.inputs import Head
from analysis.models import sensitivity
from approx import Mask, parse


def head(n=12, d=3, c=4, width=5, seed=0):
    rng = np.random.default_rng(seed)
    q, k = 2 * rng.standard_normal((2, n, d))
    x = Head("x", q, k, rng.standard_normal((n, c)), 1 / math.sqrt(d), Mask.causal(n, n))
    return x, rng.standard_normal((c, width)), rng.standard_normal((2, n, c))


def test_predictors_are_their_definitions():
    x, projection, gradients = head()
    found = sensitivity.predictors(x, parse("sink_window(k=3)"), 0, projection, gradients)
    n = x.n
    change = np.zeros((n, 4))
    exact_norm = tv = 0.0
    for i in range(n):
        weights = np.exp([x.q[i] @ x.k[j] / math.sqrt(3) for j in range(i + 1)])
        exact = weights / weights.sum()
        kept = [0, *range(max(1, i - 1), i + 1)] if i else [0]
        cut = np.zeros(i + 1)
        cut[kept] = weights[kept] / weights[kept].sum()
        change[i] = (cut - exact) @ x.v[: i + 1]
        exact_norm += np.sum((exact @ x.v[: i + 1]) ** 2)
        tv += np.abs(cut - exact).sum() / 2 / n
    squares = sum((g[i] @ change[i]) ** 2 for g in gradients for i in range(n))
    moved = [sum((change[i] @ projection[:, j]) ** 2 for j in range(5)) for i in range(n)]
    assert found["attention_tv"] == pytest.approx(tv, rel=1e-12)
    assert found["output_relative_error"] ** 2 == pytest.approx(
        np.sum(change**2) / exact_norm, rel=1e-12
    )
    assert found["output_error"] ** 2 == pytest.approx(np.sum(change**2) / n, rel=1e-12)
    assert found["projected_error"] ** 2 == pytest.approx(sum(moved) / n, rel=1e-12)
    assert found["fisher"] == pytest.approx(squares / 4, rel=1e-12)


def made_up(count=40, seed=0):
    rng = np.random.default_rng(seed)
    kl = np.exp(rng.standard_normal(2 * count))
    noise = {name: rng.standard_normal(2 * count) for name in sensitivity.PREDICTORS}
    heads = {"layer": np.arange(2 * count) // 2, "head": 1, "method": ["a", "b"] * count}
    return pd.DataFrame(heads | noise | {"kl": kl, "fisher": kl**3})


def test_correlations_and_their_intervals():
    table = made_up()
    found = sensitivity.correlations(table).set_index(["method", "predictor"])
    assert found.loc[("all", "fisher"), ["spearman", "low", "high"]].tolist() == pytest.approx(
        [1] * 3
    )
    assert found.heads.eq(40).all()
    part = table[table.method == "a"]
    twin = scipy.stats.spearmanr(part.output_error, part.kl)
    row = found.loc[("a", "output_error")]
    assert row.spearman == pytest.approx(twin.statistic, rel=1e-12)
    # of independent ranks: standard error 1/√(heads − 1); the interval is four of them wide
    assert row.high - row.low == pytest.approx(4 / math.sqrt(39), rel=0.25)
    assert row.low < row.spearman < row.high


def test_heads_are_drawn_again_with_all_their_methods():
    """Rows that are there twice must not make an interval narrower."""
    table = made_up()
    table = table[table.method == "a"]
    twice = pd.concat([table, table.assign(method="b")])
    one, two = (
        sensitivity.correlations(x).set_index(["method", "predictor"]) for x in (table, twice)
    )
    widths = [x.loc[("all", "output_error"), "high"] - x.loc[("all", "output_error"), "low"]
              for x in (one, two)]  # fmt: skip
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


@with_torch
@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_the_projection_of_a_layer(kind):
    changes = {} if kind == "llama" else {"rotary_pct": 0.5}
    model = passage(build(kind, **changes)).model
    found = model.projection(1)
    block = model._blocks[1]
    linear = block.self_attn.o_proj if kind == "llama" else block.attention.dense
    weight = linear.weight.detach().numpy()
    assert found.shape == (4, 8, 32)
    np.testing.assert_allclose(found, weight.T.reshape(4, 8, 32), rtol=1e-12, atol=1e-15)


@with_torch
def test_gradients_at_drawn_tokens_have_the_divergence_as_their_mean_square():
    """E[(Σ g·Δ)²]/2 = Σ KL to second order, with a standard error of √(2/samples) of it."""
    p = passage(build())
    method = parse("quantised(bits=9)")
    (pair,) = alone = {(1, 2): method}
    x = p.inputs(1).at(*pair)
    change = x.approximate(method).attend(x.V) - x.approximate(parse("exact()")).attend(x.V)
    rng = np.random.default_rng(0)
    count = 200
    products = [np.sum(p.gradients(p.sampled(rng))[1][2] * change) for _ in range(count)]
    kl = p.replace(alone).kl.sum()
    assert abs(np.mean(np.square(products)) / 2 / kl - 1) < 4 * math.sqrt(2 / count) + 0.02


@with_torch
def test_single_heads_have_the_damage_of_a_plan_of_one():
    p = passage(build())
    methods = [parse("sink_window(k=4)"), parse("positive(m=16)")]
    parts = list(sensitivity.singles(p, methods, heads=[(2, 0), (1, 3)], samples=1))
    assert [part.layer.tolist() for part in parts] == [[1, 1], [2, 2]]
    table = pd.concat(parts)
    row = table[(table.layer == 1) & (table.method == str(methods[1]))].iloc[0]
    alone = {(1, 3): methods[1]}
    assert row.kl == p.replace(alone).kl.mean()
    assert row.attention_tv == p.own_errors(alone)[1, 3]["attention_tv"]
