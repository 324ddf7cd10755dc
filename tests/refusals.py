"""A call that must be refused, in one line."""

import pytest


def refuses(text, call, /, *given, **options):
    """Hold that a call raises a ValueError whose message matches a regular expression."""
    with pytest.raises(ValueError, match=text):
        call(*given, **options)
