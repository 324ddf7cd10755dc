"""Queries, keys and values: what synthetic ones are, and what files may hold."""

import dataclasses
import hashlib
import math
import pickle
import shutil
import struct
from functools import partial

import files
import naive
import numpy as np
import pytest
from refusals import refuses

from analysis.errors import metrics
from analysis.inputs import Head, Heads, clustered, gaussian, generative, load, sample, sphere
from approx import Mask, parse
from approx.estimate import exact

EPS = np.finfo(float).eps


# Synthetic


@pytest.mark.parametrize("make", [gaussian, sphere, clustered])
def test_synthetic_inputs_have_their_shape_and_follow_the_seed(make):
    x = make(12, 5, rng=3)
    assert (x.n, x.l, x.d) == (12, 12, 5)
    assert x.q.shape == x.k.shape == x.v.shape == (12, 5)
    assert (x.layer, x.head, str(x.mask), x.temperature) == (-1, -1, "full", 1.0)
    assert x.digest() == make(12, 5, rng=3).digest() != make(12, 5, rng=4).digest()
    assert not np.allclose(x.q, x.k)
    assert [y is x for y in x.heads()] == [True]


def test_gaussian_logits_have_standard_deviation_one_over_t():
    x = gaussian(400, 16, rng=0)
    for values in (x.q, x.k, x.v):
        # 6400 independent N(0, 1): five standard errors of the mean and of the mean square
        assert abs(values.mean()) < 5 / math.sqrt(6400)
        assert abs((values**2).mean() - 1) < 5 * math.sqrt(2 / 6400)
    for t in (0.5, 1.0, 4.0):
        y = x.at_temperature(t)
        logits = t * y.Q @ y.K.T
        # the mean of (q·k)²/d is tr(AB)/d with A = qᵀq/n, B = kᵀk/n: variance 4/(nd) + O(n⁻²)
        assert abs((logits**2).mean() - 1) < 5 * math.sqrt(4 / 6400 + 4 / 400**2)


def test_sphere_has_radius_root_d():
    x = sphere(50, 7, rng=0)
    for values in (x.q, x.k):  # two norms of 7 squares, each 9/4 eps at most, and two operations
        np.testing.assert_allclose(np.linalg.norm(values, axis=1), math.sqrt(7), rtol=6 * EPS)
    assert (np.abs(x.Q @ x.K.T) <= math.sqrt(7) * (1 + 8 * EPS)).all()
    np.testing.assert_array_equal(x.v, gaussian(50, 7, rng=0).v)


def test_clustered_points_lie_around_common_centres():
    x = clustered(600, 3, clusters=4, spread=0.1, rng=0)
    group = np.arange(600) % 4
    centres = np.array([x.q[group == c].mean(axis=0) for c in range(4)])
    others = np.array([x.k[group == c].mean(axis=0) for c in range(4)])
    # means of 150 points of standard deviation 0.1
    assert np.abs(centres - others).max() < 5 * 0.1 * math.sqrt(2 / 150)
    inside = np.concatenate([x.q - centres[group], x.k - others[group]])
    assert abs(inside.std() / 0.1 - 1) < 5 / math.sqrt(2 * inside.size)
    assert np.ptp(centres, axis=0).max() > 1  # not all in one place
    shared = clustered(16, 3, shared=True, rng=0)
    np.testing.assert_array_equal(shared.q, shared.k)
    assert shared.name != clustered(16, 3, rng=0).name
    points = clustered(12, 3, clusters=5, spread=0, rng=0).q
    assert len(np.unique(points, axis=0)) == 5
    np.testing.assert_array_equal(points[:5], points[5:10])
    assert len(np.unique(clustered(64, 2, spread=0, rng=0).q, axis=0)) == 64 // 8
    assert len(np.unique(clustered(3, 2, spread=0, rng=0).q, axis=0)) == 1
    refuses("clusters must be <= 4", clustered, 4, 2, clusters=5, rng=0)
    refuses("size must be <= 4", generative, 4, 2, 0.1, size=5, rng=0)


