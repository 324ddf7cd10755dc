"""What a method is: the constants of `Method.tags`, and how the tags of parts give those of all.

Tags are known before a method runs. A class states all of its tags, with `collect` where its fields
decide. A method that is made of others has by default the tags that `RULES` give.
"""

from collections.abc import Callable, Collection, Iterable

ORACLE = "oracle"  # needs all logits: a reference, which no model can run
AUTOREGRESSIVE = "autoregressive"  # a row depends on no token after the keys that its query sees
ROW_LOCAL = "row local"  # a row depends on no other query, so that some rows can be measured alone
RANDOM = "random"  # draws random numbers
ADAPTIVE = "adaptive"  # the inputs decide how many numbers are stored, so that no budget fits
BUDGETED = "budgeted"  # adaptive, and yet a budget of stored values fills it
PAST_QUERIES = "past queries"  # a row depends on earlier queries, which inputs may lack
READS_VALUES = "reads values"  # a query reads rows of V, not sums of them
SCORES_VALUES = "scores values"  # values decide which keys a query reads: approximate needs V
OUTERMOST = "outermost"  # no other method may contain it

# Only the contract tests ask for these.
POSITIONAL = "positional"  # a row depends on the position of its query, or on draws of other rows
DRAWS_BY_ROW = "draws by row"  # each row has draws of its own, taken in the order of rows
SPECTRAL = "spectral"  # singular vectors decide, which small spectral gaps make unstable

# Changes of queries and keys that change the estimate as they change exp(q·k).
SHIFT = "shift"  # (q, k + b), which multiplies row i by e^{q_i·b}
ROW_SHIFT = "row shift"  # (q, k + b), if it multiplies a row by another number; attention stays
ROTATION = "rotation"  # (Rq, Rk) with RᵀR = I; a random estimate keeps its law
SCALE = "scale"  # (cq, k/c) with c > 0
INVARIANCES = frozenset({SHIFT, ROW_SHIFT, ROTATION, SCALE})

INVARIANT = frozenset({SHIFT, ROTATION, SCALE})
BY_ROW = frozenset({AUTOREGRESSIVE, ROW_LOCAL})
SUPPORT = INVARIANT | {READS_VALUES}  # exact entries, wherever they are

RULES: dict[str, Callable[[Iterable[bool]], bool]] = {  # of which parts must have a tag
    AUTOREGRESSIVE: all, ROW_LOCAL: all,
    SHIFT: all, ROW_SHIFT: all, ROTATION: all, SCALE: all,
    ORACLE: any, RANDOM: any, ADAPTIVE: any, PAST_QUERIES: any, SCORES_VALUES: any,
    POSITIONAL: any, DRAWS_BY_ROW: any, SPECTRAL: any,
}  # fmt: skip


def composed(parts: Collection[frozenset[str]]) -> frozenset[str]:
    """Return the tags of a method that is made of parts with these tags; none without parts.

    Examples
    --------
    >>> sorted(composed([frozenset({ORACLE, ROW_LOCAL}), frozenset({RANDOM, ROW_LOCAL, SCALE})]))
    ['oracle', 'random', 'row local']
    """
    if not parts:
        return frozenset()
    return frozenset(tag for tag, rule in RULES.items() if rule(tag in part for part in parts))


def collect(*tags: str | bool) -> frozenset[str]:
    """Return the tags without False, which is what a condition that does not hold leaves.

    Examples
    --------
    >>> sorted(collect(SCALE, 1 < 2 and SHIFT, 1 > 2 and ROTATION))
    ['scale', 'shift']
    """
    return frozenset(tag for tag in tags if isinstance(tag, str))
