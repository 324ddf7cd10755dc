"""Options that several subcommands have, and what their texts are turned into."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from analysis.experiments.profile import Profile
    from analysis.inputs import Head, Heads
    from approx import Method

PROFILES = ("quick", "default", "full", "course")
LANGUAGES = ("en", "zh")
CURRENCIES = ("stored", "reads", "multiply_adds", "bytes", "bytes_read")
OWN_PROCESS = 2**20  # entries of heads; fewer are measured before another process has begun


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add the limit of memory, which every command has."""
    parser.add_argument(
        "--max-memory",
        type=size,
        metavar="SIZE",
        help="memory that arrays may take, such as 500M or 4G [half of the free memory]",
    )


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add a file of tensors, and which of its heads are looked at."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="queries and keys: .npz, .safetensors, or a folder of .npy",
    )
    parser.add_argument(
        "--heads", type=heads, metavar="L.H,…", help="heads of FILE, as layer.head [all]"
    )
    add_temperature(parser)


def add_temperature(parser: argparse.ArgumentParser) -> None:
    """Add a temperature."""
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="t",
        help="temperature relative to the file's own scaling [1]",
    )  # fmt: skip


def add_model(
    parser: argparse.ArgumentParser, text: str = "a UTF-8 text file", **nargs: Any
) -> None:
    """Add a model and the text that it reads, or several."""
    add_model_dir(parser)
    parser.add_argument("text", type=Path, metavar="TEXT", help=text, **nargs)


def add_model_dir(parser: argparse.ArgumentParser) -> None:
    """Add a model."""
    parser.add_argument("model", type=Path, metavar="MODEL_DIR", help="a folder, or a .gguf file")


def add_kept(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a choice of layers or of heads."""
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--layers", type=layers, metavar="L,L-L,…", help=what)
    kept.add_argument("--heads", type=heads, metavar="L.H,…", help=what)


def add_own_file(parser: argparse.ArgumentParser, usual: str) -> None:
    """Add a file that stands for bundled tensors, and which of its heads are looked at."""
    parser.add_argument(
        "--qk",
        type=Path,
        metavar="FILE",
        help="your queries and keys: .npz, .safetensors, or a folder of .npy",
    )
    parser.add_argument(
        "--heads", type=heads, metavar="L.H,…", help=f"heads of FILE, as layer.head [{usual}]"
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add what decides the numbers of a run."""
    add_own_file(parser, "three, by range of logits")
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        help="how many inputs, sizes and draws; course: eight to ten pages for a course [default]",
    )
    add_budget(parser)
    add_currency(parser)
    add_language(parser)
    add_seed(parser)
    add_jobs(parser)
    parser.set_defaults(currency=None, seed=None)  # `settings` has those that are given


def add_budget(parser: argparse._ActionsContainer, **more: Any) -> None:
    """Add a budget."""
    said = "what a query row may cost, in the unit of --currency [as much as 32 exact keys]"
    parser.add_argument("--budget", type=float, metavar="B", **{"help": said, **more})


def add_currency(parser: argparse.ArgumentParser, default: str = "stored") -> None:
    """Add what budgets and prices are counted in."""
    parser.add_argument(
        "--currency",
        choices=CURRENCIES,
        default=default,
        help="unit of prices: values stored per query row, numbers read per new query, "
        f"multiply-adds or bytes per query row, or bytes read at 16 bits a number [{default}]",
    )


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Add methods that stand for the usual ones."""
    parser.add_argument(
        "--method",
        action="append",
        metavar="SPEC",
        help="measure this method instead of the usual ones; repeatable",
    )


def add_references(parser: argparse.ArgumentParser) -> None:
    """Add what cannot be run to the usual methods."""
    parser.add_argument(
        "--references",
        action="store_true",
        help="also measure references, which need all logits: bounds and the best found (slow)",
    )


def add_trials(parser: argparse.ArgumentParser) -> None:
    """Add how often a method is measured."""
    parser.add_argument(
        "--trials", type=int, default=5, metavar="N", help="number of draws of a random method [5]"
    )


def add_draws(parser: argparse.ArgumentParser) -> None:
    """Add how often and on which queries a method is measured."""
    add_trials(parser)
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="number of queries to measure [all; 256 if there are more than 4096]",
    )


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add the language of what is said."""
    parser.add_argument(
        "--lang",
        choices=LANGUAGES,
        default="en",
        help="language of the answer: English or Chinese [en]",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the seed."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of every random draw, >= 0 [0]"
    )


def add_tokens(parser: argparse.ArgumentParser, which: str) -> None:
    """Add the length of a text."""
    parser.add_argument(
        "--max-tokens", type=int, default=512, metavar="N", help=f"first tokens {which} [512]"
    )


def add_jobs(parser: argparse.ArgumentParser, what: str = "processes") -> None:
    """Add the number of processes or threads: at least one, by default one for each processor."""
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help=f"{what}, at least 1 [one for each processor]",
    )


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """Add a cluster in place of processes."""
    parser.add_argument(
        "--scheduler",
        type=scheduler,
        metavar="tcp://HOST:PORT",
        help="address of a Dask cluster, or local",
    )


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a folder for what is done, with which a stopped run goes on."""
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder for {what} and the finished heads; a stopped run continues there",
    )


def add_json(parser: argparse.ArgumentParser, what: str = "for machines") -> None:
    """Add JSON in place of text."""
    parser.add_argument("--json", action="store_true", help=what)


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
    """Return how methods are measured on the heads of a file, by names of `diagnose`."""
    from analysis.compute import output_files

    heads, jobs = heads_of_file(arguments)
    names = ("scheduler", "currency", "references", "temperature", "trials", "rows", "seed")
    given = {name: getattr(arguments, name) for name in names}
    out = arguments.out and output_files.inside(arguments.out, arguments.out / "heads/KEY").parent
    return given | {"inputs": heads, "methods": methods(arguments), "jobs": jobs, "finished": out}


def methods(arguments: argparse.Namespace) -> list[Method] | None:
    """Return the methods of `add_methods`; None are the usual ones."""
    from approx import parse

    return None if arguments.method is None else [parse(spec) for spec in arguments.method]


def show(
    arguments: argparse.Namespace, table: pd.DataFrame, text: Callable[[pd.DataFrame], str]
) -> None:
    """Print a table of heads as text, or as JSON if it is asked for."""
    from figures.show import diagnosis

    print(as_json(diagnosis.objects(table)) if arguments.json else text(table))


def as_json(value: object) -> str:
    """Return JSON with the characters of every language, escaped where the terminal lacks them."""
    plain = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=plain, indent=2)


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
    from analysis.experiments.profile import profile

    return profile(**settings(arguments), jobs=arguments.jobs, progress=sys.stderr.isatty())


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


def heads(text: str) -> list[tuple[int, int]]:
    """Return (layer, head) of each.

    Examples
    --------
    >>> heads("0.3,5.11")
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