def test_generative_model_has_unit_clusters():
    delta, n, d = 0.5, 600, 64
    x = generative(n, d, delta, size=3, shared=False, rng=0)
    group = np.arange(n) % 200
    same = group[:, None] == group
    products = x.q @ x.k.T
    # within a cluster q·k = |c|² + noise, E = 1: variances 2/d of |c|², (2Δ² + Δ⁴)/d of the rest;
    # the nine pairs of a cluster are not independent, 200 centres are
    spread = math.sqrt((2 + 2 * delta**2 + delta**4) / d)
    assert abs(products[same].mean() - 1) < 5 * spread / math.sqrt(200)
    # between clusters q·k has mean 0 and variance (1 + Δ²)²/d; 600²/9 pairs of centres
    other = products[~same]
    assert abs(other.std() * math.sqrt(d) / (1 + delta**2) - 1) < 5 / math.sqrt(200)
    # |q − k|² within a cluster is 2Δ² in the mean, each of 1800 pairs with relative variance 2/d
    distance = np.square(x.q - x.k).sum(axis=1).mean()
    assert abs(distance / (2 * delta**2) - 1) < 5 * math.sqrt(2 / (n * d))


def test_generative_model_in_terms_of_beta():
    x = generative(10, 4, 0.3, rng=0)
    np.testing.assert_array_equal(x.q, x.k)
    assert x.scaling == 1.0
    at = x.at_temperature(1 / 5)
    np.testing.assert_allclose(at.Q @ at.K.T, 5 * x.q @ x.q.T, atol=100 * EPS)
    assert x.name != generative(10, 4, 0.3, shared=False, rng=0).name
    twice = generative(7, 3, 0.0, size=2, rng=0).q
    assert len(np.unique(twice, axis=0)) == 4  # three pairs and a single
    assert not np.array_equal(twice[0], twice[1])
    assert len(np.unique(generative(6, 3, 0.0, size=6, rng=0).q, axis=0)) == 1


# Temperature and scaling


def test_temperature_is_relative_to_the_raw_arrays():
    x = gaussian(6, 4, rng=0)
    y = x.at_temperature(0.3)
    # √(1/2/0.3) twice, and one product of four terms
    np.testing.assert_allclose(y.Q @ y.K.T, x.q @ x.k.T / (0.3 * 2), atol=40 * EPS)
    again = x.at_temperature(7.0).at_temperature(0.3)
    np.testing.assert_array_equal(again.Q, y.Q)
    np.testing.assert_array_equal(again.K, y.K)
    assert again.temperature == 0.3
    assert y.V is x.v
    assert x.temperature == 1.0


def test_scaled_arrays_are_computed_once_and_do_not_travel():
    x = gaussian(50, 4, rng=0)
    size = len(pickle.dumps(x))
    assert x.Q is x.Q
    assert x.K is x.K
    assert len(pickle.dumps(x)) == size  # the raw arrays alone
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)).Q, x.Q)
    assert x.at_temperature(1.0).Q is not x.Q
    np.testing.assert_allclose(x.at_temperature(4.0).Q, x.Q / 2)


# Identity


def test_logits_are_those_of_the_keys_that_a_query_sees():
    x = Head("x", np.eye(3, 2, dtype="f4"), np.arange(6, dtype="f4").reshape(3, 2), scaling=0.5)
    q_dot_k = np.array([[0.0, 1.0, 2.0], [0.5, 1.5, 2.5], [0.0, 0.0, 0.0]])
    # Q and K are scaled by the root of ½ each, rounded in float32
    np.testing.assert_allclose(x.logits(), q_dot_k, rtol=4 * np.finfo(np.float32).eps)
    assert x.logits().dtype == np.float64
    for mask in ("causal", Mask([1, 0, 2], [3, 1, 3], 3)):
        seen = np.isfinite(dataclasses.replace(x, mask=mask).logits())
        np.testing.assert_array_equal(seen, naive.seen(mask, 3, 3))


