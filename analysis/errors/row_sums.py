"""Sums over the keys of each query row, from which errors are computed, by row stripes.

`fill` is the kernel, `SUMS` names the columns of its table, and `Comparison` distributes the
stripes of a comparison to threads.
"""

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from analysis.runs.threads import in_threads
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.low import Rows
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.elementary import SURELY_NORMAL, exp, largest, log, log_of_normal
from approx.kernels.jit import summing_kernel

# The names of the sums of a query row, by space; `metrics.RowSums` defines them.
SUMS = {
    "kernel": ("top", "square", "scale", "difference", "largest", "unit", "mass", "negative"),
    "attention": ("p2", "f2", "tv", "kl", "reverse"),
    "output": ("output", "truth"),
}
DISTRIBUTIONS = "tv", "kl", "reverse"  # which compare two of them: fitted rows are divided, too
ROW = np.dtype([(name, np.float64) for names in SUMS.values() for name in names])
# How tiles of a row join: column of the log scale, its power, operation. Scales: by maximum.
JOINED = {
    "square": ("top", 2, np.add),
    "difference": ("scale", 2, np.add),
    "largest": ("scale", 1, np.maximum),
    "mass": ("unit", 1, np.add),
    "negative": ("unit", 0, np.add),
}
TILE = 512, 1024  # rows and columns, if no complete row is needed: 8 MB in two products
GAP = 64  # numbers between arrays, see `fill`
MASKED_STRIPES = 16  # stripes of a long causal head, which then visit 53 % of its entries
MASKED = 256, 2**18  # rows, and entries, of one stripe of a short causal head: fewer are slower
LEAST_HEIGHT = 48  # rows of logits per product, if there are as many: fewer are slower
_LARGEST_FLOAT = np.finfo(np.float64).max
_LEAST_INVERTIBLE = 1 / _LARGEST_FLOAT


