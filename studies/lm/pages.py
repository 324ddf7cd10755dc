"""Common parts of the studies of a language model: heads, tables and pages."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.inputs import Head
from figures.words.markdown import table
from studies.lm import head_kinds

HEAD = ["layer", "head"]


def numbers(frame: pd.DataFrame, digits: int = 3) -> str:
    """Return a Markdown table; numbers have ``digits`` significant digits."""
    rows = (
        [x if isinstance(x, str) else "" if pd.isna(x) else f"{x:.{digits}g}" for x in row]
        for row in frame.to_numpy(object)
    )
    return table(frame.columns, rows)


def kinds(shares: pd.DataFrame) -> pd.Series:
    """Return the kind of every head, by layer and head, from a table like data/smollm2.csv."""
    said = [head_kinds.kind({str(k): v for k, v in row.items()}) for _, row in shares.iterrows()]
    return pd.Series(said, index=pd.MultiIndex.from_frame(shares[HEAD]))


def date() -> datetime.date:
    """Return the date, in UTC."""
    return datetime.datetime.now(datetime.UTC).date()


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of a study that writes a page."""
    made = argparse.ArgumentParser(prog=f"python -m studies.lm{name}", description=about)
    made.add_argument("--summary", type=Path, required=True, help="a .md file")
    return made


def add_model(parser: argparse.ArgumentParser, tokens: int) -> None:
    """Add the arguments for a model and the length of a text."""
    parser.add_argument("model", type=Path, help="a folder or a GGUF file")
    parser.add_argument("--tokens", type=int, default=tokens, help=f"[{tokens}]")


def add_heads(parser: argparse.ArgumentParser, count: int | None, tokens: int) -> None:
    """Add the arguments for a file, the number of its heads, and the number of tokens."""
    parser.add_argument("file", type=Path, help="Q, K and V of a language model")
    parser.add_argument(
        "--heads", type=int, default=count, help=f"at equal distances [{count or 'all'}]"
    )
    parser.add_argument("--tokens", type=int, default=tokens, help=f"the first ones [{tokens}]")


def heads(arguments: argparse.Namespace) -> Sequence[Head]:
    """Return the heads that the arguments of `add_heads` select."""
    every = list(inputs.load(arguments.file).heads())
    count = min(arguments.heads or len(every), len(every))
    places = np.linspace(0, len(every) - 1, count).round().astype(int)
    return [every[i].first(min(arguments.tokens, every[i].n)) for i in places]


def write(arguments: argparse.Namespace, *parts: str) -> None:
    """Write a page of paragraphs and tables, and print its name."""
    arguments.summary.write_text("\n\n".join(parts).rstrip("\n") + "\n", encoding="utf-8")
    print(arguments.summary)
