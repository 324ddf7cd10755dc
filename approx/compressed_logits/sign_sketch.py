"""The signs of random products of a key, and the inner products estimated from them."""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy

from approx.checks import Array
from approx.projections.rotated import haar

SKETCHES = ("orthogonal", "gaussian")


@dataclasses.dataclass(frozen=True)
class SignSketch:
    """sign(S k) and |k|: q·k is estimated by |k|/(κm) Σ_r (s_r·q) sign(s_r·k), unbiased.

    Parameters
    ----------
    m : int
        Rows of S.
    kind : {"orthogonal", "gaussian"}
        Rows N(0, I), or √d times the rows of Haar distributed rotations, of d rows each.

    Notes
    -----
    κ = E |s·u| of a unit vector u: √(2/π) for Gaussian rows, √d Γ(d/2)/(√π Γ((d + 1)/2)) for
    orthogonal ones. For Gaussian rows E e^{t g sign h} = 2 e^{t²/2} Φ(tρ), where g, h ~ N(0, 1)
    have the correlation ρ = q·k/(|q||k|).
    """

    m: int
    kind: str

    def draw(self, d: int, rng: np.random.Generator) -> Array:
        """Return S (m, d)."""
        if self.kind == "gaussian":
            return rng.standard_normal((self.m, d))
        blocks = [haar(d, rng) for _ in range(0, self.m, d)]
        return np.asarray(math.sqrt(d) * np.concatenate(blocks)[: self.m])

    def unit(self, d: int) -> float:
        """Return κ."""
        if self.kind == "gaussian":
            return math.sqrt(2 / math.pi)
        gammaln = scipy.special.gammaln
        return math.sqrt(d / math.pi) * math.exp(gammaln(d / 2) - gammaln((d + 1) / 2))

    def decoded(self, S: Array, k: Array) -> Array:
        """Return the keys (l, d) whose products with queries are the estimates."""
        return self.read_back(S, self.bits(S, k), np.linalg.norm(k, axis=1))

    def bits(self, S: Array, k: Array) -> Array:
        """Return 1 where a product is ≥ 0, else 0, (l, m)."""
        return np.asarray(k @ S.T >= 0, np.int64)

    def read_back(self, S: Array, bits: Array, norms: Array) -> Array:
        """Return `decoded` keys from their bits and norms (l,)."""
        size = norms[:, None] / (self.unit(S.shape[1]) * self.m)
        return np.asarray(size * ((2.0 * bits - 1.0) @ S))

    def variance(self, square_product: Any, square_size: Any, d: int) -> Any:
        """Return Var of an estimate of q·k, from (q·k)² and |q|²|k|²; it is linear in both.

        Gaussian rows: (π/2 |q|²|k|² − (q·k)²)/m. Two orthogonal rows have E (s·q)(s′·q) sign(s·k)
        sign(s′·k) = 2/π |q|² (ρ² − (1 − ρ²)/(d − 1)), since E |s·u||s′·u| = 2/π.
        """
        m, square_unit = self.m, self.unit(d) ** 2
        total = m * (square_size - square_unit * square_product)
        if self.kind == "orthogonal" and d > 1:
            full, rest = divmod(m, d)
            pairs = full * d * (d - 1) + rest * (rest - 1)
            other = (square_size - square_product) / (d - 1)
            pair = 2 / math.pi * (square_product - other) - square_unit * square_product
            total = total + pairs * pair
        return total / (square_unit * m * m)

    def log_means(self, products: Array, sizes: Array) -> tuple[Array, Array]:
        """Return log E e^x and log E e^{2x} of an estimate x from Gaussian rows, exactly.

        ``products`` are q·k and ``sizes`` |q||k|, (n, l).
        """
        unit = self.unit(1) * self.m
        log_ndtr = scipy.special.log_ndtr
        first, second = (
            self.m * ((p * sizes / unit) ** 2 / 2 + math.log(2.0) + log_ndtr(p * products / unit))
            for p in (1.0, 2.0)
        )
        return np.asarray(first), np.asarray(second)

    def log_joint(self, query: Array, keys: Array) -> Array:
        """Return log E e^{x_j + x_l} of the estimates of two keys, (l, l), from Gaussian rows.

        A row adds g(t_j sign h_j + t_l sign h_l), t = |q||k|/(κm). Over the signs the expectation
        is 2 Σ_± e^{a²/2} P(h_j > −a c_j, ±h_l > ∓a c_l), a = t_j ± t_l, with the correlations c of
        q and the keys.
        """
        norms = np.linalg.norm(keys, axis=1)
        cosines = (keys @ keys.T) / np.maximum(np.outer(norms, norms), 1e-300)
        np.fill_diagonal(cosines, 1.0)
        q = float(np.linalg.norm(query)) or 1.0
        along = keys @ query / (q * np.maximum(norms, 1e-300))
        t = q * norms / (self.unit(1) * self.m)
        logs = []
        for sign in (1.0, -1.0):
            a = t[:, None] + sign * t
            chance = _quadrant(a * along[:, None], sign * a * along, sign * cosines)
            with np.errstate(divide="ignore"):
                logs.append(a**2 / 2 + np.log(2 * np.maximum(chance, 0.0)))
        return np.asarray(self.m * np.logaddexp(*logs))


def _quadrant(x: Array, y: Array, r: Array) -> Array:
    """Return P(X < x, Y < y) of two standard normal numbers of correlation r (Owen 1956, 3.1)."""
    ndtr, owens_t = scipy.special.ndtr, scipy.special.owens_t
    r = np.clip(r, -1.0, 1.0)
    root = np.sqrt(np.maximum(1 - r**2, 0.0))
    flat = root < 1e-7  # Y = X or Y = −X: one variable decides
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(x == 0, np.sign(y) * np.inf, (y - r * x) / (x * root))
        other = np.where(y == 0, np.sign(x) * np.inf, (x - r * y) / (y * root))
    apart = (x * y < 0) | ((x * y == 0) & (x + y < 0))
    found = (ndtr(x) + ndtr(y) - apart) / 2 - owens_t(x, first) - owens_t(y, other)
    origin = (x == 0) & (y == 0)
    found = np.where(origin, 0.25 + np.arcsin(r) / (2 * math.pi), found)
    same, opposite = np.minimum(ndtr(x), ndtr(y)), np.maximum(ndtr(x) + ndtr(y) - 1, 0.0)
    return np.asarray(np.where(flat, np.where(r > 0, same, opposite), found))
