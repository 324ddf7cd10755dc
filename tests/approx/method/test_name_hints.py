"""Names that people know lead to a method."""

import re

import pytest

from approx import ALIASES, METHODS, parse
from approx.method import name_hints
from approx.method.name_hints import MEANT, plain

KNOWN = [*METHODS, *ALIASES]


def test_the_table_names_methods_that_there_are_and_nothing_twice():
    assert set(MEANT.values()) <= set(KNOWN)
    plainly = [*map(plain, KNOWN), *MEANT]
    assert len(set(plainly)) == len(plainly)
    assert all(plain(name) == name for name in MEANT)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("StreamingLLM", "streaming_llm"),
        ("streaming-llm", "streaming_llm"),
        ("H2O", "h2o"),
        ("Nyström", "nystrom"),
        ("FAVOR+", "performer"),
        ("favor++", "generalized_exponential"),
        ("Linear Attention", "elu"),
        ("softmax", "exact"),
        ("positive", "positive"),
        ("nothing like it", None),
    ],
)
def test_a_name_is_known_as_people_write_it(name, method):
    assert name_hints.meant(name, KNOWN) == method


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("H2O(k=32)", "unknown method 'H2O', did you mean 'h2o'?"),
        ("linear_attention", "unknown method 'linear_attention', did you mean 'elu'?"),
        ("postive", "unknown method 'postive', did you mean 'positive' or "),
    ],
)
def test_a_spec_of_another_spelling_names_the_method(spec, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse(spec)
