"""What `analysis.diagnose` found, as text, as JSON and as a map of layers × heads."""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from analysis.diagnose import TRIVIAL, Advice, Sentence, advice, power
from figures import style
from figures.columns import pad, width
from figures.language import mark, tr

HEADS = (
    mark("head"), mark("logits"), mark("entropy"), mark("rank"), mark("crossing"), mark("winner"),
    mark("tv"), mark("uniform"), mark("margin"), mark("runner-up"), mark("oracle tv"),
)  # fmt: skip
FAMILIES = (
    mark("method"), mark("wins"), mark("tv"), mark("below uniform"), mark("kernel error"),
    mark("expected error"),
)  # fmt: skip


def objects(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one object a (layer, head, method), for JSON: what is not a number there is null."""
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_said(sentence) for sentence in value]
    return value.item() if isinstance(value, np.generic) else value


def _said(sentence: Sentence) -> str:
    """Return a warning in the language in force."""
    return tr(sentence.message, **sentence.values)


def text(table: pd.DataFrame) -> str:
    """Return a line a head, then a line a method, then the warnings that several heads share."""
    advised = advice(table)
    heads = table.drop_duplicates(["input", "layer", "head"])
    lines = [_head(row, one) for row, one in zip(heads.itertuples(), advised)]
    parts = [_columns(HEADS, lines), _columns(FAMILIES, _families(table))]
    lost = sum(one.winner == TRIVIAL for one in advised)
    said = [
        tr(
            "Budget {budget:g} values a query row, t = {t:g}; "
            "tv: total variation of the attention weights, median over draws.\n"
            "rank: of softmax attention, singular values above 1 % of the largest. crossing: the "
            "temperature below which\nthe largest entries are better than the truncated SVD, at "
            "this budget. margin: the runner-up's tv over the winner's.",
            budget=table.budget.iloc[0],
            t=table.temperature.iloc[0],
        )
    ]
    if lost:
        said.append(
            tr(
                "Nothing at this budget beats uniform on {lost} of {heads} heads.",
                lost=lost,
                heads=len(advised),
            )
        )
    parts.append("\n".join(said))
    if warnings := _warnings(table):
        parts.append("\n".join([tr("Warnings (heads):"), *warnings]))
    return "\n\n".join(parts)


def _head(row: Any, one: Advice) -> tuple[str, ...]:
    runner = style.label(one.runner_up) if one.runner_up else "–"
    return (
        _name(row), f"{row.logit_min:.1f} … {row.logit_max:.1f}", f"{row.row_entropy:.2f}",
        f"{row.epsilon_rank:.0f}", _number(row.crossing), _winner(one), _number(one.attention_tv),
        _number(one.uniform_tv), f"{one.margin:.2f}×" if one.margin == one.margin else "–", runner,
        _number(one.oracle_tv),
    )  # fmt: skip


def _name(row: Any) -> str:
    return str(row.input) if row.layer < 0 else f"{row.layer}.{row.head}"


def _winner(one: Advice) -> str:
    if one.winner == TRIVIAL:
        return tr("nothing beats uniform")
    return style.label(one.winner) if one.winner else "–"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"


def _families(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return a row a method: heads it wins, median errors, heads where it is below uniform."""
    uniform = table[table.spec == TRIVIAL].set_index(["input", "layer", "head"]).attention_tv
    rows: list[tuple[str, ...]] = []
    middles = table.groupby("spec").attention_tv.median().sort_values(kind="stable")
    for spec in map(str, middles.index):
        part = table[table.spec == spec].set_index(["input", "layer", "head"])
        below = part.attention_tv < uniform.reindex(part.index)
        middle = part.median(numeric_only=True)
        wins = f"{int(part.winner.sum())}" if part.runnable.all() else "oracle"
        rows.append(
            (
                style.label(spec),
                wins,
                _number(middle.attention_tv),
                tr("{below} of {heads}", below=int(below.sum()), heads=len(part)),
                _number(middle.kernel_error),
                power(middle.expected) if math.isfinite(middle.expected) else "–",
            )
        )
    return rows


def _warnings(table: pd.DataFrame) -> list[str]:
    """Return the warnings of runnable methods with how many heads have them, most first."""
    rows = table[table.runnable]
    kinds: dict[tuple[str, str], list[Sentence]] = {}
    for spec, warnings in zip(rows.spec, rows.warnings):
        for sentence in warnings:
            kinds.setdefault((style.label(spec), _kind(sentence)), []).append(sentence)
    order = sorted(kinds.items(), key=lambda item: -len(item[1]))
    return [
        f"  {len(sentences):3d}  " + tr("{name}: {what}", name=name, what=_said(sentences[0]))
        for (name, _), sentences in order
    ]


def _kind(sentence: str) -> str:
    """Return a warning without its numbers."""
    return "".join(c for c in sentence if c not in string.digits + ".^")


def _columns(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    rows = [tuple(map(tr, heads)), *rows]
    widths = [max(map(width, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(pad, row, widths)).rstrip() for row in rows)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the heads of each layer in the colour and letter of their winner, with its tv."""
    advised = advice(table)
    layers = sorted({one.layer for one in advised})
    heads = sorted({one.head for one in advised})
    specs = style.order([one.winner for one in advised])
    letters = dict(zip(specs, string.ascii_uppercase))
    with style.style():
        figure = Figure(figsize=(max(4.4, 0.52 * len(heads) + 1.2), 0.42 * len(layers) + 1.9))
        ax = figure.subplots()
        for one in advised:
            x, y = heads.index(one.head), layers.index(one.layer)
            colour = style.look(one.winner)["color"]
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, alpha=0.45, lw=0))
            words = f"{letters[one.winner]}\n{one.attention_tv:.2f}"
            ax.text(x, y, words, ha="center", va="center", fontsize=7)
        ax.set(xlabel=tr("head"), ylabel=tr("layer"), xlim=(-0.5, len(heads) - 0.5))
        ax.set_ylim(len(layers) - 0.5, -0.5)
        ax.set_xticks(range(len(heads)), [str(h) for h in heads])
        ax.set_yticks(range(len(layers)), [str(layer) for layer in layers])
        ax.grid(False)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        handles = [
            Patch(
                color=style.look(spec)["color"], alpha=0.45, lw=0,
                label=f"{letters[spec]}  {style.label(spec)}",
            )
            for spec in specs
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the map shows, with the numbers of its table."""
    advised = advice(table)
    wins = pd.Series([style.label(one.winner) for one in advised]).value_counts()
    text = tr(
        "The method with the lowest total variation (median over draws, below its letter) of "
        "those that can be run at {budget:g} values a query row, t = {t:g}: {names} of {heads} "
        "heads.",
        budget=table.budget.iloc[0],
        t=table.temperature.iloc[0],
        names=tr(", ").join(f"{name} {count}" for name, count in wins.items()),
        heads=len(advised),
    )
    gains = [one.uniform_tv / one.attention_tv for one in advised if one.attention_tv > 0]
    if np.isfinite(gains).any():
        text += tr(
            " Uniform attention is {times:.2g} times as far off, in the median.",
            times=np.nanmedian(gains),
        )
    if gaps := [one.attention_tv / one.oracle_tv for one in advised if one.oracle_tv > 0]:
        text += tr(" The best oracle is {times:.2g} times nearer.", times=np.median(gaps))
    return text
