"""Drawings: what they say of their curves, and how they get into a page without being code."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from matplotlib.figure import Figure

from figures.document.convert import to_html
from figures.document.page_drawings import Drawings, pairs
from figures.drawing import curve_readings, style


def drawn():
    """Two panels: named curves and a band, one alike without a name, bars, a grey line."""
    figure = Figure(figsize=(6, 3))
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot([1, 10, 100], [1e-3, 1e-1, 10], color="#3f90da", marker="o", label="rank $r_{2}$")
    left.fill_between([1, 100], [1e-3, 1], [1e-2, 10], color="#3f90da", alpha=0.2, linewidth=0)
    left.plot([1, 100], [1, 1], color="black", label="exact")
    left.set(xscale="log", yscale="log", xlabel="budget", ylabel="error")
    right.plot([0, 1, 2], [1, 2, 3], color="#3f90da", marker="o")
    right.errorbar([0, 1], [1, 1], [0.1, 0.2], color="#bd1f01", capsize=2, label="sampled")
    right.axhline(0.5, color="0.5")
    right.text(1, 5, "exact")
    right.text(1, 7, "a remark")
    figure.legend(loc="outside lower center")
    return figure


@pytest.fixture(scope="module")
def svg():
    return style.drawing(drawn(), "svg", "A title").decode()


def named(svg, kind):
    return re.findall(f'data-{kind}="([^"]*)"', svg)


def test_a_drawing_names_its_curves_bands_and_entries(svg):
    assert named(svg, "curve") == ["rank r_2", "exact", "rank r_2", "sampled"]
    assert named(svg, "band") == ["rank r_2", "sampled", "sampled", "sampled"]  # caps and bars
    assert sorted(named(svg, "entry")) == ["exact", "exact", "rank r_2", "sampled"]
    assert sorted(named(svg, "handle")) == ["exact", "rank r_2", "sampled"]
    ElementTree.fromstring(svg)


def test_the_scales_of_a_drawing_read_its_curves(svg):
    """The place of each marker, by the scales, is the value that was drawn."""
    left = svg[svg.index("data-x=") :]
    curve = left.split("data-curve")[1]
    places = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', curve)
    for name, values, axis in (("x", [1, 10, 100], 0), ("y", [1e-3, 1e-1, 10], 1)):
        kind, *numbers = re.search(f'data-{name}="([^"]*)"', left)[1].split()
        start, stop, least, most = map(float, numbers)
        assert kind == "log"
        shares = [(float(place[axis]) - start) / (stop - start) for place in places]
        read = [least * (most / least) ** share for share in shares]
        assert np.allclose(read, values, rtol=1e-5)  # of places with six digits
    assert named(svg, "x-name") == ["budget", ""]
    assert named(svg, "y-name") == ["error", "error"]  # of the same row


def test_an_axis_has_the_label_of_its_own_kind_only():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.plot([1, 2], [1, 2], label="a")
    left.set_ylabel("rank")
    right.plot([1, 2], [-1, 2], label="b")
    right.set_yscale("symlog", linthresh=0.01)
    right.set_title("bias")
    right.set_xticks([1, 2], ["head one", "½"])
    said = curve_readings.marked(figure).values()
    assert [x["data-x"].split()[0] for x in said if "data-x" in x] == ["linear", "none"]
    assert [x["data-y-name"] for x in said if "data-y-name" in x] == ["rank", "bias"]
    assert [x["data-y"].split()[0] for x in said if "data-y" in x] == ["linear", "symlog:0.01"]


def test_what_is_drawn_at_an_edge_is_said_to_be():
    figure = Figure()
    for ax in figure.subplots(1, 2):
        ax.plot([1, 2], label="a")
    curve_readings.edges(figure.axes[0], 1e-3)
    said = [x.get("data-edges") for x in curve_readings.marked(figure).values() if "data-x" in x]
    assert said == ["0.001 inf", None]


def test_what_two_curves_share_names_nothing():
    figure = Figure()
    ax = figure.subplots()
    for name in ("a", "b"):
        ax.plot([1, 2], color="#bd1f01", label=name, linestyle="-" if name == "a" else ":")
    ax.plot([1, 3], color="#bd1f01", linestyle="--")
    ax.fill_between([1, 2], [1, 2], color="#bd1f01")
    marked = curve_readings.marked(figure).values()
    assert [x.get("data-curve") for x in marked if "data-x" not in x] == ["a", "b"]


def test_drawings_of_a_page_share_what_they_have_in_common(svg, tmp_path):
    (tmp_path / "a.svg").write_text(svg, "utf-8")
    page = Drawings()
    first = page.inline(tmp_path / "a.svg", {"aria-label": 'a "b"'})
    shared = page.definitions()
    assert page.inline(tmp_path / "a.svg", {"aria-label": 'a "b"'}) == first
    assert page.definitions() == shared
    assert first.startswith(
        '<svg class="drawing" aria-label="a &quot;b&quot;" viewBox="0 0 432 216">'
    )
    for said in ("curve", "band", "entry", "handle", "x", "y", "x-name"):
        assert named(first, said) == named(svg, said)
    assert len(first) + len(shared) < len(svg) / 2
    used = set(re.findall(r'(?:href="|url\()#(\w+)', first + shared))
    assert used == set(re.findall(r'<\w+ id="(\w+)"', shared))
    classes = set(re.findall('class="(s[0-9]+)"', first + shared))
    assert classes == set(re.findall(r"^\.(\w+)\{", page.rules(), re.MULTILINE))
    ElementTree.fromstring(first)
    ElementTree.fromstring(shared)


def test_pixels_are_there_once_and_their_drawing_says_so(tmp_path):
    figure = Figure(figsize=(3, 2))
    for ax in figure.subplots(1, 2):
        ax.imshow([[0, 1], [1, 0]], interpolation="none")
    (tmp_path / "a.svg").write_bytes(style.drawing(figure, "svg"))
    page = Drawings()
    assert page.inline(tmp_path / "a.svg", {}).startswith('<svg class="drawing pictured" ')
    assert page.definitions().count("data:image/png;base64,") == 1


HOSTILE = [
    "<script>alert(1)</script>", "<foreignObject><p>x</p></foreignObject>", "<a href='#x'/>",
    "<animate attributeName='x'/>", "<text>x</text>", "<style>* { display: none }</style>",
    "<path onload='alert(1)' d=''/>", "<path style='fill: url(https://x.invalid)'/>",
    "<use href='https://x.invalid/x.svg#a'/>", "<image href='https://x.invalid/x.png'/>",
    "<image href='data:image/svg+xml;base64,AAAA'/>", "<path clip-path='url(https://x.invalid)'/>",
    "<use href='#missing'/>", "<g class='skip'/>", "<path style='fill:red}*{display:none'/>",
    "<g xmlns='http://www.w3.org/1999/xhtml'/>", "<g id='a'><use href='#a'/></g>",
]  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_a_drawing_with_an_unknown_part_stays_a_picture(part, tmp_path):
    text = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><title>x</title>{}</svg>'
    (tmp_path / "x.svg").write_text(text.format(part))
    (tmp_path / "y.svg").write_text(text.format("<circle r='1' data-curve='&lt;b&gt;'/>"))
    (tmp_path / "report.md").write_text("![](x.svg)\n\n![](y.svg)")
    to_html(tmp_path / "report.md", tmp_path / "page")
    page = (tmp_path / "page").read_text("utf-8")
    (source,) = re.findall('src="data:image/svg[^,]*,([^"]*)"', page)
    assert base64.b64decode(source).decode() == text.format(part)
    assert '<circle r="1" data-curve="&lt;b&gt;" />' in page
    assert page.count("<script") == 1


def test_the_font_of_a_page_has_the_names_of_its_curves(tmp_path):
    svg = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 9 9'>"
    text = f"{svg}<circle data-curve='秩'/></svg>"
    (tmp_path / "x.svg").write_text(text, "utf-8")
    (tmp_path / "report.md").write_text("---\nlang: zh\n---\n\n![](x.svg)", "utf-8")
    to_html(tmp_path / "report.md", tmp_path / "page")
    font = re.search(r"data:font/woff;base64,([\w+/=]+)", (tmp_path / "page").read_text("utf-8"))
    assert ord("秩") in TTFont(io.BytesIO(base64.b64decode(font[1]))).getBestCmap()


def test_attributes_are_text():
    assert pairs({"a": "<\"'&"}) == ' a="&lt;&quot;&#x27;&amp;"'


def test_a_drawing_in_a_page_is_the_drawing(svg, tmp_path):
    """Rounding moves nothing by more than half a thousandth of a point."""
    (tmp_path / "a.svg").write_text(svg, "utf-8")
    written = Drawings().inline(tmp_path / "a.svg", {})
    places = [re.findall(r'<use [^>]*\bx="([-\d.]+)"', text) for text in (svg, written)]
    assert len(places[0]) > 10
    assert np.allclose(*([float(x) for x in found] for found in places), rtol=0, atol=0.5001e-3)
