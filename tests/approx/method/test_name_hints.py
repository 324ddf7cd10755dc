"""Names that people know: each leads to a method, or to the reason why there is none."""

import importlib
import re

import pytest

from approx import ALIASES, METHODS, parse
from approx.method import name_hints
from approx.method.name_hints import MEANT, NONE_HERE, plain

KNOWN = [*METHODS, *ALIASES]


def test_the_tables_name_methods_that_there_are_and_nothing_twice():
    assert set(MEANT.values()) <= set(KNOWN)
    plainly = [*map(plain, KNOWN), *MEANT, *map(plain, NONE_HERE), *name_hints._OTHERS]
    assert len(set(plainly)) == len(plainly)
    assert all(plain(name) == name for name in [*MEANT, *name_hints._OTHERS])
    assert set(name_hints._OTHERS.values()) <= set(NONE_HERE)


@pytest.mark.parametrize("name", NONE_HERE)
def test_a_reason_names_what_there_is(name):
    said = name_hints.why_none(name)
    assert said.startswith(name)
    for path in re.findall(r"`(analysis[\w.]+)`", said):
        try:
            importlib.import_module(path)
        except ModuleNotFoundError:
            module, _, member = path.rpartition(".")
            assert hasattr(importlib.import_module(module), member)
    for one in re.findall(r"\b(exact|quest|sparq|h2o|snapkv)\b", said.removeprefix(name)):
        assert one in KNOWN or "exact attention" in said


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
        ("flashattention", "no method 'flashattention': FlashAttention computes exact attention"),
        ("GQA(k=3)", "no method 'GQA': GQA is how heads of a model share"),
        ("H2O(k=32)", "unknown method 'H2O', did you mean 'h2o'?"),
        ("linear_attention", "unknown method 'linear_attention', did you mean 'elu'?"),
        ("postive", "unknown method 'postive', did you mean 'positive' or "),
    ],
)
def test_a_spec_of_a_name_that_is_no_method_says_why(spec, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse(spec)
