"""The result type of all methods: every approximation of exp(q·k) is low-rank and sparse.

    estimate = diag(e^row_log) · (low ⊕ S)

Metrics, ranks, costs and plots are therefore written once, for `Approximation`. The methods that
make approximations are in `approx.method`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from approx import checks
from approx.checks import Array
from approx.estimate import exact, masked, masks, memory
from approx.estimate.corrections import Correction, Support
from approx.estimate.low import (
    Low,
    Rows,
    ScaledFactors,
    add_sink,
    beside_ones,
    divide_by_last,
    rescale,
)
from approx.estimate.masks import ALL, MaskLike
from approx.estimate.parts import Parts
from approx.kernels import pattern_products
from approx.notebook import facts, number

OF = {"kernel": "exp(q·k)", "attention": "softmax rows"}


class _Operator(LinearOperator):
    """A linear operator whose products avoid SciPy, which drops the mask of a masked array.

    A subclass defines `self @ x` for arrays; SciPy handles numbers and other operators.
    """

    def __init__(self, dtype: Any, shape: tuple[int, int]) -> None:
        super().__init__(dtype, shape)  # type: ignore[call-arg]

    def dot(self, x: Any) -> Any:
        """Return the product with a vector or matrix, or the composition with an operator."""
        return super().dot(x) if _composes(x) else self @ x

    _matmat = _matvec = dot


def _composes(x: Any) -> bool:
    return isinstance(x, LinearOperator) or np.ndim(x) == 0


def _row_sums(pattern: scipy.sparse.csr_array, values: Array) -> Array:
    s = scipy.sparse.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)
    return np.asarray(s.sum(axis=1))


class _Transposed(_Operator):
    """The transpose of an approximation."""

    def __init__(self, original: Approximation) -> None:
        super().__init__(original.dtype, original.shape[::-1])
        self.original = original

    def __matmul__(self, x: Any) -> Any:
        if _composes(x):
            return super().__matmul__(x)
        w = checks.values(x, self.shape[1], self.dtype, name="W", row="query")
        y = rescale(*self.original.scaled_rmatmat(w.reshape(len(w), -1)))
        return y.reshape(len(y), *w.shape[1:])

    def _adjoint(self) -> Approximation:
        return self.original

    _transpose = _adjoint


class Approximation(_Operator):
    """An estimate of exp(Q Kᵀ), or of its row-softmax, of shape (n, l), under a mask.

    Parameters
    ----------
    low : Low
        The dense part, usually `Factors`.
    correction : Correction, optional
        The sparse part S. On a `Support` the estimate is exp(q·k), or a weighted mean of exp(q·k)
        and the dense part. An `Addition` is added to the dense part.
    space : {"kernel", "attention"}
        The estimated matrix: exp(q·k), or softmax rows, which `attend` does not normalise again.
    mask : Mask, optional
        The keys that each query sees, by default all. Entries outside the mask are 0.
    values : callable, optional
        A map that `attend` applies to the values (l, c) first, such as rounding.
    fitted : bool
        Whether the estimate fits softmax rows as a matrix, as a decomposition does. Such rows need
        not sum to 1, and are divided by their sums where two distributions are compared.
    sink : float
        The logit of an attention sink: row sums have e^sink in addition; −inf if there is none.
    obstacle : str, optional
        The reason why no model can run the method under this mask; "" if a model can run it. None
        means not known: the estimate was not made by `Method.approximate`.

    Notes
    -----
    Entries below e^−745 (float32: e^−103) of their row's scale are 0.

    Many results are computed on request, from the Q and K that were given to `Method.approximate`.
    If these arrays change later, parts of the estimate change too.
    """

    def __init__(
        self,
        low: Low,
        correction: Correction | None = None,
        *,
        space: str = "kernel",
        mask: MaskLike = None,
        values: Callable[[Array], Array] | None = None,
        fitted: bool = False,
        sink: float = -math.inf,
        obstacle: str | None = None,
    ) -> None:
        super().__init__(low.dtype, low.shape)
        self.mask = masks.as_mask(mask, *low.shape)
        self.low = masked.under(low, self.mask)
        # `seen` may apply a mask later: it needs the part before its keys were rescaled.
        self.maskable = low if self.mask.is_full else self.low
        self.correction = correction and correction.under(self.mask)
        self.space = checks.one_of("space", space, ("kernel", "attention"))
        self.values, self.fitted, self.sink = values, fitted, checks.sink(sink)
        if self.sink > -math.inf and space == "attention":
            raise ValueError(
                "rows of softmax have no place for an attention sink, which is part of the row sum "
                "of exp(q·k): use a method that estimates exp(q·k)"
            )
        self.obstacle = obstacle

    def __repr__(self) -> str:
        n, l = self.shape
        return (
            f"<Approximation {n}×{l} of {OF[self.space]}, mask {self.mask}: rank "
            f"{number(self.rank)}, {number(self.nnz)} entries, {self.dtype}"
            f"{f'; not runnable: {self.obstacle}' if self.obstacle else ''}>"
        )

    def _repr_html_(self) -> str:
        n, l = self.shape
        runnable = {None: "not known", "": "yes"}.get(self.obstacle, f"no: {self.obstacle}")
        return facts(
            f"Approximation of {OF[self.space]}",
            [
                ("queries × keys", f"{n} × {l}"),
                ("mask", self.mask),
                ("rank of the low-rank part", self.rank),
                ("entries of the sparse part", self.nnz),
                ("stored values", self.parameters),
                ("dtype", self.dtype),
                ("runnable", runnable),
            ],
        )

    @classmethod
    def from_factors(
        cls,
        left: ArrayLike,
        right: ArrayLike,
        row_log: ArrayLike = 0.0,
        *,
        space: str = "kernel",
        mask: MaskLike = None,
    ) -> Self:
        """Return the approximation diag(e^row_log) left rightᵀ, with 0 outside the mask.

        Examples
        --------
        >>> Approximation.from_factors([[1.0], [2.0]], [[3.0]]).to_dense()
        array([[3.],
               [6.]])
        """
        return cls.from_parts(Parts.from_factors(left, right, row_log, space=space), mask=mask)

    @classmethod
    def from_parts(
        cls,
        parts: Parts,
        *,
        mask: MaskLike = None,
        sink: float = -math.inf,
        obstacle: str | None = None,
    ) -> Self:
        """Return the approximation with these parts, and 0 outside the mask."""
        return cls(
            parts.low, parts.sparse,
            space=parts.space, mask=mask, values=parts.values, fitted=parts.fitted, sink=sink,
            obstacle=obstacle,
        )  # fmt: skip

    @property
    def runnable(self) -> bool | None:
        """Whether a model with this mask can run the method; None if that is not known."""
        return None if self.obstacle is None else not self.obstacle

    @property
    def rank(self) -> int:
        """Number of columns of the low-rank factors: an upper bound on the low-rank part's rank."""
        return self.low.rank

    @property
    def nnz(self) -> int:
        """Number of stored entries of S."""
        return 0 if self.correction is None else self.correction.nnz

    @property
    def parameters(self) -> int:
        """Number of stored values: those of the dense part, rank·(n + l) for factors, plus nnz."""
        return self.low.parameters + self.nnz

    @property
    def nbytes(self) -> int:
        """Bytes stored, including indices."""
        if self.correction is None:
            return self.low.nbytes
        return self.low.nbytes + self.correction.nbytes

    @property
    def replaces(self) -> bool:
        """Whether S replaces the low-rank part on the support (partly, if S has weights).

        If not, S is added to the low-rank part.
        """
        return self.correction is not None and self.correction.replaces

    @property
    def sparse(self) -> scipy.sparse.csr_array | None:
        """S with its true values; raises OverflowError if a value is not representable.

        If S replaces, these are the values of the estimate; if S has weights, w·exp(q·k).
        """
        return (
            None
            if self.correction is None
            else self.correction.scaled(np.zeros(self.shape[0], self.dtype))
        )

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        """Return a finite log scale per row, at which its entries are at most about ``rank``."""
        low = self.low.row_log(rows, logits)
        if self.correction is None:
            return low
        top = self.correction.row_log()[rows].astype(self.dtype)
        return np.where(np.isfinite(top), np.maximum(low, top) if self.rank else top, low)

    def block(
        self,
        rows: Rows,
        cols: Rows = ALL,
        *,
        shift: ArrayLike = 0.0,
        logits: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """Return estimate[rows, cols] · exp(−shift), one shift per row; 0 outside the mask.

        Parameters
        ----------
        rows, cols : slice or index array
        shift : float or (rows,)
        logits : (rows, cols), optional
            q·k, if the caller has computed them already.
        out : (rows, cols), optional
            The array to write to. Its dtype must hold every number of the estimate's dtype.

        Raises
        ------
        OverflowError
            An entry is not representable at this shift.
        TypeError
            ``out`` or ``logits`` is not an array, or ``out`` cannot hold the estimate's dtype.
        """
        rows, cols = (
            checks.index(name, x, count)
            for name, x, count in zip(("rows", "cols"), (rows, cols), self.shape)
        )
        height, width = (
            len(range(*x.indices(count))) if isinstance(x, slice) else len(x)
            for x, count in zip((rows, cols), self.shape)
        )
        shifts = checks.array("shift", shift)
        if shifts.shape not in ((), (1,), (height,)):
            raise ValueError(f"shift must be one value, or one per row, got shape {shifts.shape}")
        shifts = np.full(height, shifts, self.dtype)  # kernels compile again for what is read-only
        for name, given in (("logits", logits), ("out", out)):
            if given is None:
                continue
            checks.instance(name, given, np.ndarray, "an array")
            if given.shape != (height, width):
                raise ValueError(
                    f"{name} must have shape {(height, width)}, got {checks.display(given)}"
                )
        if out is not None and not np.can_cast(self.dtype, out.dtype):
            raise TypeError(f"out must hold {self.dtype}, got dtype {out.dtype}")
        fits = out is not None and out.dtype == self.dtype and out.flags.c_contiguous
        values = self.low.block(rows, cols, shifts, logits, out if fits else None)
        if self.correction is not None:
            self.correction.restricted(rows, cols).correct(values, shifts)
        if out is None or values is out:
            return values
        out[:] = values
        return out

    def seen(self, mask: MaskLike = None) -> Approximation:
        """Return the estimate under a mask, by default its own, with 0 for unseen keys.

        Raises
        ------
        ValueError
            The estimate has another mask already.
        """
        given = self.mask if mask is None else masks.as_mask(mask, *self.shape)
        if given == self.mask:
            return self
        if not self.mask.is_full:
            raise ValueError(f"the estimate has the mask {self.mask}, so {given} cannot be given")
        return Approximation(
            self.maskable, self.correction,
            space=self.space, mask=given, values=self.values, fitted=self.fitted, sink=self.sink,
        )  # fmt: skip

    def to_dense(self) -> Array:
        """Return the (n, l) matrix.

        Accuracy: 6 eps·κ, as docs/accuracy.md defines it.

        Raises
        ------
        OverflowError
            An entry is not representable. No entry silently becomes inf.
        ResourceLimitError
            The matrix would not fit into memory. This is raised before the allocation.
        """
        memory.reserve(math.prod(self.shape) * self.dtype.itemsize, "the dense estimate", "n or l")
        return self.block(ALL)

    def scaled_factors(self) -> ScaledFactors:
        """Return (left, right, row_log) of the low-rank part, before the mask."""
        return self.low.scaled_factors()

    def factors(self) -> tuple[Array, Array]:
        """Return (left, right) with left @ right.T = to_dense() without S and the mask.

        Raises
        ------
        OverflowError
            The factors are not representable without a row scale.
        ResourceLimitError
            The factors are too wide for the memory. This is raised before the allocation.
        """
        left, right, row_log = self.scaled_factors()
        return rescale(left.copy(), row_log, "a factor"), right

    def scaled_matmat(self, V: Array) -> tuple[Array, Array]:
        """Return (y, row_log) with estimate @ V = diag(e^row_log) y, for V (l, c).

        If S replaces, the low-rank part on the support is subtracted. Where this subtraction would
        lose a third of the digits of a row, the row is summed from its entries instead.

        Raises
        ------
        ValueError
            V has another shape. Its entries are not checked: ``@`` and `attend` check them before.
        """
        if np.ndim(V) != 2 or len(V) != self.shape[1]:
            raise ValueError(f"V must be ({self.shape[1]}, c), got shape {np.shape(V)}")
        if self.correction is None:
            return self.low.matmat(V)
        total = None
        if self.rank:  # first: the entries on the support, and scales, use what it prepares
            low, low_log = self.low.prepare().matmat(beside_ones(V))
        row_log = self.row_log()
        if self.rank:
            low = rescale(low, low_log - row_log)
            total = low[:, -1]
        addition, lossy = self._as_addition(self.correction, row_log, total)
        y = pattern_products.matmat(addition, V)
        if self.rank:
            y += low[:, :-1]
        for rows in lossy:
            y[rows] = self.block(rows, shift=row_log[rows]) @ V
        return y, row_log

    def scaled_rmatmat(self, W: Array) -> tuple[Array, Array]:
        """Return (y, log) with estimateᵀ W = e^log y, for W (n, c) and log (1,)."""
        log = np.full(self.shape[0], self.row_log().max())
        if self.correction is None:
            return self.low.rmatmat(W, log), log[:1]
        addition, lossy = self._as_addition(self.correction, log)
        rest = W.copy()
        rest[np.concatenate([*lossy, np.empty(0, np.intp)])] = 0
        y = self.low.rmatmat(rest, log) + addition.T @ rest
        for rows in lossy:
            y += self.block(rows, shift=log[rows]).T @ W[rows]
        return y, log[:1]

    def _as_addition(
        self, correction: Correction, row_log: Array, total: Array | None = None
    ) -> tuple[scipy.sparse.csr_array, list[Array]]:
        """Return C with estimate = low + C at a scale, and stripes of rows where this cancels.

        In such rows the low-rank part on the support is much larger than the estimate. Subtracting
        it would lose a third of the digits, so the caller sums these rows from their entries.
        ``total`` has the row sums of the low-rank part at the scale, if they are known.
        """
        s = correction.scaled(row_log)
        if not (isinstance(correction, Support) and self.rank):
            return s, []
        low = scipy.sparse.csr_array((self.low.at(s, row_log), s.indices, s.indptr), shape=s.shape)
        if total is None:
            sums, low_log = self.low.prepare().matmat(np.ones((self.shape[1], 1), self.dtype))
            total = rescale(sums, low_log - row_log)[:, 0]
        off = total - low.sum(axis=1)
        # (1 − w)·low + w·exact = low + w·(exact − low)
        left, taken = correction.split(low.data)
        kept = np.abs(off) + _row_sums(s, np.abs(s.data + left))
        s.data -= taken
        lossy = np.flatnonzero(
            _row_sums(s, np.abs(taken)) > np.finfo(self.dtype).eps ** (-1 / 3) * kept
        )
        return s, [lossy[stripe] for stripe in exact.stripes(len(lossy), self.shape[1])]

    def __matmul__(self, x: Any) -> Any:
        """Return the product with V, (l, c) or (l,), or the composition with an operator."""
        if _composes(x):
            return super().__matmul__(x)
        v = checks.values(x, self.shape[1], self.dtype)
        y = rescale(*self.scaled_matmat(v.reshape(len(v), -1)))
        return y.reshape(len(y), *v.shape[1:])

    def _adjoint(self) -> _Transposed:
        return _Transposed(self)

    _transpose = _adjoint

    def attend(self, V: ArrayLike) -> Array:
        """Return approximate attention D⁻¹ estimate V, (n, c), with D the row sums under the mask.

        D has e^sink in addition, if there is an attention sink.

        Rows whose sum is ≤ 0 give 0; `analysis.errors.metrics` counts them. Nothing is clamped. In
        attention space rows are not normalised. If the method rounds values, V is rounded first.

        Accuracy: 4 eps·κ, as docs/accuracy.md defines it.
        """
        n, l = self.shape
        v = checks.values(V, l, self.dtype)
        shape = n, *v.shape[1:]
        v = v.reshape(l, -1).astype(self.dtype, copy=False)
        if self.values is not None:
            v = self.values(v)
        if self.space == "attention":
            y = rescale(*self.scaled_matmat(v))
        elif self.correction is None and self.sink == -math.inf:
            y = self.low.attend(v)
        else:
            sums, row_log = self.scaled_matmat(beside_ones(v))
            if self.sink > -math.inf:
                sums = add_sink(sums, row_log, self.sink)
            y = divide_by_last(sums)
        return y.reshape(shape)
