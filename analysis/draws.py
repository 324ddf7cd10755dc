"""Many draws of random features at once, as ratios estimate/exact, and several temperatures.

The factors of one draw are small, and to build them one by one costs more than their numbers.
Here the frequencies of a block of draws are one matrix W, and W Qᵀ, W Kᵀ two products; each
temperature of a family in its plain frame takes its exponentials, or waves, from the same two,
since ω·q/√t is a multiple of ω·q. With u = q + k (waves: q − k) in the frame,

    estimate/exact = e^{−|u|²/2} Σ_r e^{2 level_r} e^{ω_r·q} e^{ω_r·k}
    estimate/exact = e^{+|u|²/2} Σ_r e^{2 level_r} (cos ω_r·q cos ω_r·k + sin ω_r·q sin ω_r·k)

No shift is taken out: where an exponential might not be representable, nothing is returned, and
the draws are for `approximate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from approx import memory
from approx._elementary import exp
from approx._jit import kernel
from approx.checks import Array
from approx.distances import squared_distances
from approx.method import Method
from approx.projections import named
from approx.random_features.features import ExponentialFeatures, Frame, RandomFeatures
from approx.random_features.trigonometric import Trigonometric
from approx.scatterbrain import Scatterbrain

LARGEST = {"float64": 300.0, "float32": 40.0}  # exponents of factors: e^600, e^80 are representable
SIDE = 512  # frequencies of a block, and keys of a tile: two megabytes in float64


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
        1/√t, which they are multiplied by.
    log_unit : (n, l)
        Log of what every ratio is divided by.
    """

    q: Array
    k: Array
    root: float
    log_unit: Array


class _At(NamedTuple):
    """What draws do not change at one temperature; ``factor`` is None where not representable."""

    frame: Frame
    tilt: Array
    root: float
    factor: Array | None
    exact: Array | None
    on: Array | None


def family(method: Method) -> RandomFeatures | None:
    """Return the features of a method whose draws are such sums, else None.

    They are the method itself, or what Scatterbrain has beside a support that is not drawn. A
    subclass that builds its features in its own way is not taken for its parent.
    """
    found = method
    if isinstance(method, Scatterbrain):
        if method.sparse.uses_rng or type(method).evaluate is not Scatterbrain.evaluate:
            return None
        found = method.low_rank
    if not isinstance(found, RandomFeatures) or not found.uses_rng:
        return None
    kind = type(found)
    known = kind.evaluate in (ExponentialFeatures.evaluate, Trigonometric.evaluate)
    plain = kind.frequencies is RandomFeatures.frequencies
    return found if known and plain else None


