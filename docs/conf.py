"""Sphinx: pages in Markdown, the reference from numpydoc docstrings; warnings are errors."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx
from sphinx.application import Sphinx

project = "expqk"
author = "The expqk developers"
copyright = author
release = metadata.version("expqk")
extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_parser"]
exclude_patterns = ["gallery"]
html_theme = "furo"
html_title = "expqk"
html_show_copyright = html_show_sphinx = html_copy_source = False
html_show_sourcelink = False
pygments_style = "tango"  # colours with the contrast that furo wants in light mode
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature's annotations: docstrings name the types
autodoc_use_type_comments = False
autodoc_class_signature = "mixed"
add_module_names = False
numpydoc_show_class_members = False
default_role = "code"  # `name` in docstrings is code


# numpydoc would compile its template again for each of six thousand docstrings.
environments: dict[str, SandboxedEnvironment] = {}
docscrape_sphinx.SandboxedEnvironment = lambda loader: (
    environments.setdefault("of all", SandboxedEnvironment(loader=loader))
)  # fmt: skip


def rooms() -> Iterator[str]:
    """Yield the rooms of the reference, a page each; figures have pages of their own."""
    for package in ("approx", "analysis"):
        if package == "approx":
            yield package
        for found in pkgutil.walk_packages(
            importlib.import_module(package).__path__, f"{package}."
        ):
            if found.ispkg and found.name not in ("analysis.claims", "analysis.experiments"):
                yield found.name


def reference(app: Sphinx) -> None:
    """Write the pages of the reference: those of a room are made of its modules."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = list(rooms())
    for old in folder.glob("*.rst"):  # of a room that has another name now
        if old.stem not in pages:
            old.unlink()
    for room in pages:
        inner = pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}.")
        names = [
            m.name for m in inner if not m.ispkg and not m.name.rpartition(".")[2].startswith("_")
        ]
        page = [room, "=" * len(room), ""]
        for name in [room, *names]:
            head = f"``{name}``"
            page += [head, "-" * len(head), "", f".. automodule:: {name}", "   :members:", ""]
        write(folder / f"{room}.rst", "\n".join(page))
    write(folder / "index.md", "\n".join(["# Reference", "", "```{toctree}", *pages, "```", ""]))


def gallery(app: Sphinx) -> None:
    """Write the page of all figures, in both languages."""
    folder = Path(app.srcdir) / "figures"
    folder.mkdir(exist_ok=True)
    for suffix in ("", ".zh-CN"):
        text = (Path(app.srcdir).parent / f"figures/README{suffix}.md").read_text("utf-8")
        text = text.replace("](../docs/gallery/", "](../gallery/").replace("](README", "](index")
        write(folder / f"index{suffix}.md", text)


def write(path: Path, text: str) -> None:
    """Write a page if it changed, so that Sphinx reads only those again."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, encoding="utf-8")


def plain(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]):
    """Escape what reStructuredText would read in formulas: |x|², a*b, x_ are text here."""
    for i, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        line = re.sub(r"(\.\. \[\d+\] \w)\.", r"\1\\.", line)  # an author's initial, no list "K."
        parts = re.split(r"(``[^`]*``|`[^`]*`)", line)
        parts[::2] = [re.sub(r"([|*]|(?<!\])_(?!\w))", r"\\\1", text) for text in parts[::2]]
        lines[i] = "".join(parts)


def outside(app: Sphinx, name: str, text: list[str]) -> None:
    """Link to the page of all figures; name pages of the repository that are no pages here."""
    text[0] = re.sub(r"\(\.\./((?:\.\./)*figures/)README((?:\.zh-CN)?\.md)", r"(\1index\2", text[0])
    link = r"\[([^]]*)\]\((?:\.\./)+((?:studies|figures)/[\w./-]+\.md)(?:#[\w-]*)?\)"
    text[0] = re.sub(link, r"\1 (`\2`)", text[0])


def setup(app: Sphinx) -> None:
    """Connect the hooks; `plain` before numpydoc, which has priority 500."""
    app.connect("builder-inited", reference)
    app.connect("builder-inited", gallery)
    app.connect("source-read", outside)
    app.connect("autodoc-process-docstring", plain, priority=400)
