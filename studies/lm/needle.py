"""What SmolLM2-135M still knows of a text: ``python -m studies.lm.needle MODEL --summary FILE``.

A fact in a constitution, at five depths, asked for at the end; methods at the reads of 32 exact
keys in all heads, and the plan for as many.
"""

from __future__ import annotations

from pathlib import Path

from analysis.models.language_model import LanguageModel
from analysis.models.needle import lengths, needle
from analysis.models.plan import Plan
from approx import parse
from figures.show import needles
from studies.lm import pages, sample
from studies.lm.plans import FOLDER

METHODS = (
    "sink_window(k=32)",
    "columns(k=31, by='h2o', recent=16)",
    "hierarchical(rank=3, basis='pivots', sinks=1)",
    "projected_top_k(k=16, r=4, by='channels')",
    "quantised(bits=3, by='channel', group=32)",
)
FILLER = ("persuasion.txt", "gettysburg_constitution.txt")  # one alone is too short for 4096


def main() -> None:
    """Measure, and write the table."""
    parser = pages.parser(".needle", __doc__)
    pages.add_model(parser, 4096)
    parser.add_argument("--out", type=Path, help="keeps each run: a stopped study goes on")
    arguments = parser.parse_args()
    model = LanguageModel.open(arguments.model)
    choices = {"plan, 32 keys": Plan.read(FOLDER / "smollm2-32-keys.json")}
    choices |= {f"`{spec}`": parse(spec) for spec in METHODS}
    words = "".join((sample.DATA / name).read_text("utf-8") for name in FILLER)
    found = needle(
        model, words, choices,
        max_tokens=arguments.tokens, progress=True, finished=arguments.out,
    )  # fmt: skip
    head, *rows = needles.cells(found)
    pages.write(
        arguments,
        f"{model.name}, in {' and then '.join(FILLER)}, of "
        f"{', '.join(map(str, lengths(arguments.tokens)))} tokens in all, on "
        f"{pages.today()}. The log-probability of the fact's tokens when it is asked for at the "
        "end, in brackets the worst rank of one of them.",
        pages.table(head, rows),
    )


if __name__ == "__main__":
    main()
