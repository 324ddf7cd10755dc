"""Sums over the keys of each query row, of which errors are made; streamed by row stripes.

`fill` is the kernel, the columns of its table are named here, and `Comparison` shares the stripes
of a comparison among threads.
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

from analysis.compute import executors
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.low import Rows
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.elementary import SURELY_NORMAL, exp, largest, log, log_of_normal
from approx.kernels.jit import summing_kernel

# The numbers of a query row by name, of each space; `metrics.RowSums` defines them.
SUMS = {
    "kernel": ("top", "square", "scale", "difference", "largest", "unit", "mass", "negative"),
    "attention": ("p2", "f2", "tv", "kl", "reverse"),
    "output": ("output", "truth"),
}
ROW = np.dtype([(name, np.float64) for names in SUMS.values() for name in names])
# How tiles of a row join: a sum at the scale e^column, to a power. Scales join by their maximum.
JOINED = {
    "square": ("top", 2, np.add),
    "difference": ("scale", 2, np.add),
    "largest": ("scale", 1, np.maximum),
    "mass": ("unit", 1, np.add),
    "negative": ("unit", 0, np.add),
}
TILE = 512, 1024  # rows and columns, where no row is needed as a whole: 8 MB in two products
GAP = 64  # numbers between arrays, so that a loop never seems to overwrite what it reads
MASKED_STRIPES = 16  # of a causal head, which then visits 53 % of its entries
LEAST_HEIGHT = 48  # rows of logits, where a stripe has as many: products of fewer are slower
_LARGEST_FLOAT = np.finfo(np.float64).max
_LEAST_INVERTIBLE = 1 / _LARGEST_FLOAT


@summing_kernel
def fill(
    logits: Any,
    estimate: Any,
    row_log: Any,
    first: Any,
    stop: Any,
    normalise: bool,
    attention: bool,
    weights: bool,
    out: Any,
) -> None:
    """Write the sums of each row into out[i], a `ROW`, for an estimate at the scale e^row_log[i].

    Query i sees the keys first[i] ≤ j < stop[i], one at least. Shares of attention are those of the
    row's own sum if `normalise`, else the estimate as it is; without `attention` their sums mean
    nothing. If `weights`, logits become exact attention p, and the estimate the difference q − p.
    """
    # A loop that writes less than a few registers behind what it reads runs without vectors, and
    # sums in another order. Malloc may put short rows so close; rows behind a gap never are.
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
        # the row's own scale: row_log may be far above every entry
        unit = (peak if peak > SURELY_NORMAL else SURELY_NORMAL) if peak > 0.0 else 1.0
        inverse_unit = 1.0 / unit
        log_unit = row_log[i] + np.log(unit)
        scale = log_unit if peak > 0.0 and log_unit > top else top
        a, b = exp(top - scale), exp(log_unit - scale if log_unit < scale else 0.0)
        mass, difference, furthest = 0.0, 0.0, np.int64(0)
        for j in range(w):
            s[j] = e[j] * inverse_unit  # stored: sums, and so products, may be reordered
            mass += s[j]
            t = b * s[j] - a * p[j]
            difference += t * t
            size = np.float64(abs(t)).view(np.int64)
            furthest = size if size > furthest else furthest

        # a row of zeros has a scale below every other
        row["unit"] = log_unit if peak > 0.0 else -_LARGEST_FLOAT
        row["mass"] = mass
        if not normalise and peak > 0.0:  # as it is; of a row of zeros the sum is 0 in any case
            mass = exp(-log_unit)
            mass = mass if mass > _LEAST_INVERTIBLE / 2 else _LEAST_INVERTIBLE / 2
        positive = mass > 0.0
        # a share may be beyond the largest float, too: every error of the row is inf
        beyond = positive and mass < _LEAST_INVERTIBLE
        inverse = (_LARGEST_FLOAT if beyond else 1.0 / mass) if positive else 0.0
        inverse_total, log_sum = 1.0 / total, top + np.log(total)
        smallest = np.int64(least).view(np.float64) * inverse_unit * inverse
        f2, tv, kl, reverse = 0.0, 0.0, 0.0, 0.0
        # In most rows no share is ≤ 0 or tiny: a loop that does not ask takes half the time.
        for j in range(w if attention and smallest >= SURELY_NORMAL else 0):
            pj, qj = p[j] * inverse_total, s[j] * inverse
            t = qj - pj
            # near 1 the ratio is taken by itself: of two logarithms no digit of it would be left
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
        row["p2"] = square * inverse_total * inverse_total
        row["f2"] = np.inf if beyond else f2
        row["tv"] = np.inf if beyond else 0.5 * tv if positive else 1.0
        row["kl"] = kl if positive and not beyond else np.inf
        row["reverse"] = reverse if positive and not beyond else np.inf
        row["negative"] = negative


def _common_mask(approximations: Sequence[Approximation], mask: MaskLike, n: int, l: int) -> Mask:
    """Return the mask of all estimates; raise ValueError if it is not the one that was given."""
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
    """Return the largest number of entries of an estimate that are made before their logits."""
    return 7 * exact.STRIPE // 5


_kept = threading.local()


@contextlib.contextmanager
def _workspace() -> Iterator[Callable[..., Array]]:
    # A thread keeps the arrays of a stripe for its next one: new pages cost as much as what fills
    # them. They are out of reach while in use, as an estimate's own `block` may compare others.
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
    """What every stripe of one comparison needs; made by `of`.

    Parameters
    ----------
    estimates : pairs of an Approximation and the t of the exp(q·k/t) that it estimates
    q, kt, v : (n, d), (d, l), (l, c) or None
    mask : Mask
        What each of all queries sees, as the estimates have it.
    attention : bool
    picked : (count,)
        The query rows that are measured, ascending: all, unless they are `sampled`.
    sampled : bool
        Whether the picked queries are a sample of `population` many.
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
            v /= np.abs(v).max(initial=0.0) or 1.0  # the error is relative: no square overflows
        picked = np.arange(n)
        if isinstance(rows, np.ndarray) and rows.ndim == 1:
            picked = np.unique(np.asarray(checks.index("rows", rows, n)))
        elif rows is not None:
            count = checks.integer("rows", rows, least=2, most=n)
            picked = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
        kt = k.T
        if k.dtype != np.float64 or k.size <= exact.STRIPE // 2:  # more: not worth a copy's memory
            kt = np.ascontiguousarray(kt, np.float64)  # which BLAS packs, for each stripe, faster
        estimates = tuple(zip(approximations, ts))
        if population is not None:
            checks.integer("population", population, least=n)
        sampled = rows is not None or population is not None
        return cls(estimates, q, kt, v, seen, attention, picked, sampled, population or n)

    def visible(self) -> Array:
        """Return how many keys each of the picked queries sees."""
        return self.mask.counts[self.picked]

    @functools.cached_property
    def coded(self) -> list[Any]:
        """The values that each estimate has in their place, such as rounded ones."""
        v = self.v
        return [
            v if v is None or approximation.values is None else approximation.values(v)
            for approximation, _ in self.estimates
        ]

    @property
    def spaces(self) -> list[str]:
        """The spaces of `SUMS` that are asked for."""
        asked = {"kernel": True, "attention": self.attention, "output": self.v is not None}
        return [space for space, is_asked in asked.items() if is_asked]

    @property
    def is_ahead(self) -> bool:
        """Whether a stripe of the estimate is made as a whole, then its logits piece by piece."""
        return len(self.estimates) == 1 and not self.estimates[0][0].low.elementwise

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows and columns of an estimate that are made at once, and rows of logits at a time."""
        l = self.kt.shape[1]
        if not self.mask.is_full:  # low stripes, of which few keys are unseen by all rows
            rows = max(1, min(exact.height(l), max(LEAST_HEIGHT, l // MASKED_STRIPES)))
            return rows, l, rows
        if not self.attention:
            width = min(l, TILE[1])
            return math.prod(TILE) // width, width, math.prod(TILE) // width
        rows = exact.height(l)
        if not self.is_ahead:
            return rows, l, rows
        # BLAS packs the factor of the keys anew for each stripe; logits stay near the cache, and
        # have the memory that an estimate in float32 leaves
        tenths = 7 if self.estimates[0][0].dtype == np.float32 else 3
        return max(ahead() // l, 1), l, min(max(tenths * rows // 10, LEAST_HEIGHT), rows)

    def tables(self, jobs: int) -> list[Array]:
        """Return the table of each estimate: a `ROW` per picked query."""
        count, height = len(self.picked), self.tile[0]
        stripes = [slice(i, min(i + height, count)) for i in range(0, count, height)]
        for approximation, _ in self.estimates:
            approximation.low.prepare()  # here, once, and not by each thread
        done = executors.threads(functools.partial(_sums, self), stripes, jobs)
        # as plain numbers: of records NumPy compares the names
        return [np.concatenate([x.view(np.float64) for x in some]).view(ROW) for some in zip(*done)]


def _sums(whole: Comparison, part: slice) -> list[Array]:
    """Return the table of a stripe for each estimate."""
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
        given = logits if whole.mask.is_full else None  # of some keys only
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
                outputs: dict[float, Array] = {}  # of exact attention at each temperature
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
                    table = tiles[-1][rows]
                    fill(
                        logits,
                        estimate,
                        shift,
                        first[rows],
                        stop[rows],
                        approximation.space == "kernel",
                        whole.attention,
                        whole.v is not None,
                        table,
                    )
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
    """Return the sums of rows from those of their tiles; sums of attention are left out."""
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
