"""``expqk substitute``."""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.costs.budget import MEMORY
from analysis.costs.candidates import NEEDS
from analysis.models import checkpoints, replacement
from analysis.models.checkpoints import Place
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan, check_weights
from analysis.models.retrieval import lengths, retrieval
from analysis.models.substitute import by_run, substitute
from approx import Method, parse
from figures.command import options
from figures.drawing import looks
from figures.show import price_line, retrieval as facts
from figures.show.scarcity import sentences
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import mark, speaking, tr

EXAMPLES = ('expqk substitute MODEL_DIR TEXT --method "sink_window(k=32)"',)
HEADS = (
    mark("KL"), mark("median"), mark("99%"), mark("largest"), mark("same"), mark("perplexity"),
    mark("bytes read"), mark("method"),
)  # fmt: skip
ERRORS = (
    mark("tv own"), mark("drifted"), mark("output own"), mark("drifted"), mark("residual"),
    mark("method"),
)  # fmt: skip
FUTURE = mark("future")
OF_HEADS = [f"{what}_{name}" for name in replacement.ERRORS for what in ("own", "drifted")]


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "a UTF-8 text file")
    about = "one run for each; repeatable [keys in few bits, H2O, windows, and what may beat them]"
    options.add(parser, "method", default=[], help=about)
    parser.add_argument(
        "--plan", action="append", default=[], type=Path, metavar="FILE", help="one run for each"
    )
    options.add(parser, "budget", "currency")
    options.add_kept(parser, "computed by --method [all]")
    options.add(parser, "max-tokens")
    options.add(parser, "setting", "prompt-tokens")
    about = "number of first positions that are read but not measured [64; the prompt]"
    parser.add_argument("--skip", type=int, metavar="N", help=about)
    about = "also measure the errors of heads, which takes longer than everything else"
    parser.add_argument("--errors", action="store_true", help=about)
    about = "number type of the model [float32]"
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help=about)
    about = "instead: are facts found that stand in TEXT at five depths, of 512, 1024, … tokens"
    parser.add_argument("--retrieval", action="store_true", help=f"{about} up to --max-tokens?")
    about = "with --retrieval: text and question in the tokenizer's chat template"
    parser.add_argument("--chat", action="store_true", help=about)
    options.add(parser, "device", "lang", "seed", "jobs", "scheduler")
    options.add(parser, "json", help="one object per run")
    about = "folder that keeps each run, where a stopped command continues, and gets a figure"
    options.add(parser, "out", help=about)


def run(arguments: argparse.Namespace) -> int:
    checkpoints.texts(arguments.model, arguments.text)
    of_methods = "heads", "layers", "budget", "currency"
    idle = "heads", "layers", "skip", "errors", "scheduler", "prompt_tokens"
    options.refuse_idle(arguments, "retrieval", *idle)
    if arguments.chat and not arguments.retrieval:
        raise ValueError("--chat is for --retrieval: the text itself is read as it is")
    if not arguments.method and not arguments.retrieval:
        options.refuse_idle(arguments, "plan", *of_methods)
    plans: dict[str, Plan | Method] = {path.stem: Plan.read(path) for path in arguments.plan}
    choices = plans | {spec: parse(spec) for spec in arguments.method}
    how = options.keywords(arguments, "max_tokens", "seed", "jobs")
    how |= {"progress": sys.stderr.isatty(), "finished": arguments.out}
    if arguments.retrieval:
        return _retrieval(arguments, choices, how)
    how |= options.keywords(
        arguments, "heads", "layers", "budget", "currency", "skip", "setting", "prompt_tokens",
        "errors", "dtype", "device", "scheduler",
    )  # fmt: skip
    with speaking(arguments.lang):
        announce = options.announce
        found = substitute(
            arguments.model, arguments.text, choices or None, **how, announce=announce
        )
        if arguments.out is not None:
            from figures.show import price_figure

            rows, about = by_run(found), tr("KL(model ‖ replaced), nats")
            named = (known := runnable(rows)).assign(name=known.method.map(looks.label))
            limit = _limit(rows, found)
            drawn = price_figure.draw(named, "kl", limit=limit, about=about, log=True)
            price_figure.write(drawn, arguments.out)
        if arguments.json:
            print(options.as_json(objects(found)))
        else:
            print(_text(found, arguments.text.name))
    return 0


