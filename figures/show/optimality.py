"""What figures and tables say of methods that need all logits: a bound, the best found, or neither.

`analysis.costs.optimality` decides it; here are its words.
"""

from typing import Any

import pandas as pd

from analysis.costs.optimality import standing
from approx import Mask, parse
from figures.drawing import style
from figures.words.translation import mark, tr

WORDS = mark("bound"), mark("best found"), mark("all logits")  # as `standing` says them


def label(spec: str, metric: str, mask: Mask | None = None) -> str:
    """Return the name of a spec, and what its error in a metric says of its class.

    Examples
    --------
    >>> label("godec(space='attention')", "attention_relative_frobenius")
    'sparse + low rank (GoDec): best found'
    >>> label("uniform()", "attention_tv")
    'uniform attention'
    """
    says = standing(parse(spec), metric, mask)
    name = style.label(spec)
    return tr("{name}: {standing}", name=name, standing=tr(says)) if says else name


def look(spec: str, metric: str, mask: Mask | None = None) -> dict[str, Any]:
    """Return how a line of a spec is drawn: broad and pale without marks if it needs all logits.

    Examples
    --------
    >>> [look(spec, "attention_tv")["marker"] for spec in ("top_k(k=4)", "positive(m=4)")]
    ['', 'o']
    """
    own = style.look(spec) | {"label": label(spec, metric, mask)}
    return own | style.PALE if parse(spec).oracle else own


def mask(table: pd.DataFrame) -> Mask | None:
    """Return a mask if a row of a table has one, by its column ``masked``, or if it has no such.

    What is a bound without a mask need not be one under it, so less is said where nothing is known.

    Examples
    --------
    >>> mask(pd.DataFrame({"masked": [False]})) is None, str(mask(pd.DataFrame({"value": [1.0]})))
    (True, 'causal')
    """
    known = "masked" in table and not table.masked.any()
    return None if known else Mask.causal(2, 2)


def words() -> str:
    """Return what the words mean."""
    return tr(
        "Methods that see all logits are references. bound: provably the best of its class. "
        "best found: the best that a search found. reference: it optimises another error."
    )
