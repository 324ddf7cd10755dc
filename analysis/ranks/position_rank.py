"""The rank of a head's logits with positions at the input or at the logits (DIET).

Positions added at the input give logits (X + P) W_q W_kᵀ (X + P)ᵀ. Their rank is at most the head
size d_h for every P. Positions added at the logits give X W_q W_kᵀ Xᵀ + P̂ P̂ᵀ. Their rank is at
most min(d_h + d_p, n), and generic inputs reach it. Both statements are about logits: exp of their
entries may have any rank.

P.-C. Chen et al., "A simple and effective positional encoding for transformers", EMNLP 2021
(DIET), theorem 1.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.ranks.rank import summary
from approx import checks
from approx.checks import Array
from approx.method import Rng, generator
from approx.textbook.attention import softmax


class PositionedHead(NamedTuple):
    """Inputs and weights of attention heads with positions.

    Attributes
    ----------
    X : (n, d)
    P : (n, d)
        The positions at the input.
    relative : (n, d_p)
        P̂, the positions at the logits.
    W_q, W_k : (d, d_h), or (heads, d, d_h)
    """

    X: Array
    P: Array
    relative: Array
    W_q: Array
    W_k: Array

    def at_input(self) -> Array:
        """Return (X + P) W_q W_kᵀ (X + P)ᵀ, (…, n, n)."""
        x = self.X + self.P
        return np.asarray((x @ self.W_q) @ np.swapaxes(x @ self.W_k, -1, -2))

    def at_logits(self) -> Array:
        """Return X W_q W_kᵀ Xᵀ + P̂ P̂ᵀ, (…, n, n)."""
        x = self.X
        content = (x @ self.W_q) @ np.swapaxes(x @ self.W_k, -1, -2)
        return np.asarray(content + self.relative @ self.relative.T)


def construction(n: int, d: int, d_h: int, d_p: int) -> PositionedHead:
    """Return the head that proves the bound sharp: identity blocks in opposite corners.

    W_q = W_k = [I_{d_h}; 0], Xᵀ = [I_d, 0], P̂ᵀ = [0, I_{d_p}] and P = 0. The blocks are disjoint if
    n ≥ max(d, d_h + d_p); if n < d, X holds the first n rows of I_d.

    Examples
    --------
    >>> head = construction(5, 3, 2, 1)
    >>> np.diag(head.at_logits())
    array([1., 1., 0., 0., 1.])
    """
    _sizes(n, d, d_h, d_p)
    relative = np.zeros((n, d_p))
    relative[np.arange(n - d_p, n), np.arange(d_p)] = 1.0
    W = np.eye(d, d_h)
    return PositionedHead(np.eye(n, d), np.zeros((n, d)), relative, W, W)


def generic(
    n: int, d: int, d_h: int, d_p: int, *, rng: Rng, heads: int | None = None
) -> PositionedHead:
    """Return one or several heads of Gaussian inputs, positions and weights.

    Weights have variance 1/d, so that content logits have variance about d_h.
    """
    _sizes(n, d, d_h, d_p)
    rng = generator(rng)
    X, P = rng.standard_normal((2, n, d))
    shape = (d, d_h) if heads is None else (checks.integer("heads", heads, least=1), d, d_h)
    W_q, W_k = rng.standard_normal((2, *shape)) / np.sqrt(d)
    return PositionedHead(X, P, rng.standard_normal((n, d_p)), W_q, W_k)


def _sizes(n: int, d: int, d_h: int, d_p: int) -> None:
    checks.integer("d", d, least=1)
    checks.integer("d_h", d_h, least=1, most=d)
    checks.integer("d_p", d_p, least=0, most=checks.integer("n", n, least=1))


def ranks(logits: ArrayLike) -> dict[str, int]:
    """Return the numerical ranks before and after exp.

    Returns
    -------
    dict
        logits : the rank #{s > s₁·n·eps} of the logits
        exp : the rank of exp(logits/σ), σ their standard deviation, or 1 if this is 0
        softmax : the rank of the same matrix with normalised rows, which keeps the rank

    Examples
    --------
    >>> ranks(np.outer([1.0, 2.0, 4.0], [1.0, -1.0, 3.0]))
    {'logits': 1, 'exp': 3, 'softmax': 3}
    """
    x = checks.array("logits", logits, ndim=2)
    if not x.size:
        raise ValueError(f"logits must not be empty, got shape {x.shape}")
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        scale = float(x.std()) or 1.0
        unit = x / scale
        kernel = np.exp(unit)
    if not (math.isfinite(scale) and np.isfinite(kernel).all()):
        top = float(np.abs(x).max())
        raise ValueError(
            f"exp(logits/σ) must be representable in {x.dtype}, got |logits| {top:.3g}"
        )
    parts = {"logits": x, "exp": kernel, "softmax": softmax(unit)}
    return {name: round(summary(matrix)["numerical_rank"]) for name, matrix in parts.items()}
