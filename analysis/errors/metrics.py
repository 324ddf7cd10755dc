"""Errors of an approximation against exact, streamed by row stripes, in log scale.

Both error spaces come from one pass. In *kernel* space estimate and exact are compared as they
are; in *attention* space each is first divided by its own row sums. Every row carries its own
exponent, so nothing overflows: at logits of ±10⁴ each metric is finite, or inf where its true
value is above 1.8e308 (1.3e154 where shares of attention, of rows that cancel, are squared).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from analysis.errors.row_sums import (
    DIFFERENCE,
    F2,
    KL,
    LARGEST,
    MASS,
    NEGATIVE,
    OUTPUT,
    P2,
    REVERSE,
    SCALE,
    SQUARE,
    TOP,
    TRUTH,
    TV,
    Comparison,
)
from analysis.errors.spectral import kernel_relative_spectral
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate.masks import MaskLike


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
    >>> compare(parse("zero()").approximate(Q, Q), Q, Q)["kernel_relative_frobenius"]
    1.0
    """
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    return compare_all(
        [approximation], Q, K, V,
        mask=mask, attention=attention, spectral=spectral, rows=rows,
        population=population, jobs=jobs,
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
    jobs: int = 1,
) -> list[dict[str, float]]:
    """Return `compare` of several estimates, from one product Q Kᵀ.

    Parameters
    ----------
    approximations : sequence of Approximation
        Of several methods, orders or temperatures.
    temperatures : sequence of float, optional
        t of each: the i-th estimate is of exp(Q Kᵀ/t_i); 1 by default.
    Q, K, V, mask, attention, spectral, rows, population, jobs
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
    comparison = Comparison.of(
        approximations, Q, K, V,
        temperatures=temperatures, mask=mask, attention=attention, rows=rows,
        population=population,
    )  # fmt: skip
    every = []
    tables = comparison.tables(jobs)
    for (approximation, t), table in zip(comparison.estimates, tables):
        in_kernel = approximation.space == "kernel"
        with np.errstate(over="ignore", divide="ignore"):  # errors may be inf, and their squares
            errors = dict(_errors(table, comparison, in_kernel))
        if spectral and in_kernel:
            points = comparison.q, comparison.kt.T
            q, k = (x.astype(np.float64, order="C") / math.sqrt(t) for x in points)
            norm = kernel_relative_spectral(approximation, q, k)
            errors["kernel_relative_spectral"] = norm
        if approximation.runnable is not None:
            errors["runnable"] = float(approximation.runnable)
        every.append(errors)
    return every


def _errors(table: Array, comparison: Comparison, in_kernel: bool) -> Iterator[tuple[str, float]]:
    column, entries = table.T, comparison.visible()
    n = comparison.population if comparison.sampled else None  # without standard errors
    if in_kernel:
        over, most = _unscaled(column[DIFFERENCE], 2 * column[SCALE])
        under, top = _unscaled(column[SQUARE], 2 * column[TOP])
        unit = float(np.exp((most - top) / 2))
        yield from _ratio("kernel_relative_frobenius", over, under, n, unit)
        largest = (np.log(column[LARGEST]) + column[SCALE]).max() - column[TOP].max()
        yield "kernel_relative_max", float(np.exp(largest))
    if comparison.attention:
        yield from _ratio("attention_relative_frobenius", column[F2], column[P2], n)
        yield from _mean("attention_tv", column[TV], n)
        yield from _mean("attention_kl", column[KL], n)
        yield from _mean("attention_kl_reverse", column[REVERSE], n)
    negative = column[NEGATIVE].sum() / entries.sum()
    yield "negative_fraction", float(negative)
    if n is not None:
        spread = _standard_error(column[NEGATIVE] - negative * entries, n)
        yield "negative_fraction_stderr", spread / float(entries.mean())
    yield "nonpositive_rows", float(np.mean(~(column[MASS] > 0)) * comparison.population)
    if comparison.v is not None:
        yield from _ratio("output_relative_error", column[OUTPUT], column[TRUTH], n)


def _mean(name: str, x: Array, n: int | None) -> Iterator[tuple[str, float]]:
    mean = float(x.mean())
    yield name, mean
    if n is not None and math.isfinite(mean):
        yield f"{name}_stderr", _standard_error(x, n)


def _unscaled(x: Array, log: Array) -> tuple[Array, float]:
    """Return x·e^(log − top) and top, its largest exponent."""
    logs = np.log(x) + log
    top = max(float(logs.max()), float(np.finfo(np.float64).min))
    return np.exp(logs - top), top


def _ratio(
    name: str, over: Array, under: Array, n: int | None, unit: float = 1.0
) -> Iterator[tuple[str, float]]:
    """Yield unit·√(Σ over/Σ under) and its standard error by the delta method."""
    ratio = float(over.sum() / under.sum()) if over.any() else 0.0
    yield name, unit * math.sqrt(ratio)
    if n is not None and 0 < ratio < math.inf and unit < math.inf:
        spread = _standard_error(over - ratio * under, n) / under.mean()
        yield f"{name}_stderr", float(unit * spread / (2 * math.sqrt(ratio)))


def _standard_error(x: Array, n: int) -> float:
    """Return the standard error of a mean over rows drawn without replacement from n."""
    if not 1 < len(x) < n:
        return 0.0
    return float(x.std(ddof=1) / math.sqrt(len(x)) * math.sqrt(1 - len(x) / n))
