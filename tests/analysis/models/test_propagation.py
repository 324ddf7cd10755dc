"""Errors from layer to layer, and their bound, in a transformer of NumPy; `make lm` runs torch."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from each import each
from test_substitute import build, passage, with_torch
from transformer import Transformer, exact

from analysis.inputs import Heads
from analysis.models import propagation
from analysis.models.propagation import Block, bound, follow, growth, largest
from approx import parse

MODEL = Transformer.random(heads=2, groups=1, d=4, inner=10)
EPS = float(np.finfo(float).eps)
TOKENS = np.random.default_rng(1).integers(0, 50, 12)
STATES = MODEL.prefill(TOKENS)[1]


def layer(i, x, methods=(), model=MODEL):
    """Return what leaves a layer."""
    q, k, v = model.projected(i, x, np.arange(len(x)))
    outputs = np.empty_like(q)
    for head in range(model.heads):
        mine = head * model.groups // model.heads
        if (i, head) in dict(methods):
            one = inputs(i, x, model).at(i, head)
            outputs[head] = one.approximate(dict(methods)[i, head], rng=0).attend(one.V)
        else:
            outputs[head] = exact(q[head], k[mine], v[mine], len(x))
    return model.finished(i, x, outputs)


def inputs(i, x, model=MODEL):
    ids = tuple((i, head, "") for head in range(model.heads))
    arrays = model.projected(i, x, np.arange(len(x)))
    return Heads("layer", *arrays, scaling=model.d**-0.5, mask="causal", ids=ids)


def block(i, model=MODEL):
    w, d = model.weights, model.d
    gain, after = w[f"{i}.before"], w[f"{i}.after"]
    q, k, v = ((w[f"{i}.{x}_proj"] * gain).reshape(-1, d, len(gain)) for x in "qkv")
    o = np.stack([w[f"{i}.o_proj"][:, d * h : d * (h + 1)] for h in range(model.heads)])
    gate, up = (w[f"{i}.{x}_proj"] * after for x in ("gate", "up"))
    return Block(q, k, v, o, gate, up, w[f"{i}.down_proj"], model.eps)


def twin(i, x, sizes):
    """Return the bound by loops, as its notes state it."""
    w, b, n = len(x[0]), block(i), len(x)
    two = lambda a: np.linalg.svd(a)[1][0]  # noqa: E731
    q, k, v = MODEL.projected(i, x, np.arange(n))

    def turned(y, by):
        found = []
        for row, size in zip(y, by):
            t = size / math.sqrt(row @ row + w * b.eps)
            found.append(math.sqrt(w) * (2 * math.sin(math.asin(t) / 2) if t < 1 else 2))
        return found

    r, moved, outputs = turned(x, sizes), [float(size) for size in sizes], np.empty_like(q)
    for h in range(MODEL.heads):
        mean, nu = k[0].mean(axis=0), [two(b.o[h] @ b.v[0]) * one for one in r]
        for a in range(n):
            p = np.exp([q[h, a] @ k[0, j] / math.sqrt(MODEL.d) for j in range(a + 1)])
            p /= p.sum()
            outputs[h, a] = out = sum(p[j] * v[0, j] for j in range(a + 1))
            alpha, m, away = two(b.q[h]) * r[a], [], []
            for j in range(a + 1):
                kappa = two(b.k[0]) * r[j]
                size = alpha * np.linalg.norm(k[0, j] - mean)
                m.append((size + (np.linalg.norm(q[h, a]) + alpha) * kappa) / math.sqrt(MODEL.d))
                away.append(np.linalg.norm(b.o[h] @ (v[0, j] - out)))
            theta = math.tanh(max(m) / 2)
            moved[a] += sum(p[j] * nu[j] for j in range(a + 1))
            moved[a] += theta * (max(nu[: a + 1]) + 2 * max(away))
    state = x + sum(outputs[h] @ b.o[h].T for h in range(MODEL.heads))
    found = []
    for a, r in enumerate(turned(state, moved)):
        y = state[a] / math.sqrt(state[a] @ state[a] / w + b.eps)
        gate, up = b.gate @ y, b.up @ y
        silu = max(abs(g / (1 + math.exp(-g))) for g in gate)
        most = max(map(abs, up)) + max(map(np.linalg.norm, b.up)) * r
        found.append(moved[a] + two(b.down) * r * (1.1 * two(b.gate) * most + silu * two(b.up)))
    return found


@each("size", [1e-9, 0.1, 30.0])
def test_the_bound_is_its_formula_and_recomputes_the_layer(size):
    x = STATES[1]
    sizes = size * np.random.default_rng(0).random(len(x))
    found = bound(block(1), inputs(1, x), x, sizes)
    # The distance of a value from itself is the root of what squares of order 1 round to.
    np.testing.assert_allclose(found.sizes, twin(1, x, sizes), rtol=10 * math.sqrt(EPS))
    np.testing.assert_allclose(found.output, layer(1, x), rtol=1e-9)


def jacobian(i, x):
    """Return the derivative of a layer, from differences to both sides, and its error of step²."""
    step = 1e-5 * np.eye(x.size).reshape(-1, *x.shape)
    return np.array([(layer(i, x + e) - layer(i, x - e)).ravel() / 2e-5 for e in step]).T


def test_no_error_is_above_the_bound_not_even_the_worst():
    rng, x = np.random.default_rng(0), STATES[0]
    j = jacobian(0, x)
    worst = np.linalg.svd(j)[2][0].reshape(x.shape)
    for size in (1e-4, 0.1, 1.0, 10.0, 1e4):
        for e in (worst, rng.standard_normal(x.shape), -x * rng.random((len(x), 1))):
            change = size * e
            sizes = np.linalg.norm(change, axis=1)
            above = bound(block(0), inputs(0, x), x, sizes).sizes
            moved = np.linalg.norm(layer(0, x + change) - layer(0, x), axis=1)
            assert (moved <= above * (1 + 1e-9)).all()


def test_layers_in_which_the_bound_is_reached():
    """Nothing but the path of the state, or values that are copied, or the norm's turn."""
    x = STATES[1]
    sizes = np.full(len(x), 0.3)
    none = block(1)._replace(o=np.zeros((2, 8, 4)), down=np.zeros((8, 10)))
    np.testing.assert_allclose(bound(none, inputs(1, x), x, sizes).sizes, sizes, rtol=1e-12)
    # one position sees itself only, so that what moves is W_o W_v times the turned state
    values = none._replace(o=block(1).o * [[[1.0]], [[0.0]]])
    one = Heads("one", *(y[:, :1] for y in MODEL.projected(1, x, np.arange(12))), 0.5, "causal",
                 ids=((1, 0, ""), (1, 1, "")))  # fmt: skip
    above = bound(values, one, x[:1], np.array([1e-7])).sizes[0] / 1e-7
    unit = x[0] / np.sqrt((x[0] ** 2).mean() + MODEL.eps)
    turn = (np.eye(8) - np.outer(unit, unit) / 8) / np.sqrt((x[0] ** 2).mean() + MODEL.eps)
    slope = np.linalg.norm(values.o[0] @ values.v[0] @ turn, 2)
    assert (
        slope
        <= above - 1
        <= np.linalg.norm(values.o[0] @ values.v[0], 2) * 1.0001 / np.sqrt((x[0] ** 2).mean())
    )
    # a norm without eps in the plane: of all errors of a size, the tangent turns most
    for size in (0.1, 0.9, 1.4):
        y = np.array([[1.0, 0.0]])
        angles = np.linspace(0, 2 * np.pi, 100_001)
        ends = y + size * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        away = np.sqrt(2) * np.linalg.norm(
            ends / np.linalg.norm(ends, axis=1, keepdims=True) - y, axis=1
        )
        found = propagation._turned(y, np.array([size]), 0.0)[0]
        assert away.max() == pytest.approx(found, rel=1e-6)


