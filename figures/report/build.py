"""From a profile to a folder: figures, data, report.md, index.html, report.pdf, manifest.json."""

from __future__ import annotations

import json
import platform
import sys
import time
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis import files
from analysis.claims import DOCUMENTS, check
from analysis.describe import describe
from analysis.inputs import Inputs
from approx import parse
from approx.polynomials.monomials import width
from figures import claims, error, moments, style
from figures.gallery import FIGURES
from figures.profile import Profile
from figures.report.convert import to_html, to_pdf

SHOWN = ("error", "price", "moments", "rank", "spectrum")  # what report.md.j2 has a place for
RANDOM_FEATURES = ("positive", "trigonometric", "scatterbrain")


def build(profile: Profile, out: Path, *, command: str | None = None) -> None:
    """Compute everything and write the report.

    Parameters
    ----------
    profile : Profile
    out : Path
        Folder: report.md, index.html, report.pdf, manifest.json, figures/, data/.
    command : str, optional
        As it was given; sys.argv by default.
    """
    files.usable(out)
    command = command or " ".join(["expqk", *sys.argv[1:]])
    seconds: dict[str, float] = {}
    tables: dict[str, pd.DataFrame] = {}
    bar = tqdm(SHOWN, disable=not profile.progress, desc="report", unit="figure")
    for name in bar:
        module = FIGURES[name]
        bar.set_postfix_str(module.TITLE)
        start = time.perf_counter()
        tables[name] = module.compute(profile)
        style.save(name, tables[name], module.draw(tables[name]), out)
        seconds[name] = time.perf_counter() - start
    start = time.perf_counter()
    tables["claims"] = claims.frame(check(progress=profile.progress))
    style.save_table("claims", tables["claims"], out)
    seconds["claims"] = time.perf_counter() - start
    text = render(profile, tables, command)
    with files.replacing(out / "report.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    start = time.perf_counter()
    rebuild(out)
    seconds["html and pdf"] = time.perf_counter() - start
    manifest = {"command": command, "seed": profile.seed, "seconds": seconds, **_machine()}
    with files.replacing(out / "manifest.json") as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def rebuild(out: Path) -> None:
    """Turn report.md, perhaps edited, into index.html and report.pdf."""
    source = out / "report.md"
    if not source.exists():
        raise FileNotFoundError(f"there is no {source}: run expqk report --out {out} first")
    to_html(source, out / "index.html")
    to_pdf(source, out / "report.pdf")


def render(profile: Profile, tables: dict[str, pd.DataFrame], command: str) -> str:
    """Fill the Markdown template; every number in it comes from a table."""
    try:
        import jinja2
    except ImportError:
        raise ImportError("the report needs: pip install 'expqk[report]'") from None
    source = resources.files("figures.report").joinpath("report.md.j2").read_text("utf-8")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        comment_start_string="<#",  # {# begins an identifier in pandoc's Markdown
        comment_end_string="#>",
    )
    errors, price, ledger = tables["error"], tables["price"], tables["claims"]
    best = best_methods(errors)
    d = max(x.d for x in profile.inputs)
    context = {
        "title": "Cheaper attention, measured",
        "inputs": [x.name for x in profile.inputs],
        "temperatures": [f"{t:g}" for t in profile.temperatures],
        "budget": f"{profile.budget:g}",
        "n": max(x.n for x in profile.inputs),
        "l": max(x.l for x in profile.inputs),
        "d": d,
        "width2": width(d, 2),
        "captions": {name: FIGURES[name].caption(tables[name]) for name in SHOWN},
        "input_table": markdown(pd.DataFrame([facts(x) for x in profile.inputs])),
        "crossing_table": markdown(crossing_table(errors)),
        "crossing_sentence": crossing_sentence(errors),
        "best_table": markdown(_wide(best)),
        "best_sentence": best_sentence(best),
        "needed_table": markdown(needed_table(tables["moments"])),
        "target": f"{moments.TARGET:.0%}".replace("%", " %"),
        "pursuit_sentence": pursuit_sentence(price),
        "findings": " ".join(findings(errors, best)),
        "claims_sentence": claims_sentence(ledger),
        "claims_table": markdown(claims.in_markdown(ledger, errata=False)),
        "errata_table": markdown(claims.in_markdown(ledger, errata=True)),
        "command": command,
    }
    return environment.from_string(source).render(context).rstrip() + "\n"


