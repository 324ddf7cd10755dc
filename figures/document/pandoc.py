"""pandoc, as a program that gets text and gives text; never through a shell."""

import os
import re
import subprocess
from pathlib import Path

_PATIENCE = 60
_MEMORY = "2g"  # aliases of YAML can stand for more than any machine holds
# pandoc calls these warnings; a report without its formula or its figure is worse than none
_LOST = re.compile(
    r"\[WARNING\] (Could not (?:convert TeX math|fetch resource).*?)(?:, rendering|$)", re.MULTILINE
)


def executable() -> str:
    """Return the path of pandoc, the wheel's own before any other on the machine."""
    try:
        import pypandoc

        own = Path(pypandoc.__file__).parent / "files" / f"pandoc{'.exe' * (os.name == 'nt')}"
        return str(own if own.is_file() else pypandoc.get_pandoc_path())
    except (ImportError, OSError) as error:
        raise ImportError("a report needs pandoc: pip install -e '.[report]'") from error


def run(pandoc: str, *arguments: str, text: str, folder: Path) -> str:
    """Return what pandoc makes of `text`, working in `folder` and with no settings of the user."""
    try:
        process = subprocess.run(
            [pandoc, "+RTS", f"-M{_MEMORY}", "-RTS", f"--data-dir={folder}", *arguments],
            input=text.encode(),
            capture_output=True,
            cwd=folder,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"pandoc: no answer within {_PATIENCE} s: something in the document is repeated or "
            "nested too often"
        ) from None
    messages = process.stderr.decode(errors="replace")
    if lost := _LOST.search(messages):
        raise RuntimeError(f"pandoc: {lost[1]}")
    if process.returncode:
        raise RuntimeError(f"pandoc: {first_useful_line(messages)}")
    return process.stdout.decode()


def first_useful_line(messages: str) -> str:
    """Return the first line that is neither blank nor a mere notice."""
    lines = (line.strip() for line in messages.splitlines())
    return next((x for x in lines if x and not x.startswith(("[WARNING]", "[INFO]"))), "no message")
