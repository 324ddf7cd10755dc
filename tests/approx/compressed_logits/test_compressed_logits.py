"""Compressed logits: the formulas, what is best in which sense, rounding, and selection by them."""

import dataclasses

import naive
import numpy as np
import pytest

from analysis import inputs
from approx import Mask, parse
from approx.compressed_logits.key_pca import Axes, KeyPCA
from approx.method.tags import AUTOREGRESSIVE
from approx.sparse.projected_top_k import ProjectedTopK

N, L, D = 7, 9, 4
# Sums of at most nine products of size 5, two decompositions whose gaps are above a hundredth of
# their norm, and logits of ±20: far below this.
CLOSE = 1e-10


def drawn(seed=0, n=N, l=L, d=D):
    """Return queries and keys with channels of different sizes, the keys not centred."""
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((n, d)), rng.standard_normal((l, d))
    return Q * np.linspace(0.5, 1.5, d), (K + 0.7) * np.linspace(1.5, 0.4, d)


def logits(spec, Q, K, mask=None):
    """Return the log of the estimate."""
    A = parse(spec).approximate(Q, K, mask=mask)
    log = A.row_log()
    with np.errstate(divide="ignore"):
        return np.log(A.block(slice(None), shift=log)) + log[:, None]


TWINS = {
    "logit_svd(rank=2)": lambda Q, K: naive.best_logits(Q, K, 2),
    "key_pca(rank=2)": lambda Q, K: naive.projected_logits(Q, K, 2, True),
    "key_pca(rank=3, centred=False)": lambda Q, K: naive.projected_logits(Q, K, 3, False),
    "channels(r=2)": lambda Q, K: naive.channel_logits(Q, K, 2, False),
    "channels(r=1, scaled=True)": lambda Q, K: naive.channel_logits(Q, K, 1, True),
    "quantised(bits=2)": lambda Q, K: Q @ np.array([naive.levels(k, 2) for k in K]).T,
    "quantised(bits=3, by='channel', group=9999, recent=0)": lambda Q, K: (
        Q @ np.array([naive.levels(c, 3) for c in K.T])
    ),
    "quantised(bits=1, by='channel', group=4, recent=0)": lambda Q, K: (
        Q
        @ np.array(
            [np.concatenate([naive.levels(c[a : a + 4], 1) for a in (0, 4, 8)]) for c in K.T]
        )
    ),
    "quantised(bits=1, group=3)": lambda Q, K: (
        Q @ np.array([np.concatenate([naive.levels(k[:3], 1), k[3:]]) for k in K]).T
    ),
}


@pytest.mark.parametrize("spec", TWINS)
def test_the_estimate_is_exp_of_the_compressed_logits(spec):
    Q, K = drawn()
    want = TWINS[spec](Q, K)
    np.testing.assert_allclose(logits(spec, Q, K), want, rtol=0, atol=CLOSE)
    mask = Mask([0, 0, 1, 2, 3, 3, 4], [1, 3, 4, 5, 7, 9, 9], L)
    on = naive.seen(mask, N, L)
    under = logits(spec, Q, K, mask)
    np.testing.assert_allclose(under[on], want[on], rtol=0, atol=CLOSE)
    assert np.isneginf(under[~on]).all()


