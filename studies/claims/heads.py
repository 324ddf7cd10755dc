"""The heads of SmolLM2, and shares of trials, that several claims of papers look at."""

from collections.abc import Iterator

from scipy.stats import binom

from analysis.claims.evidence import Check, value_text
from analysis.inputs import Head, sample
from approx.checks import Array
from approx.estimate import exact

LEVEL = 0.999  # of the intervals of a share


def causal_heads(n: int = 256) -> list[Head]:
    """Return the four causal heads of SmolLM2 on the first n tokens of their text."""
    return [head.first(n) for head in sample("smollm2").heads()]


def attended_heads(n: int = 512) -> Iterator[tuple[Head, Array]]:
    """Yield the heads of `causal_heads`, each with its exact attention."""
    for head in causal_heads(n):
        yield head, exact.softmax(head.Q, head.K, head.mask)


def covered(what: str, share: float, count: int, trials: int) -> Check:
    """Require that a share be no larger than the Clopper–Pearson interval of count/trials allows.

    Examples
    --------
    >>> covered("coverage", 0.9, 86, 100)
    Check(what='coverage', expected='≥ 0.9 − 0.11', observed=0.86, agrees=True, verdict='holds')
    """
    least = float(binom.ppf((1 - LEVEL) / 2, trials, share)) / trials
    observed = count / trials
    return Check(what, f"≥ {value_text(share)} − {share - least:.2g}", observed, observed >= least)