def test_the_norm_of_a_jacobian_is_its_largest_singular_value():
    j = jacobian(1, STATES[1])
    top = np.linalg.svd(j)[1][0]
    found = largest(lambda v: j @ v, lambda u: j.T @ u, len(j))
    assert 0.98 * top <= found <= top * (1 + 1e-9)


def test_an_error_is_followed_from_layer_to_layer():
    methods = dict.fromkeys([(0, 1), (1, 0)], parse("sink_window(k=3)"))
    states = MODEL.prefill(TOKENS, methods)[1]

    def step(i, x, changed):
        return layer(i, x, methods if changed else ())

    def above(i, sizes):
        return bound(block(i), inputs(i, STATES[i]), STATES[i], sizes).sizes

    found = follow(STATES, step, [0, 1], skip=4, rng=0, above=above).set_index("layer")
    norm = np.linalg.norm
    assert found.error[0] == found.carried[0] == found.relative[0] == 0.0
    assert found.made[0] == found.left[0] == found.error[1]
    assert found.left[1] == pytest.approx(norm(states[2] - STATES[2]), rel=1e-9)
    for name, at in (("relative", 1), ("left_relative", 2)):
        expected = norm((states[at] - STATES[at])[4:]) / norm(STATES[at][4:])
        assert found[name][1] == pytest.approx(expected, rel=1e-9)
    carried = layer(1, states[1])
    assert found.carried[1] == pytest.approx(norm(carried - STATES[2]), rel=1e-9)
    assert found.made[1] == pytest.approx(norm(states[2] - carried), rel=1e-9)
    assert max(found.carried[1], found.noise[1]) < found.bound[1]
    # an error behind the last replaced layer is carried and not made
    late = follow(STATES, step, [0], rng=0)
    assert late.made[1] == 0.0
    assert late.left[1] == late.carried[1] > 0.1


