"""Errors of an approximation against exact, streamed by row stripes, in log scale.

Both error spaces come from one pass. In *kernel* space estimate and exact are compared as they
are; in *attention* space each is first divided by its own row sums. Every row carries its own
exponent, so nothing overflows: at logits of ±10⁴ each metric is finite, or inf where its true
value is above 1.8e308 (1.3e154 where shares of attention, of rows that cancel, are squared).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.errors.row_sums import SUMS, Comparison
from analysis.errors.spectral import kernel_relative_spectral
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate.masks import MaskLike


class Measured(NamedTuple):
    """A metric, and its standard error where rows are a sample and it is known."""

    value: float
    stderr: float | None = None


@dataclasses.dataclass(frozen=True)
class RowSums:
    """What metrics are made of: numbers of each measured query row, as arrays, by name.

    Of the kernel, e the row of the estimate, x of logits, both over the keys that the query sees:

    ============ =================================================================
    top          max x
    square       Σ exp(x − top)²
    scale        an exponent at which neither side overflows
    difference   Σ (e − exp(x))²·exp(−2·scale)
    largest      max |e − exp(x)|·exp(−scale)
    unit         log max |e|
    mass         Σ e·exp(−unit)
    negative     how many e are below 0
    ============ =================================================================

    Of attention, p = softmax(x) and q = e/Σe: p2 = Σp², f2 = Σ(q − p)², tv = ½Σ|q − p|,
    kl = Σ p log(p/q) − p + q, reverse = Σ q log(q/p) − q + p. With values, output = ‖qV − pV‖² and
    truth = ‖pV‖², both for V/max |V|.

    Parameters
    ----------
    columns : dict of arrays (rows,)
        Those of attention are absent where it is left out, and those of the output without V.
    visible : (rows,)
        How many keys the queries see.
    population : int
    sampled : bool
        Whether the rows are a sample of `population` many.
    """

    columns: Mapping[str, Array]
    visible: Array
    population: int
    sampled: bool

    def __getitem__(self, name: str) -> Array:
        """Return a number of each row."""
        if name not in self.columns:
            raise ValueError(checks.unknown("sum of rows", name, list(self.columns)))
        return self.columns[name]

    def mean(self, x: Array) -> Measured:
        """Return the mean of a number of each row."""
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
        """Return how many rows of the population are such ones, by their share of the rows."""
        return float(np.mean(which) * self.population)

    def fraction(self, counts: Array) -> Measured:
        """Return the share of so many keys of each row among those that queries see."""
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


# The metrics in the order of `compare`, each with the space without which it is left out.
METRICS: dict[str, tuple[str, Metric]] = {
    "kernel_relative_frobenius": ("kernel", _kernel_relative_frobenius),
    "kernel_relative_max": ("kernel", _kernel_relative_max),
    "attention_relative_frobenius": ("attention", lambda rows: rows.ratio(rows["f2"], rows["p2"])),
    "attention_tv": ("attention", lambda rows: rows.mean(rows["tv"])),
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
        The truth is exp(Q Kᵀ), computed in float64.
    V : (l, c), optional
        Adds ``output_relative_error`` = ‖attend(V) − softmax(Q Kᵀ) V‖_F / ‖softmax(Q Kᵀ) V‖_F.
    mask : None, "causal" or Mask
        That of the approximation, which is the default; another one is an error.
    attention : bool
        False leaves out the errors of row-normalised attention, which are most of the work
        beside the products.
    spectral : bool
        Adds ``kernel_relative_spectral`` (many passes).
    rows : int or index array, optional
        Measure a sample of so many query rows (always the same ones), or the rows that are given,
        and add ``…_stderr`` to each mean.
    population : int, optional
        Q is a sample of so many queries: add standard errors.
    extra : dict of functions, optional
        Metrics of your own, by name: each gets `RowSums`, and returns a float, or what
        ``rows.mean``, ``rows.ratio`` or ``rows.fraction`` return, with a standard error. It works
        under a mask, and for a sample of rows, as those of `METRICS` do.
    jobs : int
        For big n: share the stripes of rows among threads. The numbers are the same, bit for bit.

    Returns
    -------
    dict
        - ``kernel_relative_frobenius``: ‖estimate − exact‖_F / ‖exact‖_F
        - ``kernel_relative_max``: max |estimate − exact| / max exact
        - ``attention_relative_frobenius``: the same after each side is divided by its row sums
        - ``attention_tv``: mean over rows of ½ Σ_j |difference|
        - ``attention_kl``, ``attention_kl_reverse``: mean over rows of KL(exact ‖ estimate), and
          reversed; inf where an entry is negative or (forward) 0. For rows used as they are,
          Σ p log(p/q) − p + q.
        - ``negative_fraction``: of the entries
        - ``nonpositive_rows``: number of rows whose sum is ≤ 0; such a row counts as zero
          (tv 1, |exact row|² in the Frobenius sum, output 0, kl inf)
        - ``runnable``, which is no error: whether (1 or 0) a model with this mask can run the
          method; ``approximation.obstacle`` says why not. Absent where it is not known.

        An approximation of softmax rows has no kernel errors, and its rows are used as they are:
        of those whose sum is ≤ 0 only rows of zeros count as zero.

    Notes
    -----
    Cost: one product with Q Kᵀ and one with the factors, each on one thread, by stripes of rows.
    A stripe has 15 MB of the estimate, and in turn 3 MB of its logits, or 48 rows where these are
    more (at most 10.5 MB). It has 10.5 MB of each where entries are made of the logits, or where
    several estimates are compared. Under a mask stripes are lower, and keys that none of their rows
    sees are not visited. Where neither attention nor a mask needs a row's sum first,
    the products are made by tiles of 4 MB. Sums over rows are made at the end and in order,
    whoever made the rows. ``spectral`` is not shared.

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
        Of several methods, orders or temperatures.
    temperatures : sequence of float, optional
        t of each: the i-th estimate is of exp(Q Kᵀ/t_i); 1 by default.
    Q, K, V, mask, attention, spectral, rows, population, extra, jobs
        As for `compare`.

    Notes
    -----
    Dividing the product by t instead of Q and K by √t moves a logit by a rounding.

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
