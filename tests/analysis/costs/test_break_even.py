"""Break-even lengths: by hand, and the least of all lengths."""

import itertools
import math

import pytest

from analysis.costs.break_even import break_even
from approx import parse
from approx.method.prices import Shape

WIDTHS = Shape(1, 1, 64, 64)


@pytest.mark.parametrize(("spec", "shape", "step", "length"), [
    ("positive(m=128)", WIDTHS, 1, 258),  # 4md + m < 2nd beyond 2m + m/(2d) = 257
    # beyond 2m + m/(2d) + s(m + 2d)/(2d) = 257 + 128
    ("scatterbrain(positive(m=128), top_k(k=64))", WIDTHS, 1, 386),
    ("flash(size=256)", Shape(1, 1, 64, 128), 256, 512),  # 256·3d + 4d² < 3nd beyond 341
    ("quantised(bits=2)", WIDTHS, 1, math.inf),
    ("top_k(k=2, per='head')", WIDTHS, 1, math.nan),
])  # fmt: skip
def test_lengths_by_hand(spec, shape, step, length):
    found = break_even(parse(spec), shape, step=step)
    assert found == length or (math.isnan(found) and math.isnan(length))


@pytest.mark.parametrize("step", [1, 7])
def test_it_is_the_least_length(step):
    def work(method, n):
        return method.price(n=n, l=n, d=3, c=5).multiply_adds

    for m in (2, 9, 40):
        method = parse(f"positive(m={m})")
        less = (n for n in itertools.count(step, step) if work(method, n) < work(parse("exact"), n))
        assert break_even(method, Shape(4, 4, 3, 5), step=step) == next(less)
