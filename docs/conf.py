"""Sphinx: pages in Markdown, the reference from numpydoc docstrings; warnings are errors."""

from __future__ import annotations

import importlib
import pkgutil
import re
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

from figures import sheets

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
autodoc_class_signature = "mixed"
add_module_names = False
numpydoc_show_class_members = False
default_role = "code"  # `name` in docstrings is code

# The reference: one page a part. A part without modules is a package, page for page as it is.
PARTS: dict[str, tuple[str, ...]] = {
    "approx": (),
    "approx.projections": (),
    "approx.random_features": (),
    "approx.polynomials": (),
    "approx.sketches": (),
    "approx.low_rank": (),
    "approx.compressed_logits": (),
    "approx.sparse": (),
    "approx.designs": (),
    "approx.hierarchical": (),
    "approx.mechanisms": (),
    "approx.decoding": (),
    "approx.textbook": (),
    "inputs": ("inputs", "files", "capture", "describe", "head_kinds", "collection"),
    "errors": (
        "metrics",
        "row_sums",
        "spectral",
        "orders",
        "squared_error",
        "bounds",
        "theory",
        "weights",
        "least_loss",
        "least_error",
        "precision",
        "recall",
        "certificates",
        "page_boxes",
        "dropped",
    ),
    "rank": ("rank", "state_rank", "recurrence", "modular", "estimate", "positions"),
    "statistics": (
        "moments",
        "monte_carlo",
        "draws",
        "expected_error",
        "features_needed",
        "normalised",
        "replace_or_weight",
        "mean_bounds",
        "drawn_keys",
        "confidence",
        "pitfalls",
        "dependent_supports",
    ),
    "budgets": (
        "budget",
        "groups",
        "regimes",
        "operations",
        "candidates",
        "diagnose",
        "needed",
        "trials",
        "doubts",
        "advice",
        "standing",
    ),
    "models": (
        "model",
        "substitute",
        "passage",
        "next_words",
        "damage",
        "propagation",
        "plan",
        "planning",
        "curves",
        "allocation",
        "language_model",
        "attention_calls",
        "local_models",
    ),
    "sweeps": ("sweep", "seeds", "config", "store", "engines", "parallel", "table"),
    "analysis.experiments": (),
    "analysis.claims": (),
}
TITLES = {
    "inputs": "Inputs and files",
    "errors": "Errors of an estimate",
    "rank": "Ranks and spectra",
    "statistics": "Bias and variance",
    "budgets": "Budgets, regimes, advice",
    "models": "What it does to a model",
    "sweeps": "Sweeps and stores",
}


def modules(part: str) -> list[str]:
    """Return the public modules of a part of the reference."""
    if PARTS[part]:
        return [f"analysis.{name}" for name in PARTS[part]]
    package = importlib.import_module(part)
    inner = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.ispkg]
    return [part, *(f"{part}.{name}" for name in inner if not name.startswith("_"))]


def reference(app: Sphinx) -> None:
    """Write the pages of the reference, and refuse to leave a module of analysis out."""
    shown = {name for names in PARTS.values() for name in names}
    there = {m.name for m in pkgutil.iter_modules(importlib.import_module("analysis").__path__)}
    if shown != there - {"claims", "experiments"}:
        raise ValueError(f"PARTS in docs/conf.py lacks, or has too much: {shown ^ there}")
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):  # of a part that has another name now
        if old.stem not in PARTS:
            old.unlink()
    lines = ["# Reference", "", "```{toctree}"]
    for part in PARTS:
        title = TITLES.get(part, part)
        page = [title, "=" * len(title), ""]
        for name in modules(part):
            head = f"``{name}``"
            page += [head, "-" * len(head), "", f".. automodule:: {name}", "   :members:", ""]
        write(folder / f"{part}.rst", "\n".join(page))
        lines.append(part)
    write(folder / "index.md", "\n".join([*lines, "```", ""]))


def gallery(app: Sphinx) -> None:
    """Write a page and a notebook for each figure."""
    folder = Path(app.srcdir) / "figures"
    folder.mkdir(exist_ok=True)
    pages = {}
    for language, suffix in sheets.SUFFIX.items():
        text = (Path(app.srcdir).parent / f"figures/README{suffix}.md").read_text("utf-8")
        pages |= sheets.files(text, language)
    for old in folder.iterdir():  # of a figure that has another name now
        if old.name not in pages:
            old.unlink()
    for name, page in pages.items():
        write(folder / name, page)


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
    """Link to the page of a figure; name pages of the repository that are no pages here."""
    figure = r"\(\.\./((?:\.\./)*figures/)README((?:\.zh-CN)?)\.md(?:#(\w+))?\)"
    text[0] = re.sub(figure, lambda m: f"({m[1]}{m[3] or 'index'}{m[2]}.md)", text[0])
    link = r"\[([^]]*)\]\(\.\./((?:lm|benchmarks|figures)/[\w./-]+\.md)(?:#[\w-]*)?\)"
    text[0] = re.sub(link, r"\1 (`\2`)", text[0])


def setup(app: Sphinx) -> None:
    """Connect the hooks; `plain` before numpydoc, which has priority 500."""
    app.connect("builder-inited", reference)
    app.connect("builder-inited", gallery)
    app.connect("source-read", outside)
    app.connect("autodoc-process-docstring", plain, priority=400)
