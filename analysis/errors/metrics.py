"""Errors of an approximation, streamed by row stripes, in log scale.

Both error spaces come from one pass. In *kernel* space the estimate is compared with exp(q·k); in
*attention* space both are first divided by their own row sums. Every row has its own exponent, so
nothing overflows: at logits of ±10⁴ each metric is finite, or inf if its true value is above
1.8e308 (above 1.3e154 if attention weights of rows with cancelling entries are squared).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, svds

from analysis.errors.row_sums import SUMS, Comparison
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import rescale
from approx.estimate.masks import MaskLike
from approx.method import FROBENIUS, TV


class Measured(NamedTuple):
    """A metric; with its standard error, if rows are a sample and it is known."""

    value: float
    stderr: float | None = None


@dataclasses.dataclass(frozen=True)
class RowSums:
    """The sums from which metrics are computed: an array by name, a number per measured row.

    In kernel space, with e the row of the estimate and x the logits, both inside the mask:

    ============ =================================================================
    top          max x
    square       Σ exp(x − top)²
    scale        an exponent at which neither side overflows
    difference   Σ (e − exp(x))²·exp(−2·scale)
    largest      max |e − exp(x)|·exp(−scale)
    unit         log max |e|
    mass         Σ e·exp(−unit)
    negative     the number of e below 0
    ============ =================================================================

    In attention space, with p = softmax(x) and q = e/Σe, an attention sink among the outcomes of
    both: p2 = Σp², f2 = Σ(q − p)²,
    tv = ½Σ|q − p|, kl = Σ p log(p/q) − p + q, reverse = Σ q log(q/p) − q + p. With values,
    output = ‖qV − pV‖² and truth = ‖pV‖², both for V/max |V|. Of estimates of softmax rows, q = e,
    apart from tv, kl and reverse of fitted ones.

    Parameters
    ----------
    columns : dict of arrays (rows,)
        Without attention, its columns are absent; without V, the columns of the output.
    visible : (rows,)
        The number of keys that each query sees.
    population : int
    sampled : bool
        Whether the rows are a sample of ``population`` queries.
    """

    columns: Mapping[str, Array]
    visible: Array
    population: int
    sampled: bool

    def __getitem__(self, name: str) -> Array:
        """Return the column with this name."""
        if name not in self.columns:
            raise ValueError(checks.unknown("sum of rows", name, list(self.columns)))
        return self.columns[name]

    def mean(self, x: Array) -> Measured:
        """Return the mean over rows."""
        mean = float(x.mean())
        is_known = self.sampled and math.isfinite(mean)
        return Measured(mean, self._standard_error(x) if is_known else None)

    def ratio(self, over: Array, under: Array, unit: float = 1.0) -> Measured:
        """Return unit·√(Σ over/Σ under), with its standard error by the delta method."""
        ratio = float(over.sum() / under.sum()) if over.any() else 0.0
        stderr = None
        if self.sampled and 0 < ratio < math.inf and unit < math.inf:
            spread = self._standard_error(over - ratio * under) / under.mean()
            stderr = float(unit * spread / (2 * math.sqrt(ratio)))
        return Measured(unit * math.sqrt(ratio), stderr)

    def count(self, which: Array) -> float:
        """Return the number of such rows in the population, estimated by their share."""
        return float(np.mean(which) * self.population)

    def fraction(self, counts: Array) -> Measured:
        """Return the sum of counts of keys per row, divided by the number of visible keys."""
        share, stderr = float(counts.sum() / self.visible.sum()), None
        if self.sampled:
            spread = self._standard_error(counts - share * self.visible)
            stderr = spread / float(self.visible.mean())
        return Measured(share, stderr)

    def _standard_error(self, x: Array) -> float:
        """Return the standard error of a mean over rows drawn without replacement."""
        n = self.population
        if not 1 < len(x) < n:
            return 0.0
        return float(x.std(ddof=1) / math.sqrt(len(x)) * math.sqrt(1 - len(x) / n))


Metric = Callable[[RowSums], Measured | float]


def _kernel_relative_frobenius(rows: RowSums) -> Measured:
    over, most = _unscaled(rows["difference"], 2 * rows["scale"])
    under, top = _unscaled(rows["square"], 2 * rows["top"])
    return rows.ratio(over, under, float(np.exp((most - top) / 2)))


def _kernel_relative_max(rows: RowSums) -> float:
    largest = (np.log(rows["largest"]) + rows["scale"]).max() - rows["top"].max()
    return float(np.exp(largest))


def _unscaled(x: Array, log: Array) -> tuple[Array, float]:
    """Return x·e^(log − top) and top, its largest exponent."""
    logs = np.log(x) + log
    top = max(float(logs.max()), float(np.finfo(np.float64).min))
    return np.exp(logs - top), top


# The metrics in the order of `compare`, each with the space that it needs.
METRICS: dict[str, tuple[str, Metric]] = {
    FROBENIUS["kernel"]: ("kernel", _kernel_relative_frobenius),
    "kernel_relative_max": ("kernel", _kernel_relative_max),
    FROBENIUS["attention"]: ("attention", lambda rows: rows.ratio(rows["f2"], rows["p2"])),
    TV: ("attention", lambda rows: rows.mean(rows["tv"])),
    "attention_kl": ("attention", lambda rows: rows.mean(rows["kl"])),
    "attention_kl_reverse": ("attention", lambda rows: rows.mean(rows["reverse"])),
    "negative_fraction": ("", lambda rows: rows.fraction(rows["negative"])),
    "nonpositive_rows": ("", lambda rows: rows.count(~(rows["mass"] > 0))),
    "output_relative_error": ("output", lambda rows: rows.ratio(rows["output"], rows["truth"])),
}


def compare(
    approximation: Approximation,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike | None = None,
    *,
    mask: MaskLike = None,
    attention: bool = True,
    spectral: bool = False,
    rows: int | Array | None = None,
    population: int | None = None,
    extra: Mapping[str, Metric] | None = None,
    jobs: int = 1,
) -> dict[str, float]:
    """Return every error of an approximation, by name.

    Accuracy: 4 eps·κ, as docs/accuracy.md defines it, of every error.

    Parameters
    ----------
    approximation : Approximation
        Of shape (n, l).
    Q, K : (n, d), (l, d)
        The exact matrix is exp(Q Kᵀ), computed in float64.
    V : (l, c), optional
        Adds ``output_relative_error`` = ‖attend(V) − softmax(Q Kᵀ) V‖_F / ‖softmax(Q Kᵀ) V‖_F.
    mask : None, "causal" or Mask
        The mask of the approximation, which is the default; another mask is an error.
    attention : bool
        False leaves out the errors of row-normalised attention, which cost most of the time apart
        from the products.
    spectral : bool
        Adds ``kernel_relative_spectral`` (many passes).
    rows : int or index array, optional
        Measure a sample of this many query rows (always the same ones), or the given rows, and add
        ``…_stderr`` to each mean. That of the kernel error is no basis of an interval: the few rows
        with the largest exp(q·k) decide this error, and a sample may miss them. On 8 bundled heads
        and 3 methods, 1.96 of them from 64 of 512 rows cover in 1 to 100 % of samples, median 60 %.
    population : int, optional
        Q is a sample of this many queries: add standard errors.
    extra : dict of functions, optional
        Your own metrics, by name. Each gets `RowSums` and returns a float, or the result of
        ``rows.mean``, ``rows.ratio`` or ``rows.fraction`` with a standard error. Masks and samples
        of rows work as for `METRICS`.
    jobs : int
        For big n: threads that share the stripes of rows. Results are equal bit for bit.

    Returns
    -------
    dict
        - ``kernel_relative_frobenius``: ‖estimate − exact‖_F / ‖exact‖_F
        - ``kernel_relative_max``: max |estimate − exact| / max exact
        - ``attention_relative_frobenius``: the same, after each matrix is divided by its row sums
        - ``attention_tv``: mean over rows of ½ Σ_j |difference|, the total variation; from 0 to 1,
          and above 1 only if weights are negative
        - ``attention_kl``, ``attention_kl_reverse``: mean over rows of KL(exact ‖ estimate), and
          reversed; inf if an entry is negative or (forward) 0. For rows that are not normalised,
          Σ p log(p/q) − p + q.
        - ``negative_fraction``: the share of negative entries
        - ``nonpositive_rows``: number of rows whose sum is ≤ 0; such a row counts as zero
          (tv 1, |exact row|² in the Frobenius sum, output 0, kl inf)
        - ``runnable``, not an error: 1 if a model with this mask can run the method, else 0;
          ``approximation.obstacle`` says why not. Absent if it is not known.

        An approximation of softmax rows has no kernel errors, and its rows are used as they are:
        only rows of zeros count as zero, not every row with a sum ≤ 0. A decomposition of softmax
        rows is no attention until its rows are divided by their sums. This is done for its tv and
        KL; its Frobenius error, in which it is optimal, and its output are those of the matrix.

        If the estimate has an attention sink, rows of attention are distributions over the keys
        and the sink, on both sides; errors of the kernel are of keys.

    Notes
    -----
    Cost: one product with Q Kᵀ and one with the factors, each on one thread, by stripes of rows.
    A stripe has 15 MB of the estimate, and at a time 3 MB of its logits, or 48 rows if these are
    more (at most 10.5 MB). It has 10.5 MB of both if entries are computed from logits, or if
    several estimates are compared. Under a mask stripes have fewer rows, and keys outside the mask
    of all their rows are not visited. Without attention and mask, which need a row's sum first, the
    products are computed in tiles of 4 MB. Sums over rows are added at the end, in order, with any
    number of threads. ``spectral`` is not shared among threads.

    Examples
    --------
    >>> from approx import parse
    >>> Q = [[0.0], [1.0]]
    >>> zero = parse("zero()").approximate(Q, Q)
    >>> compare(zero, Q, Q)["kernel_relative_frobenius"]
    1.0
    >>> compare(zero, Q, Q, extra={"worst_tv": lambda rows: rows["tv"].max()})["worst_tv"]
    1.0
    """
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    return compare_all(
        [approximation], Q, K, V,
        mask=mask, attention=attention, spectral=spectral, rows=rows,
        population=population, extra=extra, jobs=jobs,
    )[0]  # fmt: skip


def compare_all(
    approximations: Sequence[Approximation],
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike | None = None,
    *,
    temperatures: Sequence[float] | None = None,
    mask: MaskLike = None,
    attention: bool = True,
    spectral: bool = False,
    rows: int | Array | None = None,
    population: int | None = None,
    extra: Mapping[str, Metric] | None = None,
    jobs: int = 1,
) -> list[dict[str, float]]:
    """Return `compare` of several estimates, from one product Q Kᵀ.

    Parameters
    ----------
    approximations : sequence of Approximation
        Estimates by several methods, orders or temperatures.
    temperatures : sequence of float, optional
        The i-th estimate approximates exp(Q Kᵀ/t_i); 1 by default.
    Q, K, V, mask, attention, spectral, rows, population, extra, jobs
        As for `compare`.

    Notes
    -----
    The product is divided by t, instead of Q and K by √t: a logit may differ by rounding.

    Examples
    --------
    >>> from approx import parse
    >>> Q = np.array([[1.0]])
    >>> hot, cold = (parse("one()").approximate(Q / t**0.5, Q / t**0.5) for t in (1e9, 1.0))
    >>> [round(x["kernel_relative_max"], 6) for x in compare_all(
    ...     [hot, cold], Q, Q, temperatures=[1e9, 1.0])]
    [0.0, 0.632121]
    """
    spectral, jobs = checks.flag("spectral", spectral), checks.integer("jobs", jobs, least=1)
    comparison = Comparison.from_estimates(
        approximations, Q, K, V,
        temperatures=temperatures, mask=mask, attention=attention, rows=rows,
        population=population,
    )  # fmt: skip
    extra = extra or {}
    for name, metric in extra.items():
        if name in (*METRICS, "kernel_relative_spectral", "runnable") or not callable(metric):
            raise ValueError(f"extra must be functions under names of their own, got {name!r}")
    names = [name for space in comparison.spaces for name in SUMS[space]]
    every = []
    tables = comparison.tables(jobs)
    for (approximation, t), table in zip(comparison.estimates, tables):
        in_kernel = approximation.space == "kernel"
        spaces = {"", *comparison.spaces} - ({"kernel"} if not in_kernel else set())
        metrics = {name: metric for name, (space, metric) in METRICS.items() if space in spaces}
        columns = {name: table[name] for name in names}
        sums = RowSums(columns, comparison.visible(), comparison.population, comparison.sampled)
        with np.errstate(over="ignore", divide="ignore"):  # errors may be inf, and their squares
            errors = _errors(sums, {**metrics, **extra})
        if spectral and in_kernel:
            points = comparison.q, comparison.kt.T
            q, k = (x.astype(np.float64, order="C") / math.sqrt(t) for x in points)
            norm = kernel_relative_spectral(approximation, q, k)
            errors["kernel_relative_spectral"] = norm
        if approximation.runnable is not None:
            errors["runnable"] = float(approximation.runnable)
        every.append(errors)
    return every


def _errors(rows: RowSums, metrics: Mapping[str, Metric]) -> dict[str, float]:
    errors = {}
    for name, metric in metrics.items():
        value = metric(rows)
        value, stderr = value if isinstance(value, Measured) else (float(value), None)
        errors[name] = value
        if stderr is not None:
            errors[f"{name}_stderr"] = stderr
    return errors


def kernel_relative_spectral(approximation: Approximation, q: Array, k: Array) -> float:
    """Return ‖estimate − exact‖₂/‖exact‖₂ inside the mask; each norm has its own scale."""
    n, l = approximation.shape

    def stripe(rows: slice) -> tuple[Array, Array, Array]:
        """Return logits (−inf outside the mask), the estimate (0 outside) and its log scale."""
        x = q[rows] @ k.T
        shift = approximation.row_log(rows, x).astype(np.float64)
        e = approximation.block(rows, shift=shift, logits=x).astype(np.float64)
        approximation.mask.hide(x, rows, fill=-np.inf)
        return x, e, shift

    top = largest = -math.inf  # logs of the largest entry of exact, and of both matrices
    for rows in exact.stripes(n, l):
        x, e, shift = stripe(rows)
        with np.errstate(divide="ignore"):
            peaks = np.log(np.abs(e).max(axis=1)) + shift
        top, largest = max(top, float(x.max())), max(largest, float(peaks.max()))
    largest = max(top, largest)

    def difference(rows: slice) -> Array:
        x, e, shift = stripe(rows)
        return rescale(e, shift - largest) - np.exp(x - largest)

    def truth(rows: slice) -> Array:
        return np.exp(stripe(rows)[0] - top)

    def norm(part: Callable[[slice], Array]) -> float:
        if n * l <= exact.STRIPE or min(n, l) == 1:
            return float(scipy.linalg.norm(part(slice(0, n)), 2))

        def matvec(x: Array) -> Array:
            return np.concatenate([part(r) @ x for r in exact.stripes(n, l)])

        def rmatvec(y: Array) -> Array:
            return np.asarray(sum(part(r).T @ y[r] for r in exact.stripes(n, l)))

        if not matvec(np.random.default_rng(0).standard_normal(l)).any():
            return 0.0  # ARPACK refuses the zero matrix
        operator = LinearOperator((n, l), matvec=matvec, rmatvec=rmatvec, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(min(n, l))
        return float(svds(operator, 1, v0=start, return_singular_vectors=False)[0])

    with np.errstate(over="ignore"):
        return float(norm(difference) / norm(truth) * np.exp(largest - top))
