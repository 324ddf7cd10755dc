"""``expqk exercise``."""

import argparse
import json
from pathlib import Path

from figures.command import options

HELP = "Show the exercises of a course, and check answers."
EXAMPLES = ("expqk exercise", "expqk exercise check 7 answers.json")
MORE = (
    "Without arguments it lists the exercises, whose pages are in docs/exercises. `check` reads a "
    "JSON file with the answers by name; it says which are wrong and what to think about, not what "
    "is right."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("check",), metavar="check")
    parser.add_argument(
        "number", nargs="?", type=int, metavar="N", help="number of an exercise, 1 to 10"
    )
    parser.add_argument("answers", nargs="?", type=Path, metavar="ANSWERS.json")
    options.add_language(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if an answer is wrong."""
    from analysis.experiments.exercises import EXERCISES, check
    from analysis.inputs import array_files
    from figures.words.translation import speaking, tr

    with speaking(arguments.lang):
        if arguments.what is None:
            for one in EXERCISES.values():
                print(f"{one.number:2}  {tr(one.title.message)} ({', '.join(one.fields)})")
            return 0
        if arguments.answers is None:
            raise ValueError("give the exercise and the file: expqk exercise check 7 answers.json")
        try:
            answers = json.loads(array_files.text(arguments.answers))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{arguments.answers} is no JSON: {error}") from None
        judged = check(arguments.number, answers)
        for what, right, hint in judged:
            said = tr(hint.message, **hint.values)
            print(tr("{what}: right", what=what) if right else f"{what}: {said}")
    return int(not all(one.right for one in judged))
