"""``expqk submit``."""

import argparse
from pathlib import Path

from figures.command import options

HELP = "Check a method that you wrote, and measure it beside others."
EXAMPLES = ("expqk submit my_method.py", "expqk submit my_method.py --qk qk.npz --budget 24")
MORE = (
    "The file defines one subclass of approx.Method, a frozen dataclass with evaluate. The command "
    "runs the file: give it only code that you trust. Without --qk it measures on the bundled "
    "heads. The exit status is 1 if the method breaks the contract."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="METHOD.py", help="a Python file with one method"
    )
    parser.add_argument(
        "--spec", metavar="SPEC", help="its fields, such as 'mine(m=8, sharp=True)' [all defaults]"
    )
    options.add_own_file(parser, "all")
    options.add_temperature(parser)
    options.add_budget(
        parser, help="values stored for each query row [as many as 32 exact keys store]"
    )
    parser.add_argument(
        "--beside",
        action="append",
        metavar="SPEC",
        help="measure this method beside yours instead of the usual ones; repeatable",
    )
    options.add_trials(parser)
    options.add_language(parser)
    options.add_seed(parser)
    options.add_json(parser, "checks and rows, with seed and versions")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for table and figure")


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if the contract is broken."""
    from importlib import metadata

    from analysis.compute import output_files
    from analysis.costs import budget
    from analysis.experiments.submission import BESIDE, checkable, contract, load, submit
    from analysis.inputs import load as tensors, sample
    from approx import parse
    from figures.drawing import style
    from figures.show import submissions
    from figures.show.sweeps import plot
    from figures.words.translation import speaking, tr

    if arguments.out is not None:
        output_files.usable(arguments.out)
        output_files.refuse_edited(arguments.out, style.files("submission"))
    own = load(arguments.file)
    method = own() if arguments.spec is None else parse(arguments.spec)
    if not isinstance(method, own):
        raise ValueError(f"--spec must be one of {own.name}, the method of the file, got {method}")
    whole = sample() if arguments.qk is None else tensors(arguments.qk)
    chosen = arguments.heads and [whole.at(*one) for one in arguments.heads]
    heads = chosen or list(whole.heads())
    paid = arguments.budget
    checked = contract(checkable(method))
    table = submit(
        method,
        heads,
        budget=budget.price_of_keys(budget.KEYS, heads[0]) if paid is None else paid,
        beside=arguments.beside or BESIDE,
        temperature=arguments.temperature,
        trials=arguments.trials,
        seed=arguments.seed,
    )
    with speaking(arguments.lang):
        if arguments.json:
            packages = ("expqk", "numpy", "scipy", "numba")
            versions = {name: metadata.version(name) for name in packages}
            about = {"seed": arguments.seed, "versions": versions}
            print(options.as_json(submissions.objects(str(method), checked, table, about)))
        else:
            print(submissions.text(own.name, checked, table))
        if arguments.out is not None:
            title = tr("{method} beside others at equal price", method=method)
            style.save("submission", table, plot(table), arguments.out, title=title)
    return int(not all(one.holds for one in checked))
