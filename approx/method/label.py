"""The name by which people know a method."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

NONE: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


class Label(str):
    """The name by which people know a method, and the names of its variants.

    Parameters
    ----------
    text : str
        Such as ``"Taylor, degree {degree}"``; a field of the method stands in braces.
    variants : mapping from name to mapping
        The fields that a variant's name stands for, with their values: a method by its own name,
        ``...`` for any value but None. The first variant that a method has is its name.
    """

    variants: Mapping[str, Mapping[str, Any]]

    def __new__(cls, text: str, variants: Mapping[str, Mapping[str, Any]] = NONE) -> Self:
        label = super().__new__(cls, text)
        label.variants = variants or getattr(text, "variants", NONE)
        return label

    @property
    def names(self) -> tuple[str, ...]:
        """The name and those of the variants, in the order of a legend."""
        return (str(self), *self.variants)

    def choose(self, method: object) -> str:
        """Return the name of a method, with its fields in braces.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> label = Label("sketch", {"Gaussian sketch": {"law": "gaussian"}})
        >>> label.choose(SimpleNamespace(law="gaussian"))
        'Gaussian sketch'
        """
        for name, fields in self.variants.items():
            if all(_has(getattr(method, field), value) for field, value in fields.items()):
                return name
        return str(self)


def _has(own: Any, value: Any) -> bool:
    return own is not None if value is ... else bool(getattr(own, "name", own) == value)
