"""``expqk capture``."""

from __future__ import annotations

import argparse
from pathlib import Path

from figures.command import options

HELP = "Q, K, V of a local Hugging Face transformer on a text."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("text", type=Path, metavar="TEXT", help="a UTF-8 text file")
    parser.add_argument("--out", type=Path, required=True, help=".npz or .safetensors")
    parser.add_argument("--heads", type=options.heads, metavar="L.H,…", help="keep these only")
    parser.add_argument("--max-tokens", type=int, default=512, metavar="N", help="[512]")


def run(arguments: argparse.Namespace) -> int:
    from analysis.capture import capture, save

    if arguments.out.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"--out must end in .npz or .safetensors, got {arguments.out}")
    captured = capture(arguments.model, arguments.text, max_tokens=arguments.max_tokens)
    save(captured, arguments.out, heads=arguments.heads)
    print(arguments.out)
    return 0
