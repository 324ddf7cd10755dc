"""TurboQuant: keys are rotated at random, and their coordinates rounded as normal numbers."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import scipy

from approx.checks import Array
from approx.compressed_logits.coded_keys import CodedKeys, Codes, Layout, LogitMoments
from approx.compressed_logits.normal_levels import (
    MOST_BITS,
    ROTATIONS,
    QuantiserLevels,
    lloyd_max,
    rotated,
    width,
)
from approx.compressed_logits.qjl import _square_sizes, exp_covariance, exp_moments
from approx.compressed_logits.sign_sketch import SKETCHES, SignSketch
from approx.decoding.codes import Coder
from approx.estimate import exact
from approx.method import Label, Moments
from approx.method.fields import flag, integer, one_of
from approx.method.tags import RANDOM, ROTATION, SCALE, SHIFT, collect

FORMS = ("mse", "product", "eden", "norm")
NODES = 24


class RotationMoments(NamedTuple):
    """Moments of û, the rounded unit vector u, over rotations: E u·û, E (u·û)² and E |û|²."""

    along: float
    along_square: float
    square: float


def rotation_moments(levels: QuantiserLevels, d: int) -> RotationMoments:
    """Return the moments of û_i = level(√d w_i)/√d, w uniform on the unit sphere in d dimensions.

    A coordinate is w_1 = cos θ with density ∝ sin^{d−2} θ. Given w_1, a second coordinate is sin θ
    times a coordinate of the sphere in d − 1 dimensions. Its E x·level(x) is a sum over cells of
    level·√d sin θ·c (1 − a²)^{(d−2)/2}. One quadrature between the borders remains.
    """
    if d == 1:
        one = float(levels.nearest(np.ones(1))[0])
        return RotationMoments(one, one**2, one**2)
    root = math.sqrt(d)
    borders = np.concatenate([levels.borders, np.arange(-8.0, 9.0)]) / root  # integers: the density
    borders = borders[np.abs(borders) < 1]  # of w has its mass within eight units of 1/√d
    kinks = np.concatenate(
        [np.arccos(borders), np.arcsin(np.abs(borders)), [0.0, np.pi / 2, np.pi]]
    )
    kinks = np.unique(np.concatenate([kinks, np.pi - kinks]))
    nodes, w = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(kinks)[:, None] / 2
    theta = ((kinks[:-1] + kinks[1:])[:, None] / 2 + half * nodes).ravel()
    weight = (half * w).ravel() * np.sin(theta) ** (d - 2)
    weight /= weight.sum()
    x = root * np.cos(theta)
    level = levels.nearest(x)
    other = _mean_product(levels, root * np.sin(theta), d - 1)
    return RotationMoments(
        float(weight @ (x * level)),
        float(weight @ ((x * level) ** 2 + (d - 1) * x * level * other)) / d,
        float(weight @ level**2),
    )


def _mean_product(levels: QuantiserLevels, radius: Array, d: int) -> Array:
    """Return E x·level(x) for x = radius·(a coordinate of the unit sphere in d dimensions)."""
    if d == 1:
        return np.asarray(radius * levels.nearest(radius))
    with np.errstate(divide="ignore"):
        inner = np.minimum(np.abs(levels.borders) / radius[:, None], 1.0)
    ends = np.zeros((len(radius), len(levels.levels) + 1))
    ends[:, 1:-1] = (1 - inner**2) ** ((d - 1) / 2)
    log = scipy.special.gammaln(d / 2) - scipy.special.gammaln((d - 1) / 2)
    scale = math.exp(log) / math.sqrt(math.pi) / (d - 1)
    return np.asarray(radius * scale * ((ends[:, :-1] - ends[:, 1:]) @ levels.levels))


@dataclasses.dataclass(frozen=True)
class TurboQuant(CodedKeys):
    """Norm and rounded coordinates of a rotated key, and exp of the logits from them.

    estimate_ij = exp(q_i·k̂_j), k̂ = |k| Rᵀ level(√d R k/|k|)/√d with a random rotation R and the
    levels that are best for N(0, 1), in one of four forms.

    Parameters
    ----------
    bits : int
        Bits of a number of a key, 1 to 8.
    form : {"mse", "product", "eden", "norm"}
        ``mse`` is k̂ itself. ``product`` rounds to bits − 1 bits, and keeps of the residual of k the
        signs of d random products and the norm (`qjl`). ``eden`` is k̂·|k|²/(k·k̂) and ``norm`` is
        k̂·|k|/|k̂|, whose scales are stored in place of the norm.
    rotation : {"orthogonal", "hadamard", "none"}
        Haar distributed; a Hadamard matrix whose columns have random signs, of the next power of
        two; or R = I.
    sketch : {"orthogonal", "gaussian"}
        Rows of the products, see `qjl`.
    group : int, optional
        The mean of each channel over so many consecutive keys is subtracted first and stored; by
        default no mean is.
    recent : int, optional
        Number of last keys that are exact for each query; by default group − 1, the fewest with
        which a row reads nothing of the future.
    corrected : bool
        Whether half the variance of a logit, computed from what is stored, is subtracted from it.
        With D the distortion of the levels, it is D(1 − D)|q|²|k|²/d for "mse", D|q|²|k̂|²/d for
        "eden" and "norm", and that of `qjl` for the residual of "product".

    Notes
    -----
    Over Haar rotations E q·k̂ = A q·k for "mse", where A is `rotation_moments(…).along`. It tends to
    1 − D for many dimensions, so logits are biased towards 0; those of "norm" tend to √(1 − D) q·k.
    The other two forms have unbiased logits. "product" is unbiased under every rotation, at the
    variance of `qjl` with the distortion of one bit fewer. "eden" has the variance
    D/(1 − D)·(|q|²|k|² − (q·k)²)/(d − 1) to leading order, as the error of k̂ is orthogonal to k and
    its direction uniform. Under a Hadamard rotation "eden" is biased, strongly so for keys with a
    few large channels. In all forms exp is biased. But over queries of uniform direction,
    E exp(q·k̂) depends on |k̂| alone, and "norm" keeps it, whatever the code is.
    Mean and variance of logits are exact for Haar rotations, except the variance of "eden" and both
    of "norm"; those of exp are exact where R = I. Estimates are positive. Rows are autoregressive
    where recent ≥ group − 1, because all random numbers are drawn before any key.
    Cost: d² operations to rotate a query and a key (d log₂ d by Hadamard), d² more for "product".
    A query reads these parameters, the codes, a norm or scale of each key, and two for "product".

    With u = k/|k| and the code c = k̂/|k|, "eden" has the scale s₂ = 1/(u·c) and "norm" s₃ = 1/|c|,
    the geometric mean of s₂ and of the least-squares scale s₁ = u·c/|c|². "mse" has the scale 1,
    which s₁ tends to for many dimensions.
    The form "eden" is DRIVE with 1 bit and EDEN with more. RaBitQ with 1 bit is the same rule,
    sign(R u)·(a scale for which u·û = 1). With more bits RaBitQ has equal steps instead, whose
    distortion at the best scale is .1188, .0374, .0115 for 2, 3, 4 bits in place of .1175, .0345,
    .0095. PolarQuant rounds angles of pairs of rotated coordinates.
    TurboQuant's authors have published no code. Levels here are those of N(0, 1), the limit of
    their levels for a coordinate on the sphere; outlier channels get no extra bits.

    References
    ----------
    .. [1] A. Zandieh, M. Daliri, M. Hadian, V. Mirrokni, "TurboQuant: online vector quantization
       with near-optimal distortion rate", 2025, arXiv 2504.19874, algorithms 1 and 2.
    .. [2] S. Vargaftik et al., "EDEN: communication-efficient and robust distributed mean
       estimation for federated learning", ICML 2022, section 3.
    .. [3] J. Gao, C. Long, "RaBitQ: quantizing high-dimensional vectors with a theoretical error
       bound for approximate nearest neighbor search", SIGMOD 2024, theorem 3.2.

    Examples
    --------
    A key of one number is stored as its norm and its sign:

    >>> TurboQuant(bits=1, form="eden").approximate([[1.0]], [[-2.0]], rng=0).to_dense().round(6)
    array([[0.135335]])
    """

    name = "turboquant"
    label = Label(
        "rotated keys of {bits} bits (TurboQuant)",
        {
            "keys of {bits} bits (EDEN)": {"form": "eden"},
            "keys of {bits} bits, norm kept": {"form": "norm"},
        },
    )
    examples = (
        "turboquant(bits=2)",
        "turboquant(bits=2, form='product', rotation='none', sketch='gaussian')",
        "turboquant(bits=2, form='product', rotation='hadamard')",
        "turboquant(bits=1, form='eden', corrected=True)",
        "turboquant(bits=2, form='norm')",
        "turboquant(bits=2, group=3)",
    )

    bits: int = integer(4, most=MOST_BITS)
    form: str = one_of("mse", FORMS)
    rotation: str = one_of("orthogonal", ROTATIONS)
    sketch: str = one_of("orthogonal", SKETCHES)
    group: int | None = integer()
    recent: int | None = integer(least=0)
    corrected: bool = flag(False)

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | collect(
            SCALE,
            self.group is not None and SHIFT,
            (self.rotation == "orthogonal" or not self.rounded_bits) and ROTATION,
            (self.rotation != "none" or self.form == "product") and RANDOM,
        )

    @property
    def members(self) -> int:
        return self.group or 1

    @property
    def rounded_bits(self) -> int:
        """Bits of the rounded coordinates."""
        return self.bits - (self.form == "product")

    def codes(self, k: Array, rng: np.random.Generator) -> Codes:
        R, means = rotated(k.shape[1], self.rotation, rng), self._means(k)
        keys, spread = self._coded(k - means, R, rng)
        return Codes(means + keys, spread)

    def _means(self, k: Array) -> Array:
        means = np.zeros_like(k)
        for start in range(0, len(k) if self.group else 0, self.group or 1):
            part = slice(start, start + (self.group or 1))
            means[part] = k[part].mean(axis=0)
        return means

    def _coded(self, x: Array, R: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        coder = _RotationCoder(self, R, self._sketch(x.shape[1], rng))
        return coder.decode(*coder.encode(x, np.zeros(0)), np.zeros((len(x), 0)))

    def coder(self, d: int, rng: np.random.Generator) -> Coder:
        R = rotated(d, self.rotation, rng)
        return _RotationCoder(self, R, self._sketch(d, rng))

    def _sketch(self, d: int, rng: np.random.Generator) -> Array:
        return self._signs(d).draw(d, rng) if self.form == "product" else np.zeros((0, d))

    def _signs(self, d: int) -> SignSketch:
        return SignSketch(d, self.sketch)

    def layout(self, d: int) -> Layout:
        D = width(d, self.rotation)
        rotation = {"none": (0, 0.0), "orthogonal": (d * d, float(d * d))}
        read, mapped = rotation.get(self.rotation, (D, D * math.log2(D)))
        means = d if self.group else 0
        if self.form != "product":
            return Layout(((D, self.bits),), 1, means, read, mapped)
        codes = ((D, self.bits - 1), (d, 1)) if self.rounded_bits else ((d, 1),)
        scales = len(codes)
        if not self.rounded_bits:
            read, mapped = 0, 0.0
        return Layout(codes, scales, means, read + d * d, mapped + d * d)

    def drawn_logits(self, q: Array, k: Array) -> LogitMoments | None:
        """Return mean and variance over Haar rotations and sketches."""
        if self.rotation != "orthogonal" or self.group or self.form in ("eden", "norm"):
            return None
        d, x, sizes = q.shape[1], exact.logits(q, k), _square_sizes(q, k)
        across = (sizes - x**2) / max(d - 1, 1)
        if not self.rounded_bits:
            return LogitMoments(x, self._signs(d).variance(x**2, sizes, d))
        A, B, C = rotation_moments(lloyd_max(self.rounded_bits), d)
        if self.form == "mse":
            return LogitMoments(A * x, x**2 * (B - A**2) + across * (C - B))
        left = x**2 * (1 - 2 * A + B) + across * (C - B)  # E (q·(k − k̂))²
        return LogitMoments(x, self._signs(d).variance(left, sizes * (1 - 2 * A + C), d))

    def coded_moments(self, q: Array, k: Array) -> Moments | None:
        """Return the moments over Gaussian rows if nothing is rotated; others are not known."""
        if not self._only_sketched:
            return None
        keys, left, less = self._without_rotation(k)
        halves = np.outer(np.einsum("nd,nd->n", q, q), less)
        return exp_moments(
            self._signs(q.shape[1]), q, left, exact.logits(q, k), halves, exact.logits(q, keys)
        )

    def coded_covariance(self, q: Array, k: Array) -> Array | None:
        if not self._only_sketched:
            return None
        keys, left, less = self._without_rotation(k)
        return exp_covariance(self._signs(len(q)), q, left, k @ q, q @ q * less, keys @ q)

    @property
    def _only_sketched(self) -> bool:
        product = self.form == "product" and self.sketch == "gaussian"
        return product and (self.rotation == "none" or not self.rounded_bits)

    def _without_rotation(self, k: Array) -> tuple[Array, Array, Array]:
        """Return rounded keys, their residuals, and the correction divided by |q|²."""
        d = k.shape[1]
        means = self._means(k)
        keys = means + _RotationCoder(self, np.eye(d), np.zeros((0, d))).rounded_keys(k - means)
        left = k - keys
        squares = np.einsum("ld,ld->l", left, left)
        less = self._signs(d).variance(0.0, squares, d) / 2
        return keys, left, less if self.corrected else 0.0 * less


@dataclasses.dataclass(frozen=True, eq=False)
class _RotationCoder:
    """Encode a rotated key as rounded coordinates and a scale; "product" adds signs and a norm."""

    method: TurboQuant
    R: Array
    S: Array  # the sketch, without rows where there is none

    @property
    def _levels(self) -> QuantiserLevels | None:
        bits = self.method.rounded_bits
        return lloyd_max(bits) if bits else None

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        return self.method.layout(self.R.shape[1]).codes

    def shared(self, block: Array) -> Array:
        return block.mean(axis=0) if self.method.group else np.zeros(0)

    def encode(self, keys: Array, shared: Array) -> tuple[list[Array], Array]:
        x = keys - shared if shared.size else keys
        codes, scales, left = [], [], x
        if self._levels is not None:
            places, scale = self._round(x)
            codes, scales, left = [places], [scale], x - self._read(places, scale)
        if self.method.form == "product":
            codes.append(self.method._signs(x.shape[1]).bits(self.S, left))
            scales.append(np.linalg.norm(left, axis=1))
        return codes, np.stack(scales, axis=1)

    def decode(self, codes: list[Array], scales: Array, shared: Array) -> Codes:
        d = self.R.shape[1]
        keys, signs = np.zeros((len(scales), d)), self.method._signs(d)
        if self._levels is not None:
            keys = self._read(codes[0], scales[:, 0])
        if self.method.form == "product":
            norms = scales[:, -1]
            keys, spread = keys + signs.read_back(self.S, codes[-1], norms), norms**2
            spread = signs.variance(0.0, spread, d)
        else:
            D = lloyd_max(self.method.bits).distortion
            mse = self.method.form == "mse"
            size = scales[:, 0] ** 2 * (1 - D) if mse else np.einsum("ld,ld->l", keys, keys)
            spread = D * size / d
        return Codes(keys + shared if shared.size else keys, spread)

    def rounded_keys(self, x: Array) -> Array:
        """Return k̂ of keys (l, d)."""
        return np.zeros_like(x) if self._levels is None else self._read(*self._round(x))

    def _round(self, x: Array) -> tuple[Array, Array]:
        """Return the level index of each coordinate, and |k|, times 1/(u·c) or 1/|c| if so."""
        assert self._levels is not None
        norms, size = np.linalg.norm(x, axis=1), len(self.R)
        y = math.sqrt(size) * (x / np.where(norms > 0, norms, 1.0)[:, None]) @ self.R.T
        places = np.searchsorted(self._levels.borders, y)
        if self.method.form in ("eden", "norm"):
            level = self._levels.levels[places]
            if self.method.form == "eden":
                found = np.einsum("ld,ld->l", y, level) / size
            else:  # a padded rotation loses a part of the levels
                found = np.linalg.norm(level @ self.R, axis=1) / math.sqrt(size)
            norms = norms / np.where(found > 0, found, 1.0)
        return places, norms

    def _read(self, places: Array, scale: Array) -> Array:
        assert self._levels is not None
        level = self._levels.levels[places]
        return np.asarray(scale[:, None] * (level @ self.R) / math.sqrt(len(self.R)))
