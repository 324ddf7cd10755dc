"""Exact integers: multiply-adds counted by a matrix that counts, break-even lengths."""

import numpy as np
import pytest

from analysis.costs import operations as ops


class Counted:
    """A shape that counts the multiply-adds of its products."""

    total = 0

    def __init__(self, *shape):
        self.shape = shape

    def __matmul__(self, other):
        (n, m), (k, c) = self.shape, other.shape
        assert m == k
        Counted.total += n * m * c
        return Counted(n, c)

    @property
    def T(self):
        return Counted(*self.shape[::-1])


@pytest.fixture
def count():
    Counted.total = 0
    return lambda: Counted.total


def test_exact_attention(count):
    Q = K = V = Counted(128, 16)
    (Q @ K.T) @ V
    assert count() == ops.exact_attention(128, 16).total == 2 * 128**2 * 16


def test_linear_attention(count):
    Q = K = V = Counted(128, 16)
    omega = Counted(16, 24)
    phi_q, phi_k = Q @ omega, K @ omega
    phi_q @ (phi_k.T @ V)
    assert count() == ops.linear_attention(128, 16, 24).total == 4 * 128 * 24 * 16


def test_scatterbrain(count):
    n, d, m, s = 128, 16, 24, 5
    q, phi, keys, features = Counted(1, d), Counted(1, m), Counted(d, s), Counted(m, s)
    for _ in range(n):  # a row: s logits, s products of features, s values
        (q @ keys) @ Counted(s, d)
        phi @ features
    found = ops.scatterbrain(n, d, m, s)
    assert count() == found.correction == n * s * (m + 2 * d)
    assert found.total == 4 * n * m * d + n * s * (m + 2 * d)


def test_flash(count):
    n, e, s, c = 128, 32, 8, 16
    for _ in range(n // c):
        (Counted(c, s) @ Counted(s, c)) @ Counted(c, e)
    Counted(n, s) @ (Counted(s, n) @ Counted(n, e))
    assert count() == ops.mixed_chunk(n, e, s, c).total == n * c * (s + e) + 2 * n * s * e
    Counted.total = 0
    (Counted(n, s) @ Counted(s, n)) @ Counted(n, e)
    assert count() == ops.quadratic_unit(n, e, s).total


def test_numbers_of_the_documents():
    assert ops.exact_attention(4096, 64).total == 2147483648
    assert ops.linear_attention(4096, 64, 128).total == 134217728
    assert ops.scatterbrain(4096, 64, 128, 64).correction == 67108864
    assert ops.parallel_causal_memory(2, 3, 5000, 64) > ops.quadratic_memory(2, 3, 4096)
    assert ops.parallel_causal_memory(2, 3, 4096, 64) == ops.quadratic_memory(2, 3, 4096)


def test_break_even_lengths_by_hand():
    found = {
        k.name: ops.break_even(k.cost, k.exact, step=k.step) for k in ops.kinds(64, 128, 64, 256)
    }
    assert list(found.values()) == [
        257,  # 4nmd < 2n²d beyond n = 2m
        385,  # 2m + s(m + 2d)/(2d) = 256 + 128
        512,  # nc·3d + 4nd² < 3n²d beyond c + 4d/3 = 341
        4097,  # s²
    ]


@pytest.mark.parametrize("step", [1, 7, 256])
def test_break_even_is_the_least(step):
    rng = np.random.default_rng(step)
    for threshold in rng.integers(1, 5000, size=30):
        got = ops.break_even(lambda n, t=threshold: n * int(t), lambda n: n * n, step=step)
        assert got == (threshold // step + 1) * step


def test_no_break_even():
    assert ops.break_even(lambda n: n * n, lambda n: n * n, most=1000) is None


def test_chunks_divide_the_length():
    with pytest.raises(ValueError, match="must divide n, got n=10, c=3"):
        ops.mixed_chunk(10, 4, 2, 3)
