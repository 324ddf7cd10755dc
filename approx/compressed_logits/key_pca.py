"""Logits from the principal axes of the keys."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.compressed_logits.method import CompressedLogits, CompressionCost
from approx.method import Label, Size
from approx.method.fields import flag, instance
from approx.method.tags import (
    AUTOREGRESSIVE,
    READS_VALUES,
    ROTATION,
    ROW_LOCAL,
    ROW_SHIFT,
    SCALE,
    collect,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Axes:
    """Axes for queries and keys, fitted elsewhere, such as on another text.

    Parameters
    ----------
    vectors : (d, count)
        One axis per column; a method uses the first ones.

    Examples
    --------
    >>> np.abs(Axes.from_keys([[3.0, 0.0], [-3.0, 0.1]]).vectors.round(2))
    array([[1.  , 0.02],
           [0.02, 1.  ]])
    """

    vectors: Any

    def __post_init__(self) -> None:
        vectors = checks.array("vectors", self.vectors, ndim=2).astype(np.float64)
        object.__setattr__(self, "vectors", vectors)

    @classmethod
    def from_keys(cls, K: ArrayLike, *, centred: bool = True) -> Axes:
        """Return all eigenvectors of the covariance of keys, or of KᵀK, the leading ones first."""
        keys = checks.array("K", K, ndim=2).astype(np.float64)
        about = keys - keys.mean(axis=0) if centred else keys
        _, vectors = scipy.linalg.eigh(about.T @ about, check_finite=False)  # ascending
        return cls(vectors[:, ::-1])

    def __repr__(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.vectors).tobytes()).hexdigest()[:8]
        return f"Axes({self.vectors.shape[1]} of width {len(self.vectors)}, {digest})"


@dataclasses.dataclass(frozen=True)
class KeyPCA(CompressedLogits):
    """Queries and keys projected on the principal axes of the keys, and exp of their logits.

    estimate_ij = exp((Pᵀq_i)·(Pᵀk_j)), with the leading eigenvectors P (d, rank) of the keys'
    covariance matrix, or of KᵀK.

    Parameters
    ----------
    rank : int, optional
        Numbers that are stored for a query and for a key, 1 ≤ rank ≤ d; None is a template.
    centred : bool
        Whether axes are those of the covariance, as in Loki, or those of KᵀK.
    axes : Axes, optional
        Axes P that are given instead, such as ``Axes.from_keys`` of the keys of another text.

    Notes
    -----
    The estimate is deterministic, positive and biased, and exact at rank = d. P is the best for
    the keys themselves, whatever the queries are; `logit_svd` is the best for the logits. Keys are
    projected without centring. So centred axes scale each row by e^{−q·(I − PPᵀ)k̄}, which cancels
    in normalised attention. One key apart from all others, such as an attention sink, has 1/l of
    the covariance however large its logits are, and may be lost.
    Axes of all keys are not autoregressive; given axes, which the authors use, are. Neither kind
    needs a query.
    Cost: l·d² operations for the axes, then n·l·rank for the logits. A new query reads rank numbers
    of every key, every value, and the axes.

    The authors' code, hpcgroup/loki, takes centred axes from calibration data and uses the logits
    only to select keys, as `projected_top_k` does.

    References
    ----------
    .. [1] P. Singhania, S. Singh, S. He, S. Feizi, A. Bhatele, "Loki: low-rank keys for efficient
       sparse attention", NeurIPS 2024, section 4.

    Examples
    --------
    Keys on a line need one number each:

    >>> KeyPCA(rank=1).approximate([[1.0, 5.0]], [[0.0, 0.0], [1.0, 0.0]]).to_dense().round(6)
    array([[1.      , 2.718282]])
    """

    name = "key_pca"
    label = Label("principal axes of keys (Loki)", {"axes of KᵀK": {"centred": False}})
    sized_by = Size("rank")

    rank: int | None = None
    centred: bool = flag(True)
    axes: Axes | None = instance(None, Axes, "Axes")

    @property
    def tags(self) -> frozenset[str]:
        given = self.axes is not None
        return collect(
            READS_VALUES,
            ROW_LOCAL,
            SCALE,
            given and AUTOREGRESSIVE,
            (given or self.centred) and ROW_SHIFT,
            not given and ROTATION,
        )

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        P = (self.axes or Axes.from_keys(k, centred=self.centred)).vectors
        r, d = self.rank or 0, q.shape[1]
        if len(P) != d or P.shape[1] < r:
            raise ValueError(f"axes must have {d} rows and at least {r} columns, got {P.shape}")
        return q @ P[:, :r], k @ P[:, :r]

    def numbers(self, d: int) -> CompressionCost:
        r = self.rank or 0
        if self.axes is not None:
            return CompressionCost(r, r, r, mapped=r * d)
        return CompressionCost(r, r, r, mapped=r * d, per_key=d * d, once=d**3)
