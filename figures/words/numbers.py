"""Numbers as text: to three digits, as a share, as a power of ten.

`thousandths` and `power_of_ten` of `analysis.sentences` are for sentences that analysis writes.
"""

import math

import numpy as np

from figures.words.translation import tr

LEAST_SHOWN = 1e-3  # a smaller error is "< 0.001" in tables


def three_digits(value: float) -> str:
    """Return a number to three digits, a dash where there is none.

    Examples
    --------
    >>> three_digits(0.12345), three_digits(2e-5), three_digits(math.nan)
    ('0.123', '< 0.001', '–')
    """
    if 0 < value < LEAST_SHOWN:
        return f"< {LEAST_SHOWN:g}"
    return f"{value:.3g}" if math.isfinite(value) else "–"


def three_decimals(value: float) -> str:
    """Return a number to three decimals, or that it is less.

    Examples
    --------
    >>> three_decimals(0.12345), three_decimals(2e-5), three_decimals(0.0)
    ('0.123', '< 0.001', '0')
    """
    if 0 < value < LEAST_SHOWN:
        return f"< {LEAST_SHOWN:g}"
    return "0" if value == 0 else f"{value:.3f}"


def or_infinity(value: float | None, spec: str) -> str:
    """Return a number as a spec formats it, ∞ where JSON has none."""
    return "∞" if value is None else format(value, spec)


def percent(value: float) -> str:
    """Return a share as a percentage, a dash where there is none."""
    return f"{value:.0%}" if math.isfinite(value) else "–"


def unbroken(text: str) -> str:
    """Return a text that no line of a cell parts."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def spaced_percent(value: float) -> str:
    """Return a share in whole per cent, with the blank that does not break."""
    return f"{value:.0%}".replace("%", "\N{NO-BREAK SPACE}%")


def raised_power(log: float) -> str:
    """Return exp(log) for a caption, a large or tiny one as a power of ten."""
    short = -7 < log < 4 or log == -np.inf
    return f"{np.exp(log):.2g}" if short else f"10^{log / np.log(10):.1f}^"


def formula_power(value: float, log: float | None = None) -> str:
    """Return a number with two digits, a large or tiny one as a power of ten in a formula.

    Parameters
    ----------
    value : float
    log : float, optional
        Its natural logarithm, where the value may not be representable.

    Examples
    --------
    >>> formula_power(0.0123), formula_power(0.0), formula_power(np.inf, 1000.0)
    ('0.012', '0', '$10^{434.3}$')
    """
    if value == 0:
        return "0"
    tens = (np.log(value) if log is None else log) / np.log(10)
    if not -3 <= tens < 4:
        return f"$10^{{{tens:.1f}}}$"
    return f"{value:.2g}" if tens < 2 else f"{value:.0f}"


def formula_count(value: float) -> str:
    """Return a count in digits, a large one as a power of ten in a formula."""
    if value == np.inf:
        return tr("over $10^{300}$")
    return f"{value:.0f}" if value < 1e4 else f"$10^{{{np.log10(value):.1f}}}$"
