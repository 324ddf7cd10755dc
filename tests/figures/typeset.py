"""What typst makes of a document, page by page: where headings and captions are, and the ink."""

import io
import json

import numpy as np
import typst
from PIL import Image

PAGE, BOTTOM = 297.0, 272.0  # mm: of the paper, and where nothing but its number follows
WHERE = """
#context [#metadata(query(selector(heading).or(figure.caption)).map(it => (
  if it.func() == heading { "heading" } else { repr(it.kind) },
  it.location().page(), it.location().position().y.mm(),
))) <where>]"""


def compiled(patch):
    """Return what will hold the next source that typst compiles, and how it is compiled."""
    given = {}

    class Compiler:
        def __init__(self, text, **how):
            self.how, self.own = how | {"text": text.decode()}, compiler(text, **how)
            self.query = self.own.query

        def compile(self, **how):
            given or given.update(self.how)
            return self.own.compile(**how)

    compiler = typst.Compiler
    patch.setattr(typst, "Compiler", Compiler)
    return given


def faults(given, source=None):
    """Return what is wrong with the pages: "order", "alone" or "empty", and the page.

    They are those of what `compiled` holds, or of another source.

    order: a figure has left its section, or is before an earlier one of its kind.
    alone: nothing is below a heading. empty: less than half of a page, not the last, is full.
    """
    how = {name: given[name] for name in given.keys() - {"text"}}
    source = source or given["text"]
    answer = typst.query((source + WHERE).encode(), "<where>", field="value", one=True, **how)
    marks = [(kind, (page, y)) for kind, page, y in json.loads(answer)]
    wrong, latest = [], {}
    for kind, at in marks:  # in the order of the text
        before = latest.values() if kind == "heading" else map(latest.get, ("heading", kind))
        wrong += [("order", at[0])] * (max(filter(None, before), default=at) > at)
        latest[kind] = at
    images = typst.compile(source.encode(), format="png", ppi=25, **how)
    ends = []
    for one in images if isinstance(images, list) else [images]:
        ink = np.asarray(Image.open(io.BytesIO(one)).convert("L")) < 200
        rows = np.flatnonzero(ink[: int(BOTTOM / PAGE * len(ink))].any(axis=1))
        ends.append(rows.max(initial=0) / len(ink) * PAGE)
    wrong += [("alone", p) for kind, (p, y) in marks if kind == "heading" and ends[p - 1] < y + 6]
    return wrong + [("empty", page) for page, end in enumerate(ends[:-1], 1) if end < PAGE / 2]
