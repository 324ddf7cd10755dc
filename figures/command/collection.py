"""``expqk collection``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from figures.command import options

HELP = "List the reference collection of attention heads, or export it."
FORMATS = ("npz", "safetensors")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="write the heads, the table of their numbers and what its columns mean",
    )
    parser.add_argument("--format", choices=FORMATS, help="of the heads in DIR [npz]")
    options.add_json(parser, "the whole table, for machines")


def run(arguments: argparse.Namespace) -> int:
    from analysis.ranks import reference_collection
    from figures.words.terminal_columns import aligned

    if arguments.format and not arguments.export:
        raise ValueError("--format is that of exported heads: add --export DIR")
    if arguments.export:
        written = reference_collection.export(
            arguments.export, format=arguments.format or FORMATS[0]
        )
        print(
            f"{len(reference_collection.NAMES)} heads, {len(written)} files in {arguments.export}"
        )
        return 0
    if arguments.json:
        rows = json.loads(
            reference_collection.table().to_json(orient="records", double_precision=15)
        )
        print(options.as_json(rows))
        return 0
    table = reference_collection.table()
    shown = {
        "head": table["head"],
        "n": table.n.map(str),
        "d": table.d.map(str),
        "mask": table["mask"],
        "N_eff": table.n_eff.map("{:.3g}".format),
        "states": table["states_1e-2"].map(lambda x: "" if x != x else f"{x:.0f}"),
        "tv, 16 keys": table.top_k_tv_16.map("{:.2g}".format),
        "about": table.about,
    }
    print(aligned([tuple(shown), *zip(*shown.values())], cut=-1))
    return 0
