"""The tables of the report: what was measured, as text in cells."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiments.profile import nearest_to_one
from analysis.inputs import Head
from analysis.inputs.statistics import describe
from figures.drawing import looks
from figures.gallery import error
from figures.report.references import cited
from figures.words.numbers import formula_power, three_decimals, unbroken
from figures.words.translation import tr

_MARKUP = re.compile(r"""[!-/:-<>-@\[-`{-~]""")  # every ASCII mark but "="
_BRACKET = re.compile(r"(?<!\\)[\[\]]")
_FORMULA = re.compile(r"((?<!\\)\$.*?(?<!\\)\$)", re.DOTALL)  # a dollar of a name is escaped
_SCRIPT = re.compile(
    r"(?<!\\)\^(?:\{([^{}]*)\}|\(([^()]*)\)|([-−]?(?:\d+(?:\.\d+)?|\|\w+\||[a-z]))(?![\w.]*\^))"
    r"|\b([A-Za-z])_([A-Za-z0-9])\b"
)


def literal(text: str) -> str:
    r"""Return a text with its marks escaped, so that none is markup of pandoc's Markdown.

    Control characters and runs of blanks become one blank.

    Examples
    --------
    >>> print(literal("*a* $x$"))
    \*a\* \$x\$
    """
    printable = "".join(c if c.isprintable() else " " for c in text)
    return _MARKUP.sub(r"\\\g<0>", " ".join(printable.split()))


def raised(caption: str) -> str:
    r"""Return a caption with the e^{x}, e^(x), B^2, d_h and 2e-05 of plain text raised and lowered.

    Brackets of intervals, which need not match, are escaped: a caption stands in brackets. Formulas
    in dollars, and what is raised in Markdown already, stay as they are.

    Examples
    --------
    >>> print(raised("e^{2 q·k}, $e^{x}$, 10^3^, B^0.5. And e^−|x|, d_h"))
    e^2\ q·k^, $e^{x}$, 10^3^, B^0.5^. And e^−|x|^, d~h~
    >>> print(raised("on (−∞, 0] or $[0, 1)$, 2e-05"))
    on (−∞, 0\] or $[0, 1)$, 2·10^−5^
    """

    def script(match: re.Match[str]) -> str:
        if match[4]:
            return f"{match[4]}~{match[5]}~"
        inside = next(x for x in match.groups() if x is not None)
        return "^" + inside.replace(" ", r"\ ") + "^"

    parts = _FORMULA.split(re.sub(r"(?<=\d)e-0?(?=\d)", "·10^−", caption))
    scripts = (p if p.startswith("$") else _SCRIPT.sub(script, p) for p in parts)
    return "".join(p if p.startswith("$") else _BRACKET.sub(r"\\\g<0>", p) for p in scripts)


def facts(x: Head) -> dict[str, str]:
    """Return the numbers that tell how hard an input is, at t = 1, formatted."""
    facts = describe(x.at_temperature(1.0))
    return {
        tr("input"): x.name,
        tr("layer.head"): "–" if x.layer < 0 else f"{x.layer}.{x.head}",
        "n": str(x.n),
        "l": str(x.l),
        "d": str(x.d),
        tr("logits"): f"{facts['logit_min']:.1f} … {facts['logit_max']:.1f}".replace("-", "−"),
        tr("std"): f"{facts['logit_std']:.2f}",
        tr("row entropy"): f"{facts['row_entropy']:.2f}",
        tr(r"median $\lVert q+k\rVert^2$"): f"{facts['median_squared_sum']:.1f}",
    }


def crossing_table(errors: pd.DataFrame) -> pd.DataFrame:
    """Return crossovers and gains in relative Frobenius error of normalised rows, formatted."""
    rows = []
    for row in error.crossings(errors).to_dict("records"):
        crosses = row["crossing"] > 0
        rows.append(
            {
                tr("input"): row["input"],
                tr("crossover t"): f"{row['crossing']:.2f}" if crosses else tr("none"),
                tr("largest gain"): tr(
                    "{gain:.2f}× at t = {t:g}", gain=row["gain"], t=row["gain_temperature"]
                ),
                tr("gain at crossover"): f"{row['gain_at_crossing']:.2f}×" if crosses else "–",
            }
        )
    return pd.DataFrame(rows)


def best_table(best: pd.DataFrame) -> pd.DataFrame:
    """Return one row a temperature, one column an input, of what `winners` found."""

    def cell(row: dict[Any, Any]) -> str:
        name = looks.label(row["winner"])
        tv, uniform = (three_decimals(row[x]) for x in ("attention_tv", "uniform_attention_tv"))
        return f"{name} " + unbroken(tr("{name} ({count})", name=tv, count=uniform))

    cells = best.assign(cell=[cell(row) for row in best.to_dict("records")])
    wide = cells.pivot(index="temperature", columns="input", values="cell")
    wide = wide[best.input.unique()].reset_index()
    return wide.rename(columns={"temperature": "t"}).assign(t=[f"{t:g}" for t in wide.temperature])


def lies_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the deviation of positive features, estimated from draws and exact, formatted."""
    part = looks.of_methods(table, "positive")
    ends = _ends(table[table.metric == "relative_bias"].temperature)  # those of the pair
    temperatures = [t for t in ends if t >= 1] or ends
    rows = []
    for (name, t), group in part.groupby(["input", "temperature"], sort=False):
        at = group.set_index("metric")
        if t not in temperatures or "believable" not in at.index:
            continue
        log = float(at.value["log_relative_variance"]) / 2
        mean, stderr = 1 + at.value["sampled_bias"], float(at.stderr["sampled_bias"])
        rows.append(
            {
                tr("input"): name,
                "t": f"{t:g}",
                tr("deviation"): formula_power(float(np.exp(min(log, 700))), log),
                tr("of the draws"): formula_power(float(np.sqrt(at.value["sampled_variance"]))),
                tr("mean of the draws"): f"{formula_power(mean)} ± {formula_power(stderr)}",
                tr("reliable"): tr("yes") if at.value["believable"] else tr("no"),
            }
        )
    return pd.DataFrame(rows)


def decomposed(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a method, input and temperature: log_squared_bias, log_variance, total, ...

    All three are NaN where they are of draws that are not reliable.
    """
    keys = ["method", "input", "temperature", "budget"]
    wide = table.pivot_table(index=keys, columns="metric", values="value", sort=False)
    wide["total"] = np.logaddexp(wide.log_squared_bias, wide.log_variance)
    if "reliable" in wide:
        wide.loc[wide.reliable == 0, ["log_squared_bias", "log_variance", "total"]] = np.nan
    return wide.reset_index()


def decomposition_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return bias² + variance of each family, one column an input."""
    wide = decomposed(table)

    def cell(row: Any) -> str:
        parts = (row.log_squared_bias, row.log_variance)
        own_price = r"\*" if row.budget < 0 else ""
        if np.isnan(row.log_variance):
            return tr("not reliable") + own_price
        return " + ".join(formula_power(float(np.exp(min(x, 700))), x) for x in parts) + own_price

    def name(row: Any) -> str:
        return f"{cited(row.method)}{'' if row.closed_form else '†'}"

    rows = list(wide.itertuples())
    named = wide.assign(family=[name(row) for row in rows], cell=[cell(row) for row in rows])
    cells = named.pivot(index="family", columns="input", values="cell").fillna("–")
    return cells.loc[named.family.unique(), named.input.unique()].reset_index(names=tr("family"))


def _ends(temperatures: Iterable[float]) -> list[float]:
    """Return the coldest, the one nearest 1 and the hottest temperature."""
    ordered = sorted(set(temperatures))
    return list(dict.fromkeys([ordered[0], nearest_to_one(ordered), ordered[-1]]))
