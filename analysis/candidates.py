"""The methods that the report and the advisor try by default, and which of them a model can run."""

from __future__ import annotations

from approx import Mask, Method, parse

TRIVIAL = "uniform()"
RUNNABLE = (
    TRIVIAL,
    "positive()",
    "positive(projection='orthogonal')",
    "generalized_exponential(projection='orthogonal')",
    "shifted_positive()",
    "nystrom()",
    "nystrom(block=32)",
    "linformer()",
    "nystromformer()",
    "eva()",
    "sliding_window()",
    "sink_window()",
    "hierarchical(basis='mean', sinks=1)",
    "hierarchical(basis='pivots', sinks=1)",
    "strided()",
    "smyrf()",
    "reformer()",
    "scatterbrain(low_rank=positive(projection='orthogonal'), sparse=sliding_window())",
    "scatterbrain(low_rank=positive(projection='orthogonal'), sparse=sink_window())",
    "scatterbrain(low_rank=shifted_positive(), sparse=smyrf())",
)
ORACLES = (
    "truncated_svd(space='attention')",
    "top_k()",
    "godec(space='attention')",
    "hierarchical(space='attention')",
)


def methods(mask: Mask) -> list[Method]:
    """Return the candidates under a mask: what can be run under it, and the oracles.

    Examples
    --------
    >>> [str(m) for m in methods(Mask.causal(2, 2)) if m.name.startswith("nystrom")]
    ['nystrom(block=32)']
    """
    every = [parse(spec) for spec in (*RUNNABLE, *ORACLES)]
    return [m for m in every if runs(m, mask) or (m.oracle and why_not(m, mask) is None)]


def runs(method: Method, mask: Mask) -> bool:
    """Return whether a model with this mask can run the method, which oracles never are.

    Under a mask that looks back the method must be autoregressive.
    """
    if method.oracle or why_not(method, mask) is not None:
        return False
    return method.autoregressive or not mask.looks_back


def why_not(method: Method, mask: Mask) -> str | None:
    """Return why the method has no meaning under a mask; None if it has one."""
    return None if mask.is_full else method.refusal
