"""``expqk substitute``."""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.costs.candidates import NEEDS
from analysis.models import checkpoints, replacement
from analysis.models.checkpoints import Place
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan, check_weights
from analysis.models.retrieval import retrieval
from analysis.models.substitute import by_run, substitute
from approx import Method, parse
from figures.command import options
from figures.show import retrieval as facts
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import mark, speaking, tr

EXAMPLES = ('expqk substitute MODEL_DIR TEXT --method "sink_window(k=32)"',)
HEADS = (
    mark("KL"), mark("perplexity"), mark("same"), mark("tv own"), mark("drifted"), mark("reads"),
    mark("status"), mark("method"),
)  # fmt: skip
USES = mark("runnable"), mark("all logits"), mark("future")


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "a UTF-8 text file")
    options.add(parser, "method", default=[], help="one run for each; repeatable")
    parser.add_argument(
        "--plan", action="append", default=[], type=Path, metavar="FILE", help="one run for each"
    )
    options.add(parser, "budget", "currency")
    options.add_kept(parser, "computed by --method [all]")
    options.add(parser, "max-tokens")
    about = "number of first positions that are read but not measured [64]"
    parser.add_argument("--skip", type=int, default=64, metavar="N", help=about)
    about = "do not measure the errors of heads: takes half the time"
    parser.add_argument("--no-errors", dest="errors", action="store_false", help=about)
    about = "number type of the model [float32]"
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help=about)
    about = "instead: are facts found that stand in TEXT at five depths, of 512, 1024, … tokens"
    parser.add_argument("--retrieval", action="store_true", help=f"{about} up to --max-tokens?")
    about = "with --retrieval: text and question in the tokenizer's chat template"
    parser.add_argument("--chat", action="store_true", help=about)
    options.add(parser, "lang", "seed", "jobs", "scheduler")
    options.add(parser, "json", help="one object per run")
    about = "folder that keeps each run; a stopped command continues there"
    options.add(parser, "out", help=about)


def run(arguments: argparse.Namespace) -> int:
    checkpoints.texts(arguments.model, arguments.text)
    if not (arguments.method or arguments.plan):
        raise ValueError("give at least one --method SPEC or --plan FILE")
    of_methods = "heads", "layers", "budget", "currency"
    idle = "heads", "layers", "skip", "errors", "scheduler"
    options.refuse_idle(arguments, "retrieval", *idle)
    if arguments.chat and not arguments.retrieval:
        raise ValueError("--chat is for --retrieval: the text itself is read as it is")
    if not arguments.method:
        options.refuse_idle(arguments, "plan", *of_methods)
    plans: dict[str, Plan | Method] = {path.stem: Plan.read(path) for path in arguments.plan}
    choices = plans | {spec: parse(spec) for spec in arguments.method}
    how = options.keywords(arguments, "max_tokens", "seed", "jobs")
    how |= {"progress": sys.stderr.isatty(), "finished": arguments.out}
    if arguments.retrieval:
        return _retrieval(arguments, choices, how)
    how |= options.keywords(
        arguments, "heads", "layers", "budget", "currency", "skip", "errors", "dtype", "scheduler"
    )
    found = substitute(arguments.model, arguments.text, choices, **how)
    with speaking(arguments.lang):
        if arguments.json:
            print(options.as_json(objects(found)))
        else:
            print(_text(found, arguments.text.name, arguments.skip))
    return 0


def _retrieval(
    arguments: argparse.Namespace, choices: dict[str, Plan | Method], how: dict[str, Any]
) -> int:
    plans = [x for x in choices.values() if isinstance(x, Plan)]
    check_weights(plans, [Place.from_path(arguments.model)])
    model = LanguageModel.open(arguments.model, dtype=arguments.dtype)
    how |= options.keywords(arguments, "budget", "currency", "chat")
    words = checkpoints.read(arguments.text)
    found = retrieval(model, words, choices, announce=options.announce, **how)
    with speaking(arguments.lang):
        objects = found.to_dict("records")
        print(options.as_json(objects) if arguments.json else facts.text(found))
    return 0


