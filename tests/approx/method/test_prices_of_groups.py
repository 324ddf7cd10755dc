"""What a group of heads reads together: counted, and in closed form."""

import math

import pytest
import test_prices as prices
import twins as t

from approx import METHODS, parse

L, D, C = 12, 3, 2
SHARED = (
    "exact()", "sliding_window(width={h})", "sink_window(k={h}, sinks=1)", "chunk(size={h})",
    "strided(k={h})", "top_k(k={h})", "threshold(level=0.3)", "pages(k={h}, size=2)",
    "pages(k={h}, size=3, by='mean')", "projected_top_k(k={s}, r=1)",
    "columns(k={h}, by='key_diff')", "columns(k={h}, by='mass')", "reformer(size={s}, rounds=2)",
    "positive(m=3)", "hyperbolic(m=4)", "elu()", "uniform()", "taylor(degree=1)",
    "key_pca(rank=1)", "key_channels(r=1, group=2)", "quantised(bits=2)", "coreset(rank=2)",
    "tensor_sketch(m=5, degree=3)",
    "scatterbrain(positive(m=3), top_k(k={s}))", "centered(positive(m=3))",
    "scatterbrain(uniform(), pages(k={h}, size=2))", "sampled(sink_window(k=2), k={s})",
    "hierarchical(rank=1, leaf=2, basis='mean', sinks=1)",
)  # fmt: skip
OWN = (
    "shifted_positive(m=3)", "nystrom(rank=2)", "truncated_svd(rank=2)", "lara(m=3)",
    "nystromformer(rank=2)",
)  # fmt: skip


def priced(method, mask=None, group=1):
    return method.price(n=L, l=L, d=D, c=C, mask=mask, group=group)


@pytest.mark.parametrize("group", [2, 5])
@pytest.mark.parametrize("spec", [*SHARED, *OWN])
def test_what_a_group_reads_is_counted(spec, group):
    sizes = prices.Sizes(L)
    method, twins = sizes.method(spec), t.TWINS[spec](sizes)
    for word, mask in prices.masks(L, L, method):
        if " " in word:
            continue
        found = priced(method, mask and "causal", group).reads
        ways = twins if isinstance(twins, list) else [twins]
        counted = [t.count_group(way, group, L, D, C, word, own=spec in OWN) for way in ways]
        assert math.isclose(found, min(counted), rel_tol=1e-14), (spec, group, word)


@pytest.mark.parametrize("spec", t.TWINS)
def test_one_head_reads_its_price(spec):
    method = prices.Sizes(L).method(spec)
    for _, mask in prices.masks(L, L, method):
        price = priced(method, mask)
        assert price == priced(method, mask, 1)
        for group in (2, 5):
            found = priced(method, mask, group)
            assert price.reads <= found.reads <= group * price.reads
            assert found.multiply_adds == price.multiply_adds
            assert found.stored == price.stored


def test_unknown_reads_stay_so_in_a_group_and_bad_groups_are_refused():
    for spec in prices.UNKNOWN:
        price = priced(parse(spec))
        assert price is None or price.bytes_read is None
        assert price is None or priced(parse(spec), group=3).reads is None
    with pytest.raises(ValueError, match="group must be >= 1, got 0"):
        priced(parse("exact"), group=0)


def test_bytes_follow_the_bits():
    assert priced(METHODS["exact"]()).bytes_read == 2 * L * (D + C)
    # min and step of each of nine keys, and three keys as they are
    price = priced(parse("quantised(bits=4, recent=3)"))
    assert price.bytes_read == 9 * (D / 2 + 2 * 2) + 3 * D * 2 + L * C * 2
    assert priced(parse("quantised(bits=4, recent=3)"), group=2).bytes_read == price.bytes_read