def test_inputs_give_their_mask_to_estimates_and_comparisons():
    x = dataclasses.replace(gaussian(6, 3, rng=0), mask="causal").at_temperature(0.5)
    method = parse("positive(m=4)")
    estimate = x.approximate(method, rng=1)
    assert estimate.mask is x.mask
    by_hand = method.approximate(x.Q, x.K, mask="causal", rng=1)
    np.testing.assert_array_equal(estimate.to_dense(), by_hand.to_dense())
    assert x.compare(estimate) == metrics.compare(by_hand, x.Q, x.K, x.V)
    assert x.compare(estimate, rows=3) == metrics.compare(by_hand, x.Q, x.K, x.V, rows=3)
    with pytest.raises(ValueError, match="an estimate has the mask full, not causal"):
        x.compare(method.approximate(x.Q, x.K, rng=1))
    with pytest.raises(TypeError, match="method must be a method"):
        x.approximate("positive(m=4)")


def test_the_mask_of_inputs_is_checked():
    x = gaussian(4, 2, rng=0)
    decoding = dataclasses.replace(x, q=x.q[:1], mask="causal")
    assert (decoding.mask.shape, str(decoding.mask)) == ((1, 4), "causal")
    few = dataclasses.replace(x, q=x.q[:3])  # all keys are seen by fewer queries, too
    assert few.mask == Mask.full(3, 4)
    with pytest.raises(TypeError, match='mask must be None, "causal" or a Mask'):
        dataclasses.replace(x, mask=(None,))  # which many heads may have
    refuses("one mask per head is needed, got 2 masks", many, mask=(None, "causal"))


def test_digest_depends_on_content_alone():
    x = gaussian(6, 4, rng=0)
    same = dataclasses.replace(
        x, name="other", q=np.asfortranarray(x.q), k=np.repeat(x.k, 2, axis=0)[::2]
    )
    assert same.digest() == x.digest()
    assert x.at_temperature(3.0).digest() == x.digest()
    swapped = {name: getattr(x, name).astype(">f8") for name in "qkv"}
    assert dataclasses.replace(x, **swapped).digest() == x.digest()
    plain = dataclasses.replace(x, scaling=1.0, mask="causal", head=3).digest()
    typed = {"scaling": np.float64(1), "mask": Mask.causal(6, 6), "head": np.int8(3)}
    assert dataclasses.replace(x, **typed).digest() == plain
    assert dataclasses.replace(x, scaling=1, mask="causal", head=3).digest() == plain
    assert dataclasses.replace(x, mask=Mask.full(6, 6)).digest() == x.digest()
    causal, centred = (Mask(np.zeros(6, int), np.arange(1, 7), 6, back) for back in (True, False))
    assert len({dataclasses.replace(x, mask=m).digest() for m in (causal, centred)}) == 2
    masks = ("causal", *(Mask.window(6, 6, width) for width in (1, 2, 5)))
    assert len({dataclasses.replace(x, mask=mask).digest() for mask in (None, *masks)}) == 5
    moved = x.q.copy()
    moved[-1, -1] = np.nextafter(moved[-1, -1], 9)
    for change in (
        {"q": moved}, {"q": x.k, "k": x.q}, {"v": None}, {"v": x.v[:, :2]}, {"scaling": 0.5},
        {"head": 3}, {"q": x.q.astype(np.float32)}, {"mask": "causal"},
        {"mask": Mask(np.zeros(6, int), np.full(6, 6), 6, looks_back=True)},
        {"q": x.q.reshape(4, 6), "k": x.k.reshape(4, 6)},
    ):  # fmt: skip
        assert dataclasses.replace(x, **change).digest() != x.digest(), change


# Heads


def many(**changes):
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 3, 5, 4))
    ids = ((0, 1, "a"), (0, 2, "b"), (4, 0, "c"))
    return Heads("x", q, k, k + 1, ids=ids, **changes)


