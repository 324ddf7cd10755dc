"""``expqk generate``."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.models import checkpoints, generate
from analysis.models.generation import Generated
from analysis.models.plan import Plan
from approx import parse
from figures.command import options
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import speaking, tr

EXAMPLES = ("expqk generate MODEL_DIR --plan plan.json --prompt TEXT --compare",)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--plan", type=Path, metavar="FILE", help="a file that `expqk plan` wrote")
    about = "in place of a plan: one method, for all heads or for --heads"
    asked.add_argument("--method", metavar="SPEC", help=about)
    options.add(parser, "heads", help="heads that --method computes [all]")
    about = "the words, or a UTF-8 file that contains them"
    parser.add_argument("--prompt", required=True, metavar="TEXT", help=about)
    about = "the prompt is a user's message: put it into the tokenizer's chat template"
    parser.add_argument("--chat", action="store_true", help=about)
    about = "number of tokens of the prompt to read [all]"
    options.add(parser, "max-tokens", default=None, help=about)
    about = "number of tokens to generate, at most [64]"
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help=about)
    about = "also generate with exact attention, and compare"
    parser.add_argument("--compare", action="store_true", help=about)
    options.add(parser, "setting")
    about = "length of the prompt that is read exactly, for --setting prompt [all of it]"
    options.add(parser, "prompt-tokens", help=about)
    options.add(parser, "lang", "seed", "jobs", "json")


def run(arguments: argparse.Namespace) -> int:
    checkpoints.texts(arguments.model)
    words = arguments.prompt
    if len(words) < 256 and Path(words).is_file():
        [words] = checkpoints.texts(arguments.model, words)
    choice = Plan.read(arguments.plan) if arguments.plan else parse(arguments.method)
    how = options.keywords(
        arguments, "tokens", "heads", "max_tokens", "compare", "chat", "setting", "prompt_tokens",
        "seed", "jobs",
    )  # fmt: skip
    said = generate(arguments.model, words, choice, **how)
    with speaking(arguments.lang):
        print(options.as_json(facts(said)) if arguments.json else _text(said))
    return 0


def facts(said: Generated) -> dict[str, Any]:
    """Return one object for JSON."""
    found: dict[str, Any] = {
        "text": said.text,
        "tokens": list(said.tokens),
        "prompt_tokens": said.prompt_tokens,
        "tokens_per_second": said.per_second,
        "layers": said.layers.to_dict("records"),
    }
    if said.exact is None:
        return found
    return found | {
        "agreement": said.agreement,
        "parts_at": said.parts_at,
        "exact": {
            "text": said.exact.text,
            "tokens": list(said.exact.tokens),
            "tokens_per_second": said.exact.per_second,
        },
    }


def _text(said: Generated) -> str:
    """Return the generated text, a line a layer, and the finding in plain words."""
    texts = [said.text]
    if said.exact is not None:
        heads = tr("with the plan:"), tr("with exact attention:")
        texts = [f"{head}\n{one.text}" for head, one in zip(heads, (said, said.exact))]
    head = [tr("layer"), tr("bytes read"), tr("of exact"), tr("bytes held"), tr("of exact")]
    total = said.layers.sum().to_dict() | {"layer": tr("all")}
    every = [*said.layers.to_dict("records"), total]
    rows = [tuple(head), *map(_line, every)]
    return "\n\n".join([*texts, aligned(rows), paragraphs(list(_sentences(said)))])


def _line(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return (
        str(row["layer"]),
        f"{row['bytes_read']:,.0f}",
        f"{row['bytes_read'] / row['exact_bytes_read']:.0%}",
        f"{row['bytes']:,.0f}",
        f"{row['bytes'] / row['exact_bytes']:.0%}",
    )


def _sentences(said: Generated) -> Iterator[str]:
    yield tr(
        "The prompt has {prompt} tokens. The model writes {count} more, {speed:.1f} per second; "
        "the table is for the last of them, with 16 bits per number and codes at their own bits. "
        "Bytes read: by its queries, from the prices of the methods. Bytes held: by the arrays of "
        "the cache. What heads of a group share is counted once.",
        prompt=said.prompt_tokens, count=len(said.tokens), speed=said.per_second,
    )  # fmt: skip
    exact = said.exact
    if exact is None:
        return
    if said.parts_at is None:
        yield tr("Both texts are the same.")
    else:
        yield tr("The two texts differ from token {at} on.", at=said.parts_at + 1)
    yield tr(
        "Given the text so far, exact attention chooses the same next token at {same:.0%} of the "
        "positions. It writes {speed:.1f} tokens per second on this CPU.",
        same=said.agreement, speed=exact.per_second,
    )  # fmt: skip
