"""A page for each figure of the gallery, and a notebook, made from figures/README.md or its twin.

Sphinx writes them when it builds the documents, so that every caption is stored once. This module
imports none of the figures.
"""

import json
import re

CODE = """\
from analysis.experiments.profile import profile
from figures.document.album import FIGURES, draw, told
table = FIGURES["{name}"].compute(profile("default"))  # "quick": smaller inputs, sooner
draw("{name}", table).savefig("{name}.png")
print(told("{name}", table))
"""
SUFFIX = {"en": "", "zh": ".zh-CN"}
PAGES = {
    "en": """\
# {title}

{body}

## Make it yourself

```python
{code}```

The same lines as {{download}}`a notebook <{name}.ipynb>`; [中文]({name}.zh-CN.md). As a command,
which also writes the table as CSV, the picture as PDF and SVG, and what it shows as text:

```sh
.venv/bin/expqk figures {name}
```

For your own queries and keys, write `profile("default", path="qk.npz")` in Python, or add
`--qk qk.npz` to the command. The figure is one module, `figures/gallery/{name}.py`.
""",
    "zh": """\
# {title}

{body}

## 自己来画

```python
{code}```

同样的几行代码也有{{download}}`笔记本 <{name}.zh-CN.ipynb>`；[English]({name}.md)。
放进 `with figures.words.translation.speaking("zh"):` 之中，图和文字就是中文。
也可以用命令，它还会写出 CSV 数据、PDF 与 SVG 图片，以及文字形式的说明：

```sh
.venv/bin/expqk figures {name} --lang zh
```

用自己的查询和键时写 `profile("default", path="qk.npz")`，命令则加 `--qk qk.npz`。
这张图是一个模块：`figures/gallery/{name}.py`。
""",
}
INDEXES = {
    "en": (
        "# Gallery",
        "{count} figures at the command's defaults, a page each: what it shows,\n"
        "and the five lines of Python, or the command, that make it. [中文](index.zh-CN.md)",
    ),
    "zh": (
        "# 图库",
        "按命令默认设置画出的 {count} 张图，每张一页：图中的内容，以及画出它的五行 Python 或命令。"
        "[English](index.md)",
    ),
}


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
        found[name] = title, body
    return found


def files(gallery: str, language: str = "en") -> dict[str, str]:
    r"""Return the pages and notebooks of all figures, by their names in the folder of pages.

    The gallery is in that language, "en" or "zh".

    Examples
    --------
    >>> list(files("## a\n\n![A figure](../docs/gallery/a.png)\n"))
    ['a.md', 'a.ipynb', 'index.md']
    """
    every, suffix = sections(gallery), SUFFIX[language]
    written = {}
    for name, (title, body) in every.items():
        code = CODE.format(name=name)
        said = {"name": name, "title": title, "body": body, "code": code}
        written[f"{name}{suffix}.md"] = PAGES[language].format(**said)
        written[f"{name}{suffix}.ipynb"] = notebook(title, body, code)
    written[f"index{suffix}.md"] = index(every, language)
    return written


def index(every: dict[str, tuple[str, str]], language: str = "en") -> str:
    """Return the first page: each figure with a small picture, its title, and what it shows."""
    (head, text), suffix = INDEXES[language], SUFFIX[language]
    lines = [head, "", text.format(count=len(every)), ""]
    for name, (title, _) in every.items():
        lines += [
            f"**[{title}]({name}{suffix}.md)**",
            "",
            f"```{{image}} ../gallery/{name}.png",
            f":alt: {title}",
            ":width: 320px",
            f":target: {name}{suffix}.html",
            "```",
            "",
        ]
    pages = [f"{name}{suffix}" for name in every]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *pages, "```", ""])


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
