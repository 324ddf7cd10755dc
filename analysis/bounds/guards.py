"""Reads of a guarded method, which depend on the input and are known only after a run."""

import math

import numpy as np
import pandas as pd

from analysis.inputs import Head
from approx import Method, checks
from approx.combinations.guarded import Guarded
from approx.method import Rng
from approx.supports.key_boxes import DEPTH

NUMBER = 16  # bits of a number that is read


def spent(x: Head, method: Method, rng: Rng = None) -> pd.DataFrame:
    """Return the reads of a guarded method in each row of a head, and the bound that it found.

    Parameters
    ----------
    x : Head
    method : Guarded
        A method with a size.
    rng : optional
        As for `approximate`.

    Returns
    -------
    DataFrame
        A row per query: ``bound`` (on total variation, before the guard acts), ``exact`` (whether
        the guard made the row exact), ``reads`` (in numbers of 16 bits), and ``share`` (reads over
        those of exact attention).

    Notes
    -----
    A row reads:

    - what its method reads to choose keys (the upper bound that `Method.price` uses);
    - the chosen keys and their values, and the keys of its own page;
    - for each earlier page with an unread key: the box, the allocation of the bits, and all codes;
    - all other keys and values, if the bound is not small enough.

    Codes are counted by their bits. Boxes of values are not needed.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> from approx import parse
    >>> x = gaussian(64, 4, rng=0)
    >>> found = spent(x, parse("guarded(top_k(k=32), tv=0.5, size=8)"))
    >>> bool(found.exact.any()), bool((found.share < 1).any())
    (False, True)
    """
    checks.instance("method", method, Guarded, "a guarded method")
    assert isinstance(method, Guarded)
    rows = method.rows(x.Q, x.K, x.mask, rng)
    d, width = x.d, x.d + x.shape.c
    choosing = method.selection_reads(x.shape) or 0.0
    of_page = 2.0 * d
    if method.bits:
        of_page += d * (DEPTH + method.size * method.bits) / NUMBER
    reads = choosing + rows.kept * width + rows.near * d + rows.pages * of_page
    rest = rows.exact * (x.mask.counts - rows.kept) * width - rows.exact * rows.near * d
    reads = reads + rest
    share = reads / (x.mask.counts * width)
    return pd.DataFrame({"bound": rows.bound, "exact": rows.exact, "reads": reads, "share": share})


def summary(found: pd.DataFrame) -> dict[str, float]:
    """Return the means of reads, share and exact over rows, with standard errors over rows.

    These standard errors are for rows of this head. Heads of a model and texts vary more.

    Examples
    --------
    >>> table = pd.DataFrame({"exact": [True, False], "reads": [3.0, 1.0], "share": [1.0, 0.5]})
    >>> summary(table)["reads"], summary(table)["reads_stderr"]
    (2.0, 1.0)
    """
    means: dict[str, float] = {}
    for name in ("reads", "share", "exact"):
        x = np.asarray(found[name], np.float64)
        means[name] = float(x.mean())
        spread = float(x.std(ddof=1)) if len(x) > 1 else math.nan
        means[f"{name}_stderr"] = spread / math.sqrt(len(x))
    return means
