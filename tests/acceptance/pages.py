"""What the pages print: commands and snippets, each with the page on which it stands."""

import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# The files of a reader: twelve causal heads with grouped keys, and the other two forms.
HEADS, TENSORS, FOLDER = "my heads_v1.2 (最终).npz", "my heads (最终).safetensors", "my heads v1.2"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
BEGINS = ("expqk ", "pytest test_", "make ", "pip ", "python -m ", "python3 -m ")
WORD = re.compile(r"expqk \w+")  # a text speaks of a command, and does not print one
EXAMPLE = re.compile(r"^  (expqk .*?)(?:  .*)?$", re.MULTILINE)


class Printed(NamedTuple):
    """A command as a page prints it."""

    page: str
    command: str


def pages():
    """Return the pages that a user reads, by name; no page that a command writes anew."""
    written = ROOT / "docs/figures", ROOT / "docs/api", ROOT / "docs/accuracy.md"
    docs = [p for p in sorted((ROOT / "docs").rglob("*.md")) if not {p, *p.parents} & {*written}]
    found = [ROOT / "README.md", ROOT / "README.zh-CN.md", *docs]
    return {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in found}


def blocks(text):
    """Return the blocks of a page as (language, text)."""
    return BLOCK.findall(text)


def commands(text):
    r"""Return the commands that a page prints, without their comments.

    Examples
    --------
    >>> commands("\n```sh\nexpqk claims   # all\n```\n" + "`make test`, `expqk` and `expqk x`")
    ['expqk claims', 'make test']
    """
    lines = [line for kind, code in blocks(text) if kind == "sh" for line in code.splitlines()]
    inline = [" ".join(code.split()) for code in INLINE.findall(BLOCK.sub("", text))]
    bare = [re.split(r"\s+# ", line)[0].strip() for line in lines]
    bare += [code for code in inline if not WORD.fullmatch(code)]
    bare = [command.removeprefix(".venv/bin/") for command in bare]
    return [command for command in dict.fromkeys(bare) if command.startswith(BEGINS)]


def examples(help_text):
    """Return the commands that a help text or the guide of ``expqk`` prints.

    Examples
    --------
    >>> examples("Begin with\\n  expqk diagnose FILE   your arrays\\n")
    ['expqk diagnose FILE']
    """
    return EXAMPLE.findall(help_text)


def printed():
    """Return every command of every page."""
    return [Printed(page, each) for page, text in pages().items() for each in commands(text)]


def typed(language, code):
    """Return the lines of a block that are commands of an installed ``expqk``."""
    return [x for x in code.splitlines() if language == "sh" and x.startswith("expqk ")]


def shown(page_blocks):
    """Return the blocks that are commands, each before what the page says that it prints."""
    pairs = itertools.pairwise(page_blocks)
    return [each for pair in pairs if (pair[0][0], pair[1][0]) == ("sh", "text") for each in pair]


def script(page_blocks):
    """Return a script that does what the blocks of a page do, one after the other.

    It writes a line with `END` after each block, by which `outputs` parts what is printed.
    """
    lines = ["import subprocess as _shell"]
    for language, code in page_blocks:
        if language == "python":
            lines.append(code)
        lines += [f"_shell.run({shlex.split(x)!r}, check=True)" for x in typed(language, code)]
        lines.append(f"print({END!r}, flush=True)")
    return "\n".join(lines)


def outputs(page_blocks, stdout):
    r"""Yield (code, what the page says that it prints or "", what it printed).

    Examples
    --------
    >>> [*outputs([("python", "print(2)\n"), ("text", "3\n")], f"2\n{END}\n{END}\n")]
    [('print(2)\n', '3\n', '2\n')]
    """
    after = [*page_blocks[1:], ("", "")]
    for (language, code), (kind, said), part in zip(page_blocks, after, stdout.split(f"{END}\n")):
        if language in ("python", "sh"):
            yield code, said if kind == "text" else "", part


END = "— end of a block —"
