"""The held keys and the drawn keys of each row of a sampled estimate, with their probabilities."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import scipy.sparse

from approx import Approximation, checks
from approx.baselines import Zero
from approx.checks import Array
from approx.combinations.designs.by_size import BySize
from approx.combinations.designs.design import Rest
from approx.combinations.sampled import Sampled
from approx.estimate.corrections import Support
from approx.estimate.masks import Mask

DESIGNS = ("uniform", "multinomial")
NEVER = -1e9  # log of a probability that rounds to 0: such a key gives no bound by chance
ROUNDING = 1e-9  # tolerance when weights are compared


@dataclasses.dataclass(frozen=True, eq=False)
class ReadEntries:
    """The entries that each row of an estimate read, held or drawn.

    Parameters
    ----------
    mask : Mask
    indptr : (n + 1,)
        Where the entries of each row begin.
    keys, logits, log_weights : (entries,)
        The key's index, its q·k, and the log of its weight.
    times : (entries,)
        How often the key was drawn; 0 for a held key.
    log_p : (entries,)
        The log of the probability that one draw takes the key, if it is not held.
    count : (n,)
        The number of draws of each row; 0 if the row reads all of its keys.
    population : (n,)
        The number of keys that a row draws from without replacement; inf with replacement.
    shares : callable, optional
        Maps a row to the keys that it draws from and the logs of their probabilities; None if all
        keys are equally likely.
    """

    mask: Mask
    indptr: Array
    keys: Array
    logits: Array
    log_weights: Array
    times: Array
    log_p: Array
    count: Array
    population: Array
    shares: Callable[[int], tuple[Array, Array]] | None = None

    @functools.cached_property
    def rows(self) -> Array:
        """The row of each entry."""
        return np.repeat(np.arange(self.mask.n), np.diff(self.indptr))

    def log_sums(self, logs: Array) -> Array:
        """Return the log of the sum of exp over the entries of each row, −inf for none."""
        top = np.full(self.mask.n, -np.inf)
        np.maximum.at(top, self.rows, logs)
        shift = np.where(np.isfinite(top), top, 0.0)
        total = np.bincount(self.rows, np.exp(logs - shift[self.rows]), self.mask.n)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(total) + shift)

    def about(self, entries: Array, values: Array, centre: Array) -> Array:
        """Return Σ_j entry_j·(v_j − c) of each row."""
        matrix = scipy.sparse.csr_array((entries, self.keys, self.indptr), shape=self.mask.shape)
        return np.asarray(matrix @ values - matrix.sum(axis=1)[:, None] * centre)


def draws(estimate: Approximation, q: Array, k: Array, method: Sampled) -> ReadEntries:
    """Return the held and the drawn keys of an estimate, given the method that made it.

    Raises
    ------
    ValueError
        No bound is proved for this method's draws, or the method did not make this estimate.

    Examples
    --------
    >>> method = Sampled(k=2)
    >>> Q, K = np.zeros((1, 1)), np.zeros((5, 1))
    >>> found = draws(method.approximate(Q, K, rng=0), Q, K, method)
    >>> found.count, found.population, found.times
    (array([2]), array([5]), array([1, 1]))
    """
    _possible(method)
    support = estimate.correction
    wrong = ValueError(f"the estimate is not one that {method} makes of these Q and K")
    if not isinstance(support, Support) or support.weights is None:
        raise wrong
    s, w, mask = support.matrix, support.weights, estimate.mask
    rows = np.repeat(np.arange(mask.n), np.diff(s.indptr))
    if method.design == "uniform":  # weights of drawn keys are N/k, those of held ones are 1
        drawn = w != 1.0
        count = np.bincount(rows[drawn], minlength=mask.n)
        population = mask.counts - np.bincount(rows[~drawn], minlength=mask.n)
        times, log_p = drawn.astype(int), -np.log(np.maximum(population, 1))[rows]
        if (np.abs(w[drawn] * count[rows[drawn]] / population[rows[drawn]] - 1) > ROUNDING).any():
            raise wrong
        shares = None
    else:
        rest = _rest(method, q, k, mask)
        design = method.design_of(q, k, rest, np.random.default_rng(0))
        assert isinstance(design, BySize)

        def shares(i: int) -> tuple[Array, Array]:
            with np.errstate(divide="ignore"):
                return rest.keys(i), np.maximum(np.log(design.shares(rest, i)), NEVER)

        log_p, drawn = np.zeros(len(w)), np.zeros(len(w), bool)
        for i in range(mask.n):
            keys, of_keys = shares(i)
            mine = slice(s.indptr[i], s.indptr[i + 1])
            place = np.searchsorted(keys, s.indices[mine])
            drawn[mine] = np.isin(s.indices[mine], keys)
            log_p[mine] = np.append(of_keys, 0.0)[np.where(drawn[mine], place, -1)]
        exact_times = np.where(drawn, w * np.exp(log_p) * (method.k or 0), 0.0)
        times = np.rint(exact_times).astype(int)
        count = np.bincount(rows, times, mask.n).astype(int)
        complete = count == np.where(rest.counts > 0, method.k or 0, 0)
        if (np.abs(exact_times - times) > ROUNDING * (1 + times)).any() or not complete.all():
            raise wrong
        population = np.full(mask.n, np.inf)
    return ReadEntries(
        mask, s.indptr, s.indices, s.data.astype(np.float64), np.log(w), times, log_p, count,
        population, shares,
    )  # fmt: skip


def _possible(method: Sampled) -> None:
    """Raise unless a bound is proved for the method's draws."""
    checks.instance("method", method, Sampled, "a Sampled method")
    why = None
    if method.design not in DESIGNS:
        why = f"of designs {' and '.join(DESIGNS)} only, not {method.design}"
    elif method.shared:
        why = "of a draw for each row, not of one that is shared"
    elif not method.weighted:
        why = "of draws with weights, not of weighted=False"
    elif not isinstance(method.low_rank, Zero):
        why = f"where nothing of low rank is beneath, not of {method.low_rank}"
    elif method.design == "multinomial" and method.sparse and not method.sparse.deterministic:
        why = "of supports that draw nothing, which can be found again"
    if why:
        raise ValueError(f"confidence is known {why}")


def _rest(method: Sampled, q: Array, k: Array, mask: Mask) -> Rest:
    """Return the keys that a method draws from, if its support is deterministic."""
    if method.sparse is None:
        return Rest.all_seen(mask)
    held = method.sparse.support(q, k, mask, 0)
    return Rest(mask, (held.matrix.indptr, held.matrix.indices))
