"""Errors of an approximation against exact, streamed by row stripes, in log scale.

Both error spaces come from one pass. In *kernel* space estimate and exact are compared as they
are; in *attention* space each is first divided by its own row sums. Every row carries its own
exponent, so nothing overflows: at logits of ±10⁴ each metric is finite, or inf where its true
value is above 1.8e308 (1.3e154 where shares of attention, of rows that cancel, are squared).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, svds

from analysis import engines
from approx import checks, exact
from approx._elementary import SURELY_NORMAL, exp, largest, log, log_of_normal
from approx._jit import summing_kernel
from approx.approximation import Approximation
from approx.checks import Array
from approx.parts import Rows, rescale
from approx.threads import one_thread

KERNEL = ("kernel_relative_frobenius", "kernel_relative_max")
ATTENTION = (
    "attention_relative_frobenius",
    "attention_tv",
    "attention_kl",
    "attention_kl_reverse",
)
SIGNS = ("negative_fraction", "nonpositive_rows")

# Columns of the table of row sums; those from P2 on are of attention, the last two of its output.
TOP, SQUARE, SCALE, DIFFERENCE, LARGEST, UNIT, MASS, NEGATIVE, P2, F2, TV, KL, REVERSE = range(13)
OUTPUT, TRUTH, COLUMNS = 13, 14, 15
TILE = 512, 1024  # rows and columns, where no row is needed as a whole: 8 MB in two products
APART = 64  # numbers between arrays, so that a loop is never taken for one that may overlap
FEW = 48  # rows of logits at least, where a stripe has them: products of fewer are slower
_MOST = np.finfo(np.float64).max
_LEAST = 1 / _MOST


@summing_kernel
def _row_sums(
    logits: Any,
    estimate: Any,
    row_log: Any,
    visible: Any,
    normalise: bool,
    attention: bool,
    weights: bool,
    out: Any,
) -> None:
    # If `weights`, turns logits into exact attention p, and estimate into the difference q - p.
    # Without `attention` the columns from P2 on mean nothing.
    # LLVM takes a loop number by number, which sums in another order, where it writes less than a
    # few registers behind what it reads: in short rows, by the chance of malloc.
    apart = np.empty((2, APART + logits.shape[1]))
    exponentials, scaled = apart[0, APART:], apart[1, APART:]
    for i in range(logits.shape[0]):
        w = visible[i]
        x, e, p, s = logits[i, :w], estimate[i, :w], exponentials[:w], scaled[:w]
        top = largest(x)
        total, square = 0.0, 0.0
        longest, least = np.int64(0), np.int64(2**63 - 1)  # bits of max |e| and, if > 0, of min e
        for j in range(w):
            p[j] = exp(x[j] - top)
            total += p[j]
            square += p[j] * p[j]
            longest = max(longest, np.float64(abs(e[j])).view(np.int64))
            least = min(least, np.float64(e[j]).view(np.int64))
        negative = 0.0
        for j in range(w if least < 0 else 0):
            negative += 1.0 if e[j] < 0.0 else 0.0
        peak = np.int64(longest).view(np.float64)
        # row_log may be far above every entry
        unit = max(peak, SURELY_NORMAL) if peak > 0.0 else 1.0
        inverse_unit = 1.0 / unit
        log_unit = row_log[i] + np.log(unit)
        scale = max(top, log_unit) if peak > 0.0 else top
        a, b = exp(top - scale), exp(min(log_unit - scale, 0.0))
        mass, difference, furthest = 0.0, 0.0, np.int64(0)
        for j in range(w):
            s[j] = e[j] * inverse_unit  # stored: sums, and so products, may be reordered
            mass += s[j]
            t = b * s[j] - a * p[j]
            difference += t * t
            furthest = max(furthest, np.float64(abs(t)).view(np.int64))

        out[i, UNIT] = log_unit if peak > 0.0 else -_MOST  # of nothing, below every other
        out[i, MASS] = mass
        if not normalise and peak > 0.0:  # as it is; of a row of zeros the sum is 0 in any case
            mass = max(exp(-log_unit), _LEAST / 2)
        positive = mass > 0.0
        beyond = positive and mass < _LEAST  # a share may be: every error of the row is inf
        inverse = (_MOST if beyond else 1.0 / mass) if positive else 0.0
        inverse_total, log_sum = 1.0 / total, top + np.log(total)
        smallest = np.int64(least).view(np.float64) * inverse_unit * inverse
        f2, tv, kl, reverse = 0.0, 0.0, 0.0, 0.0
        # In most rows no share is ≤ 0 or tiny: without these questions it takes half the time.
        for j in range(w if attention and smallest >= SURELY_NORMAL else 0):
            pj, qj = p[j] * inverse_total, s[j] * inverse
            t = qj - pj
            ratio = x[j] - log_sum - log_of_normal(qj)
            kl += pj * ratio + t
            reverse -= qj * ratio + t
            f2 += t * t
            tv += abs(t)
        for j in range(w if attention and not smallest >= SURELY_NORMAL else 0):
            pj, qj = p[j] * inverse_total, s[j] * inverse
            t = qj - pj
            above = qj > 0.0
            ratio = x[j] - log_sum - log(qj if above else 1.0)
            infinite = qj < 0.0 or (pj > 0.0 and not above)
            kl += pj * ratio + t if above else (np.inf if infinite else 0.0)
            reverse -= qj * ratio + t if above else (-np.inf if qj < 0.0 else -pj)
            f2 += t * t
            tv += abs(t)
        for j in range(w if weights else 0):
            x[j] = p[j] * inverse_total
            e[j] = s[j] * inverse - x[j]
        for j in range(w, logits.shape[1] if weights else w):
            logits[i, j] = 0.0
            estimate[i, j] = 0.0
        out[i, TOP] = top
        out[i, SQUARE] = square
        out[i, SCALE] = scale
        out[i, DIFFERENCE] = difference
        out[i, LARGEST] = np.int64(furthest).view(np.float64)
        out[i, P2] = square * inverse_total * inverse_total
        out[i, F2] = np.inf if beyond else f2
        out[i, TV] = np.inf if beyond else 0.5 * tv if positive else 1.0
        out[i, KL] = kl if positive and not beyond else np.inf
        out[i, REVERSE] = reverse if positive and not beyond else np.inf
        out[i, NEGATIVE] = negative


def ahead() -> int:
    """Return how many entries of an estimate are made before their logits, at most."""
    return 7 * exact.STRIPE // 5


_kept = threading.local()


@contextlib.contextmanager
def _workspace() -> Iterator[Callable[..., Array]]:
    # A stripe's arrays, kept by its thread for the next: new pages cost as much as what fills them.
    # Out of reach while they are used, as an estimate's own `block` may compare others.
    kept: dict[str, Array] = vars(_kept).pop("arrays", {})

    def array(name: str, shape: tuple[int, int], dtype: Any = np.float64) -> Array:
        size, key = math.prod(shape), f"{name}, {np.dtype(dtype)}"
        if size > ahead():  # one row of very many keys
            return np.empty(shape, dtype)
        if key not in kept or kept[key].size < size:
            kept[key] = np.empty(size, dtype)
        return np.asarray(kept[key][:size].reshape(shape))

    yield array
    _kept.arrays = kept


class _Stripe(NamedTuple):
    """Rows start … stop of the ones compared."""

    start: int
    stop: int
    place: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class _Comparison:
    """What every stripe of one comparison needs; each estimate is of exp(q·k/t), its own t."""

    estimates: tuple[tuple[Approximation, float], ...]
    q: Array
    kt: Array
    v: Array | None
    causal: bool
    attention: bool
    picked: Array
    sampled: bool

    @property
    def is_ahead(self) -> bool:
        """Whether a stripe of the estimate is made as a whole, then its logits piece by piece."""
        return len(self.estimates) == 1 and not self.estimates[0][0].low.elementwise

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows and columns of an estimate that are made at once, and rows of logits at a time."""
        l = self.kt.shape[1]
        if not (self.attention or self.causal):
            width = min(l, TILE[1])
            return math.prod(TILE) // width, width, math.prod(TILE) // width
        rows = exact.height(l)
        if not self.is_ahead:
            return rows, l, rows
        # BLAS packs the factor of the keys anew for each stripe; logits stay near the cache
        return max(ahead() // l, 1), l, min(max(3 * rows // 10, FEW), rows)


def _sums(part: _Stripe, whole: _Comparison) -> list[Array]:
    """Return, of each estimate, the table of a stripe."""
    l = whole.kt.shape[1]
    index = whole.picked[part.start : part.stop]
    count, (_, width, height) = len(index), whole.tile
    alone = len(whole.estimates) == 1
    visible = np.minimum(index + 1, l) if whole.causal else np.full(count, l)
    tables: list[list[Array]] = [[] for _ in whole.estimates]

    def chosen(rows: slice) -> Rows:
        if whole.sampled:
            return index[rows]
        return slice(part.start + rows.start, part.start + rows.stop)

    def block(
        approximation: Approximation, rows: slice, cols: slice, logits: Array | None = None
    ) -> tuple[Array, Array]:
        shift = approximation.row_log(chosen(rows), logits)
        shape = len(shift), cols.stop - cols.start
        out = array("estimate", shape, approximation.dtype)
        approximation.block(chosen(rows), cols, shift=shift, logits=logits, out=out)
        return out, shift.astype(np.float64)

    with one_thread(), _workspace() as array:
        for start in range(0, l, width):
            cols = slice(start, min(start + width, l))
            if whole.is_ahead:
                estimates, shifts = block(whole.estimates[0][0], slice(0, count), cols)
            for found in tables:
                found.append(np.empty((count, COLUMNS)))
            for first in range(0, count, height):
                rows = slice(first, min(first + height, count))
                queries = whole.q[chosen(rows)].astype(np.float64, copy=False)
                shape = len(queries), cols.stop - start
                product = np.matmul(queries, whole.kt[:, cols], out=array("product", shape))
                logits = product if alone else array("logits", shape)  # overwritten
                for (approximation, t), found in zip(whole.estimates, tables):
                    if t != 1.0 or not alone:
                        np.divide(product, t, out=logits)
                    if whole.is_ahead:
                        estimate, shift = estimates[rows], shifts[rows]
                    else:
                        estimate, shift = block(approximation, rows, cols, logits)
                    if estimate.dtype != np.float64:
                        single, estimate = estimate, array("double", shape)
                        estimate[...] = single
                    table = found[-1][rows]
                    _row_sums(
                        logits,
                        estimate,
                        shift,
                        np.minimum(visible[rows], shape[1]),
                        approximation.space == "kernel" or whole.causal,
                        whole.attention,
                        whole.v is not None,
                        table,
                    )
                    if whole.v is not None:
                        with np.errstate(over="ignore", invalid="ignore"):
                            square = np.square(estimate @ whole.v).sum(axis=1)
                        table[:, OUTPUT] = np.where(np.isnan(square), np.inf, square)  # inf − inf
                        table[:, TRUTH] = np.square(logits @ whole.v).sum(axis=1)
    return [_joined(found) for found in tables]


def _joined(tables: list[Array]) -> Array:
    """Return the sums of rows, but for those of attention, from the sums of their tiles."""
    if len(tables) == 1:
        return tables[0]
    tiles = np.stack(tables)
    rows = np.zeros_like(tables[0])
    for scale, total, power in ((TOP, SQUARE, 2), (SCALE, DIFFERENCE, 2), (UNIT, MASS, 1)):
        rows[:, scale] = tiles[..., scale].max(axis=0)
        unit = np.exp(power * (tiles[..., scale] - rows[:, scale]))
        rows[:, total] = (tiles[..., total] * unit).sum(axis=0)
    unit = np.exp(tiles[..., SCALE] - rows[:, SCALE])
    rows[:, LARGEST] = (tiles[..., LARGEST] * unit).max(axis=0)
    rows[:, NEGATIVE] = tiles[..., NEGATIVE].sum(axis=0)
    return rows


def compare(
    approximation: Approximation,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike | None = None,
    *,
    causal: bool = False,
    attention: bool = True,
    spectral: bool = False,
    rows: int | None = None,
    jobs: int = 1,
    scheduler: Any = None,
) -> dict[str, float]:
    """Return every error of an approximation, by name.

    Parameters
    ----------
    approximation : Approximation
        Of shape (n, l).
    Q, K : (n, d), (l, d)
        The truth is exp(Q Kᵀ), computed in float64.
    V : (l, c), optional
        Adds ``output_relative_error`` = ‖attend(V) − softmax(Q Kᵀ) V‖_F / ‖softmax(Q Kᵀ) V‖_F.
    causal : bool
        Only keys j ≤ i count; needs n = l.
    attention : bool
        False leaves the errors of row-normalised attention out, most of the work beside products.
    spectral : bool
        Adds ``kernel_relative_spectral`` (many passes).
    rows : int, optional
        Sample that many query rows (always the same ones) and add ``…_stderr`` to each mean.
    jobs, scheduler : int; str or distributed.Client
        For big n: share the stripes of rows among threads, or among the workers of a Dask cluster
        as `analysis.sweep.sweep` does cells. The numbers are the same, bit for bit.

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

        An approximation of softmax rows has no kernel errors, and its rows are used as they are:
        of those whose sum is ≤ 0 only rows of zeros count as zero.

    Notes
    -----
    Cost: one product with Q Kᵀ and one with the factors, each on one thread, by stripes of rows:
    15 MB of the estimate, and in turn 3 MB of its logits, or 48 rows where these are more (at most
    10.5 MB); 10.5 MB of each where entries are made of the logits, or several estimates compared.
    Where neither attention nor causal rows need a row's sum first, by tiles of 4 MB. Sums over
    rows are made at the end and in order, whoever made the rows.
    ``spectral`` is not shared.

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
        causal=causal, attention=attention, spectral=spectral, rows=rows,
        jobs=jobs, scheduler=scheduler,
    )[0]  # fmt: skip


def compare_all(
    approximations: Sequence[Approximation],
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike | None = None,
    *,
    temperatures: Sequence[float] | None = None,
    causal: bool = False,
    attention: bool = True,
    spectral: bool = False,
    rows: int | None = None,
    jobs: int = 1,
    scheduler: Any = None,
) -> list[dict[str, float]]:
    """Return `compare` of several estimates, from one product Q Kᵀ.

    Parameters
    ----------
    approximations : sequence of Approximation
        Of several methods, orders or temperatures.
    temperatures : sequence of float, optional
        t of each: the i-th estimate is of exp(Q Kᵀ/t_i); 1 by default.
    Q, K, V, causal, attention, spectral, rows, jobs, scheduler
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
    spectral, attention = checks.flag("spectral", spectral), checks.flag("attention", attention)
    jobs = checks.integer("jobs", jobs, least=1)
    q, k = checks.queries_keys(Q, K)
    n, l = len(q), len(k)
    causal = checks.causal(causal, n, l)
    checks.instance("approximations", approximations, Sequence, "a sequence")
    if temperatures is None:
        temperatures = [1.0] * len(approximations)
    given = checks.array("temperatures", temperatures, ndim=1)
    ts = [checks.positive("temperatures", t) for t in given]
    if len(ts) != len(approximations):
        raise ValueError(
            f"{len(approximations)} approximations need as many temperatures, got {len(ts)}"
        )
    for approximation in approximations:
        checks.instance("approximations", approximation, Approximation, "Approximations")
        if approximation.shape != (n, l):
            raise ValueError(
                f"the approximation has shape {approximation.shape}, Q and K give {(n, l)}"
            )
    if V is not None and not attention:
        raise ValueError(
            "V gives the error of attention's output: leave it out, or attention=False"
        )
    v = None if V is None else checks.values(V, l).astype(np.float64).reshape(l, -1)
    if v is not None:
        v /= np.abs(v).max(initial=0.0) or 1.0  # the error is relative: no square overflows
    if causal:
        approximations = [approximation.seen() for approximation in approximations]
    picked = np.arange(n)
    if rows is not None:
        count = checks.integer("rows", rows, least=2, most=n)
        picked = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
    estimates = tuple(zip(approximations, ts))
    kt = k.T
    if k.dtype != np.float64 or k.size <= exact.STRIPE // 2:  # more is not worth a copy's memory
        kt = np.ascontiguousarray(kt, np.float64)  # which BLAS packs, for each stripe, faster
    whole = _Comparison(estimates, q, kt, v, causal, attention, picked, rows is not None)
    count, height = len(picked), whole.tile[0]
    stripes = [_Stripe(i, min(i + height, count)) for i in range(0, count, height)]
    tables = [np.empty((count, COLUMNS)) for _ in estimates]
    for approximation in approximations:
        approximation.low.stored  # noqa: B018 - built here once, not by each thread
    with one_thread():  # once for all stripes: looking for libraries takes 2 ms
        if scheduler is None and jobs > 1:
            found: Iterator[tuple[_Stripe, Any]] = engines.threads(_sums, stripes, [whole], jobs)
        else:
            found = engines.stream(_sums, stripes, [whole], jobs=jobs, scheduler=scheduler)
        for stripe, sums in found:
            for table, some in zip(tables, sums):
                table[stripe.start : stripe.stop] = some
    entries = np.minimum(picked + 1, l) if causal else np.full(len(picked), l)
    every = []
    for (approximation, t), table in zip(estimates, tables):
        in_kernel = approximation.space == "kernel"
        with np.errstate(over="ignore", divide="ignore"):  # errors may be inf, and their squares
            errors = dict(_errors(table, entries, n, in_kernel=in_kernel, output=v is not None))
        if rows is None:
            errors = {name: x for name, x in errors.items() if not name.endswith("_stderr")}
        if not attention:
            errors = {name: x for name, x in errors.items() if not name.startswith("attention_")}
        if spectral and in_kernel:
            root = math.sqrt(t)
            errors["kernel_relative_spectral"] = _spectral(
                approximation, q.astype(np.float64) / root, k.astype(np.float64) / root, causal
            )
        every.append(errors)
    return every


def _errors(
    table: Array, entries: Array, n: int, *, in_kernel: bool, output: bool
) -> Iterator[tuple[str, float]]:
    column = table.T
    if in_kernel:
        over, most = _unscaled(column[DIFFERENCE], 2 * column[SCALE])
        under, top = _unscaled(column[SQUARE], 2 * column[TOP])
        unit = float(np.exp((most - top) / 2))
        yield from _ratio("kernel_relative_frobenius", over, under, n, unit)
        largest = (np.log(column[LARGEST]) + column[SCALE]).max() - column[TOP].max()
        yield "kernel_relative_max", float(np.exp(largest))
    yield from _ratio("attention_relative_frobenius", column[F2], column[P2], n)
    yield from _mean("attention_tv", column[TV], n)
    yield from _mean("attention_kl", column[KL], n)
    yield from _mean("attention_kl_reverse", column[REVERSE], n)
    negative = column[NEGATIVE].sum() / entries.sum()
    yield "negative_fraction", float(negative)
    spread = _standard_error(column[NEGATIVE] - negative * entries, n)
    yield "negative_fraction_stderr", spread / float(entries.mean())
    yield "nonpositive_rows", float(np.mean(~(column[MASS] > 0)) * n)
    if output:
        yield from _ratio("output_relative_error", column[OUTPUT], column[TRUTH], n)


def _mean(name: str, x: Array, n: int) -> Iterator[tuple[str, float]]:
    mean = float(x.mean())
    yield name, mean
    if math.isfinite(mean):
        yield f"{name}_stderr", _standard_error(x, n)


def _unscaled(x: Array, log: Array) -> tuple[Array, float]:
    """Return x·e^(log − top) and top, its largest exponent."""
    logs = np.log(x) + log
    top = max(float(logs.max()), float(np.finfo(np.float64).min))
    return np.exp(logs - top), top


def _ratio(
    name: str, over: Array, under: Array, n: int, unit: float = 1.0
) -> Iterator[tuple[str, float]]:
    """Yield unit·√(Σ over/Σ under) and its standard error by the delta method."""
    ratio = float(over.sum() / under.sum()) if over.any() else 0.0
    yield name, unit * math.sqrt(ratio)
    if 0 < ratio < math.inf and unit < math.inf:
        spread = _standard_error(over - ratio * under, n) / under.mean()
        yield f"{name}_stderr", float(unit * spread / (2 * math.sqrt(ratio)))


def _standard_error(x: Array, n: int) -> float:
    """Return the standard error of a mean over rows drawn without replacement from n."""
    if not 1 < len(x) < n:
        return 0.0
    return float(x.std(ddof=1) / math.sqrt(len(x)) * math.sqrt(1 - len(x) / n))


def _spectral(approximation: Approximation, q: Array, k: Array, causal: bool) -> float:
    """Return ‖estimate − exact‖₂/‖exact‖₂, each at its own scale, by Lanczos over row stripes."""
    n, l = approximation.shape

    def stripe(rows: slice) -> tuple[Array, Array, Array]:
        """Return logits, estimate and its log scale; what is not seen is −inf and 0."""
        x = q[rows] @ k.T
        shift = approximation.row_log(rows, x).astype(np.float64)
        e = approximation.block(rows, shift=shift, logits=x).astype(np.float64)
        exact.mask(x, rows.start, n, causal)
        exact.mask(e, rows.start, n, causal, fill=0.0)
        return x, e, shift

    top = largest = -math.inf  # logs of the largest entry of exact, and of both
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
            return 0.0  # the zero matrix, which ARPACK refuses
        operator = LinearOperator((n, l), matvec=matvec, rmatvec=rmatvec, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(min(n, l))
        return float(svds(operator, 1, v0=start, return_singular_vectors=False)[0])

    with np.errstate(over="ignore"):
        return float(norm(difference) / norm(truth) * np.exp(largest - top))
