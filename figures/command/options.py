"""Options that several subcommands have, and what their texts are turned into."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.words.translation import LANGUAGES as LANGUAGES

if TYPE_CHECKING:
    import pandas as pd

    from analysis.experiments.profile import Profile
    from analysis.inputs import Head, Heads
    from approx import Method

PROFILES = ("quick", "default", "full")
CURRENCIES = ("stored", "reads", "multiply_adds", "bytes", "bytes_read")
OWN_PROCESS = 2**20  # entries measured; fewer are done before another process has begun


def scheduler(text: str) -> str:
    """Return the address of a scheduler, or "local"."""
    if text != "local" and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://[^\s/]+:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not tcp://HOST:PORT, nor local")
    return text


def size(text: str) -> int:
    """Return a number of bytes.

    Examples
    --------
    >>> size("1.5K")
    1536
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    count = float(parts[1]) * 1024.0 ** " KMGT".index((parts[2] or " ").upper()) if parts else 0.0
    if not 1 <= count < 2**63:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size such as 4G")
    return int(count)


def layer_heads(text: str) -> list[tuple[int, int]]:
    """Return (layer, head) of each.

    Examples
    --------
    >>> layer_heads("0.3,5.11")
    [(0, 3), (5, 11)]
    """
    pairs = [re.fullmatch(r"(\d{1,9})\.(\d{1,9})", part.strip()) for part in text.split(",")]
    if not all(pairs):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not LAYER.HEAD,LAYER.HEAD,… such as 0.3,5.11"
        )
    return [(int(p[1]), int(p[2])) for p in pairs if p]


def layers(text: str) -> list[int]:
    """Return the numbers of layers, the ranges among them written out.

    Examples
    --------
    >>> layers("0,5,10-12")
    [0, 5, 10, 11, 12]
    """
    ranges = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip()) for part in text.split(",")]
    ends = [(int(r[1]), int(r[2] or r[1])) for r in ranges if r]
    if len(ends) < len(ranges) or any(first > last for first, last in ends):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not LAYER,LAYER-LAYER,… such as 0,5,10-12"
        )
    return [layer for first, last in ends for layer in range(first, last + 1)]


def kinds(*known: str) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of file types that are separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        if not {*(names := text.split(","))} <= {*known}:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of {', '.join(known)}")
        return tuple(names)

    return read


