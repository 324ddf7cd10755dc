"""What objects show of themselves: one line of text, and a table of well-formed HTML."""

from xml.etree import ElementTree

import numpy as np
import pytest

from analysis.inputs import Heads, gaussian
from analysis.models.plan import Plan
from approx import METHODS, Mask, notebook, parse
from approx.method import Moments
from approx.method.tags import ORACLE

X = gaussian(6, 3, rng=0)
Q = np.ones((30, 4, 3))
MANY = Heads("a <b> & c", Q, Q, mask="causal", ids=tuple((0, i, f"0.{i}") for i in range(30)))


OBJECTS = {
    "inputs": X,
    "heads": MANY,
    "windows": Heads("w", *(np.ones((2, 4, 3)),) * 2, mask=(Mask.window(4, 4, 2), "causal"),
                      ids=((0, 0, "a"), (0, 1, "b"))),
    "estimate": X.approximate(parse("scatterbrain(positive(m=2), top_k(k=2))"), rng=0),
    "of rows": X.approximate(parse("truncated_svd(rank=2, space='attention')")),
    "wide": X.approximate(parse("tensor_power(n=1000000)")),
    "moments": parse("positive(m=2)").moments(X.Q, X.K),
    "none": Moments(np.zeros((2, 3)), np.full((2, 3), -np.inf)),
    "plan": Plan("<i>", {(0, 1): parse("top_k(k=2)"), (2, 3): parse("top_k(k=2)")}),
}  # fmt: skip


@pytest.mark.parametrize("one", OBJECTS.values(), ids=list(OBJECTS))
def test_an_object_is_a_line_and_a_table(one):
    assert "\n" not in repr(one)
    assert len(repr(one)) <= 120
    table = ElementTree.fromstring(one._repr_html_())
    assert {cell.tag for cell in table.iter()} <= {"table", "caption", "tr", "th", "td"}
    assert len({sum(1 for _ in row) for row in table.iter("tr")} - {1}) == 1  # rows of one length


def test_every_method_shows_its_spec_and_what_it_is():
    for name in METHODS:
        one = parse(name)
        caption, *rows = ElementTree.fromstring(one._repr_html_())
        assert caption.text == str(one)
        said = {row[0].text: row[1].text for row in rows}
        assert said["needs all logits"] == ("yes" if ORACLE in one.tags else "no")
        assert said["size"].startswith("open") == one.is_template


def test_what_is_shown_is_what_there_is():
    assert repr(X) == "<Head 'gaussian': 6 queries, 6 keys, d = 3, c = 3, full, t = 1>"
    assert repr(MANY).endswith("30 heads, 4 queries, 4 keys, d = 3, causal, t = 1>")
    rows = ElementTree.fromstring(MANY._repr_html_()).findall("tr")
    assert len(rows) == 1 + notebook.MOST_ROWS + 1
    assert rows[-1][0].text == "and 6 more"
    assert rows[24][0].text == "0.23"
    assert "exp(q·k), mask full: rank 2, 12 entries, float64" in repr(OBJECTS["estimate"])
    assert repr(OBJECTS["plan"]) == "<Plan of '<i>': 2 heads by 1 method>"
    assert repr(OBJECTS["none"]).endswith("bias 0 to 0, log relative variance -inf to -inf>")
