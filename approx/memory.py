"""A limit on memory, checked by arithmetic before anything big is allocated."""

from __future__ import annotations

from decimal import Decimal

import psutil

from approx import checks

SMALL = 2**20  # below this, asking the system what is free is not worth its time
_limit: int | None = None


class ResourceLimitError(MemoryError):
    """Something would not fit: the message says what, its bytes, the limit and what to lower."""


def set_limit(nbytes: int | None) -> None:
    """Set the limit in bytes, an integer ≥ 1; None means half of what is free at each check."""
    global _limit
    _limit = None if nbytes is None else checks.integer("the memory limit", nbytes, least=1)


def limit() -> int:
    """Return the limit in bytes.

    Examples
    --------
    >>> set_limit(2**30)
    >>> limit()
    1073741824
    >>> set_limit(None)
    """
    return psutil.virtual_memory().available // 2 if _limit is None else _limit


def explicit_limit() -> int | None:
    """Return the limit as it was set, to be handed to a worker process."""
    return _limit


def reserve(nbytes: int, what: str, lower: str) -> None:
    """Raise ResourceLimitError if ``nbytes``, a Python int so that it cannot wrap, do not fit.

    Examples
    --------
    >>> reserve(10**18, "the dense estimate", "n or l")
    Traceback (most recent call last):
    approx.memory.ResourceLimitError: the dense estimate needs 1e+18 bytes, the limit is ...
    """
    if _limit is None and nbytes < SMALL:
        return
    if nbytes > (most := limit()):
        raise ResourceLimitError(
            f"{what} needs {Decimal(nbytes).normalize():.4g} bytes, the limit is {most:.4g}: "
            f"lower {lower}, or raise the limit (--max-memory)"
        )
