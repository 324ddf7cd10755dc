"""Every figure: one module each, with TITLE, compute(profile), draw(table) and what it says.

What is more than a sweep is computed in `analysis.experiments`, in a module of the same name.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:  # the parser of the command needs the names alone, at once
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.experiments.profile import Profile

NAMES = (  # in the order of the list and of the gallery's page
    "summary", "error", "price", "moments", "rank", "spectrum", "recall",
    "performer_ratio", "coupling_gain", "log_variance", "inverse_temperature", "performer_error",
    "eps_collapse", "raw_qr", "regime_map", "crossings", "entropy", "oracle_gap", "budget_table",
    "classes", "today", "frontier", "combinations", "entry_error", "collision", "predicted_error",
    "ratio_bias", "weights", "certificates", "coverage", "sketches",
    "minimum_degree", "polynomial_error", "polynomial_rank", "rounding",
    "precision", "ulp",
    "mechanisms", "position_rank", "before_exp", "damage", "propagation", "state_rank", "length",
    "scaling", "jacobian", "break_even", "explore",
)  # fmt: skip

# What a report shows. The five that its tables are made of are in every one; a profile adds what
# its pages allow, the full one everything.
CORE = NAMES[:5]
REPORTED: dict[str, tuple[str, ...]] = {
    "quick": (*CORE, "explore"),
    "default": (
        *CORE, "frontier", "explore", "performer_ratio", "log_variance", "state_rank", "break_even",
    ),
    "full": NAMES,
}  # fmt: skip


class FigureModule(Protocol):
    """What a figure module offers.

    One that also has ``panels(table)``, a figure a temperature, is moved through on the page of a
    report.
    """

    TITLE: str

    def compute(self, profile: Profile) -> pd.DataFrame:
        """Return the tidy table that the figure draws."""

    def draw(self, table: pd.DataFrame) -> Figure:
        """Draw the table; no arithmetic beyond grouping."""

    def finding(self, table: pd.DataFrame) -> str:
        """Return the title in a report: a sentence with the numbers of its table."""

    def caption(self, table: pd.DataFrame) -> str:
        """Return what the figure shows, at most 45 words with the finding."""

    def details(self, table: pd.DataFrame) -> str:
        """Return the numbers that are too many for the caption."""


class _Gallery(Mapping[str, FigureModule]):
    """The modules by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> FigureModule:
        if name not in NAMES:
            raise KeyError(name)
        return cast(FigureModule, importlib.import_module(f"{__name__}.{name}"))

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


FIGURES = _Gallery()


def reported(profile: Profile) -> tuple[str, ...]:
    """Return the figures that a report of this profile shows."""
    return REPORTED.get(profile.name, REPORTED[profile.grid])
