"""What a group of heads reads together: counted, and in closed form."""

import math

import pytest
import test_prices as prices
import twins as t

from analysis.costs.gqa_reads import bytes_read, group_reads
from approx import METHODS, parse
from approx.method.prices import Shape, price_at

L, D, C = 12, 3, 2
SHARED = (
    "exact()", "sliding_window(width={h})", "sink_window(k={h}, sinks=1)", "chunk(size={h})",
    "strided(k={h})", "top_k(k={h})", "threshold(level=0.3)", "pages(k={h}, size=2)",
    "pages(k={h}, size=3, by='mean')", "projected_top_k(k={s}, r=1)",
    "columns(k={h}, by='key_diff')", "columns(k={h}, by='mass')", "reformer(size={s}, rounds=2)",
    "positive(m=3)", "hyperbolic(m=4)", "elu()", "uniform()", "taylor(degree=1)",
    "key_pca(rank=1)", "quantised(bits=2)", "coreset(rank=2)", "tensor_sketch(m=5, degree=3)",
    "scatterbrain(positive(m=3), top_k(k={s}))", "centered(positive(m=3))",
    "scatterbrain(uniform(), pages(k={h}, size=2))", "sampled(sink_window(k=2), k={s})",
    "hierarchical(rank=1, leaf=2, basis='mean', sinks=1)",
)  # fmt: skip
OWN = (
    "shifted_positive(m=3)", "nystrom(rank=2)", "truncated_svd(rank=2)", "lara(m=3)",
    "nystromformer(rank=2)",
)  # fmt: skip


def price(spec):
    return prices.Sizes(L).method(spec)


@pytest.mark.parametrize("group", [2, 5])
@pytest.mark.parametrize("spec", [*SHARED, *OWN])
def test_what_a_group_reads_is_counted(spec, group):
    sizes = prices.Sizes(L)
    method, twins = sizes.method(spec), t.TWINS[spec](sizes)
    for word, mask in prices.masks(L, L, method):
        if " " in word:
            continue
        shape = Shape(L, L, D, C, mask and prices.Mask.causal(L, L))
        found = group_reads(method, shape, group)
        ways = twins if isinstance(twins, list) else [twins]
        counted = [t.count_group(way, group, L, D, C, word, own=spec in OWN) for way in ways]
        assert math.isclose(found, min(counted), rel_tol=1e-14), (spec, group, word)


@pytest.mark.parametrize("spec", t.TWINS)
def test_one_head_reads_its_price(spec):
    method = prices.Sizes(L).method(spec)
    for _, mask in prices.masks(L, L, method):
        shape = Shape(L, L, D, C, prices.Mask.causal(L, L) if mask == "causal" else mask)
        reads = price_at(method, shape).reads
        assert math.isclose(group_reads(method, shape, 1), reads, rel_tol=1e-14)
        for group in (2, 5):
            assert reads / group * (1 - 1e-14) <= group_reads(method, shape, group) <= reads


def test_what_is_not_known_of_one_head_is_not_known_of_a_group():
    for spec in prices.UNKNOWN:
        assert group_reads(parse(spec), Shape(L, L, D, C), 3) is None
        assert bytes_read(parse(spec), Shape(L, L, D, C), group=3) is None


def test_bytes_follow_the_precision_and_the_bits():
    shape = Shape(L, L, D, C)
    assert bytes_read(METHODS["exact"](), shape) == 2 * L * (D + C)
    assert bytes_read(METHODS["exact"](), shape, group=3, number=4) == 4 * L * (D + C) / 3
    # min and step of each of nine keys, and three keys as they are
    found = bytes_read(parse("quantised(bits=4, recent=3)"), shape)
    assert found == 9 * (D / 2 + 2 * 2) + 3 * D * 2 + L * C * 2
    assert bytes_read(parse("quantised(bits=4, recent=3)"), shape, group=2) == found / 2


def test_bad_groups_are_refused():
    shape = Shape(L, L, D, C)
    with pytest.raises(ValueError, match="group must be >= 1, got 0"):
        group_reads(parse("exact"), shape, 0)
    with pytest.raises(TypeError, match="a Shape"):
        group_reads(parse("exact"), (3, 3), 1)
    with pytest.raises(ValueError, match="number must be"):
        bytes_read(parse("exact"), shape, number=0)
