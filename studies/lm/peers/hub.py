"""Modules of sparse-attention-hub, without the imports of its packages."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from studies.lm.peers.clones import load

_ATTENTION = "sparse_attention_hub.sparse_attention"
_MASKERS = f"{_ATTENTION}.research_attention.maskers"
_BARE = (
    "sparse_attention_hub",
    _ATTENTION,
    f"{_ATTENTION}.utils",
    f"{_ATTENTION}.research_attention",
    _MASKERS,
    *(
        f"{_MASKERS}.{kind}{part}"
        for kind in ("fixed", "sampling")
        for part in ("", ".implementations")
    ),
)


def masker(clone: Path, name: str) -> ModuleType:
    """Return a module of maskers, such as "sampling.implementations.magic_pig"."""
    return load(clone, f"{_MASKERS}.{name}", bare=_BARE, absent=("ray",))


def load_attention(clone: Path, name: str) -> ModuleType:
    """Return another module of attention, such as "utils.mask"."""
    return load(clone, f"{_ATTENTION}.{name}", bare=_BARE, absent=("ray",))