def _retrieval(
    arguments: argparse.Namespace, choices: dict[str, Plan | Method], how: dict[str, Any]
) -> int:
    plans = [x for x in choices.values() if isinstance(x, Plan)]
    check_weights(plans, [Place.from_path(arguments.model)])
    model = LanguageModel.open(arguments.model, dtype=arguments.dtype, device=arguments.device)
    how |= options.keywords(arguments, "budget", "currency", "chat", "setting")
    how["tokens"] = lengths(how.pop("max_tokens"))
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


def _text(found: pd.DataFrame, name: str) -> str:
    """Return a line a run, the line of the best, what columns mean, and what follows from them."""
    rows = by_run(found)
    tables = [aligned([tuple(map(tr, HEADS)), *map(_line, rows.itertuples())], cut=-1)]
    tables.append(paragraphs(_legend(found, rows, name)))
    if set(OF_HEADS) <= set(rows):
        tables += [aligned([tuple(map(tr, ERRORS)), *map(_errors, rows.itertuples())], cut=-1)]
        tables.append(paragraphs([_of_heads()]))
    if len(measured := runnable(rows)) > 1:
        kl = "kl", tr("KL"), lambda row: f"{row.kl:.3g}"
        line = price_line.line(measured, *kl, unit="MiB")
        tables += [line, paragraphs(_results(measured, _limit(rows, found)))]
    return "\n\n".join(tables)