@summing_kernel
def fill(
    logits: Any,
    estimate: Any,
    row_log: Any,
    first: Any,
    stop: Any,
    sink: float,
    normalise: bool,
    attention: bool,
    weights: bool,
    out: Any,
) -> None:
    """Write the sums of each row into out[i], a `ROW`, for an estimate at the scale e^row_log[i].

    Query i sees the keys first[i] ≤ j < stop[i], at least one. Attention q is the estimate, divided
    by its row sum if ``normalise``. Row sums of both sides have e^sink in addition, and the sums of
    attention this outcome's term. Without ``attention``, the sums of attention are meaningless.
    With ``weights``, exact attention p overwrites the logits, and q − p the estimate.
    """
    # If a loop writes within a few registers of the data that it reads, it runs without vector
    # instructions, and sums in another order. Malloc may place short rows so close; the gap never.
    apart = np.empty((2, GAP + logits.shape[1]))
    exponentials, scaled = apart[0, GAP:], apart[1, GAP:]
    for i in range(logits.shape[0]):
        a_key, z_key = first[i], stop[i]
        w, row = z_key - a_key, out[i]
        x, e, p, s = logits[i, a_key:z_key], estimate[i, a_key:z_key], exponentials[:w], scaled[:w]
        top = largest(x)
        total, square = 0.0, 0.0
        longest, least = np.int64(0), np.int64(2**63 - 1)  # bits of max |e| and, if > 0, of min e
        for j in range(w):
            p[j] = exp(x[j] - top)
            total += p[j]
            square += p[j] * p[j]
            size, bits = np.float64(abs(e[j])).view(np.int64), np.float64(e[j]).view(np.int64)
            longest = size if size > longest else longest
            least = bits if bits < least else least
        negative = 0.0
        for j in range(w if least < 0 else 0):
            negative += 1.0 if e[j] < 0.0 else 0.0
        peak = np.int64(longest).view(np.float64)
        # the row gets its own scale: row_log may be far above every entry
        unit = (peak if peak > SURELY_NORMAL else SURELY_NORMAL) if peak > 0.0 else 1.0
        inverse_unit = 1.0 / unit
        log_unit = row_log[i] + np.log(unit)
        scale = log_unit if peak > 0.0 and log_unit > top else top
        a, b = exp(top - scale), exp(log_unit - scale if log_unit < scale else 0.0)
        mass, difference, furthest = 0.0, 0.0, np.int64(0)
        for j in range(w):
            s[j] = e[j] * inverse_unit  # stored, because sums and products may be reordered
            mass += s[j]
            t = b * s[j] - a * p[j]
            difference += t * t
            size = np.float64(abs(t)).view(np.int64)
            furthest = size if size > furthest else furthest

        # a row of zeros gets the smallest scale
        row["unit"] = log_unit if peak > 0.0 else -_LARGEST_FLOAT
        # beyond e^700 the shares of keys are below 1e−304
        exact_sink, sink_mass = exp(min(sink - top, 700.0)), 0.0
        if sink > -np.inf:
            sink_mass = exp(min(sink - log_unit, 700.0)) if peak > 0.0 else 1.0
            mass += sink_mass
        total += exact_sink
        row["mass"] = mass
        if not normalise and peak > 0.0:  # not normalised; a row of zeros keeps sum 0
            mass = exp(-log_unit)
            mass = mass if mass > _LEAST_INVERTIBLE / 2 else _LEAST_INVERTIBLE / 2
        positive = mass > 0.0
        # if a share may be above the largest float, every error of the row is inf
        beyond = positive and mass < _LEAST_INVERTIBLE
        inverse = (_LARGEST_FLOAT if beyond else 1.0 / mass) if positive else 0.0
        inverse_total, log_sum = 1.0 / total, top + np.log(total)
        smallest = np.int64(least).view(np.float64) * inverse_unit * inverse
        f2, tv, kl, reverse = 0.0, 0.0, 0.0, 0.0
        # In most rows no share is ≤ 0 or tiny: a loop without these checks takes half the time.
        for j in range(w if attention and smallest >= SURELY_NORMAL else 0):
            pj, qj = p[j] * inverse_total, s[j] * inverse
            t = qj - pj
            # near 1, log(p/q) is computed from the ratio: a difference of logarithms would cancel
            quotient = pj / qj
            near = abs(quotient - 1.0) < 0.5
            of = log_of_normal(quotient if near else qj)
            ratio, less = (of, qj * (1.0 - quotient)) if near else (x[j] - log_sum - of, t)
            kl += pj * ratio + less
            reverse -= qj * ratio + less
            f2 += t * t
            tv += abs(t)
        for j in range(w if attention and not smallest >= SURELY_NORMAL else 0):
            pj, qj = p[j] * inverse_total, s[j] * inverse
            t = qj - pj
            above = qj > 0.0
            quotient = pj / qj if qj >= SURELY_NORMAL else 0.0
            near = abs(quotient - 1.0) < 0.5
            of = log(quotient if near else qj if above else 1.0)
            ratio, less = (of, qj * (1.0 - quotient)) if near else (x[j] - log_sum - of, t)
            infinite = qj < 0.0 or (pj > 0.0 and not above)
            kl += pj * ratio + less if above else (np.inf if infinite else 0.0)
            reverse -= qj * ratio + less if above else (-np.inf if qj < 0.0 else -pj)
            f2 += t * t
            tv += abs(t)
        exact_sink *= inverse_total
        f2 += 0.0 if positive else exact_sink * exact_sink
        if attention and positive and sink > -np.inf:
            pj, qj = exact_sink, sink_mass * inverse
            base = log_unit if peak > 0.0 else sink
            t, quotient = qj - pj, pj / qj if qj >= SURELY_NORMAL else 0.0
            near = abs(quotient - 1.0) < 0.5
            ratio = np.log(quotient) if near else base + np.log(mass) - log_sum
            less = qj * (1.0 - quotient) if near else t
            kl += less + pj * ratio
            reverse -= less + qj * ratio
            f2 += t * t
            tv += abs(t)
        for j in range(w if weights else 0):
            x[j] = p[j] * inverse_total
            e[j] = s[j] * inverse - x[j]
        for j in range(a_key if weights else 0):
            logits[i, j] = 0.0
            estimate[i, j] = 0.0
        for j in range(z_key, logits.shape[1] if weights else z_key):
            logits[i, j] = 0.0
            estimate[i, j] = 0.0
        row["top"] = top
        row["square"] = square
        row["scale"] = scale
        row["difference"] = difference
        row["largest"] = np.int64(furthest).view(np.float64)
        row["p2"] = square * inverse_total * inverse_total + exact_sink * exact_sink
        row["f2"] = np.inf if beyond else f2
        row["tv"] = np.inf if beyond else 0.5 * tv if positive else 1.0
        row["kl"] = kl if positive and not beyond else np.inf
        row["reverse"] = reverse if positive and not beyond else np.inf
        row["negative"] = negative