def objects(found: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one object a run, for JSON.

    ``layers`` has the error of the residual stream behind each layer, and ``replaced`` the errors
    of each head that was.
    """
    every, runs = [], found.groupby("method", sort=False)
    for row, (_, part) in zip(by_run(found).to_dict("records"), runs):
        behind = part[part.metric == "residual_relative_error"]
        heads = part[part["head"] >= 0].pivot(
            index=["layer", "head"], columns="metric", values="value"
        )
        replaced = heads.reset_index().to_dict("records")
        every.append(row | {"layers": behind.value.tolist(), "replaced": replaced})
    return every


def _text(found: pd.DataFrame, name: str, skip: int = replacement.SKIP) -> str:
    """Return a line a run, what its columns mean, and what follows in plain words."""
    rows = by_run(found)
    lines = [tuple(map(tr, HEADS)), *map(_line, rows.itertuples())]
    said = paragraphs([*_legend(found, rows, name, skip), *_results(rows)])
    return f"{aligned(lines, cut=-1)}\n\n{said}"


def use(row: Any) -> str:
    """Return whether a model can run what a row of the summary is made by.

    It is "future" where a method reads later tokens, and "all logits" where one needs them.
    """
    return "future" if row.future_heads else NEEDS if row.oracle_heads else "runnable"


def _line(row: Any) -> tuple[str, ...]:
    stderr = "" if math.isnan(row.kl_stderr) else f" ±{row.kl_stderr:.2g}"
    errors = [getattr(row, f"{what}_attention_tv", math.nan) for what in ("own", "drifted")]
    return (
        f"{row.kl:.3g}{stderr}",
        f"{row.perplexity:.4g}",
        f"{row.same_top_1:.0%}",
        *("" if math.isnan(error) else f"{error:.3f}" for error in errors),
        "" if math.isnan(row.reads_share) else f"{row.reads_share:.0%}",
        tr(use(row)),
        row.method,
    )


def _legend(found: pd.DataFrame, rows: pd.DataFrame, name: str, skip: int) -> Iterator[str]:
    yield tr(
        "{model} reads the first {n} tokens of {text}. Perplexity is that of tokens "
        "{first}…{n}, its own {perplexity:.4g}. Heads that were replaced: {heads}.",
        model=found.input.iloc[0], n=found.n.iloc[0], text=name, first=skip + 2,
        perplexity=rows.exact_perplexity.iloc[0],
        heads=tr(", ").join(f"{count:g}" for count in dict.fromkeys(rows.heads)),
    )  # fmt: skip
    yield tr(
        "KL: of the next token, KL(model ‖ replaced) in nats, with its standard error over "
        "blocks of {block} positions. same: how often both think the same token the likeliest. "
        "KL and same leave out the first {skip} positions, tv does not. "
        "tv: total variation of the replaced heads' attention weights, a mean over heads, at "
        "what they get in the model itself (own) and at what they get with the others replaced "
        "(drifted). reads: to answer one new query, as a share of what exact attention reads.",
        block=replacement.BLOCK, skip=skip,
    )  # fmt: skip
    uses = {use(row) for row in rows.itertuples()}
    if NEEDS in uses:
        yield tr(
            "all logits: a reference. It needs all logits, so no model can run it. It bounds "
            "the error of attention in its class, but not the KL."
        )
    if "future" in uses:
        yield tr(
            "future: it reads later tokens, so no model can run it, and its result may look "
            "too good."
        )


def _results(rows: pd.DataFrame) -> Iterator[str]:
    every: Iterable[Any] = rows.itertuples()
    runs = [row for row in every if use(row) == "runnable" and math.isfinite(row.kl)]
    if not runs:
        return
    best = min(runs, key=lambda row: row.kl)
    yield tr(
        "The best method that can be run is {method}: the likeliest next token stays the "
        "same at {same:.0%} of the positions, perplexity goes from {exact:.4g} to "
        "{perplexity:.4g}, and the residual stream behind the last layer is off by "
        "{residual:.0%}.",
        method=best.method, same=best.same_top_1, exact=best.exact_perplexity,
        perplexity=best.perplexity, residual=best.residual_relative_error,
    )  # fmt: skip
    if close := [r.method for r in runs if r is not best and _tied(r, best)]:
        yield tr("Within two standard errors of it: {methods}.", methods=tr(", ").join(close))


def _tied(row: Any, best: Any) -> bool:
    """Return whether a KL is within two standard errors of the least one's.

    The positions are the same, so that the errors of the two are not independent: this says less
    than a paired comparison would.
    """
    return bool(row.kl - best.kl < 2 * math.hypot(row.kl_stderr, best.kl_stderr))
