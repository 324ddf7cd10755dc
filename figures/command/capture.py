"""``expqk capture``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from figures.command import options

if TYPE_CHECKING:
    from analysis.models.capture import Capture

EXAMPLES = ("expqk capture MODEL_DIR TEXT --out qk.safetensors",)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "a UTF-8 text file")
    about = "the file to write: .npz or .safetensors"
    options.add(parser, "out", metavar="FILE", required=True, help=about)
    options.add_kept(parser, "keep these only [all]")
    options.add(parser, "max-tokens")
    about = "keep the queries of the last R tokens only, and all keys [all]"
    parser.add_argument("--queries", type=int, metavar="R", help=about)
    types = ("float16", "float32", "float64")
    about = "type of the stored numbers [float16]"
    parser.add_argument("--dtype", choices=types, default=types[0], help=about)
    options.add(parser, "device")
    about = "run a second time with the model's own attention and compare"
    parser.add_argument("--check", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> int:
    from analysis.models import checkpoints
    from analysis.models.capture import capture, save

    checkpoints.texts(arguments.model, arguments.text)
    if arguments.out.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"--out must end in .npz or .safetensors, got {arguments.out}")
    heads = arguments.heads
    how = options.keywords(
        arguments, "layers", "heads", "max_tokens", "queries", "dtype", "device", "check"
    )
    captured = capture(arguments.model, arguments.text, **how)
    save(captured, arguments.out, heads=heads)
    count = captured.q.shape[0] * captured.q.shape[1] if heads is None else len(heads)
    if arguments.check:
        print("With its own attention the model gives the same outputs (--check).", file=sys.stderr)
    print(_said(captured, count, arguments.out), file=sys.stderr)
    print(arguments.out)
    return 0


def _said(captured: Capture, count: int, path: Path) -> str:
    """Return the content of a file, and the commands to go on with."""
    from approx import checks

    mask = "causal" if captured.causal else "no mask"
    if captured.windows:
        widths = sorted({width for width in captured.windows if width})
        mask += f", windows of {' and '.join(map(str, widths))}"
    if captured.q.shape[2] < captured.token_ids.size:
        mask += f", queries of the last {checks.counted(captured.q.shape[2], 'token')}"
    kept = captured.token_ids.size
    tokens = f"All {kept} tokens of the text"
    if captured.tokens is None:
        tokens = f"The first {kept} tokens of the text (--max-tokens)"
    elif kept < captured.tokens:
        tokens = (
            f"The text is cut to the first {kept} of its {captured.tokens} tokens (--max-tokens)"
        )
    return (
        f"{tokens}; {checks.counted(count, 'head')} of width "
        f"{captured.q.shape[-1]}, {mask}; {captured.q.dtype}, {path.stat().st_size / 1e6:.1f} MB.\n"
        f"Next: expqk diagnose {shlex.quote(str(path))}"
    )
