"""TensorSketch: CountSketches of the tensor power, convolved by FFT."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from approx.checks import Array
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM
from approx.sketches.power import PowerSketch
from approx.sketches.products import augmented
from approx.sketches.signed import Signed, excess, scaled, total


class Hashes(NamedTuple):
    """One CountSketch per mode i: coordinate c goes to buckets[i, c] with sign signs[i, c]."""

    buckets: Array
    signs: Array


@dataclasses.dataclass(frozen=True)
class TensorSketch(PowerSketch):
    """TensorSketch, unbiased for (1 + q·k/p)^p, of either sign.

    φ(x) = FFT⁻¹(Π_{i ≤ p} FFT(C_i (x/√p, 1))),  where C_i is a CountSketch into m buckets.

    Parameters
    ----------
    m : int, optional
        Buckets, ≥ 1: the columns of the factors; None: a budget fills it.
    degree : int
        p ≥ 1.

    Notes
    -----
    The estimate is biased for exp(q·k), by the factor (1 + q·k/p)^p e^{−q·k}. With a = (q/√p, 1),
    b = (k/√p, 1), c = a·b, S = Σ a_i² b_i², U = |a|²|b|² − S, W = c² − S,
    f(δ) = (c² + δ)^p − c^{2p}, and g = 1 for odd m, 2 for even m, the variance is

        [g f(U + W) + (m − g)(f(U) + f(W))]/m².

    The proof uses Fourier transforms: the estimate is m^{−1} Σ_ω Π_i A_i(ω),
    A_i = FFT(C_i a) conj FFT(C_i b), and E A_i(ω) A_i(ω') = c² + U·[ω' = −ω] + W·[ω' = ω]. Of the
    m² pairs (ω, ω'), g satisfy both conditions, and m − g satisfy each one alone.
    In the covariance of two keys b, b', the terms c c', b·b' and Σ a_i² b_i b'_i replace c², |b|²
    and Σ a_i² b_i². If W ≥ 0, then f(U) + f(W) ≤ f(U + W), so the variance is at most f(U + W)/m,
    the variance of `product_sketch` with signs. If W < 0 (c² < S: c is small compared with its
    terms), the variance may be many times larger.
    Hashes and signs are fully independent. Row sums may be ≤ 0.
    Cost: (n + l)·p·(d + m log m) operations, (n + l)·m numbers.

    References
    ----------
    .. [1] N. Pham, R. Pagh, "Fast and Scalable Polynomial Kernels via Explicit Feature Maps",
       KDD 2013, which bounds the variance; here the variance is exact.

    Examples
    --------
    With one bucket and p = 1 the estimate is (s_1 q + s_2)(s_1 k + s_2) = 1 + q k ± (q + k).

    >>> float(TensorSketch(m=1, degree=1).approximate([[2.0]], [[3.0]], rng=0).to_dense()[0, 0])
    12.0
    """

    name = "tensor_sketch"
    tags = BY_ROW | {RANDOM}
    label = "TensorSketch"
    examples = (
        "tensor_sketch(m=5, degree=3)",
        "tensor_sketch(m=4, degree=2)",
    )

    def hashes(self, d: int, rng: np.random.Generator) -> Hashes:
        """Return buckets and signs of every mode and coordinate, (p, d + 1)."""
        shape = self.degree, d + 1
        return Hashes(rng.integers(0, self.m or 1, shape), 2.0 * rng.integers(0, 2, shape) - 1)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        return Parts(self.features(q, k, self.hashes(q.shape[1], rng), mask))

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of m columns, with a bucket and a sign per degree and coordinate.

        A feature map adds coordinates to buckets, and takes p + 1 Fourier transforms of m·log₂ m.
        """
        if self.m is None:
            return None
        signs = self.degree * (shape.d + 1)
        transforms = (self.degree + 1) * self.m * math.log2(self.m)
        return low_rank(self.m, shape, mapped=signs + transforms, read=2 * signs)

    def _workspace(self, shape: Shape) -> int:
        return 48 * (shape.n + shape.l) * (self.m or 0)

    def features(self, q: Array, k: Array, hashes: Hashes, mask: Mask | None = None) -> Factors:
        """Return the factors for given hashes."""
        X = augmented(np.concatenate([q, k]), self.degree)
        y, log = count_sketches(X, hashes, self.m or 1)
        n = len(q)
        seen = mask or Mask.full(n, len(k))
        factors = Factors.scaled(y[:n], y[n:], log[:n], log[n:], seen, dtype=q.dtype)
        return factors.astype(q.dtype)

    def sketch_covariance(self, C: Array, U: Array, W: Array, S: Array) -> Signed:
        """Return [g f(U + W) + (m − g)(f(U) + f(W))]/m²."""
        m, p = self.m or 1, self.degree
        g = min(m, 2 - m % 2)
        with np.errstate(divide="ignore"):
            alone = np.log(m - g) - 2 * math.log(m)
        both = scaled(excess(C, U + W, p), math.log(g) - 2 * math.log(m))
        return total(both, scaled(excess(C, U, p), alone), scaled(excess(C, W, p), alone))


def count_sketches(X: Array, hashes: Hashes, m: int) -> tuple[Array, Array]:
    """Return the convolution of the CountSketches of each row (n, m), and its log scale (n,).

    Examples
    --------
    >>> one = Hashes(np.array([[0, 1]]), np.array([[1.0, -1.0]]))
    >>> y, log = count_sketches(np.array([[3.0, 4.0]]), one, 2)
    >>> (y * np.exp(log)[:, None]).round(12)
    array([[ 3., -4.]])
    """
    product, log = np.ones((len(X), m // 2 + 1), complex), np.zeros(len(X))
    for bucket, sign in zip(*hashes):
        C = csr_array((sign, (np.arange(len(bucket)), bucket)), shape=(len(bucket), m))
        product *= np.fft.rfft(X @ C)
        size = np.abs(product).max(axis=1)
        size[size == 0] = 1.0
        product /= size[:, None]
        log += np.log(size)
    return np.fft.irfft(product, n=m), log
