"""Locality-sensitive hashes, and the probability that two vectors have the same hash.

========================  =========================================  ==========================
family                    hash of x, w ~ N(0, I)                     collision
========================  =========================================  ==========================
sign                      sign(w·x)                                  1 − θ/π
cross_polytope            the largest of ±w_1·x, …, ±w_{b/2}·x       `cross_polytope_collision`
e2                        ⌊(w·x + u)/r⌋, u uniform on [0, r)         `e2_collision`
========================  =========================================  ==========================

θ is the angle between the two vectors.
"""

import functools
import math

import numpy as np
import scipy
from numpy.polynomial import chebyshev
from numpy.polynomial.legendre import leggauss

from approx.checks import Array
from approx.estimate import memory
from approx.estimate.distances import squared_distances

FAMILIES = ("sign", "cross_polytope", "e2")
DEGREE = 64  # degree of the polynomial in θ that interpolates a collision probability
NODES = 64  # nodes of a quadrature in one variable
FAR = 8.5  # standard deviations; the probability beyond is below 2e-17


def sign(x: Array, omega: Array) -> Array:
    """Return on which side of each hyperplane omega (hashes, d) x (n, d) lies, (n, hashes)."""
    return np.asarray(x @ omega.T >= 0, np.int64)


def cross_polytope(x: Array, omega: Array) -> Array:
    """Return the vertex of the cross-polytope nearest to x mapped by omega, (n, hashes).

    Of omega (hashes, b/2, d), vertex c < b/2 is +w_c, and vertex b/2 + c is −w_c.
    """
    codes = np.empty((len(x), len(omega)), np.int64)
    for h, w in enumerate(omega):
        memory.reserve(3 * len(x) * len(w) * x.itemsize, "a cross-polytope hash", "buckets or n")
        turned = x @ w.T
        codes[:, h] = np.concatenate([turned, -turned], axis=1).argmax(axis=1)
    return codes


def e2(x: Array, omega: Array, offset: Array, width: float) -> Array:
    """Return ⌊(w·x + u)/width⌋ for omega (hashes, d) and offset u (hashes,), (n, hashes)."""
    return np.asarray(np.floor((x @ omega.T + offset) / width), np.int64)


def sign_collision(theta: Array) -> Array:
    """Return the collision probability of a hyperplane, 1 − θ/π.

    References
    ----------
    .. [1] M. Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002.
    """
    return 1.0 - theta / np.pi


def e2_collision(distance: Array, width: float) -> Array:
    """Return P[⌊(w·x + u)/r⌋ = ⌊(w·y + u)/r⌋] for |x − y| = c and r = width.

    1 − 2Φ(−r/c) − (2c/(√(2π) r)) (1 − e^(−r²/(2c²))).

    References
    ----------
    .. [1] M. Datar, N. Immorlica, P. Indyk, V. Mirrokni, "Locality-sensitive hashing scheme based
       on p-stable distributions", SoCG 2004, section 4.1.
    """
    with np.errstate(divide="ignore"):
        ratio = width / np.asarray(distance, np.float64)
    tail = 2.0 / math.sqrt(2.0 * np.pi) * -np.expm1(-(ratio**2) / 2.0) / ratio
    return np.asarray(scipy.special.erf(ratio / math.sqrt(2.0)) - tail)


