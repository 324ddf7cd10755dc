"""Every figure: one module each, found by its place, with what `FigureModule` has.

A long computation is in `analysis.experiments`, in a module of the same name.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:  # the parser of the command needs the names alone, at once
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.experiments.profile import Profile

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))

# What a report shows. The core is in every one, as its tables and sentences are made of it; the
# default adds what its pages allow, the full one everything.
CORE = ("summary", "rational", "rank", "moments", "error_by_rank", "error")
REPORTED: dict[str, tuple[str, ...]] = {
    "quick": (*CORE, "explore"),
    "default": (*CORE, "explore"),
}


class FigureModule(Protocol):
    """The functions of a figure's module.

    One that also has ``panels(table)``, which yields temperatures and their figures, is moved
    through on the page of a report.
    """

    TITLE: str
    ORDER: int  # its place in the gallery and in a report

    def compute(self, profile: Profile) -> pd.DataFrame:
        """Return the tidy table that the figure draws."""

    def draw(self, table: pd.DataFrame) -> Figure:
        """Draw the table; no arithmetic beyond grouping."""

    def finding(self, table: pd.DataFrame) -> str:
        """Return the title in a report: a sentence with the numbers of its table."""

    def caption(self, table: pd.DataFrame) -> str:
        """Return the caption, at most 45 words with the finding."""


class _Gallery(Mapping[str, FigureModule]):
    """The modules by name, in the order of the gallery, each imported when it is asked for."""

    def __getitem__(self, name: str) -> FigureModule:
        if name not in NAMES:
            raise KeyError(name)
        return cast(FigureModule, importlib.import_module(f"{__name__}.{name}"))

    @functools.cached_property
    def _ordered(self) -> list[str]:
        return sorted(NAMES, key=lambda name: self[name].ORDER)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ordered)

    def __len__(self) -> int:
        return len(NAMES)


FIGURES = _Gallery()


def reported(profile: Profile) -> tuple[str, ...]:
    """Return the figures that a report of this profile shows."""
    return tuple(FIGURES) if profile.name == "full" else REPORTED[profile.grid]