@pytest.mark.parametrize("n", [9, 4])
@pytest.mark.parametrize(
    ("window", "group", "recent"), [(3, 2, 1), (2, 3, 4), (20, 4, 1), (3, None, 0), (2, None, 3)]
)
def test_keys_keep_the_channels_of_large_norms(n, window, group, recent):
    """With fewer queries than keys, the first groups are chosen before there is a query."""
    Q, K = drawn(n=n)
    want = naive.thin_logits(Q, K, 2, window, group, recent)
    groups = f", group={group}" if group else ""
    spec = f"key_channels(r=2, window={window}, recent={recent}{groups})"
    got = logits(spec, Q, K, mask="causal")
    np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)
    whole = logits(spec.replace("r=2", f"r={D}"), Q, K)
    np.testing.assert_allclose(whole, Q @ K.T, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("seed", range(4))
def test_no_logits_of_a_rank_are_nearer_than_those_of_the_svd(seed):
    Q, K = drawn(seed, n=12, l=15, d=5)
    exactly = Q @ K.T
    s = np.linalg.svd(exactly, compute_uv=False)
    for rank in range(1, 5):
        least = np.sqrt(np.square(s[rank:]).sum())
        best = np.linalg.norm(logits(f"logit_svd(rank={rank})", Q, K) - exactly)
        np.testing.assert_allclose(best, least, rtol=1e-9)
        for axes in (True, False):
            other = logits(f"key_pca(rank={rank}, centred={axes})", Q, K)
            assert np.linalg.norm(other - exactly) >= best


# Axes that are given


def test_axes_may_be_given():
    Q, K = drawn()
    for centred in (True, False):
        axes = Axes.from_keys(K, centred=centred)
        got, want = (
            KeyPCA(2, **fields).approximate(Q, K).to_dense()
            for fields in ({"axes": axes}, {"centred": centred})
        )
        np.testing.assert_array_equal(got, want)
    assert str(KeyPCA(2, axes=axes)) == str(KeyPCA(2, axes=Axes.from_keys(K, centred=False)))
    assert str(KeyPCA(2, axes=axes)) != str(KeyPCA(2, axes=Axes.from_keys(K)))
    Q, K = drawn()
    V = np.eye(L)
    one, other = (parse("key_pca(rank=2)").approximate(Q, x).attend(V) for x in (K, K - K.mean(0)))
    np.testing.assert_allclose(one, other, rtol=0, atol=CLOSE)
    Q, K = drawn()
    for rank, shape in ((2, (3, 3)), (3, (D, 2))):
        with pytest.raises(ValueError, match=f"axes must have 4 rows and at least {rank} columns"):
            KeyPCA(rank, axes=Axes(np.ones(shape))).approximate(Q, K)
    with pytest.raises(ValueError, match="axes belongs to by='pca', got 'svd'"):
        ProjectedTopK(k=1, by="svd", axes=Axes(np.eye(D)))


def test_a_row_follows_from_the_past_where_axes_are_given():
    Q, K = drawn(n=L)
    axes = Axes.from_keys(drawn(seed=1)[1])
    changed = K.copy()
    changed[5:] *= -3
    for method in (KeyPCA(2, axes=axes), ProjectedTopK(k=2, r=2, axes=axes)):
        assert AUTOREGRESSIVE in method.tags
        one, other = (method.approximate(Q, x, mask="causal").to_dense()[:5] for x in (K, changed))
        np.testing.assert_array_equal(one, other)
    assert AUTOREGRESSIVE not in KeyPCA(2).tags
    assert AUTOREGRESSIVE not in ProjectedTopK(k=2).tags


# Rounding


@pytest.mark.parametrize(("by", "axis"), [("token", 1), ("channel", 0)])
@pytest.mark.parametrize("bits", [1, 2, 5])
def test_a_number_is_off_by_half_a_step_and_a_logit_by_the_sum_of_these(by, axis, bits):
    Q, K = drawn()
    _, rounded = parse(f"quantised(bits={bits}, by='{by}', group=9999, recent=0)").factors(Q, K)
    step = (K.max(axis=axis, keepdims=True) - K.min(axis=axis, keepdims=True)) / (2**bits - 1)
    assert (np.abs(rounded - K) <= step / 2 + 1e-15).all()
    assert max(len(np.unique(x.round(12))) for x in (rounded if axis else rounded.T)) <= 2**bits
    for find in (np.min, np.max):  # both ends are levels
        np.testing.assert_allclose(find(rounded, axis=axis), find(K, axis=axis), atol=1e-14)
    off = np.abs(logits(f"quantised(bits={bits}, by='{by}', group=9999, recent=0)", Q, K) - Q @ K.T)
    most = np.abs(Q) @ np.broadcast_to(step / 2, K.shape).T
    assert (off <= most + CLOSE).all()
    assert (off > 0.05 * most).any()


@pytest.mark.parametrize("by", ["token", "channel"])
def test_equal_numbers_stay_what_they_are(by):
    K = np.full((3, 2), 0.3)
    _, rounded = parse(f"quantised(bits=2, by='{by}', group=9999, recent=0)").factors(K, K)
    np.testing.assert_array_equal(rounded, K)


def test_recent_keys_are_exact_and_the_others_rounded():
    Q, K = drawn()
    for mask in Mask.causal(N, L), Mask([0] * N, [2 + i % (L - 1) for i in range(N)], L, False):
        A, rounded = (
            parse(f"quantised(bits=1, by='channel', group=3{more})").approximate(Q, K, mask=mask)
            for more in (", recent=2", ", recent=0")
        )
        want = rounded.to_dense()
        for i, stop in enumerate(mask.stop):
            want[i, stop - 2 : stop] = np.exp(Q[i] @ K[stop - 2 : stop].T)
        np.testing.assert_allclose(A.to_dense(), want, rtol=1e-13)
        assert A.parameters == rounded.parameters + 2 * N


# Selection


@pytest.mark.parametrize(("fields", "twin"), [
    ("by='pca'", lambda Q, K: naive.projected_logits(Q, K, 2, True)),
    ("centred=False", lambda Q, K: naive.projected_logits(Q, K, 2, False)),
    ("by='svd'", lambda Q, K: naive.best_logits(Q, K, 2)),
    ("by='channels'", lambda Q, K: naive.channel_logits(Q, K, 2, False)),
])  # fmt: skip
def test_the_keys_are_those_of_the_largest_compressed_logits(fields, twin):
    Q, K = drawn()
    for mask in (Mask.full(N, L), Mask.causal(N, L), Mask([0, 1, 2, 2, 3, 3, 5], [9] * 7, L)):
        A = parse(f"projected_top_k(k=3, r=2, {fields})").approximate(Q, K, mask=mask)
        on = naive.leading(twin(Q, K), naive.seen(mask, N, L), 3)
        np.testing.assert_array_equal(A.to_dense() > 0, on)
        np.testing.assert_allclose(A.to_dense()[on], naive.kernel(Q, K)[on], rtol=1e-14)


def test_axes_of_the_covariance_lose_a_sink_in_a_quarter_of_the_width():
    x = next(inputs.sample("smollm2").heads()).at_temperature(1.0)
    tv = {
        fields: x.compare(x.approximate(parse(f"projected_top_k(k=32, r=8, {fields})")))[
            "attention_tv"
        ]
        for fields in ("by='pca'", "centred=False", "by='channels'")
    }
    assert x.name == "SmolLM2 sink"
    # as the docstring says, to the digits that it gives
    assert [f"{value:.2g}" for value in tv.values()] == ["0.7", "0.056", "0.039"]
    assert parse("projected_top_k(k=2)").selector(64).rank == 16
    assert parse("projected_top_k(k=2, by='channels')").selector(3).r == 1


def test_no_scale_follows_from_a_key_that_is_rounded_with_later_ones():
    method = parse("quantised(bits=1, by='channel', group=3, recent=2)")
    Q, K = [[-20.0]] * 3, [[0.1], [-40.0], [90.0]]  # the first is rounded to −40
    A = method.approximate(Q, K, mask="causal")
    np.testing.assert_allclose(A.attend(np.eye(3))[0], [1.0, 0.0, 0.0])
    assert A.row_log()[0] == -2.0
    np.testing.assert_allclose(A.block([0], shift=-2.0), [[1.0, 0.0, 0.0]])


@pytest.mark.parametrize("spec", TWINS)
def test_products_at_logits_of_ten_thousand(spec):
    Q, K = drawn()
    Q *= 1e4 / np.abs(Q @ K.T).max()
    V = np.eye(L)
    x = TWINS[spec](Q, K)
    for mask in (None, Mask.window(N, L, 3)):
        on = np.ones((N, L), bool) if mask is None else naive.seen(mask, N, L)
        hidden = np.where(on, x, -np.inf)
        weights = np.exp(hidden - hidden.max(axis=1, keepdims=True))
        want = weights / weights.sum(axis=1, keepdims=True)
        got = parse(spec).approximate(Q, K, mask=mask).attend(V)
        # logits of 10⁴ keep 1e4·CLOSE, and weights that relative error
        np.testing.assert_allclose(got, want, rtol=0, atol=1e4 * CLOSE)


def test_bits_count_in_bytes_and_numbers_in_the_others():
    shape = {"n": 6, "l": 10, "d": 4, "c": 3}
    few, many = (parse(f"quantised(bits={bits})").price(**shape) for bits in (2, 8))
    # two scales for each of ten keys, and its value; 40 numbers of keys at 2/8 bytes
    assert few.bytes == 2 * (20 + 30) + 40 * 2 / 8
    assert many == dataclasses.replace(few, bytes=2 * (20 + 30) + 40)
    for spec, scales in (  # 10 keys of 1 and of 2 groups, 4 channels of 2 and of 3
        ("quantised(bits=2)", 20),
        ("quantised(bits=2, group=3)", 40),
        ("quantised(bits=2, by='channel', group=5, recent=0)", 16),
        ("quantised(bits=2, by='channel', group=4, recent=0)", 24),
    ):
        stored = parse(spec).price(**shape).stored
        np.testing.assert_allclose(stored, (24 + 40 + scales) / 6, rtol=1e-15)
