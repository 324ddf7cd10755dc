"""Texts that a user wrote: plans, notes, answers, and what a model reads."""

from pathlib import Path

from analysis.sentences import one_line

MOST_TEXT = 2**24  # bytes of a plan, notes or answers


def read_text(path: Path, kind: str = "file", most: int = MOST_TEXT) -> str:
    """Return a UTF-8 text that a user wrote, without a byte order mark.

    Raises
    ------
    FileNotFoundError, ValueError
        There is none, it is no regular file or larger than `most` bytes, or no UTF-8.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no {kind} {one_line(path)}")
    if not path.is_file() or path.stat().st_size > most:  # a pipe or a device may never end
        raise ValueError(f"{one_line(path)} is not a {kind} of at most {most} bytes")
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{one_line(path)} must be a UTF-8 file") from None
