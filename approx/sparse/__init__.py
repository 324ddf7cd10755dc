"""Supports: entries on which the estimate is exp(q·k) itself."""

from approx import _lazy

_lazy.modules_of(__name__)
