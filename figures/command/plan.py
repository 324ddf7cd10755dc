"""``expqk plan``."""

import argparse
import sys
from pathlib import Path

from analysis.models import checkpoints
from analysis.models.export import EXPORTERS
from analysis.models.plan import HeadCounts, Plan, misfits
from analysis.models.planner import plan
from analysis.models.size_rules import RULES, sized_plan
from analysis.runs import output_files
from approx import parse
from figures.command import options
from figures.show import plans
from figures.words.translation import speaking

EXAMPLES = (
    "expqk plan MODEL_DIR TEXT --budget 4096 --out plan.json",
    "expqk plan MODEL_DIR TEXT --from plan.json --budget 2048 --out cheaper.json",
    "expqk plan MODEL_DIR TEXT --sizes ada --method h2o --budget 4096 --out ada.json",
    "expqk plan MODEL_DIR --check plan.json",
    "expqk plan MODEL_DIR --from plan.json --export kvpress --nearest --out press.py",
)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "UTF-8 files that the plan is chosen on", nargs="*")
    asked = parser.add_mutually_exclusive_group(required=True)
    about = "average cost of a group of heads that share keys, in the unit of --currency"
    options.add(asked, "budget", help=about)
    about = "in place of a budget: the cheapest plan with at most this KL(model ‖ replaced)"
    asked.add_argument("--kl", type=float, metavar="NATS", help=f"{about} per token")
    about = "only say whether this plan fits the model"
    asked.add_argument("--check", type=Path, metavar="FILE", help=about)
    about = "write the plan of --from, or one --method, as the configuration of an engine"
    asked.add_argument("--export", choices=EXPORTERS, help=about)
    about = "with --export: write the nearest plan that the engine can express, FILE.plan.json, too"
    parser.add_argument("--nearest", action="store_true", help=about)
    about = "start from this plan; measurements saved in the folder FILE.heads are used again"
    parser.add_argument("--from", dest="start", type=Path, metavar="FILE", help=about)
    about = "measure each head again, this many times, while the other heads use the plan [0]"
    parser.add_argument("--in-place", type=int, default=0, metavar="ROUNDS", help=about)
    options.add(parser, "currency", "frontier")
    about = "the plan to write; beside it, FILE.heads lets a stopped run continue"
    options.add(parser, "out", metavar="FILE", help=about)
    options.add(parser, "held-out")
    about = "weight of the KL at the answer about a fact; the text itself has weight 1 [0]"
    parser.add_argument("--needle", type=float, default=0.0, metavar="WEIGHT", help=about)
    about = "one --method for all heads, its sizes alike, by layer (PyramidKV) or by head (AdaKV)"
    parser.add_argument("--sizes", choices=RULES, help=about)
    options.add(parser, "method", "max-tokens", "lang", "seed", "jobs", "scheduler")


def run(arguments: argparse.Namespace) -> int:
    checkpoints.texts(arguments.model, *arguments.text, arguments.held_out)
    options.refuse_idle(
        arguments, "check", "text", "start", "in_place", "currency", "frontier", "out", "held_out",
        "needle", "method", "max_tokens", "seed", "scheduler", "nearest", "sizes",
    )  # fmt: skip
    options.refuse_idle(
        arguments, "export", "text", "in_place", "currency", "frontier", "held_out", "needle",
        "max_tokens", "seed", "scheduler", "sizes",
    )  # fmt: skip
    options.refuse_idle(
        arguments, "sizes", "kl", "start", "in_place", "needle", "frontier", "scheduler"
    )
    if arguments.check is not None:
        return _check(arguments)
    if arguments.export is not None:
        return _export(arguments)
    if arguments.nearest:
        raise ValueError("--nearest belongs to --export")
    if not arguments.text or arguments.out is None:
        raise ValueError("a plan is chosen on a TEXT and written to a file: give TEXT and --out")
    if arguments.out.is_dir():
        raise IsADirectoryError(f"--out must be a file, got the folder {arguments.out}")
    if arguments.sizes is not None:
        return _write(arguments, _sized(arguments))
    heads = arguments.out.with_name(f"{arguments.out.name}.heads")
    how = options.keywords(
        arguments, "budget", "kl", "currency", "frontier", "start", "in_place", "needle",
        "held_out", "max_tokens", "seed", "jobs", "scheduler",
    )  # fmt: skip
    found = plan(
        arguments.model, arguments.text, methods=options.methods(arguments), **how,
        progress=sys.stderr.isatty(), announce=options.announce,
        finished=output_files.inside(arguments.out.parent, heads / "KEY").parent,
    )  # fmt: skip
    return _write(arguments, found)


def _sized(arguments: argparse.Namespace) -> Plan:
    """Return a plan with sizes by a rule, for one method and one text."""
    methods = [parse(spec) for spec in arguments.method or ()]
    if len(methods) != 1 or len(arguments.text) != 1:
        raise ValueError("--sizes needs one --method and one TEXT: give a template such as h2o")
    how = options.keywords(
        arguments, "budget", "currency", "held_out", "max_tokens", "seed", "jobs"
    )
    rule, (method,), (text,) = arguments.sizes, methods, arguments.text
    return sized_plan(arguments.model, text, rule=rule, method=method, **how)


def _write(arguments: argparse.Namespace, found: Plan) -> int:
    found.write(arguments.out)
    with speaking(arguments.lang):
        print(plans.sizes(found) if arguments.sizes else plans.text(found))
    print(arguments.out, file=sys.stderr)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Say what of a plan does not fit the model; return 0 where all of it does."""
    found = Plan.read(arguments.check)
    against = misfits(found, arguments.model)
    with speaking(arguments.lang):
        print(plans.checked(found, against))
    return int(bool(against))


def _export(arguments: argparse.Namespace) -> int:
    """Write a plan as the configuration of an engine; say on stderr where the engine differs."""
    engine, model, asked = arguments.export, arguments.model, arguments.method or []
    if (arguments.start is None) != (len(asked) == 1) or len(asked) > 1:
        raise ValueError("--export writes a plan, --from FILE, or one --method for all heads")
    counts = HeadCounts.from_model(model)
    exporter = EXPORTERS[engine](counts)
    if asked:
        pairs = [(layer, head) for layer in range(counts.layers) for head in range(counts.heads)]
        chosen = Plan(
            checkpoints.Place.from_path(model).name, dict.fromkeys(pairs, parse(asked[0]))
        )
    else:
        chosen = Plan.read(arguments.start)
        if against := misfits(chosen, model, decoding=False):
            raise ValueError(f"{arguments.start}: {against[0]}")
    if arguments.nearest:
        chosen = exporter.nearest(chosen)
    found = exporter.export(chosen)
    with speaking(arguments.lang):
        differences = plans.exported(found.differences, engine)
    if arguments.out is None:
        print(found.text, end="")
        print(differences, file=sys.stderr)
        return 0
    with output_files.replacing(arguments.out) as temporary:
        temporary.write_text(found.text, "utf-8")
    if arguments.nearest:
        chosen.write(arguments.out.with_name(f"{arguments.out.name}.plan.json"))
    print(differences)
    print(arguments.out, file=sys.stderr)
    return 0
