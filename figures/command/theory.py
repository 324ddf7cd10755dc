"""``expqk theory``."""

from __future__ import annotations

import argparse
import functools
import sys
from typing import TYPE_CHECKING

from figures.command import options

if TYPE_CHECKING:
    import pandas as pd

    from analysis.inputs import Head

HELP = "Print what theorems say of each head of a file."
EXAMPLES = ("expqk theory qk.npz",)
MORE = "Bounds, whether the head meets their hypotheses, and what is measured beside them."


def add(parser: argparse.ArgumentParser) -> None:
    options.add_file(parser)
    options.add(parser, "lang", "seed", "jobs")
    options.add(parser, "json", help="one object per (layer, head, theorem)")


def run(arguments: argparse.Namespace) -> int:
    import pandas as pd

    from analysis.compute.executors import parallel
    from figures.show import theories
    from figures.words.translation import speaking

    chosen, jobs = options.heads_of_file(arguments)
    tables = parallel(
        functools.partial(_theory, seed=arguments.seed),
        [x.at_temperature(arguments.temperature) for each in chosen for x in each.heads()],
        jobs=jobs,
        progress=sys.stderr.isatty(),
        label="heads",
    )
    with speaking(arguments.lang):
        options.show(arguments, pd.concat(tables, ignore_index=True), theories.text)
    return 0


def _theory(x: Head, seed: int) -> pd.DataFrame:
    from analysis.bounds import theory
    from analysis.costs.budget import KEYS

    return theory.predictions(x, keys=min(KEYS, x.n, x.l), seed=seed)