class Draws:
    """Draws of one method at several temperatures of the same Q and K.

    Parameters
    ----------
    method : Method
        One of which `family` knows the features.
    points : sequence of Point

    Attributes
    ----------
    together : int
        Draws of a block.
    """

    def __init__(self, method: Method, points: Sequence[Point]) -> None:
        features = family(method)
        assert features is not None
        self.method, self.features = method, features
        self.projection = named(features.projection)
        self.q, self.k = points[0][:2]
        self.at = [self._at(point) for point in points]
        count, n, l = features.count, len(self.q), len(self.k)
        self.together = max(1, min(SIDE // count, SIDE**2 // (n * l)))
        rows = self.together * count
        self.width = min(l, max(16, SIDE**2 // rows))  # of a tile of keys
        plain = type(features).frame is RandomFeatures.frame
        self.shared = plain and all((x.tilt == x.tilt[0]).all() for x in self.at)
        sides = features.per_frequency * (len(points) if self.shared else 1)
        memory.reserve(
            8 * rows * (self.q.shape[1] + n * (1 + sides) + 2 * self.width),
            f"{method}",
            "m, n or the temperatures",
        )
        self.tiles = np.empty((2, rows * self.width), self.q.dtype)

    def ratios(self, streams: Sequence[np.random.Generator]) -> list[Array | None]:
        """Return e^−log_unit·estimate/exact, (draws, n, l), for every point.

        Parameters
        ----------
        streams : sequence of Generator
            One a draw, as `approximate` would get it.
        """
        count, d, dtype = self.features.count, self.q.shape[1], self.q.dtype
        drawn = [self.projection.draw(count, d, self._own(rng)) for rng in streams]
        omega, weights = (np.concatenate(parts) for parts in zip(*drawn))
        omega = omega.astype(dtype, copy=False)
        with np.errstate(divide="ignore"):
            half = (0.5 * np.log(weights)).astype(dtype)
        groups = [self.at] if self.shared else [[x] for x in self.at]
        return [y for group in groups for y in self._group(group, omega, half, len(streams))]

    def _group(self, group: list[_At], omega: Array, half: Array, draws: int) -> list[Array | None]:
        """Return the ratios at temperatures that share the products of the first."""
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
            if side.ratios is not None and x.exact is not None:
                side.ratios[:, x.exact] = x.on
        return [side.ratios for side in sides]

    def _side(self, x: _At, first: _At, omega: Array, half: Array, G: Array, draws: int) -> _Side:
        """Return the factors of the queries at one temperature."""
        scale = x.root / first.root * math.sqrt((1 - 4 * x.tilt[0]) / (1 - 4 * first.tilt[0]))
        level = half
        if x.tilt.any():
            level = half + np.square(omega) @ x.tilt + 0.25 * np.log(1 - 4 * x.tilt).sum()
        if not self.features.imaginary:
            level = level - 0.5 * math.log(self.features.per_frequency)
        waves = self.features.imaginary
        side = _Side(scale, level.astype(G.dtype), self.features.per_frequency, waves)
        if x.factor is not None and side.holds(_peak(G)):
            side.ratios = np.zeros((draws, *x.factor.shape))
            for sign in range(side.columns):
                left = side.values(G, sign, np.empty_like(G)).reshape(draws, -1, G.shape[1])
                side.left.append(left.transpose(0, 2, 1))
        return side

    def _own(self, rng: np.random.Generator) -> np.random.Generator:
        """Return what the frequencies are drawn from."""
        return self.method.streams(rng)[1] if isinstance(self.method, Scatterbrain) else rng

    def _at(self, point: Point) -> _At:
        frame, sign = self.features.frame(point.q, point.k), -1 if self.features.imaginary else 1
        a, b = (x.astype(np.float64) for x in frame[:2])
        log = -sign * squared_distances(a, -sign * b) / 2 - point.log_unit
        factor = np.exp(log) if np.abs(log).max() <= LARGEST["float64"] else None
        exact = on = None
        if isinstance(self.method, Scatterbrain):
            probability = self.method.sparse.probability(point.q, point.k)
            assert probability is not None  # the support is not drawn
            exact = probability == 1.0
            on = np.exp(-point.log_unit[exact])
        return _At(frame, self.features.tilt(frame), point.root, factor, exact, on)


class _Side:
    """Factors of one temperature for a block of draws; ``ratios`` is None if not representable."""

    def __init__(self, scale: float, level: Array, columns: int, waves: bool) -> None:
        self.scale, self.level = scale, level
        self.columns, self.waves = columns, waves
        self.left: list[Array] = []
        self.ratios: Array | None = None

    def holds(self, peak: float) -> bool:
        """Whether every exponential is representable where |W x| is at most ``peak``."""
        largest = float(np.abs(self.level).max()) + (0.0 if self.waves else self.scale * peak)
        return largest <= LARGEST[self.level.dtype.name]

    def values(self, G: Array, sign: int, out: Array) -> Array:
        """Write e^{level ± scale·G}, or e^level cos scale·G, and the sine, into ``out``."""
        if self.waves:
            np.multiply(G, G.dtype.type(self.scale), out=out)
            (np.sin if sign else np.cos)(out, out=out)
            out *= np.exp(self.level)[:, None]
        else:
            scale = -self.scale if sign else self.scale
            _exponentials(G, G.dtype.type(scale), self.level, out)
        return out

    def add(self, G: Array, peak: float, cols: slice, factor: Array | None, tile: Array) -> None:
        """Fill in the ratios of some keys."""
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
