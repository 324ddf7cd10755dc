"""Columns of a terminal, with Chinese in them."""

import textwrap

from hypothesis import given, strategies as st

from figures.words import terminal_columns


@given(
    text=st.text(st.sampled_from("ab \u0301秩，。（）x1=·"), max_size=40).map(str.strip),
    size=st.integers(4, 30),
)
def test_wrapped_text_is_all_there_and_fits(text, size):
    lines = terminal_columns.wrap(text, size)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(terminal_columns.width(line) <= size for line in lines)
    assert not any(line.startswith(" ") or line.endswith(" ") for line in lines)


def test_a_stop_stays_with_what_it_ends():
    assert terminal_columns.wrap("宽度为 n；而不是 d。", 9) == ["宽度为", "n；而不是", "d。"]
    assert terminal_columns.wrap("一二三四。", 8) == ["一二三", "四。"]


def test_a_bracket_opens_before_what_it_holds():
    assert terminal_columns.wrap("按通道的 top-k（SparQ）", 16) == [
        "按通道的 top-k",
        "（SparQ）",
    ]


def test_english_is_wrapped_as_textwrap_does():
    text = "The causal normaliser is (g−1)c, the tokens summed over; a well-known one."
    assert terminal_columns.wrap(text, 20) == textwrap.wrap(text, 20)


def test_padding_counts_columns():
    for text in ("秩", "rank", "e\u0301"):
        assert terminal_columns.width(terminal_columns.pad(text, 8)) == 8
