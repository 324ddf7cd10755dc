"""The methods that the report and the advisor try by default, and what their errors mean.

References need all logits, so they cannot be run, and are measured on request; they show what other
methods could reach. All except `godec` and `hierarchical` minimise total variation, by which the
advisor decides. The meaning of their errors depends on the metric: the truncated SVD has the least
Frobenius error of its rank, but says nothing about total variation. Methods declare it as
`optimal_in` and `best_found_in`; tables and captions use `standing`.
"""

import functools

from approx import Mask, Method, parse
from approx.combinations.rounded_values import RoundedValues
from approx.method.evaluation import obstacle, why_not
from approx.method.tags import ORACLE

TRIVIAL = "uniform()"
BOUND, FOUND, NEEDS = "bound", "best found", "all logits"  # standings of references
FEW_BITS = (  # candidates where bytes are counted: keys in few bits, the last keys exact
    "quantised(bits={bits}, by='channel', group=32)",
    "turboquant(bits={bits}, form='eden', recent=31, corrected=True)",
    "turboquant(bits={bits}, form='eden', group=32, corrected=True)",  # no shift of keys matters
)
BITS = (2, 3, 4)
RIVALS = (  # what people deploy, beside which every other method is shown
    *(f"rounded_values({FEW_BITS[0]}, bits={{bits}})".format(bits=bits) for bits in (*BITS, 8)),
    "exact()",
    "columns(by='h2o', recent=16)",
    "sink_window()",
)
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


def rivals() -> list[Method]:
    """Return what people deploy: keys and values in few bits, exact ones, H2O, and a window.

    The last two are templates. `analysis.advice.diagnose` measures all of them at any budget.

    Examples
    --------
    >>> [str(method) for method in rivals()][-3:]
    ['exact()', "columns(by='h2o', recent=16)", 'sink_window()']
    """
    return _parsed(RIVALS)


@functools.cache  # the same for every head
def _parsed(specs: tuple[str, ...]) -> list[Method]:
    return [parse(spec) for spec in specs]


def in_few_bits(currency: str) -> list[Method]:
    """Return methods with keys, or keys and values, in few bits; [] unless bytes are counted."""
    if currency not in ("bytes", "bytes_read"):
        return []
    codes = [(parse(spec.format(bits=bits)), bits) for spec in FEW_BITS for bits in BITS]
    return [m for code, bits in codes for m in (code, RoundedValues(code, bits=bits))]


def standing(method: Method, metric: str, mask: Mask | None = None) -> str:
    """Return what a reference's error in a metric says of its class; "" for a runnable method.

    Returns
    -------
    str
        "bound": no estimate of the same form has a smaller error. "best found": the method searches
        for the least error of its form, without a proof that it is the least. "all logits": the
        method needs all logits, and does not minimise this metric. The forms and their bounds:

        =================================  ==================================  ====================
        method                             form                                bound
        =================================  ==================================  ====================
        top_k, top_p                       supports with as many keys in each  tv, kernel Frobenius
                                           row
        top_k per head, threshold          supports with as many in all rows   tv
        godec of rank 0                    matrices with as many entries       Frobenius, and tv
        truncated_svd                      matrices of the rank                Frobenius, not under
                                                                               a mask: found
        truncated_svd, refined             matrices of the rank whose rows     none; tv: found
                                           sum to 1
        godec                              rank and entries together           none; Frobenius:
                                                                               found
        hierarchical by svd                terms of the rank in each block     Frobenius
        columns by mass                    caches of as many keys              none
        pages by mass                      as many pages in each row           tv
        vertical_slash by mass             as many lines of both kinds         none; tv: found
        constant                           constant matrices                   kernel Frobenius
        =================================  ==================================  ====================

        Frobenius means the error in the space that the method decomposes. If min(n, l) > 2048, a
        `truncated_svd` of small rank is a bound only up to the accuracy of its iteration.

    Examples
    --------
    >>> from approx import parse
    >>> [standing(parse(spec), "attention_tv") for spec in ("top_k(k=4)", "godec(rank=2, k=4)")]
    ['bound', 'all logits']
    >>> svd = parse("truncated_svd(rank=2, space='attention')")
    >>> standing(svd, "attention_relative_frobenius", Mask.causal(4, 4))
    'best found'
    """
    if ORACLE not in method.tags:
        return ""
    if metric in method.optimal_in(mask):
        return BOUND
    return FOUND if metric in method.best_found_in(mask) else NEEDS
