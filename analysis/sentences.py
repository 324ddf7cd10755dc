"""Sentences that keep their format string and values, so that figures can translate them."""

from typing import Any, Self


class Sentence(str):
    """A sentence that keeps its format string and values, so that it can be translated.

    Parameters
    ----------
    message : str
        A format string, or without values the text itself.
    **values
        The values of the format string.

    Examples
    --------
    >>> one = Sentence("needs {count} features", count=7)
    >>> one, one.message, one.values
    ('needs 7 features', 'needs {count} features', {'count': 7})
    """

    message: str
    values: dict[str, Any]

    def __new__(cls, message: str, **values: Any) -> Self:
        """Return the sentence in English."""
        self = super().__new__(cls, message.format(**values) if values else message)
        self.message, self.values = message, values
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Return the arguments that recreate the sentence in another process."""
        return (self.message,), self.values
