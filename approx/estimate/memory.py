"""A limit on memory, checked by arithmetic before anything big is allocated."""

import math
from decimal import Decimal

import numpy as np
import psutil

from approx import checks

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
KEPT = 2**25 - 2**13  # glibc's own limit is 2^25, of which it needs some bytes itself
SMALL = 2**26  # for fewer bytes, asking the system for its free memory is not worth the time
_limit: int | None = None


class ResourceLimitError(MemoryError):
    """An allocation that would not fit: the message has its bytes, the limit and what to lower.

    ``lower`` has the words that say what to lower.
    """

    lower: tuple[str, ...] = ()


def set_limit(nbytes: int | None) -> None:
    """Set the limit in bytes, an integer ≥ 1; None: half of the free memory at each check."""
    global _limit
    _limit = None if nbytes is None else checks.integer("the memory limit", nbytes, least=1)


def limit() -> int:
    """Return the limit in bytes."""
    return psutil.virtual_memory().available // 2 if _limit is None else _limit


def explicit_limit() -> int | None:
    """Return the limit that `set_limit` set, or None; worker processes receive it."""
    return _limit


def keep() -> None:
    """Let this process keep the memory of freed arrays for later arrays.

    At first glibc returns freed memory to the system, and the pages of each new array are faulted
    in and filled with zeros again. This ends once an array of glibc's limit has been freed. The
    array that is freed here is never written, so it takes no memory.
    """
    np.empty(KEPT, np.uint8)


def reserve(nbytes: int, what: object, lower: str) -> None:
    """Raise ResourceLimitError if ``nbytes`` do not fit; a Python int cannot wrap around.

    ``what`` is converted to text only if the error is raised.

    Examples
    --------
    >>> reserve(10**18, "the dense estimate", "n or l")
    Traceback (most recent call last):
    approx.estimate.memory.ResourceLimitError: the dense estimate would take 888 PiB, and ...
    """
    if _limit is None and nbytes < SMALL:
        return
    if nbytes > (most := limit()):
        error = ResourceLimitError(
            f"{what} would take {size(nbytes)}, and the limit is {size(most)}: lower {lower}"
            f"{_otherwise(nbytes)}"
        )
        error.lower = tuple(lower.replace(",", "").split())
        raise error


def _otherwise(nbytes: int) -> str:
    """Return the end of the message: a larger limit, or the machine's memory if that is less."""
    if nbytes > (total := psutil.virtual_memory().total):
        return f"; this machine has {size(total)}"
    power = _power(nbytes)
    letter = UNITS[power][0] if power else ""
    return f", or raise the limit (--max-memory {math.ceil(nbytes / 1024**power)}{letter})"


def size(nbytes: int) -> str:
    """Return a number of bytes as text, with a unit."""
    power = _power(nbytes)
    count = Decimal(nbytes) / 1024**power
    return f"{count:.0f} {UNITS[power]}" if 99 < count < 1024 else f"{count:.3g} {UNITS[power]}"


def _power(nbytes: int) -> int:
    """Return the index of the unit in which the number is below 1024, or of the last unit."""
    return min(max(int(nbytes).bit_length() - 1, 0) // 10, len(UNITS) - 1)
