"""What `analysis.models.substitute` found, as text and as JSON."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.costs.optimality import NEEDS
from analysis.models import replacement
from analysis.models.needle import ANSWER, FACT
from analysis.models.substitute import summary
from figures.show.diagnosis import plain
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import mark, tr

HEADS = (
    mark("KL"), mark("perplexity"), mark("same"), mark("tv own"), mark("drifted"), mark("reads"),
    mark("use"), mark("method"),
)  # fmt: skip
USES = mark("runnable"), mark("all logits"), mark("future")


def objects(found: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one object a run, for JSON: what is not a finite number there is null.

    ``layers`` has the error of the residual stream behind each layer, and ``replaced`` the errors
    of each head that was.
    """
    every, runs = [], found.groupby("method", sort=False)
    for row, (_, part) in zip(summary(found).to_dict("records"), runs):
        behind = part[part.metric == "residual_relative_error"]
        heads = part[part["head"] >= 0].pivot(
            index=["layer", "head"], columns="metric", values="value"
        )
        replaced = heads.reset_index().to_dict("records")
        every.append(
            {str(name): plain(value) for name, value in row.items()}
            | {
                "layers": [plain(value) for value in behind.value],
                "replaced": [{str(k): plain(v) for k, v in one.items()} for one in replaced],
            }
        )
    return every


def text(found: pd.DataFrame, name: str, skip: int = replacement.SKIP) -> str:
    """Return a line a run, what its columns mean, and what follows in plain words.

    Parameters
    ----------
    found : DataFrame
    name : str
        Of the text.
    skip : int
        Positions of it that are not counted.
    """
    rows = summary(found)
    lines = [tuple(map(tr, HEADS)), *map(_line, rows.itertuples())]
    said = paragraphs([*_legend(found, rows, name, skip), *_results(rows)])
    return f"{aligned(lines, cut=-1)}\n\n{said}"


def use(row: Any) -> str:
    """Return whether a model can run what a row of the summary is made by.

    It is "future" where a method reads later tokens, and "all logits" where one needs them.
    """
    return "future" if row.future_heads else NEEDS if row.oracle_heads else "runnable"


def _line(row: Any) -> tuple[str, ...]:
    stderr = "" if math.isnan(row.kl_stderr) else f" ±{row.kl_stderr:.2g}"
    errors = [getattr(row, f"{what}_attention_tv", math.nan) for what in ("own", "drifted")]
    return (
        f"{row.kl:.3g}{stderr}",
        f"{row.perplexity:.4g}",
        f"{row.same_top_1:.0%}",
        *("" if math.isnan(error) else f"{error:.3f}" for error in errors),
        "" if math.isnan(row.reads_share) else f"{row.reads_share:.0%}",
        tr(use(row)),
        row.method,
    )


def _legend(found: pd.DataFrame, rows: pd.DataFrame, name: str, skip: int) -> Iterator[str]:
    yield tr(
        "{model} reads the first {n} tokens of {text}. Perplexity is that of tokens "
        "{first}…{n}, its own {perplexity:.4g}. Heads that were replaced: {heads}.",
        model=found.input.iloc[0], n=found.n.iloc[0], text=name, first=skip + 2,
        perplexity=rows.exact_perplexity.iloc[0],
        heads=tr(", ").join(f"{count:g}" for count in dict.fromkeys(rows.heads)),
    )  # fmt: skip
    yield tr(
        "KL: of the next token, KL(model ‖ replaced) in nats, with its standard error over "
        "blocks of {block} positions. same: how often both think the same token the likeliest. "
        "KL and same leave out the first {skip} positions, tv does not. "
        "tv: total variation of the replaced heads' attention weights, a mean over heads, at "
        "what they get in the model itself (own) and at what they get with the others replaced "
        "(drifted). reads: to answer one new query, as a share of what exact attention reads.",
        block=replacement.BLOCK, skip=skip,
    )  # fmt: skip
    uses = {use(row) for row in rows.itertuples()}
    if NEEDS in uses:
        yield tr(
            "all logits: a reference. It needs all logits, so no model can run it. It bounds "
            "the error of attention in its class, but not the KL."
        )
    if "future" in uses:
        yield tr(
            "future: it reads later tokens, so no model can run it, and its result may look "
            "too good."
        )


def _results(rows: pd.DataFrame) -> Iterator[str]:
    every: Iterable[Any] = rows.itertuples()
    runs = [row for row in every if use(row) == "runnable" and math.isfinite(row.kl)]
    if not runs:
        return
    best = min(runs, key=lambda row: row.kl)
    yield tr(
        "The best method that can be run is {method}: the likeliest next token stays the "
        "same at {same:.0%} of the positions, perplexity goes from {exact:.4g} to "
        "{perplexity:.4g}, and the residual stream behind the last layer is off by "
        "{residual:.0%}.",
        method=best.method, same=best.same_top_1, exact=best.exact_perplexity,
        perplexity=best.perplexity, residual=best.residual_relative_error,
    )  # fmt: skip
    if close := [r.method for r in runs if r is not best and _tied(r, best)]:
        yield tr("Within two standard errors of it: {methods}.", methods=tr(", ").join(close))


def _tied(row: Any, best: Any) -> bool:
    """Return whether a KL is within two standard errors of the least one's.

    The positions are the same, so that the errors of the two are not independent: this says less
    than a paired comparison would.
    """
    return bool(row.kl - best.kl < 2 * math.hypot(row.kl_stderr, best.kl_stderr))


def needle_cells(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a head, and a row for each length and method: log-probability and rank by depth.

    What was not asked is left empty.
    """
    depths = list(dict.fromkeys(found.depth))
    yield tr("tokens"), *(tr("depth {depth:g}", depth=depth) for depth in depths), tr("method")
    for (tokens, method), part in found.groupby(["tokens", "method"], sort=False):
        by = {x.depth: f"{x.log_probability:.1f} ({x.rank})" for x in part.itertuples()}
        yield str(tokens), *(by.get(depth, "") for depth in depths), str(method)


def needle_text(found: pd.DataFrame) -> str:
    """Return the table and what its numbers are."""
    said = tr(
        "The text contains “{fact}{answer}.” At depth 0 it stands in front, at depth 1 right "
        "before the question, “{fact}”. Numbers: the log-probability of all tokens of the "
        "answer, and in brackets the worst rank among them; 1 means that each is the "
        "likeliest.",
        fact=FACT.strip(), answer=ANSWER,
    )  # fmt: skip
    return f"{aligned(list(needle_cells(found)), cut=-1)}\n\n{paragraphs([said])}"