def test_heads_are_inputs_of_their_own():
    window = Mask.window(5, 5, 2)
    x = many(scaling=0.3, mask=("causal", window, None))
    heads = list(x.heads())
    assert [(y.name, y.layer, y.head) for y in heads] == [
        ("x a", 0, 1), ("x b", 0, 2), ("x c", 4, 0)
    ]  # fmt: skip
    for i, y in enumerate(heads):
        assert (y.n, y.l, y.d, y.scaling) == (5, 5, 4, 0.3)
        assert y.mask == (Mask.causal(5, 5), window, Mask.full(5, 5))[i]
        np.testing.assert_array_equal(y.q, x.q[i])
        np.testing.assert_array_equal(y.k, x.k[i])
        np.testing.assert_array_equal(y.V, x.v[i])
        assert list(y.heads()) == [y]
    assert x.at(4, 0).digest() == heads[2].digest()
    assert len({y.digest() for y in heads}) == 3
    assert x.at_temperature(2.0).at(0, 2).temperature == 2.0
    assert {str(y.mask) for y in many(mask="causal").heads()} == {"causal"}
    # one mask for all heads is that mask for each
    assert many(mask=("causal",) * 3).at(0, 2).digest() == many(mask="causal").at(0, 2).digest()


def test_many_heads_are_not_one():
    x = many()
    assert len(x) == len(list(x)) == 3
    for name in ("Q", "K", "V", "digest"):
        assert not hasattr(x, name)
    refuses(r"no layer 1, head 1; it has 0\.1, 0\.2, 4\.0", x.at, 1, 1)
    refuses("it is a single head", gaussian(2, 2, rng=0).at, 0, 1)
    assert gaussian(2, 2, rng=0).at(0, 0).layer == -1  # the one head of a file is 0.0, too
    assert [x.at(0, 2).at(0, 2).name, x.at(0, 2).layer] == ["x b", 0]
    with pytest.raises(ValueError, match="ids must name each of 3 heads"):
        dataclasses.replace(x, ids=())  # else a sweep over it would be empty


# Files


def arrays(*shape, c=None, keys=None, seed=0):
    """Return q of a shape, k of another number of heads or keys, v of width c."""
    draw = np.random.default_rng(seed).standard_normal
    keys = shape if keys is None else keys
    return {
        "q": draw(shape).astype("f4"),
        "k": draw(keys).astype("f4"),
        "v": draw((*keys[:-1], c or shape[-1])).astype("f4"),
    }


WRITERS = [partial(files.write, kind=kind) for kind in files.KINDS]


