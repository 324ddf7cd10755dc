"""How figures and tables show methods that need all logits."""

from typing import Any

from approx import parse
from figures.drawing import style
from figures.words.translation import mark, tr

WORDS = mark("bound"), mark("best found"), mark("all logits")  # as `standing` says them


def look(spec: str) -> dict[str, Any]:
    """Return how a line of a spec is drawn: broad and pale without marks if it needs all logits.

    Examples
    --------
    >>> look("top_k(k=4)")["label"]
    'top-k of each row (sees all logits)'
    >>> [look(spec)["marker"] for spec in ("top_k(k=4)", "positive(m=4)")]
    ['', 'o']
    """
    own = style.look(spec)
    if not parse(spec).oracle:
        return own
    return own | style.PALE | {"label": tr("{name} (sees all logits)", name=own["label"])}


def words() -> str:
    """Return what the words mean."""
    return tr(
        "Methods that see all logits are references. bound: provably the best of its class. "
        "best found: the best that a search found. reference: it optimises another error."
    )
