"""Advice for heads: measurement, verdicts, target search, and caveats."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.advice.verdict import advice as advice
else:
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__, {"advice": "verdict"})
