"""The templates of reports, one a language, and how they are filled."""

import functools
from importlib import resources
from typing import Any

from figures.report.references import numbered
from figures.report.tables import literal
from figures.words.markdown import table
from figures.words.translation import spoken


def render(name: str, **context: Any) -> str:
    """Return NAME.md.j2, or NAME.zh.md.j2 in Chinese, filled; its citations are numbered."""
    language = spoken()
    file = f"{name}.md.j2" if language == "en" else f"{name}.{language}.md.j2"
    context["lang"] = "zh-CN" if language == "zh" else "en"
    return numbered(environment().get_template(file).render(context))


@functools.cache
def environment() -> Any:  # of jinja2, an extra
    """Return Jinja's environment for the templates.

    Raises
    ------
    ImportError
        Jinja is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise ImportError("the report needs: pip install -e '.[report]'") from None
    folder = resources.files("figures.report")
    reader = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda part: folder.joinpath(part).read_text("utf-8")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        comment_start_string="<#",  # {# begins an identifier in pandoc's Markdown
        comment_end_string="#>",
    )
    reader.filters |= {"literal": literal, "markdown": lambda x: table(x.columns, x.to_numpy())}
    return reader
