"""``expqk plan``."""

import argparse
import sys
from pathlib import Path

from analysis.models import checkpoints
from analysis.models.plan import Plan, misfits
from analysis.models.planner import plan
from analysis.runs import output_files
from figures.command import options
from figures.show import plans
from figures.words.translation import speaking

EXAMPLES = (
    "expqk plan MODEL_DIR TEXT --budget 4096 --out plan.json",
    "expqk plan MODEL_DIR TEXT --from plan.json --budget 2048 --out cheaper.json",
    "expqk plan MODEL_DIR --check plan.json",
)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "UTF-8 files that the plan is chosen on", nargs="*")
    asked = parser.add_mutually_exclusive_group(required=True)
    about = "average cost per query and head, in the unit of --currency"
    options.add(asked, "budget", help=about)
    asked.add_argument(
        "--kl",
        type=float,
        metavar="NATS",
        help="in place of a budget: the cheapest plan with at most this KL(model ‖ replaced) "
        "per token",
    )
    asked.add_argument(
        "--check", type=Path, metavar="FILE", help="only say whether this plan fits the model"
    )
    parser.add_argument(
        "--from", dest="start", type=Path, metavar="FILE",
        help="start from this plan; measurements saved in the folder FILE.heads are used again",
    )  # fmt: skip
    parser.add_argument(
        "--in-place", type=int, default=0, metavar="ROUNDS",
        help="measure each head again, this many times, while the other heads use the plan [0]",
    )  # fmt: skip
    options.add(parser, "currency", default="reads")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the plan to write; beside it, FILE.heads lets a stopped run continue",
    )
    options.add(parser, "held-out")
    parser.add_argument(
        "--needle", type=float, default=0.0, metavar="WEIGHT",
        help="weight of the KL at the answer about a fact; the text itself has weight 1 [0]",
    )  # fmt: skip
    options.add(parser, "method", "max-tokens", "lang", "seed", "jobs", "scheduler")


def run(arguments: argparse.Namespace) -> int:
    checkpoints.texts(arguments.model, *arguments.text, arguments.held_out)
    if arguments.check is not None:
        return _check(arguments)
    if not arguments.text or arguments.out is None:
        raise ValueError("a plan is chosen on a TEXT and written to a file: give TEXT and --out")
    if arguments.out.is_dir():
        raise IsADirectoryError(f"--out must be a file, got the folder {arguments.out}")
    heads = arguments.out.with_name(f"{arguments.out.name}.heads")
    found = plan(
        arguments.model,
        arguments.text,
        budget=arguments.budget,
        kl=arguments.kl,
        currency=arguments.currency,
        methods=options.methods(arguments),
        start=arguments.start,
        in_place=arguments.in_place,
        needle=arguments.needle,
        held_out=arguments.held_out,
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
        jobs=arguments.jobs,
        scheduler=arguments.scheduler,
        progress=sys.stderr.isatty(),
        finished=output_files.inside(arguments.out.parent, heads / "KEY").parent,
    )
    found.write(arguments.out)
    with speaking(arguments.lang):
        print(plans.text(found))
    print(arguments.out, file=sys.stderr)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Say what of a plan does not fit the model; return 0 where all of it does."""
    found = Plan.read(arguments.check)
    against = misfits(found, arguments.model)
    with speaking(arguments.lang):
        print(plans.checked(found, against))
    return int(bool(against))
