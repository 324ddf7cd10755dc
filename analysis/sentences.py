"""Sentences that keep their format string and values, and what stands in them as text."""

import math
from typing import Any, Self


class Sentence(str):
    """A sentence that keeps its format string and values, so that it can be translated.

    Parameters
    ----------
    message : str
        A format string, or without values the text itself.
    **values
        The values of the format string.

    Examples
    --------
    >>> one = Sentence("needs {count} features", count=7)
    >>> one, one.message, one.values
    ('needs 7 features', 'needs {count} features', {'count': 7})
    """

    message: str
    values: dict[str, Any]

    def __new__(cls, message: str, **values: Any) -> Self:
        """Return the sentence in English."""
        self = super().__new__(cls, message.format(**values) if values else message)
        self.message, self.values = message, values
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Return the arguments that recreate the sentence in another process."""
        return (self.message,), self.values


def power_of_ten(value: float) -> str:
    """Return a number as text, in powers of ten if it is large.

    Examples
    --------
    >>> power_of_ten(741.0), power_of_ten(5.2e14), power_of_ten(math.inf)
    ('741', '10^14.7', '>10^308')
    """
    if value == math.inf:
        return ">10^308"
    return f"{value:.3g}" if value < 1e4 else f"10^{math.log10(value):.1f}"


def thousandths(x: float) -> str:
    """Return a number to three decimals, or to one digit if it would otherwise round to 0.

    Examples
    --------
    >>> thousandths(0.0), thousandths(0.12345), thousandths(0.00002)
    ('0.000', '0.123', '2e-05')
    """
    return f"{x:.0e}" if 0 < abs(x) < 5e-4 else f"{x:.3f}"


def one_line(text: object, most: int = 240) -> str:
    r"""Return a text as one printable line; a long text is shortened in the middle.

    Examples
    --------
    >>> one_line("a\nb"), len(one_line("x" * 1000))
    ('a b', 240)
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    half = (most - 3) // 2
    return line if len(line) <= most else f"{line[: most - 3 - half]}...{line[-half:]}"
