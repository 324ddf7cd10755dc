"""Sentences that keep their format and their numbers, so that figures can translate them."""

from typing import Any, Self


class Sentence(str):
    """A sentence that also keeps its format and its numbers, so that it can be translated.

    Parameters
    ----------
    message : str
        A format; where there are no values, the text itself.
    **values
        The values of the format.

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
        """Return the arguments that make the same sentence in another process."""
        return (self.message,), self.values
