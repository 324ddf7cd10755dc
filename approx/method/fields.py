"""Fields of a method that check themselves: a default, and a rule for the value.

The base class applies the rules when a method is made. If the default is None, None is allowed.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from approx import checks

Rule = Callable[[str, Any], Any]  # (name, value) → the value of the field, or an error


def ruled(default: Any, rule: Rule) -> Any:
    """Return a field with a default and a rule."""
    return dataclasses.field(default=default, metadata={"rule": rule})


def integer(
    default: int | None = None, *, least: int = 1, most: int | None = None, even: bool = False
) -> Any:
    """Return a field for an integer in [least, most]."""

    def rule(name: str, value: Any) -> int:
        number = checks.integer(name, value, least=least, most=most)
        if even and number % 2:
            raise ValueError(f"{name} must be even, got {number}")
        return number

    return ruled(default, rule)


def real(
    default: float | None = None,
    *,
    below: float = math.inf,
    most: float = math.inf,
    zero: bool = False,
) -> Any:
    """Return a field for a finite number > 0 (≥ 0 if ``zero``), < below and ≤ most."""

    def rule(name: str, value: Any) -> Any:
        if zero and checks.number(name, value) == 0:
            return value
        number = checks.positive(name, value)
        if number >= below:
            raise ValueError(f"{name} must be < {below:g}, got {value!r}")
        if number > most:
            raise ValueError(f"{name} must be <= {most:g}, got {value!r}")
        return value

    return ruled(default, rule)


def one_of(default: str, known: tuple[str, ...]) -> Any:
    """Return a field for one of the known names."""
    return ruled(default, lambda name, value: checks.one_of(name, value, known))


def flag(default: bool) -> Any:
    """Return a field for True or False."""
    return ruled(default, checks.flag)


def instance(default: Any, kind: type, what: str) -> Any:
    """Return a field for an object of type ``kind``; ``what`` describes it in messages."""

    def rule(name: str, value: Any) -> Any:
        checks.instance(name, value, kind, what)
        return value

    return ruled(default, rule)