def markdown(table: pd.DataFrame) -> str:
    """Return a pipe table."""
    lines = [[str(c) for c in table.columns], ["---"] * len(table.columns)]
    lines += [[str(v).replace("|", "\\|") for v in row] for row in table.to_numpy()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def facts(x: Inputs) -> dict[str, str]:
    """Return what decides how hard an input is, at t = 1, formatted."""
    found = describe(x.at_temperature(1.0))
    return {
        "input": x.name,
        "layer.head": "–" if x.layer < 0 else f"{x.layer}.{x.head}",
        "n": str(x.n),
        "d": str(x.d),
        "logits": f"{found['logit_min']:.1f} … {found['logit_max']:.1f}",
        "std": f"{found['logit_std']:.2f}",
        "row entropy": f"{found['row_entropy']:.2f}",
        r"median $\lVert q+k\rVert^2$": f"{found['median_squared_sum']:.1f}",
    }


def crossing_table(errors: pd.DataFrame) -> pd.DataFrame:
    """Return crossings and gains in both spaces, formatted."""
    rows = []
    for space, label in error.NAMES.items():
        for row in error.crossings(errors, space).to_dict("records"):
            crosses = row["crossing"] > 0
            rows.append(
                {
                    "input": row["input"],
                    "space": label,
                    "coldest": row["coldest"],
                    "hottest": row["hottest"],
                    "crossing t": f"{row['crossing']:.2f}" if crosses else "none",
                    "largest gain": f"{row['gain']:.2f}× at t = {row['gain_temperature']:g}",
                    "gain at crossing": f"{row['gain_at_crossing']:.2f}×" if crosses else "–",
                }
            )
    return pd.DataFrame(rows)


def crossing_sentence(errors: pd.DataFrame) -> str:
    """Return which class wins at the coldest and the hottest temperature, in both spaces."""
    return " ".join(
        f"For {label}: {_regimes(error.crossings(errors, space), errors)}."
        for space, label in error.NAMES.items()
    )


def _regimes(found: pd.DataFrame, errors: pd.DataFrame) -> str:
    cold, hot = errors.temperature.min(), errors.temperature.max()
    parts = []
    for (first, last), group in found.groupby(["coldest", "hottest"], sort=False):
        both = f"{first} wins at t = {cold:g} and {last} at t = {hot:g}"
        one = f"{first} wins both at t = {cold:g} and at t = {hot:g}"
        parts.append(f"{one if first == last else both} on {', '.join(group.input)}")
    return "; ".join(parts)


def best_methods(errors: pd.DataFrame) -> pd.DataFrame:
    """Return, for each input and temperature, the runnable method with the least median TV."""
    part = errors[errors.metric == "attention_tv"]
    runnable = [s for s in part.method.unique() if _runnable(s)]
    keys = ["input", "temperature", "method"]
    medians = part[part.method.isin(runnable)].groupby(keys, sort=False).value.median()
    rows = []
    for (name, t), group in medians.groupby(["input", "temperature"], sort=False):
        values = group.droplevel(["input", "temperature"])
        rows.append(
            {
                "input": name,
                "temperature": t,
                "best": values.idxmin(),
                "tv": values.min(),
                "uniform": values.get("uniform()", np.nan),
            }
        )
    return pd.DataFrame(rows)


def _runnable(spec: str) -> bool:
    try:
        return not parse(spec).oracle
    except ValueError:  # a label that is no spec: Fixed frequencies, or a method of the user's
        return True


def _wide(best: pd.DataFrame) -> pd.DataFrame:
    def cell(row: dict[Any, Any]) -> str:
        return f"{style.look(row['best'])['label']} {row['tv']:.2g} ({row['uniform']:.2g})"

    cells = best.assign(cell=[cell(row) for row in best.to_dict("records")])
    wide = cells.pivot(index="temperature", columns="input", values="cell")
    wide = wide[best.input.unique()].reset_index()
    return wide.rename(columns={"temperature": "t"}).assign(t=[f"{t:g}" for t in wide.temperature])


def best_sentence(best: pd.DataFrame) -> str:
    """Return in how many places nothing beats uniform attention."""
    count = int((best.best == "uniform()").sum())
    random = int(best.best.str.startswith(RANDOM_FEATURES).sum())
    return (
        f"Uniform attention, which costs nothing, is the best of them in {count} of {len(best)} "
        f"places; a method with random features in {random}."
    )


def pursuit_sentence(price: pd.DataFrame) -> str:
    """Return rank, entries and price of Robust PCA: no compressed form of attention."""
    part = price[price.method.str.startswith("robust_pca(space")]
    wide = part.pivot_table(index="input", columns="metric", values="value", sort=False)
    found = [
        f"{name}: rank {row['rank']:.0f} and {row.nnz / part.n.iloc[0] / part.l.iloc[0]:.0%} of "
        f"the entries, {row.values_per_row:.0f} values a row"
        for name, row in wide.iterrows()
    ]
    dearer = int((wide.values_per_row > part.l.iloc[0]).sum())
    return (
        "Principal component pursuit recovers a matrix that *is* low-rank plus sparse, whatever "
        f"that costs. Of the softmax rows at t = 1 it makes ({'; '.join(found)}), on {dearer} of "
        f"{len(wide)} inputs more than the {part.l.iloc[0]} values of the exact row. At a budget, "
        "GoDec is the oracle."
    )


def claims_sentence(ledger: pd.DataFrame) -> str:
    """Return how many claims there are of each verdict, and what their ids begin with."""
    each = ledger.drop_duplicates("id")
    errata = each.id.str.contains("-E")
    names = ", ".join(f"{key} *{title}*" for key, title in DOCUMENTS.items())
    return (
        f"The ids name the documents: {names}. Verdicts of {int((~errata).sum())} claims: "
        f"{claims.counts(each.verdict[~errata])}; of {int(errata.sum())} errata: "
        f"{claims.counts(each.verdict[errata])}."
    )


def needed_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many features each family needs for the target error, formatted."""
    part = table[table.metric == "features_needed"]
    rows = []
    for (name, spec), group in part.groupby(["input", "method"], sort=False):
        cells = {f"t = {t:g}": _count(v) for t, v in zip(group.temperature, group.value)}
        rows.append({"input": name, "features": style.look(str(spec))["label"], **cells})
    return pd.DataFrame(rows)


def _count(value: float) -> str:
    if value == np.inf:
        return "over $10^{300}$"
    return f"{value:.0f}" if value < 1e4 else f"$10^{{{np.log10(value):.1f}}}$"


def findings(errors: pd.DataFrame, best: pd.DataFrame) -> list[str]:
    """Return the sentences of the summary."""
    found = error.crossings(errors, "attention")
    crossing = found[found.crossing > 0]
    where = ", ".join(f"{a} at t ≈ {b:.2f}" for a, b in zip(crossing.input, crossing.crossing))
    top = found.to_dict("records")[int(found.gain.argmax())]
    return [
        f"Row-normalised, by the oracles of each class: {_regimes(found, errors)}.",
        f"The two cross on {where}." if where else "The two cross nowhere on this grid.",
        f"Both together are at most {top['gain']:.2f}× below the better of the two "
        f"({top['input']}, t = {top['gain_temperature']:g}).",
        best_sentence(best),
    ]


def _machine() -> dict[str, Any]:
    from threadpoolctl import threadpool_info

    packages = (
        "expqk",
        "numpy",
        "scipy",
        "numba",
        "pandas",
        "matplotlib",
        "typst",
        "pypandoc_binary",
    )
    return {
        "versions": {name: metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "blas": sorted({i["architecture"] for i in threadpool_info() if i["user_api"] == "blas"}),
    }
