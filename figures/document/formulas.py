"""Formulas: what pandoc 3.9 and typst 0.15 disagree on, said so that both agree."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from figures.document.pandoc import run
from figures.document.tree import Node, walk

# What pandoc 3.9 gets wrong on the way from TeX, said otherwise before it. Bars of a norm become
# relations with wide spaces, and \lVert, which does not grow in TeX, grows. For typst, \! becomes
# -1em and \; 0em, and sized bars become words; the triple bar stands for a norm that does not grow
# until _TYPST_SYMBOLS has its turn.
_BARS = (r"\|", r"\Vert", r"\lVert", r"\rVert")
_TEX_FOR_HTML = {bar: r"\Vert " for bar in _BARS} | {
    rf"\{side}{bar}": rf"\{side}\Vert " for side in ("left", "right") for bar in _BARS
}
_TEX_FOR_TYPST = {
    **_TEX_FOR_HTML,
    **{rf"\{big}{side}": " " for big in ("big", "Big", "bigg", "Bigg") for side in ("", *"lmr")},
    **{bar: " ⦀ " for bar in _BARS},
    r"\!": " ",
    r"\;": r"\:",
}
_TEX_TOKEN = re.compile(r"(?:\\(?:left|right)\s*(?=\\))?\\(?:[A-Za-z]+|.)", re.DOTALL)
_TEX_THOUSANDS = re.compile(r"\d+(?:\{,\}\d{3})+")
# And after it: names that typst 0.15 has changed, and bars, which typst would set apart from what
# they enclose wherever there is a blank in the source.
_TYPST_SYMBOLS = {
    r"\|": ' class("normal", bar.v)',
    "bar.v.triple": ' class("normal", bar.v.double)',
    "sect": "inter",
    "minus.circle": "minus.o",
    "times.circle": "times.o",
    "dot.circle": "dot.o",
    "bracket.l.double": "bracket.l.stroked",
    "bracket.r.double": "bracket.r.stroked",
}
_TYPST_TOKEN = re.compile(
    r"(?P<raw>(?:upright|bold|italic|sans|mono|label)\(|delim: )?"
    r'(?P<string>"(?:[^"\\]|\\.)+")|\\.|[A-Za-z]+(?:\.[A-Za-z]+)*',
    re.DOTALL,
)
# pandoc writes n\log n without the thin spaces that TeX puts around log, and MathML adds none.
_MATHML_OPERATOR = re.compile(
    "(?P<before></m(?:i|n|row|sub|sup|subsup|frac|sqrt)>)?"
    "(?<!<msub>)(?<!<msup>)(?<!<msubsup>)(?<!<munder>)(?<!<mover>)(?<!<munderover>)"
    r'<mrow>(?P<name><mi mathvariant="normal">[^<]+</mi><mo>(?:\u2061|&\#8289;)</mo>)</mrow>'
    r"(?P<after>(?=<m(?:i|n|row|sub|sup|subsup|frac|sqrt|over)\b))?"
)
_MATHML_PUNCTUATED = re.compile(
    r'<math display="inline"(?:(?!</math>).)*</math>[,.;:!?)\]’”…，。；：！？）】、]+', re.DOTALL
)
_THIN_SPACE = '<mspace width="0.167em"></mspace>'


def html_formula(node: Node) -> Node:
    """Say in a formula otherwise what pandoc's MathML writer gets wrong."""
    if isinstance(node, list) or node["t"] != "Math":
        return node
    return {"t": "Math", "c": [node["c"][0], _reworded(node["c"][1], _TEX_FOR_HTML)]}


def polished(page: str) -> str:
    """Return the page with operators spaced, and no line break between a formula and its comma."""
    page = _MATHML_OPERATOR.sub(_with_thin_spaces, page)
    return _MATHML_PUNCTUATED.sub(r'<span class="unbroken">\g<0></span>', page)


def _with_thin_spaces(match: re.Match[str]) -> str:
    """Return an operator such as log with a space towards each neighbour that needs one.

    The spaces stand inside its own row: elsewhere they could become an operand of a fraction.
    """
    before, after = match["before"] or "", match["after"] is not None
    space_before, space_after = _THIN_SPACE * bool(before), _THIN_SPACE * after
    return f"{before}<mrow>{space_before}{match['name']}{space_after}</mrow>"


def _formulas(node: Node) -> Iterator[Node]:
    """Yield every formula."""
    if isinstance(node, dict) and node.get("t") == "Math":
        yield node
    elif isinstance(node, (list, dict)):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _formulas(item)


def with_typst_formulas(pandoc: str, document: Node, build: Path) -> Node:
    """Return the tree with every formula in typst's own words.

    pandoc writes them, each by itself, so that a correction cannot reach into the text.
    """
    distinct = {(node["c"][0]["t"], node["c"][1]): node for node in _formulas(document)}
    if not distinct:
        return document
    rule = {"t": "HorizontalRule"}
    blocks: list[Node] = []
    for (_, tex), node in distinct.items():
        formula = {"t": "Math", "c": [node["c"][0], _reworded(tex, _TEX_FOR_TYPST)]}
        blocks += [{"t": "Para", "c": [formula]}, rule]
    written = run(
        pandoc,
        "--from=json",
        "--to=typst",
        "--wrap=none",
        text=json.dumps({**document, "meta": {}, "blocks": blocks}),
        folder=build,
    ).split("\n\n#horizontalrule\n")
    typst = dict(
        zip(distinct, (_corrected(formula.strip()) for formula in written[:-1]), strict=True)
    )

    def change(node: Node) -> Node:
        if isinstance(node, list) or node["t"] != "Math":
            return node
        return {"t": "RawInline", "c": ["typst", typst[node["c"][0]["t"], node["c"][1]]]}

    return walk(document, change)


def _reworded(tex: str, words: dict[str, str]) -> str:
    r"""Return a formula with its commands replaced by those pandoc gets right.

    >>> print(_reworded(r"10{,}000\,\left\|x\right\|^2", _TEX_FOR_HTML))
    \text{10,000}\,\left\Vert x\right\Vert ^2
    """
    tex = _TEX_THOUSANDS.sub(lambda match: rf"\text{{{match[0].replace('{,}', ',')}}}", tex)
    return _TEX_TOKEN.sub(lambda match: words.get("".join(match[0].split()), match[0]), tex)


def _corrected(formula: str) -> str:
    """Return pandoc's typst formula in the words of typst 0.15, names of operators as operators.

    >>> _corrected('$x times.circle y, "Var" x, upright("sect")$')
    '$x times.o y, op("Var", limits: #false) x, upright("sect")$'
    """

    def change(match: re.Match[str]) -> str:
        if match["string"] and not match["raw"]:
            # of pandoc's names those with a blank, such as arg max, have their index below
            return f"op({match['string']}, limits: #{str(' ' in match['string']).lower()})"
        for old, new in _TYPST_SYMBOLS.items():
            if match[0] == old or match[0].startswith(f"{old}."):
                return new + match[0].removeprefix(old)
        return match[0]

    return _TYPST_TOKEN.sub(change, formula)
