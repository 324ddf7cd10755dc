"""The damage of a head's error, predicted by gradients of the loss (Fisher's information).

Let Δ be the error of a head's output, a row per position, y_t targets drawn from the model itself,
and g = ∂ Σ_t −log p(y_t)/∂ output. Then g has mean 0 and, to second order in Δ, E[(Σ_i g_i·Δ_i)²]/2
= Σ_t KL_t. `fisher` omits products of different positions. This has far less variance, and is exact
if these products have mean 0. It is an estimate, not a bound.
"""

from collections.abc import Sequence

import numpy as np

from analysis.inputs import Head
from analysis.models.replacement import Passage
from analysis.runs.seeds import seed_sequence
from approx import Approximation
from approx.checks import Array
from approx.estimate import exact

SAMPLES = 4  # texts that the model itself could have written, for Fisher's information
Gradients = list[list[Array]]  # by sample and layer, each (heads, n, c)


def gradients(passage: Passage, samples: int = SAMPLES) -> Gradients:
    """Return loss gradients with respect to heads' outputs, for texts drawn from the model."""
    rng = np.random.default_rng(seed_sequence(passage.seed, "fisher"))
    return passage.gradients([passage.sampled(rng) for _ in range(samples)])


def moved(x: Head, estimate: Approximation, exactly: Array | None = None) -> Array:
    """Return Δ, a head's output by an estimate minus its exact output, (n, c) float64.

    `exactly`, the exact output, saves time for many estimates.

    Raises
    ------
    ValueError
        There is no V.
    """
    if x.V is None:
        raise ValueError("the errors of outputs need V: give inputs that have it")
    if exactly is None:
        exactly = exact.attention(x.Q, x.K, x.V, mask=x.mask, sink=x.sink)
    return np.asarray(estimate.attend(x.V) - exactly, np.float64)


def fisher(change: Array, gradients: Sequence[Array] | Array) -> float:
    """Return ½ mean over gradients g of Σ_i (g_i·Δ_i)², for Δ and every g of shape (n, c).

    A float64 array of gradients is fastest.

    Examples
    --------
    >>> fisher(np.array([[1.0, 2.0]]), [np.array([[3.0, 0.0]]), np.array([[0.0, 1.0]])])
    3.25
    """
    products = np.einsum("sic,ic->si", np.asarray(gradients), change)
    return float(np.square(products).sum(axis=1).mean()) / 2