# fmt: off
OPTIONS: dict[str, dict[str, Any]] = {
    "max-memory": {"type": size, "metavar": "SIZE",
        "help": "memory that arrays may take, such as 500M or 4G [half of the free memory]"},
    "qk": {"type": Path, "metavar": "FILE",
        "help": "your queries and keys: .npz, .safetensors, or a folder of .npy"},
    "heads": {"type": layer_heads, "metavar": "L.H,…",
        "help": "heads of FILE, as layer.head [all]"},
    "layers": {"type": layers, "metavar": "L,L-L,…"},
    "temperature": {"type": float, "default": 1.0, "metavar": "t",
        "help": "temperature relative to the file's own scaling [1]"},
    "profile": {"choices": PROFILES, "help":
        "how many inputs, sizes, draws and figures [default]"},
    "budget": {"type": float, "metavar": "B", "help":
        "what a method may cost, in the unit of --currency [as much as 32 exact keys]"},
    "currency": {"choices": CURRENCIES, "default": "bytes_read", "help":
        "what a price counts: bytes_read (bandwidth: bytes that a new query reads, for all heads "
        "that share keys), bytes (memory: bytes that the cache of these heads holds), reads "
        "(numbers that a new query reads), multiply_adds (arithmetic of a query row of a head) or "
        "stored (values of the estimated matrix, per query row of a head) [%(default)s]"},
    "device": {"metavar": "NAME", "default": "cpu", "help":
        "device of torch that the model computes on, such as cuda or mps; methods compute on the "
        "CPU [%(default)s]"},
    "method": {"action": "append", "metavar": "SPEC",
        "help": "measure this method, beside what people deploy, instead of the usual ones; "
        "repeatable"},
    "frontier": {"action": "store_true", "help":
        "choose and measure plans at a quarter, half, twice and four times the price, too"},
    "references": {"action": "store_true", "help":
        "also measure references, which need all logits: bounds and the best found (slow)"},
    "trials": {"type": int, "default": 5, "metavar": "N",
        "help": "number of draws of a random method [5]"},
    "rows": {"type": int, "metavar": "N",
        "help": "number of queries to measure [all; 256 if there are more than 4096]"},
    "lang": {"choices": LANGUAGES, "default": "en",
        "help": "language of the answer: English or Chinese [en]"},
    "seed": {"type": int, "default": 0, "metavar": "N",
        "help": "seed of every random draw, >= 0 [0]"},
    "max-tokens": {"type": int, "default": 512, "metavar": "N",
        "help": "first tokens of each text that are read [512]"},
    "held-out": {"type": Path, "metavar": "TEXT",
        "help": "a text to measure on, which is not used for choosing"},
    "setting": {"choices": ("rows", "prompt"), "default": "rows",
        "help": "rows: the methods compute every row; prompt: the prompt is read exactly, and is "
        "evicted or rounded afterwards [rows]"},
    "prompt-tokens": {"type": int, "metavar": "N",
        "help": "length of the prompt, for --setting prompt [half of the text]"},
    "jobs": {"type": int, "default": os.cpu_count() or 1, "metavar": "N",
        "help": "processes or threads, at least 1 [one for each processor]"},
    "scheduler": {"type": scheduler, "metavar": "tcp://HOST:PORT",
        "help": "address of a Dask cluster, or local"},
    "json": {"action": "store_true", "help": "for machines"},
    "out": {"type": Path, "metavar": "DIR"},
}
# fmt: on


def add(parser: argparse._ActionsContainer, *names: str, **changes: Any) -> None:
    """Add options by their names in `OPTIONS`, with other values of some keywords."""
    for name in names:
        parser.add_argument(f"--{name}", **OPTIONS[name] | changes)