def runnable(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that can be run and whose price is known, with exact attention."""
    runs: pd.DataFrame = rows[[use(row) == "runnable" for row in rows.itertuples()]]
    runs = runs[np.isfinite(runs.kl) & runs.bytes_read.notna()].assign(name=runs.method)
    if "exact()" in set(runs.method):
        return runs
    first = rows.iloc[0]
    exact: dict[str, Any] = {x: first[f"exact_{x}"] for x in ("bytes_read", "bytes", *MEMORY)}
    exact |= {"method": "exact()", "name": "exact()", "kl": 0.0, "bytes_read_share": 1.0}
    whole: pd.DataFrame = pd.concat([runs, pd.DataFrame([exact])], ignore_index=True)
    return whole


def use(row: Any) -> str:
    """Return whether a model can run what a row of the summary is made by.

    It is "future" where a method reads later tokens, and "all logits" where one needs them.
    """
    return FUTURE if row.future_heads else NEEDS if row.oracle_heads else "runnable"


def _line(row: Any) -> tuple[str, ...]:
    known = "" if use(row) == "runnable" else f" ({tr(use(row))})"
    return (
        f"{row.kl:.3g}{_error(row.kl_stderr, '.2g')}",
        *(f"{x:.2g}" for x in (row.kl_median, row.kl_99, row.kl_largest)),
        f"{row.same_top_1:.0%}{_error(row.same_top_1_stderr, '.0%')}",
        f"{row.perplexity:.4g}",
        "" if math.isnan(row.bytes_read) else f"{row.bytes_read:,.0f}",
        f"{row.method}{known}",
    )


def _error(stderr: float, spec: str) -> str:
    return "" if math.isnan(stderr) else f" ±{stderr:{spec}}"


def _errors(row: Any) -> tuple[str, ...]:
    errors = [getattr(row, name) for name in OF_HEADS]
    cells = ("" if math.isnan(error) else f"{error:.3f}" for error in errors)
    return *cells, f"{row.residual_relative_error:.0%}", row.method


def _legend(found: pd.DataFrame, rows: pd.DataFrame, name: str) -> Iterator[str]:
    first, prompt = int(rows.first_position.iloc[0]), int(rows.prompt_tokens.iloc[0])
    yield tr(
        "{model} reads the first {n} tokens of {text}. Every number counts the positions {first} "
        "to {last}; position i predicts token i + 1. The model's own perplexity is "
        "{perplexity:.4g}. Heads that were replaced: {heads}.",
        model=found.input.iloc[0], n=found.n.iloc[0], text=name, first=first,
        last=found.n.iloc[0] - 1, perplexity=rows.exact_perplexity.iloc[0],
        heads=tr(", ").join(f"{count:g}" for count in dict.fromkeys(rows.heads)),
    )  # fmt: skip
    if prompt:
        yield tr(
            "Setting prompt: the first {prompt} tokens are read exactly; then the cache is evicted "
            "or rounded, and later tokens are computed from it. (--setting rows: every row by the "
            "method.)",
            prompt=prompt,
        )
    else:
        yield tr(
            "Setting rows: the methods compute every row of attention, those of the prompt, too. "
            "(--setting prompt: the prompt exact, evicted or rounded afterwards, as in systems.)"
        )
    yield tr(
        "KL: of the next token, KL(model ‖ replaced) in nats: its mean with a standard error over "
        "blocks of {block} positions, its median, its 99 % quantile, its largest. same: how often "
        "both think the same token the likeliest. bytes read: for a new query after the last "
        "token, by a group of heads that share keys, at 16 bits per number and codes at their own; "
        "exact attention reads {exact:,.0f}.",
        block=replacement.BLOCK, exact=rows.exact_bytes_read.iloc[0],
    )  # fmt: skip
    uses = {use(row) for row in rows.itertuples()}
    if NEEDS in uses:
        yield tr(
            "all logits: a reference. It needs all logits, so no model can run it. It bounds "
            "the error of attention in its class, but not the KL."
        )
    if FUTURE in uses:
        yield tr(
            "future: it reads later tokens, so no model can run it, and its result may look "
            "too good."
        )


def _of_heads() -> str:
    return tr(
        "tv: total variation of the replaced heads' attention weights; output: relative error of "
        "their outputs; both over the same positions, as means over heads, at what they get in the "
        "model itself (own) and at what they get with the others replaced (drifted). residual: "
        "relative error of the state behind the last layer."
    )


def _limit(rows: pd.DataFrame, found: pd.DataFrame) -> float:
    """Return the bytes read at which runs are compared: the budget, or those of 32 exact keys."""
    if found.get("currency", found.method).iloc[0] == "bytes_read" and found.budget.iloc[0] > 0:
        return float(found.budget.iloc[0])
    return float(rows.bytes_of_keys.iloc[0])


def _results(measured: pd.DataFrame, limit: float) -> Iterator[str]:
    yield tr(
        "These are not beaten by anything measured that reads less or as much. read, held: bytes "
        "of a group of heads; MiB: what the caches of the whole model hold after so many tokens."
    )
    bandwidth, *rest = sentences(measured, limit)
    yield bandwidth
    every: Iterable[Any] = measured.itertuples()
    fits = [row for row in every if row.bytes_read <= limit * (1 + 1e-9)]
    best: Any = min(fits, key=lambda row: row.kl, default=None)
    if close := [row.method for row in fits if row is not best and _tied(row, best)]:
        yield tr(
            "Of those that read so little, within two standard errors of {best}: {methods}.",
            best=best.method, methods=tr(", ").join(close),
        )  # fmt: skip
    yield from rest


def _tied(row: Any, best: Any) -> bool:
    """Return whether a KL is within two standard errors of the least one's.

    The positions are the same, so that the errors of the two are not independent: this says less
    than a paired comparison would.
    """
    return bool(row.kl - best.kl < 2 * math.hypot(row.kl_stderr, best.kl_stderr))
