"""Spec strings of methods, and what a notebook shows of one."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from approx.estimate.approximation import OF
from approx.method.filling import is_fillable
from approx.method.tags import AUTOREGRESSIVE, ORACLE
from approx.notebook import facts

if TYPE_CHECKING:
    from approx.method.method import Method  # which imports this module


def spec(method: Method) -> str:
    """Return the spec that `approx.parse` reads, without defaults.

    An array, such as given frequencies, is written as a digest. The digest is a label, equal for
    equal numbers; `approx.parse` cannot read it.
    """
    given = [
        f"{f.name}={method.parts.get(f.name) or _value(getattr(method, f.name))}"
        for f in dataclasses.fields(method)  # type: ignore[arg-type]
        if f.compare and (f.default is dataclasses.MISSING or getattr(method, f.name) != f.default)
    ]
    return f"{method.name}({', '.join(given)})"


def _value(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):  # repr rounds and shortens, so it is no label
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:8]
        return f"array({value.shape}, {digest})"
    return repr(value)


def html(method: Method) -> str:
    """Return a table of what the method is."""
    fills = "a" if is_fillable(method) else "no"
    return facts(
        str(method),
        [
            ("what it is", (inspect.getdoc(type(method)) or "").splitlines()[0]),
            ("size", f"open: {fills} budget fills it" if method.is_template else "given"),
            ("estimates", OF[method.space]),
            ("draws", "none" if method.deterministic else "random"),
            ("needs all logits", "yes" if ORACLE in method.tags else "no"),
            ("under a causal mask", _under_causal(method)),
        ],
    )


def _under_causal(method: Method) -> str:
    if method.refusal is not None:
        return f"refused: {method.refusal}"
    past = AUTOREGRESSIVE in method.tags
    return "a row follows from its past" if past else "a row reads the future"
