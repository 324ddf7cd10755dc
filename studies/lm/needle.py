"""What SmolLM2-135M remembers of a text: ``python -m studies.lm.needle MODEL --summary FILE``.

A fact is hidden in a novel, at up to five depths, and asked for at the end. Methods in all heads,
and two plans, have the reads of 32 exact keys.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.models.language_model import LanguageModel
from analysis.models.needle import needle
from analysis.models.plan import Plan
from approx import parse
from figures.show import needles
from studies.lm import pages, sample
from studies.lm.plans import FOLDER, NEEDLE

METHODS = (
    "sink_window(k=32)",
    "columns(k=31, by='h2o', recent=16)",
    "hierarchical(rank=3, basis='pivots', sinks=1)",
    "projected_top_k(k=16, r=4, by='channels')",
    "quantised(bits=3, by='channel', group=32)",
)
DEPTHS = {  # by tokens; twice the tokens take four times as long
    512: (0.0, 0.25, 0.5, 0.75, 1.0),
    1024: (0.0, 0.25, 0.5, 0.75, 1.0),
    2048: (0.0, 0.5, 1.0),
    4096: (0.5,),
}
FILLER = ("persuasion.txt", "gettysburg_constitution.txt")  # one alone is too short for 4096


def main() -> None:
    """Measure, and write the table."""
    parser = pages.parser(".needle", __doc__)
    parser.add_argument("model", type=Path, help="a folder or a GGUF file")
    parser.add_argument("--out", type=Path, help="keeps each run: a stopped study goes on")
    arguments = parser.parse_args()
    model = LanguageModel.open(arguments.model)
    choices = {"plan, 32 keys": Plan.read(FOLDER / "smollm2-32-keys.json")}
    choices["plan, 32 keys, chosen also for a fact"] = Plan.read(FOLDER / f"{NEEDLE}.json")
    choices |= {f"`{spec}`": parse(spec) for spec in METHODS}
    words = "".join((sample.DATA / name).read_text("utf-8") for name in FILLER)
    parts = [
        needle(
            model, words, choices,
            tokens=[most], depths=depths, progress=True, finished=arguments.out,
        )
        for most, depths in DEPTHS.items()
    ]  # fmt: skip
    head, *rows = needles.cells(pd.concat(parts, ignore_index=True))
    pages.write(
        arguments,
        f"{model.name}, in {' and then '.join(FILLER)}, of "
        f"{', '.join(map(str, DEPTHS))} tokens in all, on "
        f"{pages.today()}. The log-probability of the fact's tokens when it is asked for at the "
        "end, in brackets the worst rank of one of them.",
        pages.table(head, rows),
    )


if __name__ == "__main__":
    main()
