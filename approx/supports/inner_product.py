"""XBOX+: a map after which the nearest keys have the largest inner products."""

import numpy as np

from approx.checks import Array


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
