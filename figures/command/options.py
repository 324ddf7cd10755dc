"""Options that several subcommands have, and what their texts are turned into."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.experiments.profile import Profile

PROFILES = ("quick", "default", "full")
LANGUAGES = ("en", "zh")
CURRENCIES = ("stored", "reads", "multiply_adds", "bytes")


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add the limit of memory, which every command has."""
    parser.add_argument(
        "--max-memory",
        type=size,
        metavar="SIZE",
        help="bytes that arrays may take, such as 500M or 4G [half of what is free]",
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add what decides the numbers of a run."""
    parser.add_argument(
        "--qk", type=Path, metavar="FILE", help="your tensors: .npz, .safetensors, folder"
    )
    parser.add_argument(
        "--heads", type=heads, metavar="L.H,…", help="of FILE [three, by range of logits]"
    )
    parser.add_argument(
        "--profile", choices=PROFILES, help="how many inputs, sizes and draws [default]"
    )
    add_budget(parser)
    add_language(parser)
    add_seed(parser, None)
    add_jobs(parser)


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add a budget and what it is counted in."""
    parser.add_argument(
        "--budget",
        type=float,
        metavar="B",
        help="what a query row may cost, in the unit of --currency [as much as 32 exact keys: 32 "
        "stored values]",
    )
    parser.add_argument(
        "--currency",
        choices=CURRENCIES,
        help="unit of the budget: values stored per query row, numbers read per new query, "
        "multiply-adds or bytes per query row [stored]",
    )


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add the language of what is said."""
    parser.add_argument("--lang", choices=LANGUAGES, default="en", help="English or Chinese [en]")


def add_seed(parser: argparse.ArgumentParser, default: int | None = 0) -> None:
    """Add the seed."""
    parser.add_argument(
        "--seed", type=int, default=default, metavar="N", help="of every random draw, >= 0 [0]"
    )


def add_tokens(parser: argparse.ArgumentParser, which: str) -> None:
    """Add the length of a text."""
    parser.add_argument(
        "--max-tokens", type=int, default=512, metavar="N", help=f"first tokens {which} [512]"
    )


def add_jobs(parser: argparse.ArgumentParser, what: str = "processes") -> None:
    """Add the number of processes or threads: at least one, by default one for each processor."""
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help=f"{what}, at least 1 [one for each processor]",
    )


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options given that decide the numbers, by their names in `profile`."""
    names = {
        "profile": "name", "qk": "path", "heads": "heads", "budget": "budget",
        "currency": "currency", "seed": "seed",
    }  # fmt: skip
    given = {ours: getattr(arguments, option) for option, ours in names.items()}
    return {name: value for name, value in given.items() if value is not None}


def profile(arguments: argparse.Namespace) -> Profile:
    """Return the profile that the options of `add_profile` describe."""
    from analysis.experiments.profile import profile

    return profile(**settings(arguments), jobs=arguments.jobs, progress=sys.stderr.isatty())


def size(text: str) -> int:
    """Return a number of bytes.

    Examples
    --------
    >>> size("1.5K")
    1536
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    count = float(parts[1]) * 1024.0 ** " KMGT".index((parts[2] or " ").upper()) if parts else 0.0
    if not 1 <= count < 2**63:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size such as 4G")
    return int(count)


def heads(text: str) -> list[tuple[int, int]]:
    """Return (layer, head) of each.

    Examples
    --------
    >>> heads("0.3,5.11")
    [(0, 3), (5, 11)]
    """
    pairs = [re.fullmatch(r"(\d{1,9})\.(\d{1,9})", part.strip()) for part in text.split(",")]
    if not all(pairs):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not LAYER.HEAD,LAYER.HEAD,… such as 0.3,5.11"
        )
    return [(int(p[1]), int(p[2])) for p in pairs if p]


def layers(text: str) -> list[int]:
    """Return the numbers of layers, the ranges among them written out.

    Examples
    --------
    >>> layers("0,5,10-12")
    [0, 5, 10, 11, 12]
    """
    ranges = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip()) for part in text.split(",")]
    ends = [(int(r[1]), int(r[2] or r[1])) for r in ranges if r]
    if len(ends) < len(ranges) or any(first > last for first, last in ends):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not LAYER,LAYER-LAYER,… such as 0,5,10-12"
        )
    return [layer for first, last in ends for layer in range(first, last + 1)]
