"""What an error says of its class, of a method that needs all logits: a bound, or the best found.

A method that needs all logits cannot be run, and says what others could reach at most. In which
sense depends on the metric: the truncated SVD has the least Frobenius error of its rank, and tells
nothing of total variation; the largest entries of each row lose the least attention of supports of
their size, and may have more Frobenius error than others. Methods declare it, as `optimal_in` and
`best_found_in`; tables and captions ask `standing`.
"""

from approx import Mask, Method

BOUND, FOUND, NEEDS = STANDINGS = "bound", "best found", "all logits"


def standing(method: Method, metric: str, mask: Mask | None = None) -> str:
    """Return what an error of the method says of its class, "" of a method that can be run.

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
        "bound": no estimate of its form has a smaller error; "best found": the method looks for
        the least error of its form, and nothing says that it is that; "all logits": that is what
        it needs, and it is no attempt at this metric. Forms, and where they are so:

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

        Frobenius is that of the space which the method decomposes. Above min(n, l) = 2048 a
        `truncated_svd` of small rank is a bound to the accuracy of its iteration only.

    Examples
    --------
    >>> from approx import parse
    >>> [standing(parse(spec), "attention_tv") for spec in ("top_k(k=4)", "godec(rank=2, k=4)")]
    ['bound', 'all logits']
    >>> svd = parse("truncated_svd(rank=2, space='attention')")
    >>> standing(svd, "attention_relative_frobenius", Mask.causal(4, 4))
    'best found'
    """
    if not method.oracle:
        return ""
    if metric in method.optimal_in(mask):
        return BOUND
    return FOUND if metric in method.best_found_in(mask) else NEEDS
