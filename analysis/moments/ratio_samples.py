"""Ratios estimate/exact of many draws of random features at once, at several temperatures.

The factors of one draw are small, so that building them one by one is slow. Here the frequencies of
a block of draws form one matrix W with two products, W Qᵀ and W Kᵀ. If a family expands q·k without
shifting or turning its inputs, all temperatures take their exponentials, or waves, from the same
two products, because ω·q/√t is a multiple of ω·q. With u = q + k (waves: q − k) in the family's
frame, and its `level`,

    estimate/exact = e^{−|u|²/2} Σ_r e^{2 level_r} e^{ω_r·q} e^{ω_r·k}
    estimate/exact = e^{+|u|²/2} Σ_r e^{2 level_r} (cos ω_r·q cos ω_r·k + sin ω_r·q sin ω_r·k)

No shift is subtracted. If an exponential might not be representable, the ratios are None, and the
caller must use `approximate` for these draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from approx import Method
from approx.checks import Array
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import masks, memory
from approx.estimate.distances import half_square, squared_distances
from approx.estimate.masks import MaskLike
from approx.kernels.elementary import exp
from approx.kernels.jit import kernel
from approx.random_features.features import Frame, RandomFeatures

LARGEST = {"float64": 300.0, "float32": 40.0}  # exponent of a factor: twice it is representable
SIDE = 512  # frequencies per block, and keys per tile: two megabytes in float64


@kernel
def _exponentials(G: Any, scale: Any, level: Any, out: Any) -> None:
    for j in range(G.shape[0]):
        g, row, c = G[j], out[j], level[j]
        for p in range(g.size):
            row[p] = exp(scale * g[p] + c)


class Point(NamedTuple):
    """Queries and keys at one temperature.

    Attributes
    ----------
    q, k : (n, d), (l, d)
    root : float
        1/√t, the factor that q and k contain.
    log_unit : (n, l)
        The log of the unit of every ratio.
    """

    q: Array
    k: Array
    root: float
    log_unit: Array


class _At(NamedTuple):
    """The quantities that all draws at one temperature share.

    ``factor`` is e^{∓|u|²/2 − log_unit}, None if it is not representable. ``on_support`` marks the
    entries that are exactly exp(q·k); ``there`` has their ratios.
    """

    frame: Frame
    tilt: Array
    root: float
    factor: Array | None
    on_support: Array | None
    there: Array | None


def family(method: Method) -> RandomFeatures | None:
    """Return the features of a method whose draws are the module's sums, else None.

    These are the method itself, or the features of Scatterbrain with a deterministic support. A
    subclass of a family must itself set `composed`. A subclass of Scatterbrain gives None, because
    it may have its own `evaluate`.
    """
    features = method
    if type(method) is Scatterbrain and method.sparse.deterministic:
        features = method.low_rank
    if isinstance(features, RandomFeatures) and features.composed and not features.deterministic:
        return features
    return None


class RatioDraws:
    """Draws of one method at several temperatures of the same Q and K.

    Parameters
    ----------
    method : Method
        A method for which `family` is not None.
    points : sequence of Point
    mask : None, "causal" or Mask
        The ratio of an invisible pair is an arbitrary finite number.

    Attributes
    ----------
    together : int
        Draws per block.
    """

    def __init__(self, method: Method, points: Sequence[Point], mask: MaskLike = None) -> None:
        features = family(method)
        assert features is not None
        self.method, self.features = method, features
        self.q, self.k = points[0][:2]
        self.mask = masks.as_mask(mask, len(self.q), len(self.k))
        self.at = [self._at(point) for point in points]
        count, n, l = features.count, len(self.q), len(self.k)
        self.together = max(1, min(SIDE // count, SIDE**2 // (n * l)))
        rows = self.together * count
        self.width = min(l, max(16, SIDE**2 // rows))  # of a tile of keys
        unmoved = all(x.frame.a is p.q and x.frame.b is p.k for x, p in zip(self.at, points))
        self.shared = unmoved and all((x.tilt == x.tilt[0]).all() for x in self.at)
        sides = features.per_frequency * (len(points) if self.shared else 1)
        memory.reserve(
            8 * rows * (self.q.shape[1] + n * (1 + sides) + 2 * self.width),
            f"{method}",
            "m, n or the temperatures",
        )
        self.tiles = np.empty((2, rows * self.width), self.q.dtype)

    def ratios(self, streams: Sequence[np.random.Generator]) -> list[Array | None]:
        """Return e^−log_unit·estimate/exact, (draws, n, l) or None, for every point.

        Parameters
        ----------
        streams : sequence of Generator
            The generator of each draw, as for `approximate`.
        """
        drawn = [self.features.frequencies(self.q, self.k, self._own(rng)) for rng in streams]
        omega, half = (np.concatenate(parts) for parts in zip(*drawn))
        groups = [self.at] if self.shared else [[x] for x in self.at]
        return [y for group in groups for y in self._group(group, omega, half, len(streams))]

    def _group(self, group: list[_At], omega: Array, half: Array, draws: int) -> list[Array | None]:
        """Return the ratios at temperatures that share the products of the first temperature."""
        (a, b, *_), tilt = group[0].frame, group[0].tilt
        W = (omega * np.sqrt(1 - 4 * tilt)).astype(omega.dtype) if tilt.any() else omega
        of_queries, of_keys = W @ a.T, self.tiles[0]
        sides = [self._side(x, group[0], omega, half, of_queries, draws) for x in group]
        bound = math.prod(float(np.linalg.norm(x, axis=1).max()) for x in (W, b))
        within = all(side.holds(bound) for side in sides)
        for start in range(0, len(b), self.width):
            cols = slice(start, min(start + self.width, len(b)))
            G = of_keys[: len(W) * (cols.stop - start)].reshape(len(W), -1)
            np.matmul(W, b[cols].T, out=G)
            peak = bound if within else _peak(G)
            for x, side in zip(group, sides):
                side.add(G, peak, cols, x.factor, self.tiles[1])
        for x, side in zip(group, sides):
            if side.ratios is not None and x.on_support is not None:
                side.ratios[:, x.on_support] = x.there
        return [side.ratios for side in sides]

    def _side(
        self, x: _At, first: _At, omega: Array, half: Array, G: Array, draws: int
    ) -> _BlockFactors:
        """Return the factors of the queries at one temperature."""
        scale = x.root / first.root * math.sqrt((1 - 4 * x.tilt[0]) / (1 - 4 * first.tilt[0]))
        level = self.features.level(omega, half, x.tilt)
        per_frequency, waves = self.features.per_frequency, self.features.imaginary
        side = _BlockFactors(scale, level.astype(G.dtype), per_frequency, waves)
        if x.factor is not None and side.holds(_peak(G)):
            side.ratios = np.zeros((draws, *x.factor.shape))
            for sign in range(side.per_frequency):
                left = side.values(G, sign, np.empty_like(G)).reshape(draws, -1, G.shape[1])
                side.left.append(left.transpose(0, 2, 1))
        return side

    def _own(self, rng: np.random.Generator) -> np.random.Generator:
        """Return the generator of the frequencies."""
        return self.method.streams(rng)[1] if isinstance(self.method, Scatterbrain) else rng

    def _at(self, point: Point) -> _At:
        frame, sign = self.features.frame(point.q, point.k), -1 if self.features.imaginary else 1
        a, b = (x.astype(np.float64) for x in frame[:2])
        log = -sign * squared_distances(a, -sign * b) / 2 - point.log_unit
        self.mask.hide(log)
        # The factors of `approximate` have one scale for all keys; a key far below it underflows.
        spread = float(np.ptp(frame.column - sign * half_square(b)))
        lost = spread > -math.log(np.finfo(point.k.dtype).tiny)
        factor = None if lost or np.abs(log).max() > LARGEST["float64"] else np.exp(log)
        on_support = there = None
        if isinstance(self.method, Scatterbrain):
            probability = self.method.sparse.probability(point.q, point.k, mask=self.mask)
            assert probability is not None  # the support is not drawn
            on_support = probability == 1.0
            there = np.exp(-point.log_unit[on_support])
        tilt = self.features.tilt(frame)
        return _At(frame, tilt, point.root, factor, on_support, there)


class _BlockFactors:
    """Factors of one temperature for a block of draws; ``ratios`` is None if not representable."""

    def __init__(self, scale: float, level: Array, per_frequency: int, waves: bool) -> None:
        self.scale, self.level = scale, level
        self.per_frequency, self.waves = per_frequency, waves
        self.left: list[Array] = []
        self.ratios: Array | None = None

    def holds(self, peak: float) -> bool:
        """Return whether every exponential is representable if |W x| is at most ``peak``."""
        largest = float(np.abs(self.level).max()) + (0.0 if self.waves else self.scale * peak)
        return largest <= LARGEST[self.level.dtype.name]

    def values(self, G: Array, sign: int, out: Array) -> Array:
        """Write e^{level ± scale·G}, or e^level times cos or sin of scale·G, into ``out``."""
        if self.waves:
            np.multiply(G, G.dtype.type(self.scale), out=out)
            (np.sin if sign else np.cos)(out, out=out)
            out *= np.exp(self.level)[:, None]
        else:
            scale = -self.scale if sign else self.scale
            _exponentials(G, G.dtype.type(scale), self.level, out)
        return out

    def add(self, G: Array, peak: float, cols: slice, factor: Array | None, tile: Array) -> None:
        """Add the terms of some keys to the ratios."""
        if self.ratios is None or factor is None:
            return
        if not self.holds(peak):
            self.ratios = None
            return
        part = self.ratios[:, :, cols]
        out = tile[: G.size].reshape(G.shape)
        for sign, left in enumerate(self.left):
            right = self.values(G, sign, out).reshape(len(left), -1, G.shape[1])
            part += left @ right
        part *= factor[:, cols]


def _peak(G: Array) -> float:
    return max(float(G.max()), -float(G.min()))
