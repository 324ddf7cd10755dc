"""Whether the error of a reference is a lower bound of its class, or the best found.

A reference needs all logits, so it cannot be run; it shows what other methods could reach. Its
meaning depends on the metric. The truncated SVD has the least Frobenius error of its rank, but says
nothing about total variation. The largest entries of each row have the least total variation of
supports of their size, but may have a larger Frobenius error than others. Methods declare this as
`optimal_in` and `best_found_in`; tables and captions use `standing`.
"""

from approx import Mask, Method
from approx.method.tags import ORACLE

BOUND, FOUND, NEEDS = "bound", "best found", "all logits"


def standing(method: Method, metric: str, mask: Mask | None = None) -> str:
    """Return the meaning of a reference's error for its class; "" for a method that can be run.

    Parameters
    ----------
    method : Method
    metric : str
        A name of `analysis.errors.metrics.compare`.
    mask : Mask, optional
        By default every query sees every key.

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
