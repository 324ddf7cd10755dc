"""A page for each figure of the gallery, and a notebook, made from figures/README.md.

Sphinx writes them when it builds the documents, so that every caption is stored once. This module
imports none of the figures.
"""

from __future__ import annotations

import json
import re

CODE = """\
from analysis.experiments.profile import profile
from figures.album import FIGURES, told
table = FIGURES["{name}"].compute(profile("default"))  # "quick": smaller inputs, sooner
FIGURES["{name}"].draw(table).savefig("{name}.png")
print(told("{name}", table))
"""
FOLDED = r"<details><summary>(.*?)</summary>\n\n(.*?)\n\n</details>"
PAGE = """\
# {title}

{body}

## Make it yourself

```python
{code}```

The same lines as {{download}}`a notebook <{name}.ipynb>`. As a command, which also writes the table
as CSV, the picture as PDF and SVG, and the numbers as text:

```sh
.venv/bin/expqk figures {name}
```

With your own queries and keys it is `profile("default", path="qk.npz")`, and `--qk qk.npz`. The
figure is one module, `figures/gallery/{name}.py`.
"""


def sections(gallery: str) -> dict[str, tuple[str, str]]:
    r"""Return the title of each figure and what the gallery says of it, by its name.

    Examples
    --------
    >>> sections("# Gallery\n\n## a\n\nAbout a.\n\n![A figure](../docs/gallery/a.png)\n")
    {'a': ('A figure', 'About a.\n\n![A figure](../gallery/a.png)')}
    """
    _, *parts = re.split(r"^## (\w+)\n", gallery, flags=re.MULTILINE)
    found = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        title = re.findall(r"!\[(.*?)\]", body)[0]
        body = body.replace("](../docs/gallery/", "](../gallery/").strip()
        found[name] = title, re.sub(FOLDED, r"## \1\n\n\2", body, flags=re.DOTALL)
    return found


def files(gallery: str) -> dict[str, str]:
    r"""Return the pages and notebooks of all figures, by their names in the folder of pages.

    Examples
    --------
    >>> list(files("## a\n\n![A figure](../docs/gallery/a.png)\n"))
    ['a.md', 'a.ipynb', 'index.md']
    """
    every = sections(gallery)
    written = {}
    for name, (title, body) in every.items():
        code = CODE.format(name=name)
        written[f"{name}.md"] = PAGE.format(name=name, title=title, body=body, code=code)
        written[f"{name}.ipynb"] = notebook(title, body, code)
    written["index.md"] = index(every)
    return written


def index(every: dict[str, tuple[str, str]]) -> str:
    """Return the first page: each figure with a small picture, its title, and what it shows."""
    lines = ["# Gallery", ""]
    lines += [
        f"{len(every)} figures at the command's defaults, a page each: what it says in numbers,",
        "and the five lines of Python, or the command, that make it.",
        "",
    ]
    for name, (title, _) in every.items():
        lines += [
            f"**[{title}]({name}.md)**",
            "",
            f"```{{image}} ../gallery/{name}.png",
            f":alt: {title}",
            ":width: 320px",
            f":target: {name}.html",
            "```",
            "",
        ]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *every, "```", ""])


def notebook(title: str, body: str, code: str) -> str:
    """Return a notebook with the same lines, which shows the figure instead of saving it."""
    shown = re.sub(r"\.savefig\(.*\)", "", code).splitlines(keepends=True)
    sentence = re.sub(r"\n.*", "", body, flags=re.DOTALL)
    code_cell: dict[str, object] = {"cell_type": "code", "execution_count": None, "outputs": []}
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "source": f"# {title}\n\n{sentence}"}
    ]
    for source in ("%matplotlib inline\n" + "".join(shown[:3]), *shown[3:]):
        cells.append({**code_cell, "source": source.strip()})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": [{"id": f"cell-{i}", "metadata": {}} | cell for i, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"
