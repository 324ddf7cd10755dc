"""The methods that the report and the advisor try by default, and which of them a model can run.

Of those that need all logits, all but `godec` and `hierarchical` look for the least total
variation, by which the advisor decides: `analysis.costs.optimality` says which of them are bounds.
"""

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
    "columns(by='h2o', recent=16)",
    "projected_top_k(by='channels')",
    "pages(current=True)",
    "vertical_slash()",
    "coreset(tau='queries')",
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
    "truncated_svd(space='attention', refine='tv')",
    "top_k()",
    "top_k(per='head')",
    "columns()",
    "columns(sinks=1, recent=16, block=8)",
    "pages(by='mass')",
    "vertical_slash(by='mass')",
    "godec(space='attention')",
    "hierarchical(space='attention')",
)


def methods(mask: Mask) -> list[Method]:
    """Return the candidates under a mask: what can be run under it, and what needs all logits.

    Examples
    --------
    >>> [str(m) for m in methods(Mask.causal(2, 2)) if m.name.startswith("nystrom")]
    ['nystrom(block=32)']
    """
    every = [parse(spec) for spec in (*RUNNABLE, *ORACLES)]
    return [m for m in every if runs(m, mask) or (m.oracle and why_not(m, mask) is None)]


def runs(method: Method, mask: Mask) -> bool:
    """Return whether a model with this mask can run the method; none can that needs all logits.

    `Method.obstacle` says why not.
    """
    return not method.obstacle(mask)


def why_not(method: Method, mask: Mask) -> str | None:
    """Return why the method has no meaning under a mask; None if it has one."""
    return None if mask.is_full else method.refusal