def cross_polytope_collision(theta: Array, buckets: int) -> Array:
    """Return P[both vectors have the same nearest vertex] at angles θ, for Gaussian directions.

    With standard normal g and h of correlation cos θ, and b = buckets,

        p = b ∫∫_{x, y > 0} φ_θ(x, y) P[|g| < x, |h| < y]^(b/2 − 1) dx dy.

    Parameters
    ----------
    theta : array
        0 ≤ θ ≤ π.
    buckets : int
        An even number.

    Notes
    -----
    Two buckets are the sides of one hyperplane; four are the sides of the two independent
    hyperplanes w₁ ± w₂. In both cases the value is exact. For more buckets it is a quadrature with
    Owen's T, interpolated between 65 Chebyshev points in θ, with an absolute error below 1e-8.
    Orthogonal directions have a different collision probability.

    References
    ----------
    .. [1] A. Andoni, P. Indyk, T. Laarhoven, I. Razenshteyn, L. Schmidt, "Practical and optimal
       LSH for angular distance", NeurIPS 2015, section 3 (asymptotics only).
    """
    if buckets <= 4:
        return sign_collision(theta) ** (buckets // 2)
    x = np.clip(2.0 * np.asarray(theta, np.float64) / np.pi - 1.0, -1.0, 1.0)
    return np.clip(chebyshev.chebval(x, _collision_series(buckets)), 0.0, 1.0)


@functools.lru_cache(maxsize=64)
def _collision_series(buckets: int) -> Array:
    """Return the Chebyshev coefficients of the collision probability in 2θ/π − 1."""
    x = chebyshev.chebpts1(DEGREE + 1)
    values = np.array([_collision((point + 1.0) * np.pi / 2.0, buckets) for point in x])
    return np.asarray(chebyshev.chebfit(x, values, DEGREE))


def _collision(theta: float, buckets: int) -> float:
    """Return the collision probability at 0 < θ < π, with x = g and y = cos θ x + sin θ z."""
    nodes, weights = leggauss(NODES)
    rho, s = math.cos(theta), math.sin(theta)
    x = (nodes + 1.0) * FAR / 2.0
    low = np.maximum(-rho * x / s, -FAR)  # where y = 0
    half = np.maximum(FAR - low, 0.0) / 2.0
    z = low[:, None] + half[:, None] * (nodes + 1.0)
    y = np.maximum(rho * x[:, None] + s * z, 1e-300)
    x = x[:, None]
    density = np.exp(-(x**2 + z**2) / 2.0) / (2.0 * np.pi)
    inside = density * _rectangle(x, y, rho, s) ** (buckets // 2 - 1)
    return float(buckets * (FAR / 2.0) * weights @ (half * (inside @ weights)))


def _rectangle(x: Array, y: Array, rho: float, s: float) -> Array:
    """Return P[|g| < x, |h| < y] for correlation rho = cos θ and s = sin θ, by Owen's T."""
    return np.asarray(
        1.0
        - 2.0
        * (
            scipy.special.owens_t(x, (y - rho * x) / (x * s))
            + scipy.special.owens_t(y, (x - rho * y) / (y * s))
            + scipy.special.owens_t(x, (y + rho * x) / (x * s))
            + scipy.special.owens_t(y, (x + rho * y) / (y * s))
        )
    )


def angles(q: Array, k: Array) -> Array:
    """Return the angles, (n, l): π/2 between a zero vector and another, 0 between two zeros.

    Accuracy: 500 eps·κ, as docs/accuracy.md defines it.
    """
    unit_q, unit_k = unit(q), unit(k)
    near, far = (squared_distances(unit_q, x) for x in (unit_k, -unit_k))
    q_zero, k_zero = (np.all(x == 0, axis=1, keepdims=True) for x in (unit_q, unit_k))
    angle = 2.0 * np.arctan2(np.sqrt(near), np.sqrt(far))  # accurate near 0 and π, unlike arcsin
    return np.where(q_zero != k_zero.T, np.pi / 2.0, angle)


def unit(x: Array) -> Array:
    """Return the rows divided by their norms; a zero row stays zero."""
    # scaling by a power of two is exact, and no square underflows or overflows
    x = np.ldexp(x, -np.frexp(np.abs(x).max(axis=1, keepdims=True))[1])
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(np.divide(x, length, out=np.zeros_like(x), where=length > 0))


def xbox(Q: Array, K: Array) -> tuple[Array, Array]:
    """Return Q' (n, d + 2) and K' (l, d + 2) on one sphere with Q'K'ᵀ = Q Kᵀ.

    q' = [q; 0; √(R² − |q|²)],  k' = [k; √(R² − |k|²); 0],  R² = max |q|² + max |k|², so that
    |q' − k'|² = 2R² − 2 q·k and cos(q', k') = q·k/R². Distances and angles decrease in q·k.

    References
    ----------
    .. [1] G. Daras, N. Kitaev, A. Odena, A. G. Dimakis, "SMYRF: efficient attention using
       asymmetric clustering", NeurIPS 2020, Eq. (6).

    Examples
    --------
    >>> q, k = xbox(np.array([[3.0]]), np.array([[4.0], [0.0]]))
    >>> q
    array([[3., 0., 4.]])
    >>> k
    array([[4., 3., 0.],
           [0., 5., 0.]])
    """
    q2, k2 = (np.einsum("ij,ij->i", x, x) for x in (Q, K))
    radius2 = q2.max() + k2.max()
    zero_q, zero_k = np.zeros(len(Q), Q.dtype), np.zeros(len(K), K.dtype)
    return (
        np.column_stack([Q, zero_q, np.sqrt(radius2 - q2)]),
        np.column_stack([K, np.sqrt(radius2 - k2), zero_k]),
    )
