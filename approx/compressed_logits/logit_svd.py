"""The best logits of a given rank, before exp."""

import dataclasses

import numpy as np
import scipy.linalg

from approx.checks import Array
from approx.compressed_logits.method import CompressedLogits, CompressionCost
from approx.method import Size
from approx.method.tags import READS_VALUES, ROTATION, SCALE


@dataclasses.dataclass(frozen=True)
class LogitSVD(CompressedLogits):
    """The best logits of a given rank, and exp of them: KQ-SVD.

    estimate = exp(Σ_{i ≤ rank} σ_i u_i v_iᵀ), entry by entry, with the SVD of Q Kᵀ.

    Parameters
    ----------
    rank : int, optional
        Numbers that are stored for a query and for a key, 1 ≤ rank ≤ d; None is a template.

    Notes
    -----
    The estimate is deterministic, positive and biased, and exact at rank = d. No logits of that
    rank have a smaller Frobenius error to Q Kᵀ over all entries, hidden ones included; over seen
    entries `key_pca` may have a smaller one. This is no bound on exp: an error of δ in a logit is a
    factor e^δ. The method needs queries and keys but no logits, so it can be run; fitted to all
    tokens it is not autoregressive. The authors fit it to other texts and keep the map.
    Cost: (n + l)·d² operations for the factors, then n·l·rank for the logits. A new query reads
    rank numbers of every key, every value, and the map of rank·d numbers.

    With Q = A R and K = B S by QR, the SVD is that of the d × d matrix R Sᵀ. The formula of the
    authors, K⁺Û and KᵀÛ for the leading singular vectors Û of K Qᵀ, gives the same product. Their
    code [2]_ fits one map to all queries of a group of heads and compresses values too. Of the
    paper the abstract and the formula were read.

    References
    ----------
    .. [1] D. Lesens, B. T. Rakhshan, G. Rabusseau, "KQ-SVD: compressing the KV cache with provable
       guarantees on attention fidelity", AISTATS 2026, arXiv 2512.05916.
    .. [2] github.com/DamienLesens/KQ-SVD, commit e51b440: process_cache.py (compute_proj_KQT_mem).

    Examples
    --------
    Logits of rank 1 are exact:

    >>> LogitSVD(rank=1).approximate([[1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]).to_dense().round(6)
    array([[1.      , 2.718282]])
    """

    name = "logit_svd"
    label = "best logits of rank r (KQ-SVD)"
    tags = frozenset({READS_VALUES, ROTATION, SCALE})
    sized_by = Size("rank")

    rank: int | None = None

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        (A, R), (B, S) = (_qr(x) for x in (q, k))
        U, s, Vt = scipy.linalg.svd(R @ S.T, full_matrices=False, check_finite=False)
        root, r = np.sqrt(s[: self.rank]), self.rank
        return A @ (U[:, :r] * root), B @ (Vt[:r].T * root)

    def numbers(self, d: int) -> CompressionCost:
        r = self.rank or 0
        fitted = d * d  # Gram matrices, from which the triangular factors follow
        once = 4 * d**3 + 2 * r * d * d  # two decompositions, their product and its SVD; two maps
        return CompressionCost(r, r, r, mapped=r * d, per_query=fitted, per_key=fitted, once=once)


def _qr(x: Array) -> tuple[Array, Array]:
    A, R = scipy.linalg.qr(x.astype(np.float64), mode="economic", check_finite=False)
    return A, R
