"""The methods that the report and the advisor try by default, and which of them a model can run.

References need all logits, and are measured on request. All except `godec` and `hierarchical`
minimise total variation, by which the advisor decides. `analysis.costs.optimality` says which
references are bounds.
"""

import functools

from approx import Mask, Method, parse
from approx.combinations.rounded_values import RoundedValues
from approx.method.evaluation import obstacle, why_not

TRIVIAL = "uniform()"
FEW_BITS = (  # candidates where bytes are counted: keys in few bits, the last keys exact
    "quantised(bits={bits}, by='channel', group=32)",
    "turboquant(bits={bits}, form='eden', recent=31, corrected=True)",
    "turboquant(bits={bits}, form='eden', group=32, corrected=True)",  # no shift of keys matters
)
BITS = (2, 3, 4)
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
REFERENCES = (
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


def methods(mask: Mask, *, references: bool = False, currency: str = "stored") -> list[Method]:
    """Return the candidates: methods that can be run under a mask, and on request references.

    Keys and values in few bits are included only in the currencies "bytes" and "bytes_read"; in all
    other currencies they cost as much as exact attention.

    Examples
    --------
    >>> [str(m) for m in methods(Mask.causal(2, 2)) if m.name == "nystrom"]
    ['nystrom(block=32)']
    """
    every = [*_parsed(RUNNABLE), *in_few_bits(currency)]
    runnable = [m for m in every if not obstacle(m, mask)]
    beside = [m for m in _parsed(REFERENCES) if why_not(m, mask) is None]
    return runnable + (beside if references else [])


@functools.cache  # the same for every head
def _parsed(specs: tuple[str, ...]) -> list[Method]:
    return [parse(spec) for spec in specs]


def in_few_bits(currency: str) -> list[Method]:
    """Return methods with keys, or keys and values, in few bits; [] unless bytes are counted."""
    if currency not in ("bytes", "bytes_read"):
        return []
    codes = [(parse(spec.format(bits=bits)), bits) for spec in FEW_BITS for bits in BITS]
    return [m for code, bits in codes for m in (code, RoundedValues(code, bits=bits))]