def _common_mask(approximations: Sequence[Approximation], mask: MaskLike, n: int, l: int) -> Mask:
    """Return the common mask of all estimates; raise ValueError if one differs."""
    own = [approximation.mask for approximation in approximations]
    seen = own[0] if own and mask is None else masks.as_mask(mask, n, l)
    for other in own:
        if other != seen:
            raise ValueError(
                f"an estimate has the mask {other}, not {seen}: give approximate(mask=...) the "
                "mask under which it is compared, as Head.approximate does"
            )
    return seen


def ahead() -> int:
    """Return the largest number of entries of an estimate computed before their logits."""
    return 7 * exact.STRIPE // 5


_kept = threading.local()


@contextlib.contextmanager
def _workspace() -> Iterator[Callable[..., Array]]:
    # A thread keeps the arrays of a stripe for its next stripe: new memory pages cost as much as
    # filling them. Arrays in use are not shared, as an estimate's own `block` may compare others.
    kept: dict[Any, Array] = vars(_kept).pop("arrays", {})

    def array(name: str, shape: tuple[int, int], dtype: Any = np.float64) -> Array:
        size, key = math.prod(shape), (name, np.dtype(dtype))
        if size > ahead():  # one row of very many keys
            return np.empty(shape, dtype)
        if key not in kept or kept[key].size < size:
            kept[key] = np.empty(size, dtype)
        return np.asarray(kept[key][:size].reshape(shape))

    yield array
    _kept.arrays = kept


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The checked data of one comparison, shared by its stripes; see `from_estimates`.

    Parameters
    ----------
    estimates : pairs (Approximation, t); it approximates exp(q·k/t)
    q, kt, v : (n, d), (d, l), (l, c) or None
    mask : Mask
        The common mask of the estimates, for all queries.
    attention : bool
    picked : (count,)
        The measured query rows, ascending; all rows unless ``sampled``.
    sampled : bool
        Whether the picked queries are a sample of ``population`` queries.
    population : int
    """

    estimates: tuple[tuple[Approximation, float], ...]
    q: Array
    kt: Array
    v: Array | None
    mask: Mask
    attention: bool
    picked: Array
    sampled: bool
    population: int

    @classmethod
    def from_estimates(
        cls,
        approximations: Sequence[Approximation],
        Q: ArrayLike,
        K: ArrayLike,
        V: ArrayLike | None,
        *,
        temperatures: Sequence[float] | None,
        mask: MaskLike,
        attention: bool,
        rows: int | Array | None,
        population: int | None = None,
    ) -> Self:
        """Check the arguments of `metrics.compare_all`, and return their comparison."""
        q, k = checks.queries_keys(Q, K)
        n, l = len(q), len(k)
        attention = checks.flag("attention", attention)
        checks.instance("approximations", approximations, Sequence, "a sequence")
        for approximation in approximations:
            checks.instance("approximations", approximation, Approximation, "Approximations")
            if approximation.shape != (n, l):
                raise ValueError(
                    f"the approximation has shape {approximation.shape}, Q and K give {(n, l)}"
                )
        seen = _common_mask(approximations, mask, n, l)
        ts = [1.0] * len(approximations)
        if temperatures is not None:
            given = checks.array("temperatures", temperatures, ndim=1)
            ts = [checks.positive("temperatures", t) for t in given]
        if len(ts) != len(approximations):
            raise ValueError(
                f"{len(approximations)} approximations need as many temperatures, got {len(ts)}"
            )
        if V is not None and not attention:
            raise ValueError(
                "V gives the error of attention's output: leave it out, or attention=False"
            )
        v = None if V is None else checks.values(V, l).astype(np.float64).reshape(l, -1)
        if v is not None:
            v /= np.abs(v).max(initial=0.0) or 1.0  # errors are relative, and no square overflows
        picked = np.arange(n)
        if isinstance(rows, np.ndarray) and rows.ndim == 1:
            picked = np.unique(np.asarray(checks.index("rows", rows, n)))
        elif rows is not None:
            count = checks.integer("rows", rows, least=2, most=n)
            picked = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
        kt = k.T
        if k.dtype != np.float64 or k.size <= exact.STRIPE // 2:  # more: a copy costs too much
            kt = np.ascontiguousarray(kt, np.float64)  # BLAS packs it faster, in each stripe
        estimates = tuple(zip(approximations, ts))
        if population is not None:
            checks.integer("population", population, least=n)
        sampled = rows is not None or population is not None
        return cls(estimates, q, kt, v, seen, attention, picked, sampled, population or n)

    def visible(self) -> Array:
        """Return the number of keys that each picked query sees."""
        return self.mask.counts[self.picked]

    @functools.cached_property
    def coded(self) -> list[Any]:
        """The values that each estimate uses in place of V, such as rounded values."""
        v = self.v
        return [
            v if v is None or approximation.values is None else approximation.values(v)
            for approximation, _ in self.estimates
        ]

    @property
    def spaces(self) -> list[str]:
        """The spaces of `SUMS` that the comparison includes."""
        asked = {"kernel": True, "attention": self.attention, "output": self.v is not None}
        return [space for space, is_asked in asked.items() if is_asked]

    @property
    def is_ahead(self) -> bool:
        """Whether a stripe of the estimate is computed at once, and then its logits in pieces."""
        return len(self.estimates) == 1 and not self.estimates[0][0].low.elementwise

    @property
    def tile(self) -> tuple[int, int, int]:
        """The rows and columns of an estimate per stripe, and the rows of logits per piece."""
        l = self.kt.shape[1]
        if not self.mask.is_full:  # low stripes, to visit few hidden entries
            low = min(MASKED[0], MASKED[1] // l)
            rows = max(1, min(exact.height(l), max(low, l // MASKED_STRIPES)))
            return rows, l, rows
        if not self.attention:
            width = min(l, TILE[1])
            return math.prod(TILE) // width, width, math.prod(TILE) // width
        rows = exact.height(l)
        if not self.is_ahead:
            return rows, l, rows
        # BLAS packs the factor of the keys anew for each stripe, so stripes are high. Pieces of
        # logits are about as large as the cache; a float32 estimate leaves memory for larger ones.
        tenths = 7 if self.estimates[0][0].dtype == np.float32 else 3
        return max(ahead() // l, 1), l, min(max(tenths * rows // 10, LEAST_HEIGHT), rows)

    def tables(self, jobs: int) -> list[Array]:
        """Return the table of each estimate: a `ROW` per picked query."""
        count, height = len(self.picked), self.tile[0]
        stripes = [slice(i, min(i + height, count)) for i in range(0, count, height)]
        for approximation, _ in self.estimates:
            approximation.low.prepare()  # once, before the threads start
        done = in_threads(functools.partial(_sums, self), stripes, jobs)
        # as plain numbers: for records, NumPy compares the names of fields
        return [np.concatenate([x.view(np.float64) for x in some]).view(ROW) for some in zip(*done)]


def _sums(whole: Comparison, part: slice) -> list[Array]:
    l = whole.kt.shape[1]
    index = whole.picked[part]
    count, (_, width, height) = len(index), whole.tile
    alone = len(whole.estimates) == 1
    tables: list[list[Array]] = [[] for _ in whole.estimates]

    def chosen(rows: slice) -> Rows:
        if len(whole.picked) < len(whole.q):
            return index[rows]
        return slice(part.start + rows.start, part.start + rows.stop)

    def block(
        approximation: Approximation, rows: slice, cols: slice, logits: Array | None = None
    ) -> tuple[Array, Array]:
        given = logits if whole.mask.is_full else None  # else logits cover only some keys
        shift = approximation.row_log(chosen(rows), given)
        shape = len(shift), cols.stop - cols.start
        out = array("estimate", shape, approximation.dtype)
        approximation.block(chosen(rows), cols, shift=shift, logits=logits, out=out)
        return out, shift.astype(np.float64)

    with _workspace() as array:
        for start in range(0, l, width):
            cols = slice(start, min(start + width, l))
            if not whole.mask.is_full:
                cols = whole.mask.span(index)
            if whole.mask.is_full:
                first, stop = np.zeros(count, np.intp), np.full(count, cols.stop - cols.start)
            else:
                first, stop = (
                    np.clip(x[index] - cols.start, 0, cols.stop - cols.start)
                    for x in (whole.mask.first, whole.mask.stop)
                )
            if whole.is_ahead:
                estimates, shifts = block(whole.estimates[0][0], slice(0, count), cols)
            for tiles in tables:
                tiles.append(np.empty(count, ROW))
            for begin in range(0, count, height):
                rows = slice(begin, min(begin + height, count))
                queries = whole.q[chosen(rows)].astype(np.float64, copy=False)
                shape = len(queries), cols.stop - cols.start
                product = np.matmul(queries, whole.kt[:, cols], out=array("product", shape))
                logits = product if alone else array("logits", shape)  # overwritten
                outputs: dict[float, Array] = {}  # exact attention's, by temperature
                for (approximation, t), tiles, values in zip(whole.estimates, tables, whole.coded):
                    if t != 1.0 or not alone:
                        np.divide(product, t, out=logits)
                    if whole.is_ahead:
                        estimate, shift = estimates[rows], shifts[rows]
                    else:
                        estimate, shift = block(approximation, rows, cols, logits)
                    if whole.v is not None and estimate.dtype != np.float64:
                        single, estimate = estimate, array("double", shape)  # overwritten
                        estimate[...] = single
                    table, sink = tiles[-1][rows], approximation.sink
                    attention, in_kernel = whole.attention, approximation.space == "kernel"
                    spans = first[rows], stop[rows], sink if attention else -np.inf
                    given = logits, estimate, shift, *spans
                    if approximation.fitted and attention:
                        fill(*given, True, attention, False, table)
                        divided = table[list(DISTRIBUTIONS)].copy()
                    fill(*given, in_kernel, attention, whole.v is not None, table)
                    if approximation.fitted and attention:
                        table[list(DISTRIBUTIONS)] = divided
                    if whole.v is not None:
                        with np.errstate(over="ignore", invalid="ignore"):
                            error = estimate @ values[cols]
                            if values is not whole.v:  # (q − p)·v̂ + p·(v̂ − v)
                                error += logits @ (values - whole.v)[cols]
                            square = np.square(error).sum(axis=1)
                        table["output"] = np.where(np.isnan(square), np.inf, square)  # inf − inf
                        if t not in outputs:
                            outputs[t] = np.square(logits @ whole.v[cols]).sum(axis=1)
                        table["truth"] = outputs[t]
    return [_joined(tiles) for tiles in tables]


def _joined(tables: list[Array]) -> Array:
    if len(tables) == 1:
        return tables[0]
    tiles = np.stack(tables)
    rows = np.zeros_like(tables[0])
    for scale in ("top", "scale", "unit"):
        rows[scale] = tiles[scale].max(axis=0)
    for name, (scale, power, join) in JOINED.items():
        unit = np.exp(power * (tiles[scale] - rows[scale]))
        rows[name] = join.reduce(tiles[name] * unit, axis=0)
    return rows
