"""Flowformer: linear attention with conserved flows."""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy

from approx.checks import Array
from approx.estimate import masked
from approx.estimate.low import Factors
from approx.estimate.masked import Masked
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method
from approx.method.prices import Numbers, Price, Shape, low_rank
from approx.method.tags import AUTOREGRESSIVE

MOST_FLOW = 1e300  # of a key; larger flows are cut to this


@dataclasses.dataclass(frozen=True)
class Flowformer(Method):
    """Flow attention: sigmoid linear attention in which keys compete; biased, rank d.

    estimate_ij = σ(Î_i n/l)/I_i · φ(q_i)·φ(k_j) · l·softmax(Ô)_j,  φ = sigmoid,
    I_i = φ(q_i)·Σ_j φ(k_j),  O_j = φ(k_j)·Σ_i φ(q_i),
    Î_i = φ(q_i)·Σ_j φ(k_j)/O_j,  Ô_j = φ(k_j)·Σ_i φ(q_i)/I_i.

    Under a mask the form is cumulative. Means over j are over the t_i seen keys, means over i over
    the queries that see no later key: I_i = φ(q_i)·mean_j φ(k_j), Î_i = φ(q_i)·mean_j φ(k_j)/O_j,
    O_j = φ(k_j)·mean_i φ(q_i), Ô_j = φ(k_j)·mean_i φ(q_i)/I_i, and

    estimate_ij = σ(Î_i)/(t_i I_i) · φ(q_i)·φ(k_j) · (j + 1) e^{Ô_j}/Σ_{c ≤ j} e^{Ô_c}.

    Notes
    -----
    The rows are in attention space: they do not estimate exp(q·k), and are not a function of q·k.
    They are used as they are and do not sum to 1: the gate is in (½, 1), and l·softmax(Ô) has mean
    1 over keys. Flows are conserved: Σ Î = l and Σ Ô = n. The factors l and n/l, and the cumulative
    form, are those of the authors' code, without its clamp of Ô to [−1, 1]. The rows are
    deterministic, their bias has no bound, and every entry is > 0.
    The cumulative form needs the queries of all positions; a key before the first query has Ô = 0
    and is left out of Î.
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

    name = "flowformer"
    label = "Flowformer"
    tags = frozenset({AUTOREGRESSIVE})  # keys compete by the flows of earlier queries
    space = "attention"

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        from scipy.special import log_expit, log_softmax, logsumexp  # slow to import

        log_q, log_k = log_expit(q.astype(np.float64)), log_expit(k.astype(np.float64))
        if mask.looks_back or not mask.is_full:
            factors = cumulative(log_q, log_k, mask, q.dtype)
            return Parts(factors, space="attention")
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
        factors = Factors(np.exp(left - scale[:, None]), np.exp(right - top), scale)
        return Parts(factors.astype(q.dtype), space="attention")

    def _price(self, shape: Shape) -> Price:
        """Return the price of d columns and of two flows, each a product with sums.

        Rows are not normalised, so the state has no sums of its own.
        """
        flows = float(shape.d * (shape.c + 2))
        stored = low_rank(shape.d, shape).stored
        return Price.from_numbers(stored, flows * shape.both, Numbers(flows), entry_work=shape.d)

    def _workspace(self, shape: Shape) -> int:
        return 48 * shape.d * (shape.n + shape.l)


def cumulative(log_q: Array, log_k: Array, mask: Mask, dtype: Any) -> Factors:
    """Return the factors of the cumulative form, given log φ of queries and keys."""
    n, l = mask.shape
    (phi_q, q_log), (phi_k, k_log) = _scaled(log_q), _scaled(log_k)
    order = np.argsort(mask.stop, kind="stable")
    asked = np.searchsorted(mask.stop[order], np.arange(1, l + 1), "right")  # queries up to a key
    some = asked > 0

    def mean_of_keys(logs: Array, weight: Array) -> Array:
        """Return log φ(q_i)·mean_j weight_j φ(k_j) e^logs_j over the seen keys."""
        low = Masked(Factors(phi_q, phi_k, q_log, k_log + logs), mask)
        sums, log = low.matmat(weight[:, None])
        with np.errstate(divide="ignore"):  # all weights may be 0
            return np.asarray(log + np.log(sums[:, 0] / mask.counts))

    def mean_of_queries(logs: Array) -> Array:
        """Return log φ(k_j)·mean_i φ(q_i) e^logs_i over the queries up to the key, 0 for none."""
        factors = Factors(phi_k, phi_q[order], k_log, (q_log + logs)[order])
        first, ones = np.zeros(l, np.intp), np.ones((n, 1))
        sums, log = masked.matmat(factors.features(1), first, asked, ones)
        means = np.where(some, sums[:, 0] / np.maximum(asked, 1), 1.0)
        return np.where(some, log + np.log(means), 0.0)

    incoming = mean_of_keys(np.zeros(l), np.ones(l))
    outgoing = mean_of_queries(np.zeros(n))
    with np.errstate(over="ignore"):
        sink = np.exp(mean_of_keys(-outgoing, some.astype(np.float64)))
        source = np.minimum(np.exp(mean_of_queries(-incoming)), MOST_FLOW) * some
    competition = source - np.logaddexp.accumulate(source) + np.log(np.arange(1, l + 1))
    row_logs = q_log - incoming - np.log(mask.counts) + scipy.special.log_expit(sink)
    return Factors.by_key(phi_q, phi_k, row_logs, k_log + competition, dtype).astype(dtype)


def _scaled(log: Array) -> tuple[Array, Array]:
    """Return the exponentials divided by the largest of each row, and its log."""
    top = log.max(axis=1)
    return np.exp(log - top[:, None]), top
