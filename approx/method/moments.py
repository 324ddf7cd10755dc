"""Exact moments of estimates, relative to exp(q·k)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import ALL, Mask
from approx.notebook import number, table

if TYPE_CHECKING:
    from approx.method.method import Method  # which imports this module


class Moments(NamedTuple):
    """Exact bias and variance of an estimate, entry by entry.

    Attributes
    ----------
    relative_bias : (n, l)
        E[estimate]/exp(q·k) − 1; inf if it is above 1.8e308.
    log_relative_variance : (n, l)
        log(Var[estimate]/exp(2 q·k)); −inf if the variance is 0.

    Notes
    -----
    Outside the mask they are 0 and −inf.
    """

    relative_bias: Array
    log_relative_variance: Array

    def __repr__(self) -> str:
        n, l = self.relative_bias.shape
        said = ", ".join(f"{name} {low} to {high}" for name, low, high in self._ranges())
        return f"<Moments of {n}×{l} entries: {said}>"

    def _repr_html_(self) -> str:
        n, l = self.relative_bias.shape
        return table(f"Moments of {n} × {l} entries", ["", "least", "largest"], self._ranges())

    def _ranges(self) -> list[tuple[str, str, str]]:
        return [
            (name.replace("_", " "), number(float(x.min())), number(float(x.max())))
            for name, x in self._asdict().items()
        ]

    def seen(self, mask: Mask) -> Moments:
        """Return these moments, with 0 and −inf outside the mask."""
        if mask.is_full:
            return self
        hidden = ~mask.visible()
        return Moments(
            np.where(hidden, 0.0, self.relative_bias),
            np.where(hidden, -np.inf, self.log_relative_variance),
        )


def realised(method: Method, q: Array, k: Array, mask: Mask) -> Moments | None:
    """Return bias estimate/exact − 1 and variance 0: the moments of a deterministic method."""
    estimate = method.approximate(q, k, mask=mask)
    if estimate.space == "attention":
        return None
    x = np.asarray(exact.logits(q, k), np.float64)
    shift = np.asarray(estimate.row_log(), np.float64)
    scaled = np.asarray(estimate.block(ALL, shift=shift), np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        ratio = np.sign(scaled) * np.exp(np.log(np.abs(scaled)) + shift[:, None] - x)
    return Moments(ratio - 1.0, np.full(x.shape, -np.inf)).seen(mask)