@pytest.mark.parametrize("stored", ["f4", "f2"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("write", WRITERS)
def test_every_format_reads_back(tmp_path, write, dtype, stored):
    content = {name: x.astype(stored) for name, x in arrays(5, 4, c=3).items()}
    x = load(write(tmp_path, content), dtype=dtype)
    assert (x.name, x.n, x.l, x.d, x.scaling) == ("data", 5, 5, 4, None)
    assert str(x.mask) == "full"
    for found, name in ((x.q, "q"), (x.k, "k"), (x.v, "v")):
        np.testing.assert_array_equal(found, content[name].astype(dtype), strict=True)
    products = content["q"].astype(float) @ content["k"].T.astype(float)
    np.testing.assert_allclose(x.Q @ x.K.T, products / 2, 1e-5)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("names", ["QKV", "qKv"])
def test_any_case_of_names_and_strangers_ignored(tmp_path, write, names):
    content = dict(zip(names, arrays(5, 4).values()))
    content |= {"SCALING": np.float64(0.3), "Causal": np.array(True), "tokens": np.arange(3)}
    x = load(write(tmp_path, content))
    assert (x.scaling, str(x.mask)) == (0.3, "causal")
    np.testing.assert_array_equal(x.v, content[names[2]])


@pytest.mark.parametrize("write", WRITERS)
def test_values_may_be_absent_and_lengths_differ(tmp_path, write):
    content = arrays(5, 4, keys=(7, 4))
    del content["v"]
    x = load(write(tmp_path, content))
    assert (x.n, x.l, x.v) == (5, 7, None)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("groups", "heads"), [(4, 4), (2, 4), (1, 4)])
def test_grouped_keys_are_shared(tmp_path, write, groups, heads):
    content = arrays(3, heads, 5, 4, c=2, keys=(3, groups, 6, 4))
    x = load(write(tmp_path, content))
    found = [(y.layer, y.head, y.name) for y in x.heads()]
    assert found == [(a, b, f"data {a}.{b}") for a in range(3) for b in range(heads)]
    shared = {}
    for y in x.heads():
        group = y.head // (heads // groups)
        np.testing.assert_array_equal(y.q, content["q"][y.layer, y.head])
        np.testing.assert_array_equal(y.k, content["k"][y.layer, group])
        np.testing.assert_array_equal(y.v, content["v"][y.layer, group])
        assert np.shares_memory(y.k, shared.setdefault((y.layer, group), y).k)
        one = load(write_path(tmp_path), y.layer, y.head)
        assert one.digest() == y.digest()


@pytest.mark.parametrize("write", WRITERS)
def test_masks_of_a_file(tmp_path, write):
    content = arrays(2, 3, 5, 4, keys=(2, 3, 7, 4))
    causal = {"causal": True}
    first, stop = np.array([0, 3, 1, 2, 0]), np.array([1, 7, 2, 7, 5])

    def windows(*widths):
        return [Mask.window(5, 7, w) if w else Mask.causal(5, 7) for w in widths]

    for facts, expected in (
        (causal, windows(0) * 6),
        (causal | {"window": 2}, windows(2) * 6),
        (causal | {"window": [0, 3]}, windows(0, 0, 0, 3, 3, 3)),  # one for each layer
        (causal | {"window": [[1, 2, 3], [4, 5, 0]]}, windows(1, 2, 3, 4, 5, 0)),
        ({"first": first, "stop": stop}, [Mask(first, stop, 7)] * 6),
        ({"stop": stop}, [Mask(0 * stop, stop, 7)] * 6),
        ({"causal": False}, [Mask.full(5, 7)] * 6),
    ):
        facts = content | {name: np.array(fact) for name, fact in facts.items()}
        for old in tmp_path.glob("data*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        x = load(write(tmp_path, facts))
        assert [y.mask for y in x.heads()] == expected
        assert load(write_path(tmp_path), 1, 2).mask == expected[-1]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("sinks", [1.5, [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
def test_sinks_of_a_file(tmp_path, write, sinks):
    x = load(write(tmp_path, arrays(2, 3, 5, 4) | {"sinks": np.array(sinks)}))
    expected = np.broadcast_to(sinks, (2, 3))
    assert [float(y.sinks) for y in x.heads()] == expected.ravel().tolist()
    assert load(write_path(tmp_path), 1, 2).sink == expected[1, 2]
    one = files.write(tmp_path, arrays(5, 4) | {"sinks": np.array([[1.5]])}, stem="one")
    assert load(one).sink == 1.5


def write_path(folder):
    return next(folder.glob("data*"))


@pytest.mark.parametrize("write", WRITERS)
def test_heads_without_layers_and_their_original_indices(tmp_path, write):
    content = arrays(3, 5, 4, keys=(1, 5, 4))
    places = {"layers": np.array([0, 4, 0]), "heads": np.array([8, 4, 2])}
    x = load(write(tmp_path, content | places))
    assert [(y.layer, y.head) for y in x.heads()] == [(0, 8), (4, 4), (0, 2)]
    one = load(write_path(tmp_path), 4, 4)
    np.testing.assert_array_equal(one.q, content["q"][1])
    np.testing.assert_array_equal(one.k, content["k"][0])


def test_heads_of_a_file_are_found_by_layer_and_head(tmp_path):
    content = arrays(3, 5, 4)
    path = files.write(tmp_path, content)
    assert [(y.layer, y.head) for y in load(path).heads()] == [(0, 0), (0, 1), (0, 2)]
    np.testing.assert_array_equal(load(path, head=2).q, content["q"][2])
    np.testing.assert_array_equal(load(path, 0, 2).q, content["q"][2])
    one = files.write(tmp_path, content | {"layers": [7, 7, 7], "heads": [3, 1, 2]})
    np.testing.assert_array_equal(load(one, head=1).q, content["q"][1])
    path = files.write(tmp_path, arrays(2, 3, 5, 4))
    for place in ((0, None), (None, 0)):
        refuses("give both layer and head", load, path, *place)
    refuses(r"no layer 2, head 9; it has 0\.0", load, path, 2, 9)


def test_a_folder_is_memory_mapped(tmp_path):
    content = {name: x.astype(float) for name, x in arrays(2, 3, 5, 4).items()}
    x = load(files.write(tmp_path, content, "npy"))
    for y in (x.q, x.k, x.v):
        while y.base is not None and not isinstance(y, np.memmap):
            y = y.base
        assert isinstance(y, np.memmap)
        assert not y.flags.writeable
    assert isinstance(x.at(1, 2).digest(), str)


def test_bfloat16_is_decoded_exactly(tmp_path):
    every = np.arange(2**16, dtype=np.uint16)
    every = every[np.isfinite((every.astype(np.uint32) << 16).view(np.float32))][:, None]
    content = {"q": every, "k": every, "v": np.zeros(every.shape, np.float32)}
    path = files.safetensors(tmp_path / "x.safetensors", content, dict.fromkeys("qk", "BF16"))
    values = [struct.unpack("<f", b"\0\0" + struct.pack("<H", b))[0] for b in every[:, 0]]
    assert {1.0, -2.5, 3.140625, 65280.0} <= set(values)  # by hand: few bits
    for dtype in ("float32", "float64"):
        found = load(path, dtype=dtype).q[:, 0]
        np.testing.assert_array_equal(found, np.array(values, dtype), strict=True)


@pytest.mark.parametrize("kind", ["<f2", "<i8", ">f4", "?"])
def test_other_numbers_are_converted(tmp_path, kind):
    content = {name: (3 * x).astype(kind) for name, x in arrays(3, 4).items()}
    path = files.write(tmp_path, content)
    for dtype in ("float32", "float64"):
        found = load(path, dtype=dtype)
        np.testing.assert_array_equal(found.q, content["q"].astype(dtype), strict=True)


@pytest.mark.parametrize(("stem", "name"), [
    ("my heads_v1.2 (最终)", "my heads_v1.2 (最终)"), ("../a|b $x$ <i> `c`", "a|b $x$ <i> `c`"),
    (".u\u0308", ".u\u0308"), ("a\n\tb\x1b[31m", "a b [31m"), ("a\udcff\u202eb", "a b"),
    ("x" * 100 + "1.1", "x" * 19 + "..." + "x" * 15 + "1.1"),
])  # fmt: skip
def test_heads_have_the_name_of_their_file_in_one_line(tmp_path, stem, name):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / f"{stem}.npz"
    np.savez(path, **arrays(3, 2))
    assert load(path).name == name


def test_heads_of_a_folder_have_its_whole_name(tmp_path, monkeypatch):
    folder = files.write(tmp_path, arrays(3, 2), "npy").rename(tmp_path / "heads v1.2")
    assert load(folder).name == "heads v1.2"
    monkeypatch.chdir(folder)
    assert load(".").name == "heads v1.2"


# The bundled sample


def test_sample_has_three_heads_of_one_model():
    x = sample()
    assert [y.name for y in x.heads()] == ["MiniLM easy", "MiniLM middling", "MiniLM hard"]
    assert [(y.layer, y.head) for y in x.heads()] == [(0, 8), (4, 4), (0, 2)]
    for y in x.heads():
        assert (y.n, y.l, y.d, str(y.mask)) == (512, 512, 32, "full")
        assert y.scaling == pytest.approx(1 / math.sqrt(32), rel=1e-15)
        assert y.q.dtype == y.k.dtype == y.v.dtype == np.float64
        assert np.isfinite(exact.log_row_sums(y.Q, y.K)).all()
    assert x.at(4, 4).name == "MiniLM middling"
    assert sample(dtype="float32").q.dtype == np.float32
    hashes = {hashlib.sha256(y.q.tobytes()).hexdigest() for y in x.heads()}
    assert len(hashes) == 3
