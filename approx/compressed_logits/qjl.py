"""QJL: the signs of random products of each key, and its norm."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.compressed_logits.coded_keys import CodedKeys, Codes, Layout, LogitMoments
from approx.compressed_logits.sign_sketch import SKETCHES, SignSketch
from approx.decoding.codes import Coder
from approx.estimate import exact
from approx.method import Moments, Size
from approx.method.fields import flag, integer, one_of
from approx.method.tags import RANDOM, ROTATION, SCALE


@dataclasses.dataclass(frozen=True)
class QJL(CodedKeys):
    """Signs of m random products of a key and its norm, and exp of the logits from them: QJL.

    estimate_ij = exp(x_ij), x_ij = |k_j|/(κm) Σ_r (s_r·q_i) sign(s_r·k_j), κ = E |s·u|, |u| = 1.

    Parameters
    ----------
    m : int, optional
        Signs of a key, one bit each; None is a template.
    sketch : {"orthogonal", "gaussian"}
        The rows s_r: √d times those of random rotations, or N(0, I) with κ = √(2/π).
    recent : int
        Number of last keys that are exact for each query, ≥ 0.
    corrected : bool
        Whether c|q|²|k|²/2, half the variance of a logit at q·k = 0, is subtracted from it.

    Notes
    -----
    Logits are unbiased: E x = q·k. Their variance is (π/2 |q|²|k|² − (q·k)²)/m for Gaussian rows,
    and less for orthogonal ones (`sign_sketch.SignSketch.variance`). The estimate is biased: for
    Gaussian rows E estimate = (2 e^{t²/2} Φ(tρ))^m with t = |q||k|/(κm), ρ|q||k| = q·k, which is
    above exp(q·k). The correction leaves the factor e^{−(q·k)²/(2m)} to leading order. Estimates
    are positive and random. Rows are autoregressive: the sketch is drawn before any key.
    Cost: m·d operations for a query and a key, m for an entry. A query reads the sketch, m·d
    numbers, and m bits and a norm of each key.

    The authors' code, amirzandieh/QJL, multiplies by √(π/2) instead of 1/κ, so its logits are about
    1/(4d) too large. It also keeps the largest channels of a group of keys in a separate sketch.

    References
    ----------
    .. [1] A. Zandieh, M. Daliri, I. Han, "QJL: 1-bit quantized JL transform for KV cache
       quantization with zero overhead", AAAI 2025, definition 3.1, lemmas 3.2 and 3.5.

    Examples
    --------
    >>> QJL(m=4).approximate([[1.0, 0.0]], [[0.0, 0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name = "qjl"
    label = "signs of keys (QJL)"
    at_most_width = False
    examples = (
        "qjl(m=3)",
        "qjl(m=3, sketch='gaussian')",
        "qjl(m=2, recent=1, corrected=True)",
    )
    sized_by = Size("m", most=lambda n, l: None)

    m: int | None = None
    sketch: str = one_of("orthogonal", SKETCHES)
    recent: int = integer(0, least=0)
    corrected: bool = flag(False)

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {RANDOM, ROTATION, SCALE}

    @property
    def signs(self) -> SignSketch:
        """The sketch of the keys."""
        return SignSketch(self.m or 0, self.sketch)

    def codes(self, k: Array, rng: np.random.Generator) -> Codes:
        d = k.shape[1]
        squares = np.einsum("ld,ld->l", k, k)
        S = self.signs.draw(d, rng)
        return Codes(self.signs.decoded(S, k), self.signs.variance(0.0, squares, d))

    def coder(self, d: int, rng: np.random.Generator) -> Coder:
        return _SignCoder(self, self.signs.draw(d, rng))

    def layout(self, d: int) -> Layout:
        m = self.m or 0
        return Layout(((m, 1),), scales=1, parameters=m * d, mapped=m * d)

    def drawn_logits(self, q: Array, k: Array) -> LogitMoments | None:
        x = exact.logits(q, k)
        return LogitMoments(x, self.signs.variance(x**2, _square_sizes(q, k), q.shape[1]))

    def coded_moments(self, q: Array, k: Array) -> Moments | None:
        """Return the moments for Gaussian rows; for orthogonal rows they are not known."""
        if self.sketch != "gaussian":
            return None
        return exp_moments(self.signs, q, k, exact.logits(q, k), self._less(q, k))

    def coded_covariance(self, q: Array, k: Array) -> Array | None:
        if self.sketch != "gaussian":
            return None
        return exp_covariance(self.signs, q, k, k @ q, self._less(q[None], k)[0])

    def _less(self, q: Array, k: Array) -> Array:
        less = self.signs.variance(0.0, _square_sizes(q, k), q.shape[1]) / 2
        return np.asarray(less if self.corrected else 0.0 * less)


@dataclasses.dataclass(frozen=True, eq=False)
class _SignCoder:
    """Encode a key as the signs of its products with the rows, and its norm."""

    method: QJL
    rows: Array

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        return ((len(self.rows), 1),)

    def shared(self, block: Array) -> Array:
        return np.zeros(0)

    def encode(self, keys: Array, shared: Array) -> tuple[list[Array], Array]:
        return [self.method.signs.bits(self.rows, keys)], np.linalg.norm(keys, axis=1)[:, None]

    def decode(self, codes: list[Array], scales: Array, shared: Array) -> Codes:
        signs, d = self.method.signs, self.rows.shape[1]
        keys = signs.read_back(self.rows, codes[0], scales[:, 0])
        return Codes(keys, signs.variance(0.0, scales[:, 0] ** 2, d))


def exp_moments(
    signs: SignSketch, q: Array, k: Array, products: Array, less: Array, about: Array | None = None
) -> Moments:
    """Return the moments of exp(about + x − less) relative to exp(products), for Gaussian rows.

    x estimates q·k; the other three are (n, l), and about is 0 by default.
    """
    first, second = signs.log_means(exact.logits(q, k), np.sqrt(_square_sizes(q, k)))
    shift = (0.0 if about is None else about) - less - products
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.log(np.expm1(np.maximum(second - 2 * first, 0.0)))
        return Moments(np.expm1(first + shift), ratio + 2 * (first + shift))


def exp_covariance(
    signs: SignSketch, q: Array, k: Array, products: Array, less: Array, about: Array | None = None
) -> Array:
    """Return the covariance (l, l) of the estimates of `exp_moments`, for one query (d,)."""
    sizes = np.sqrt(_square_sizes(q[None], k))
    first = signs.log_means((k @ q)[None], sizes)[0][0]
    second = signs.log_means((k @ q)[None], sizes)[1][0]
    joint = signs.log_joint(q, k)
    np.fill_diagonal(joint, second)
    mean = first + (0.0 if about is None else about) - less - products
    with np.errstate(over="ignore", invalid="ignore"):
        scale, joint = np.add.outer(mean, mean), joint - np.add.outer(first, first)
        far = np.exp(scale + joint)  # where expm1 overflows, exp is the same
        return np.asarray(np.where(joint < 700, np.exp(scale) * np.expm1(joint), far))


def _square_sizes(q: Array, k: Array) -> Array:
    return np.outer(np.einsum("nd,nd->n", q, q), np.einsum("ld,ld->l", k, k))
