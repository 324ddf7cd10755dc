"""FAVOR#: dense exponential features, with a tilt for every direction."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.method.fields import one_of
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import ROTATION, SCALE, SPECTRAL, collect
from approx.random_features.features import ExponentialFeatures, Frame
from approx.random_features.generalized_exponential import optimal_tilt, second_moments


@dataclasses.dataclass(frozen=True)
class DenseExponential(ExponentialFeatures):
    """Dense exponential random features (FAVOR#), unbiased for exp(q·k), positive.

    φ(x)_r = m^{−1/2} det(I−4A)^{1/4} exp(ω_rᵀAω_r + ω_rᵀ(I−4A)^{1/2}y − |y|²/2),  ω_r ~ N(0, I_d),
    with y = T q for queries and T^{−ᵀ} k for keys, whose product is q·k.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        The joint distribution of the ω.
    form : {"aderf", "sderf", "saderf"}
        Which of T and A are full matrices:

        - ``sderf``: T = I, A dense;
        - ``saderf``: T diagonal, A a multiple of I;
        - ``aderf``: T and A dense.

    Notes
    -----
    The estimate is unbiased for every T and A, with relative variance
    (Π_c (1+ρ_c)/(2√ρ_c) e^{ρ_c u_c²} − 1)/m, ρ_c = 1/(1−8a_c), where a_c are the eigenvalues of A
    and u_c the coordinates of Tq + T^{−ᵀ}k in its eigenbasis. This is exact for iid ω. Orthogonal
    and simplex ω have a closed form only where A is a multiple of I.
    Given T, A = E diag(a*(λ)) Eᵀ minimises the mean log second moment. Here E and λ are the
    eigenvectors and eigenvalues of mean (y_q + y_k)(y_q + y_k)ᵀ, and a* is the A* of
    `generalized_exponential`. ``aderf`` takes
    TᵀT = M_q^{−1/2} (M_q^{1/2} M_k M_q^{1/2})^{1/2} M_q^{−1/2} with M_q = mean qqᵀ, M_k = mean kkᵀ,
    which is exactly optimal where q̄ or k̄ is 0. ``saderf`` takes
    T_cc = (mean k_c²/mean q_c²)^{1/4}.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers, and O((n + l)·d² + d³) for T and A.

    References
    ----------
    .. [1] V. Likhosherstov et al., "FAVOR#: Sharp Attention Kernel Approximations via New Classes
       of Positive Random Features", arXiv 2302.00787, 2023.

    Examples
    --------
    >>> DenseExponential(m=4, form="sderf").approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name = "dense_exponential"
    label = "FAVOR# features"
    composed = True
    fits_all = True

    form: str = one_of("aderf", ("aderf", "sderf", "saderf"))

    @property
    def tags(self) -> frozenset[str]:
        return super().tags - {ROTATION} | collect(
            SPECTRAL, self.form != "saderf" and ROTATION, self.form != "sderf" and SCALE
        )

    def frame(self, Q: Array, K: Array) -> Frame:
        """Return the frame of EᵀT q and EᵀT^{−ᵀ} k."""
        q, k = Q.astype(np.float64), K.astype(np.float64)
        if self.form == "saderf":
            psi = (_second(k) / _second(q)) ** 0.25
            return Frame((q * psi).astype(Q.dtype), (k / psi).astype(K.dtype))
        if self.form == "aderf":
            T, inverse = balance(q, k)
            q, k = q @ T, k @ inverse
        _, basis = np.linalg.eigh(_mean_outer(q, k))
        return Frame((q @ basis).astype(Q.dtype), (k @ basis).astype(K.dtype))

    def tilt(self, frame: Frame) -> Array:
        """Return a*(λ_c), which is the same for every c in the form ``saderf``."""
        moments = second_moments(frame)
        if self.form == "saderf":
            moments = np.full_like(moments, moments.mean())
        return optimal_tilt(moments)

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of m columns, and of the matrices.

        Second moments of both sides are computed, and the matrix of the queries is multiplied with
        the frequencies. In the form "aderf" a key is also mapped for its norm. T and A take 19
        products and decompositions of d × d matrices.
        """
        if self.is_template:
            return None
        d, mapped = shape.d, self.count * shape.d
        if self.form == "saderf":
            return super()._price(shape)
        moments = (shape.n + shape.l) * d**2
        dense = self.form == "aderf"
        once = moments + self.count * d**2 + (19 * d**3 + 3 * d**2 if dense else d**3 + d**2)
        return low_rank(self.count, shape, mapped=mapped, keyed=mapped + dense * d**2, once=once)


def balance(q: Array, k: Array) -> tuple[Array, Array]:
    """Return the symmetric T and T^{−1} that minimise mean |Tq|² + mean |T^{−1}k|².

    A ridge of 10⁻⁸ times the mean eigenvalue keeps T invertible if q or k do not span the space.
    """
    d = q.shape[1]
    size_q, size_k = (max(float(np.abs(x).max()), 1e-150) for x in (q, k))
    q, k = q / size_q, k / size_k  # T(αq, βk) = √(β/α) T(q, k)
    M_q, M_k = (x.T @ x / len(x) + _ridge(x) * np.eye(d) for x in (q, k))
    root, inverse = _power(M_q, 0.5), _power(M_q, -0.5)
    G = inverse @ _power(root @ M_k @ root, 0.5) @ inverse
    G = (G + G.T) / 2
    scale = math.sqrt(size_k / size_q)
    return scale * _power(G, 0.5), _power(G, -0.5) / scale


def _ridge(x: Array) -> float:
    return max(1e-8 * float(np.square(x).mean()), 1e-300)


def _second(x: Array) -> Array:
    return np.asarray(np.square(x).mean(axis=0) + _ridge(x))


def _power(M: Array, exponent: float) -> Array:
    values, vectors = np.linalg.eigh(M)
    floor = max(float(values.max()), 1e-300) * 1e-15
    return np.asarray((vectors * np.maximum(values, floor) ** exponent) @ vectors.T)


def _mean_outer(q: Array, k: Array) -> Array:
    """Return the mean of (q_i + k_j)(q_i + k_j)ᵀ over all pairs."""
    cross = np.outer(q.mean(axis=0), k.mean(axis=0))
    return np.asarray(q.T @ q / len(q) + k.T @ k / len(k) + cross + cross.T)
