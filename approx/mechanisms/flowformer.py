"""Flowformer: linear attention with conserved flows."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from scipy.special import log_expit, log_softmax, logsumexp

from approx.approximation import Approximation
from approx.checks import Array
from approx.masks import Mask
from approx.method import Method
from approx.parts import Factors
from approx.prices import Price, Shape, low_rank


@dataclasses.dataclass(frozen=True)
class Flowformer(Method):
    """Flow attention: sigmoid linear attention in which keys compete; biased, rank d.

    estimate_ij = σ(Î_i n/l)/I_i · φ(q_i)·φ(k_j) · l·softmax(Ô)_j,  φ = sigmoid,
    I_i = φ(q_i)·Σ_j φ(k_j),  O_j = φ(k_j)·Σ_i φ(q_i),
    Î_i = φ(q_i)·Σ_j φ(k_j)/O_j,  Ô_j = φ(k_j)·Σ_i φ(q_i)/I_i.

    Notes
    -----
    The rows are in attention space: they do not estimate exp(q·k), and are not a function of q·k.
    They are used as they are and do not sum to 1: the gate is in (½, 1), and l·softmax(Ô) has mean
    1 over keys. Flows are conserved: Σ Î = l and Σ Ô = n. The factors l and n/l are those of the
    authors' code; its clamp of Ô to [−1, 1] is left out. The rows are deterministic, their bias has
    no bound, and every entry is > 0. I and O depend on all queries and keys: under a causal mask
    they have seen the future.
    Cost: 2(n + l)·d·(c + 2) operations, (n + l)·d numbers.

    References
    ----------
    .. [1] H. Wu, J. Wu, J. Xu, J. Wang, M. Long, "Flowformer: linearizing transformers with
       conservation flows", ICML 2022, section 3.

    Examples
    --------
    For one query and one key, I = O = φ² and Î = 1.

    >>> Flowformer().approximate([[0.0]], [[0.0]]).to_dense().round(6)  # σ(1)
    array([[0.731059]])
    """

    name: ClassVar[str] = "flowformer"
    deterministic: ClassVar[bool] = True
    space = "attention"

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        log_q, log_k = log_expit(q.astype(np.float64)), log_expit(k.astype(np.float64))
        # in logs: a sigmoid, or I and O, may be below 1e-308 where their ratio is not
        incoming = logsumexp(log_q + logsumexp(log_k, axis=0), axis=1, keepdims=True)
        outgoing = logsumexp(log_k + logsumexp(log_q, axis=0), axis=1, keepdims=True)
        sink = np.exp(logsumexp(log_q + logsumexp(log_k - outgoing, axis=0), axis=1))
        source = np.exp(logsumexp(log_k + logsumexp(log_q - incoming, axis=0), axis=1))
        left = log_q - incoming + log_expit(sink * (len(q) / len(k)))[:, None]
        right = log_k + (math.log(len(k)) + log_softmax(source))[:, None]
        top = right.max(axis=0)
        left += top
        scale = left.max(axis=1)
        factors = Factors(
            np.exp(left - scale[:, None]).astype(q.dtype),
            np.exp(right - top).astype(q.dtype),
            scale.astype(q.dtype),
        )
        return Approximation(factors, space="attention")

    def priced(self, shape: Shape) -> Price:
        """Return the price of d columns and of the flows, each of which is a product with sums."""
        return low_rank(shape.d, shape) + Price(0.0, 2.0 * shape.d, 2.0 * shape.d * shape.both, 0.0)

    def workspace(self, shape: Shape) -> int:
        """Return the bytes of the factors and of their logs."""
        return 48 * shape.d * (shape.n + shape.l)
