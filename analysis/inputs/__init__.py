"""Heads (queries, keys, values, mask, temperature): synthetic, from files, or bundled."""

from typing import TYPE_CHECKING

_HOMES = {
    "Head": "heads",
    "Heads": "heads",
    "SAMPLES": "loading",
    "clustered": "synthetic",
    "gaussian": "synthetic",
    "generative": "synthetic",
    "load": "loading",
    "sample": "loading",
    "sphere": "synthetic",
}

if TYPE_CHECKING:
    from analysis.inputs.heads import Head as Head, Heads as Heads
    from analysis.inputs.loading import SAMPLES as SAMPLES, load as load, sample as sample
    from analysis.inputs.synthetic import (
        clustered as clustered,
        gaussian as gaussian,
        generative as generative,
        sphere as sphere,
    )
else:
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__, _HOMES)
