"""Evaluate a method on checked arrays within a limit on memory, and say who cannot run it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate import masks, memory
from approx.estimate.masks import Mask, MaskLike
from approx.estimate.parts import Parts
from approx.method.filling import require_sizes
from approx.method.prices import Shape
from approx.method.tags import AUTOREGRESSIVE, ORACLE, SCORES_VALUES

if TYPE_CHECKING:
    from approx.method.method import Method  # which imports this module

Rng = int | np.random.SeedSequence | np.random.Generator | None


def evaluated(method: Method, Q: ArrayLike, K: ArrayLike, mask: MaskLike, rng: Rng) -> Parts:
    """Check the arguments, and return the parts from `evaluate`; see `Method.approximate`.

    Composite methods call this for the methods of which they are made: `Parts`, unlike
    `Approximation`, have no mask.
    """
    q, k, seen = checked_inputs(method, Q, K, mask)
    (n, d), l = q.shape, len(k)
    size = method.sized_by
    lower = "n or l" if size is None else f"{size.field}, n or l"
    memory.reserve(method._workspace(Shape(n, l, d, d, seen)), method, lower)
    parts = method.evaluate(q, k, seen, generator(rng))
    if not isinstance(parts, Parts):
        raise TypeError(
            f"{type(method).__name__}.evaluate must return Parts, such as "
            f"Parts.from_factors(left, right), got {checks.display(parts)}"
        )
    return parts


def with_values(method: Method, V: ArrayLike) -> Method:
    """Return the method, in which every part that scores keys by their values knows V (l, c)."""
    if SCORES_VALUES not in method.tags:
        return method
    given: dict[str, Any] = {name: with_values(part, V) for name, part in method.parts.items()}
    given = given or {"values": checks.array("V", V, ndim=2)}
    return dataclasses.replace(method, **given)  # type: ignore[type-var]


def checked_inputs(
    method: Method, Q: ArrayLike, K: ArrayLike, mask: MaskLike = None
) -> tuple[Array, Array, Mask]:
    """Return Q and K as checked arrays, and the mask as a `Mask`.

    Raises
    ------
    TypeError, ValueError
        Q, K or the mask cannot be used, the method is a template, its size does not fit Q and K, or
        it refuses the mask.
    """
    require_sizes(method)
    q, k = checks.queries_keys(Q, K)
    method._check(q, k)
    seen = masks.as_mask(mask, len(q), len(k))
    if (reason := why_not(method, seen)) is not None:
        raise ValueError(f"{method} cannot be used under a mask: {reason}")
    return q, k, seen


def why_not(method: Method, mask: Mask) -> str | None:
    """Return why the method cannot be used under a mask; None if it can."""
    return None if mask.is_full else method.refusal


def obstacle(method: Method, mask: Mask) -> str:
    """Return why no model with this mask can run the method; "" if a model can.

    Under a mask that hides the future, the method must be autoregressive.
    """
    if (reason := why_not(method, mask)) is not None:
        return reason
    if ORACLE in method.tags:
        return "needs all logits"
    if mask.looks_back and AUTOREGRESSIVE not in method.tags:
        return "reads tokens that the mask hides"
    return ""


def generator(rng: Rng) -> np.random.Generator:
    """Return default_rng(rng), the only source of randomness.

    A SeedSequence is copied, so that it gives the same draws however often it has spawned.

    Raises
    ------
    TypeError, ValueError
        rng is not None, an integer ≥ 0, a SeedSequence or a Generator.
    """
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, np.random.SeedSequence):
        rng = np.random.SeedSequence(rng.entropy, spawn_key=rng.spawn_key, pool_size=rng.pool_size)
        return np.random.default_rng(rng)
    return np.random.default_rng(
        None if rng is None else checks.integer("rng", rng, least=0, most=2**128)
    )
