"""The evidence for a claim: checks of one number each, and the claim to which they belong.

A check of the statement must agree. `printed` and `without` negate a check: they are for the
statement as its source prints it, and for the statement without the condition that it needs. The
checks inside must disagree, so that "corrected" and "holds with a condition" are results.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis import inputs
from analysis.inputs import Head
from analysis.ranks.rank import summary
from analysis.sentences import one_line
from approx import parse
from approx.checks import Array, required

HOLDS, CONDITION, CORRECTED, FAILS = "holds", "holds with a condition", "corrected", "fails"
Z = 5.0  # standard errors by which a sample may be off
TIGHT = 1e-12  # relative difference of two ways to compute a small array: some 10⁴ roundings
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # for every claim about temperature
ROUNDING = 1e-14  # a smaller difference depends on the machine

Value = float | int | tuple[int, ...]


class Check(NamedTuple):
    """One number beside what it should be.

    Attributes
    ----------
    what : str
        The quantity.
    expected : str
        A number, a number with its margin, or a bound; after "not", what is refuted.
    observed : float, int or tuple of int
    agrees : bool
    verdict : str
        The verdict on the claim to which this check leads.
    """

    what: str
    expected: str
    observed: Value
    agrees: bool
    verdict: str = HOLDS


def value_text(value: Value) -> str:
    """Return a number as tables show it; a number that is only rounding is not written out.

    Examples
    --------
    >>> value_text(4161), value_text(0.60653066), value_text((3, 2)), value_text(2.2e-16)
    ('4161', '0.6065', '3 × 2', '< 1e-14')
    """
    if isinstance(value, tuple):
        return " × ".join(map(str, value))
    if 0 < abs(value) < ROUNDING:
        return f"< {ROUNDING:g}"
    whole = isinstance(value, int) or (value == round(value) if abs(value) < 1e9 else False)
    return str(int(value)) if whole else f"{value:.4g}"


def multiply_adds(spec: str, n: int, d: int, c: int | None = None) -> int:
    """Return the multiply-adds of a method for n queries and keys, by its price."""
    price = required(parse(spec).price(n=n, l=n, d=d, c=c))
    return round(n * required(price.multiply_adds))


def equal(what: str, expected: Value, observed: Value) -> Check:
    """Require exactly this number, for integers and shapes."""
    return Check(what, value_text(expected), observed, observed == expected)


def near(what: str, expected: float, observed: float, within: float) -> Check:
    """Require |observed − expected| ≤ within."""
    agrees = abs(observed - expected) <= within
    margin = f" ± {within:.2g}" if within else ""
    return Check(what, value_text(expected) + margin, float(observed), bool(agrees))


def sampled(what: str, expected: float, observed: float, error: float, z: float = Z) -> Check:
    """Require a sample to be within z times its standard error, ``error``."""
    return near(what, expected, observed, z * error)


def at_most(what: str, limit: float, observed: float) -> Check:
    """Require observed ≤ limit."""
    return Check(what, f"≤ {value_text(limit)}", observed, bool(observed <= limit))


def above(what: str, limit: float, observed: float) -> Check:
    """Require observed > limit."""
    return Check(what, f"> {value_text(limit)}", observed, bool(observed > limit))


def printed(check: Check) -> Check:
    """Require the statement as printed to fail."""
    return _turned(check, CORRECTED)


def without(check: Check) -> Check:
    """Require the statement to fail without its condition."""
    return _turned(check, CONDITION)


def _turned(check: Check, verdict: str) -> Check:
    fails = not check.agrees and bool(np.all(np.isfinite(check.observed)))
    return check._replace(expected=f"not {check.expected}", agrees=fails, verdict=verdict)


def errors(head: Head, spec: str) -> dict[str, float]:
    """Return the errors of one draw of a method on a head, by name."""
    return head.compare(head.approximate(parse(spec), rng=0))


def gaussian(n: int = 24, d: int = 4, t: float = 1.0) -> Head:
    """Return the Gaussian input of n tokens and width d at temperature t."""
    return inputs.gaussian(n, d, rng=0).at_temperature(t)


def rank(matrix: Array) -> int:
    """Return the numerical rank of a matrix."""
    return round(summary(matrix)["numerical_rank"])


def difference(observed: ArrayLike, expected: ArrayLike) -> float:
    """Return max |observed − expected| over max |expected|."""
    a, b = np.asarray(observed, float), np.asarray(expected, float)
    if a.shape != b.shape:
        return math.inf
    return float(np.abs(a - b).max() / np.abs(b).max())


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """Return the slope of log y against log x by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0].round(12))


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim that was checked.

    Attributes
    ----------
    id : str
        Such as FL-7, or FL-Ea for an erratum.
    statement, source : str
        The claim in its correct form, and where it is made.
    expected : dict of str
        By quantity.
    observed : dict of numbers
        By quantity.
    verdict : str
        "holds", "holds with a condition" (and fails without it), "corrected" (the printed form
        fails, this one holds) or "fails".
    """

    id: str
    statement: str
    source: str
    expected: dict[str, str]
    observed: dict[str, Value]
    verdict: str

    @property
    def document(self) -> str:
        """The letters with which the id begins."""
        return self.id.partition("-")[0]


def verdict(checks: list[Check]) -> str:
    """Return the verdict to which checks lead.

    Examples
    --------
    >>> verdict([equal("gain", 1, 1), printed(equal("gain", 1, 64))])
    'corrected'
    >>> verdict([equal("gain", 1, 1), printed(equal("gain", 1, 1))])
    'fails'
    """
    if not checks or not all(check.agrees for check in checks):
        return FAILS
    verdicts = {check.verdict for check in checks}
    return next(kind for kind in (CORRECTED, CONDITION, HOLDS) if kind in verdicts)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A claim that is not checked yet; ``check`` yields its evidence."""

    id: str
    statement: str
    source: str
    check: Callable[[], Iterator[Check]]

    def judge(self) -> Claim:
        """Return the claim with its evidence; an error is evidence against it.

        Raises
        ------
        ValueError
            Two checks have the same name.
        """
        checks: list[Check] = []
        try:
            checks.extend(self.check())
        except Exception as error:  # any error: the other claims are still to be checked
            what = one_line(f"{type(error).__name__}: {error}")
            checks.append(Check(what, "no error", math.nan, False))
        expected = {check.what: check.expected for check in checks}
        if len(expected) < len(checks):
            raise ValueError(f"{self.id}: two checks have one name")
        # as numbers of Python
        numbers = {check.what: np.asarray(check.observed).tolist() for check in checks}
        observed = {what: tuple(x) if isinstance(x, list) else x for what, x in numbers.items()}
        return Claim(self.id, self.statement, self.source, expected, observed, verdict(checks))


def claim(id: str, source: str) -> Callable[[Callable[[], Iterator[Check]]], Entry]:
    """Make an `Entry` of the function that checks a claim; its docstring is the statement."""

    def entry(check: Callable[[], Iterator[Check]]) -> Entry:
        return Entry(id, " ".join((check.__doc__ or "").split()), source, check)

    return entry
