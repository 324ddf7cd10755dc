"""Each named system against its authors' code: ``python -m studies.lm.peers CLONE …``.

A CLONE is a folder with a clone of a repository, under the repository's name. Both sides read the
four bundled heads of SmolLM2 and a small random case; the table is written into ``--summary``. The
study needs torch, transformers and einops, for example from `.lm`, but no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from studies.lm.peers import clones
from studies.lm.peers.comparison import Comparison, heads, markdown, summed
from studies.lm.peers.systems import SYSTEMS


def main(argv: Sequence[str] | None = None) -> None:
    """Compare all systems whose clones are given, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.lm.peers", description=__doc__)
    names = sorted({repository for repository, _ in SYSTEMS.values()}, key=str.lower)
    parser.add_argument(
        "clones", type=Path, nargs="+", metavar="CLONE", help=f"of {', '.join(names)}"
    )
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, help="some systems [all]")
    parser.add_argument("--summary", type=Path, help="a .md file [standard output]")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # warnings of the authors' code
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)

    given = {each.name.lower(): each.resolve() for each in arguments.clones}
    cases = heads()
    found: list[tuple[str, str, Comparison]] = []
    for system, (repository, both_sides) in SYSTEMS.items():
        clone = given.get(repository.split("/")[1].lower())
        if clone is None or (arguments.only and system not in arguments.only):
            continue
        print(system, file=sys.stderr)
        each = [comparison for x in cases for comparison in both_sides(clone, x)]
        commit = f"{repository} {clones.commit(clone)}"
        found += [(system, commit, comparison) for comparison in summed(each)]
    missing = [name for name in names if name.split("/")[1].lower() not in given]
    today = datetime.datetime.now(datetime.UTC).date()
    text = (
        f"Each system against its authors' code, on {len(cases)} heads: "
        f"{', '.join(x.name for x in cases)}; measured on {today}. A difference is relative to the "
        "largest number of the authors', in rows of the same support.\n\n" + markdown(found)
    )
    if missing:
        text += f"\n\nWithout a clone: {', '.join(missing)}."
    if arguments.summary is None:
        print(text)
    else:
        arguments.summary.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