def test_growth_of_layers_and_its_standard_errors():
    e = math.e
    table = pd.DataFrame({
        "layer": [0, 1, 1, 2, 2], "error": [0.0, 1.0, 2.0, 1.0, 1.0],
        "carried": [0.0, e, 2 * e**3, 1.0, 1.0],
    })  # fmt: skip
    found = growth(table).set_index("layer")
    assert found.index.tolist() == [1, 2, -1]
    assert found.growth.tolist() == pytest.approx([e**2, 1.0, e])
    # logs 1 and 3: standard error 1; means 2 and 0: standard error 1
    assert found.stderr.tolist() == pytest.approx([e**2, 0.0, e])
    assert found.runs.tolist() == [2, 2, 2]


def test_a_layer_that_heals_an_error_has_growth_zero():
    table = pd.DataFrame({
        "layer": [0, 0, 1, 1, 2], "error": [1.0, 1.0, 2.0, 2.0, 0.0],
        "carried": [0.0, 3.0, 4.0, 4.0, 0.0], "relative": [1.0, 1.0, 2.0, 0.0, 0.0],
    })  # fmt: skip
    found = growth(table).set_index("layer")
    assert found.growth.to_dict() == {0: 0.0, 1: 2.0, -1: 0.0}
    assert found.stderr.isna().to_dict() == {0: True, 1: False, -1: True}
    other = growth(table, before="relative")  # the positions that count may have no error at first
    assert other.set_index("layer").runs.to_dict() == {0: 2, 1: 1, -1: 2}


def test_what_has_no_bound():
    x = STATES[1]
    with pytest.raises(ValueError, match="same positions and heads"):
        bound(block(1), inputs(1, x), x, np.ones(3))
    with pytest.raises(ValueError, match="needs V"):
        bound(block(1), dataclasses.replace(inputs(1, x), v=None), x, np.ones(12))
    with pytest.raises(ValueError, match="sizes must be >= 0"):
        bound(block(1), inputs(1, x), x, -np.ones(12))


# With torch, where it is there


@with_torch
def test_a_trace_is_the_residual_of_the_replaced_model():
    p = passage(build())
    heads = p.everywhere(parse("sink_window(k=6)"), [(1, 0), (1, 3), (2, 1)])
    found = propagation.trace(p, heads).set_index("layer")
    residual = p.replace(heads).residual
    assert found.index.tolist() == [1, 2]
    np.testing.assert_allclose(found.left_relative, residual[2:], rtol=1e-5)
    assert found.carried[2] < found.bound[2]
    assert found.noise[2] < found.bound[2]


@with_torch
def test_a_step_of_any_layer_is_that_of_the_model():
    torch = pytest.importorskip("torch")

    p = passage(build())
    for i in range(3):
        torch.testing.assert_close(p.step(i, p.states[i]), p.states[i + 1])
    twice = p.step(0, 2 * p.states[0])
    assert (twice - p.states[1]).abs().max() > 0.1


@with_torch
def test_the_jacobian_of_a_layer_is_that_of_torch():
    torch = pytest.importorskip("torch")

    p = passage(build(), skip=2)
    p = type(p)(p.model, p.ids[:6], skip=2)
    own = p.states[1].clone()
    dense = torch.autograd.functional.jacobian(lambda x: p.model.step(p.ids, 1, x), own)
    top = float(torch.linalg.matrix_norm(dense.reshape(own.numel(), -1), 2))
    assert 0.98 * top <= propagation.jacobian_norm(p, 1) <= top * (1 + 1e-4)


@with_torch
@each("kind", ["gpt2", "mistral"])
def test_layers_that_have_no_bound_or_one_under_a_window(kind):
    p = passage(build(kind, **({"sliding_window": 7} if kind == "mistral" else {})))
    heads = {(0, 1): parse("sliding_window(width=3)")}
    if kind == "gpt2":
        with pytest.raises(ValueError, match="layer 0 of tiny is not of Llama's kind"):
            propagation.trace(p, heads)
        found = propagation.trace(p, heads, bounded=False)
        assert found.bound.isna().all()
    else:
        found = propagation.trace(p, heads)
        assert (found.carried <= found.bound).all()


@with_torch
@each("kind", ["qwen2", "qwen3", "yarn"])
def test_queries_that_are_not_rotated_projections_have_no_bound(kind):
    """Qwen3 divides them by their own length, YaRN makes them longer; biases move nothing."""
    torch = pytest.importorskip("torch")

    if kind == "yarn":
        rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4,
                "original_max_position_embeddings": 16}  # fmt: skip
        model = build("llama", rope_parameters=rope)
    else:
        model = build(kind)
    if kind == "qwen2":
        for one in model.model.layers:
            torch.nn.init.normal_(one.self_attn.q_proj.bias)
    heads = {(0, 1): parse("sliding_window(width=3)")}
    if kind == "qwen2":
        found = propagation.trace(passage(model), heads)
        assert (found.carried <= found.bound).all()
    else:
        with pytest.raises(ValueError, match="layer 0 of tiny has weights of Llama's kind and co"):
            propagation.trace(passage(model), heads)
