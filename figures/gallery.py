"""Every figure: one module each, with TITLE, compute(profile), draw(table) and caption(table)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pandas as pd
from matplotlib.figure import Figure

from analysis import files
from figures import (
    break_even,
    budget_table,
    collision,
    combinations,
    coupling_gain,
    crossings,
    entropy,
    entry_error,
    eps_collapse,
    error,
    explore,
    inverse_temperature,
    jacobian,
    length,
    log_variance,
    mechanisms,
    minimum_degree,
    moments,
    oracle_gap,
    performer_error,
    performer_ratio,
    polynomial_error,
    polynomial_rank,
    position_rank,
    precision,
    predicted_error,
    price,
    rank,
    ratio_bias,
    raw_qr,
    recall,
    regime_map,
    rounding,
    sketches,
    spectrum,
    style,
)
from figures.language import tr
from figures.profile import Profile


class FigureModule(Protocol):
    """What a figure module offers."""

    TITLE: str

    def compute(self, profile: Profile) -> pd.DataFrame:
        """Return the tidy table that the figure draws."""

    def draw(self, table: pd.DataFrame) -> Figure:
        """Draw the table; no arithmetic beyond grouping."""

    def caption(self, table: pd.DataFrame) -> str:
        """Return the finding in numbers of the table."""


FIGURES: dict[str, FigureModule] = {
    "error": error,
    "price": price,
    "moments": moments,
    "rank": rank,
    "spectrum": spectrum,
    "recall": recall,
    "performer_ratio": performer_ratio,
    "coupling_gain": coupling_gain,
    "log_variance": log_variance,
    "inverse_temperature": inverse_temperature,
    "performer_error": performer_error,
    "eps_collapse": eps_collapse,
    "raw_qr": raw_qr,
    "regime_map": regime_map,
    "crossings": crossings,
    "entropy": entropy,
    "oracle_gap": oracle_gap,
    "budget_table": budget_table,
    "combinations": combinations,
    "entry_error": entry_error,
    "collision": collision,
    "predicted_error": predicted_error,
    "ratio_bias": ratio_bias,
    "sketches": sketches,
    "minimum_degree": minimum_degree,
    "polynomial_error": polynomial_error,
    "polynomial_rank": polynomial_rank,
    "rounding": rounding,
    "precision": precision,
    "mechanisms": mechanisms,
    "position_rank": position_rank,
    "length": length,
    "jacobian": jacobian,
    "break_even": break_even,
    "explore": explore,
}

# What a report shows. The five that its tables are made of are in every one; a profile adds what
# its time allows, the full one everything.
CORE = ("error", "price", "moments", "rank", "spectrum")
REPORTED: dict[str, tuple[str, ...]] = {
    "quick": (*CORE, "explore", "performer_ratio", "break_even"),
    "default": (
        *CORE, "explore", "performer_ratio", "log_variance", "polynomial_rank", "jacobian",
        "position_rank", "rounding", "break_even",
    ),
    "full": tuple(FIGURES),
}  # fmt: skip


def reported(profile: Profile) -> tuple[str, ...]:
    """Return the figures that a report of this profile shows."""
    return REPORTED.get(profile.name, REPORTED[profile.grid])


PANELS = {"explore": explore.panels}  # figures that the page of a report moves through


def save(
    name: str,
    table: pd.DataFrame,
    folder: Path,
    formats: tuple[str, ...] = style.FORMATS,
    caption: str | None = None,
) -> list[Path]:
    """Draw a figure and write it as `style.save` does; its panels, if any, as NAME/t=….svg."""
    module = FIGURES[name]
    title = tr(module.TITLE)
    written = style.save(name, table, module.draw(table), folder, formats, caption, title)
    if name in PANELS:
        place = files.inside(folder, folder / "figures" / name / "t=….svg").parent
        for old in place.glob("t=*.svg"):  # of a run at other temperatures
            old.unlink()
        for t, panel in PANELS[name](table).items():
            written.append(place / f"t={t:g}.svg")
            with files.replacing(written[-1]) as temporary:
                temporary.write_bytes(
                    style.drawing(panel, "svg", tr("{title}, t = {t:g}", title=title, t=t))
                )
    return written