def keywords(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the values of options as keyword arguments of the same names."""
    return {name: getattr(arguments, name) for name in names}


def refuse_idle(arguments: argparse.Namespace, beside: str, *names: str) -> None:
    """Refuse those of some options that were given beside one that makes no use of them."""
    idle = [
        action.option_strings[0] if action.option_strings else str(action.metavar)
        for action in arguments.parser._actions
        if action.dest in names and getattr(arguments, action.dest) not in (action.default, [])
    ]
    if idle and getattr(arguments, beside.replace("-", "_")):
        raise ValueError(f"--{beside} makes no use of {', '.join(idle)}")


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add a file of tensors, and which of its heads are looked at."""
    about = "queries and keys: .npz, .safetensors, or a folder of .npy"
    parser.add_argument("file", type=Path, metavar="FILE", help=about)
    add(parser, "heads", "temperature")


def add_model(parser: argparse.ArgumentParser, text: str | None = None, **nargs: Any) -> None:
    """Add a model, and the text that it reads, or several."""
    parser.add_argument("model", type=Path, metavar="MODEL_DIR", help="a folder, or a .gguf file")
    if text is not None:
        parser.add_argument("text", type=Path, metavar="TEXT", help=text, **nargs)


def add_kept(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a choice of layers or of heads."""
    add(parser.add_mutually_exclusive_group(), "layers", "heads", help=what)


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add what decides the numbers of a run."""
    add(parser, "qk")
    add(parser, "heads", help="heads of FILE, as layer.head [three, by range of logits]")
    add(parser, "profile", "budget")
    about = OPTIONS["currency"]["help"].replace("%(default)s", "stored")
    add(parser, "currency", default=None, help=about)  # `settings` has those that are given
    add(parser, "lang")
    add(parser, "seed", default=None)
    add(parser, "jobs")


def heads_of_file(arguments: argparse.Namespace) -> tuple[list[Head | Heads], int]:
    """Return the heads that are asked for, and how many processes are worth beginning for them."""
    from analysis.inputs import load

    whole = load(arguments.file)
    chosen: list[Head | Heads] = [whole]
    if arguments.heads is not None:
        chosen = [whole.at(*one) for one in arguments.heads]
    entries = sum(each.n * each.l * (each.q.size // (each.n * each.d)) for each in chosen)
    return chosen, min(arguments.jobs, 1 + entries // OWN_PROCESS)


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `diagnose` for the heads of a file."""
    from analysis.runs import output_files

    heads, jobs = heads_of_file(arguments)
    names = ("scheduler", "currency", "references", "temperature", "trials", "rows", "seed")
    out = arguments.out and output_files.inside(arguments.out, arguments.out / "heads/KEY").parent
    more = {"inputs": heads, "methods": methods(arguments), "jobs": jobs, "finished": out}
    return keywords(arguments, *names) | more


def methods(arguments: argparse.Namespace) -> list[Method] | None:
    """Return the methods of ``--method``, beside what people deploy; None are the usual ones."""
    from analysis.costs.candidates import rivals
    from approx import parse

    if arguments.method is None:
        return None
    asked = [parse(spec) for spec in arguments.method]
    return asked + [x for x in rivals() if x not in asked and arguments.currency != "stored"]


def announce(seconds: float) -> None:
    """Say on stderr about how long a run takes."""
    from figures.words.translation import tr

    known = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    print(tr("This takes about {time}.", time=known), file=sys.stderr, flush=True)


def show(
    arguments: argparse.Namespace, table: pd.DataFrame, text: Callable[[pd.DataFrame], str]
) -> None:
    """Print a table of heads as text, or as JSON if it is asked for."""
    print(as_json(table.to_dict("records")) if arguments.json else text(table))


def as_json(value: object) -> str:
    """Return JSON with the characters of every language, escaped where the terminal lacks them."""
    plain = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return json.dumps(json_value(value), ensure_ascii=plain, indent=2)


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: null for what is not finite, lists of sentences in words.

    A single sentence, such as the name of a theorem, is a key for machines: it stays English.
    """
    import numpy as np

    from analysis.sentences import Sentence
    from figures.words.translation import tr

    if isinstance(value, dict):
        return {str(name): json_value(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        said = (tr(x.message, **x.values) if isinstance(x, Sentence) else x for x in value)
        return [json_value(x) for x in said]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options given that decide the numbers, by their names in `profile`."""
    names = {
        "profile": "name", "qk": "path", "heads": "heads", "budget": "budget",
        "currency": "currency", "seed": "seed",
    }  # fmt: skip
    given = {ours: getattr(arguments, option) for option, ours in names.items()}
    return {name: value for name, value in given.items() if value is not None}


def profile(arguments: argparse.Namespace) -> Profile:
    """Return the profile that the options of `add_profile` describe."""
    from dataclasses import replace

    from analysis.experiments.profile import profile

    chosen = profile(**settings(arguments), jobs=arguments.jobs, progress=sys.stderr.isatty())
    entries = sum(x.n * x.l for x in chosen.inputs) * len(chosen.temperatures) * chosen.trials
    return replace(chosen, jobs=min(chosen.jobs, 1 + entries // OWN_PROCESS))


def unused(
    arguments: argparse.Namespace, fields: set[str], profile: Profile, table: pd.DataFrame
) -> list[str]:
    """Return the options given on which a figure with this table does not depend.

    ``fields`` of the profile were read. Heads of no use to a figure may have given way to others.
    """
    from analysis.experiments.profile import SYNTHETIC

    shown = {x.name for x in profile.inputs} & set(table.get("input", ()))
    own = shown if arguments.qk else shown.difference(SYNTHETIC)
    used = {
        "qk": own, "heads": own, "seed": fields & {"seed"} or shown - own,
        "profile": fields & {"inputs", "temperatures", "trials", "draws"},
        "budget": fields & {"budget"}, "currency": fields & {"currency"},
    }  # fmt: skip
    given = vars(arguments)
    return [f"--{name}" for name in used if given[name] is not None and not used[name]]
