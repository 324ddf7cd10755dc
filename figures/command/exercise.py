"""``expqk exercise``."""

import argparse
from pathlib import Path

from figures.command import options

EXAMPLES = ("expqk exercise check 7 answers.json",)
MORE = "It says which answers are wrong and what to think about, not what is right."


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("check",), metavar="check")
    parser.add_argument("number", type=int, metavar="N", help="number of an exercise, 1 to 10")
    parser.add_argument(
        "answers", type=Path, metavar="ANSWERS.json", help="the answers by name, see its page"
    )
    options.add(parser, "lang")


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if an answer is wrong."""
    from analysis.experiments.exercises import check
    from analysis.inputs import text_files
    from figures.words.translation import speaking, tr

    text = text_files.read_text(arguments.answers)
    answers = text_files.json_object(str(arguments.answers), text)
    judged, hint = check(arguments.number, answers)
    with speaking(arguments.lang):
        for what, right in judged.items():
            wrong = tr("{spec}: {reason}", spec=what, reason=tr(hint))
            print(tr("{what}: right", what=what) if right else wrong)
    return int(not all(judged.values()))
