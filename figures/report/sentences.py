"""The sentences of the report that a number decides: each from a table, none from memory."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis import operations
from analysis.claims import DOCUMENTS
from figures import claims, error, moments, style
from figures.report import tables

RANDOM_FEATURES = ("positive", "trigonometric", "scatterbrain")


def regimes(errors: pd.DataFrame, space: str) -> str:
    """Return which oracle wins at the coldest and at the hottest temperature, in one space."""
    cold, hot = errors.temperature.min(), errors.temperature.max()
    parts = []
    found = error.crossings(errors, space)
    for (first, last), group in found.groupby(["coldest", "hottest"], sort=False):
        both = f"{first} wins at t = {cold:g} and {last} at t = {hot:g}"
        one = f"{first} wins both at t = {cold:g} and at t = {hot:g}"
        parts.append(f"{one if first == last else both} on {', '.join(group.input)}")
    return "; ".join(parts)


def crossing(errors: pd.DataFrame) -> str:
    """Return which class wins at the coldest and the hottest temperature, in both spaces."""
    return " ".join(
        f"For {label}: {regimes(errors, space)}." for space, label in error.NAMES.items()
    )


def summary(errors: pd.DataFrame, best: pd.DataFrame) -> list[str]:
    """Return the sentences of the abstract."""
    found = error.crossings(errors, "attention")
    crossing = found[found.crossing > 0]
    where = ", ".join(f"{a} at t ≈ {b:.2f}" for a, b in zip(crossing.input, crossing.crossing))
    top = found.to_dict("records")[int(found.gain.argmax())]
    return [
        f"Row-normalised, by the oracles of each class: {regimes(errors, 'attention')}.",
        f"The two cross on {where}." if where else "The two cross nowhere on this grid.",
        f"Both together are at most {top['gain']:.2f}× below the better of the two "
        f"({top['input']}, t = {top['gain_temperature']:g}).",
        uniform_wins(best),
    ]


def uniform_wins(best: pd.DataFrame) -> str:
    """Return in how many places nothing beats uniform attention."""
    count = int((best.best == "uniform()").sum())
    random = int(best.best.str.startswith(RANDOM_FEATURES).sum())
    return (
        f"Uniform attention, which costs nothing, is the best of the methods that can be run in "
        f"{count} of {len(best)} places; a method with random features in {random}."
    )


def pursuit(price: pd.DataFrame) -> str:
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


def verdicts(ledger: pd.DataFrame) -> str:
    """Return how many claims there are of each verdict, and what their ids begin with."""
    each = ledger.drop_duplicates("id")
    errata = each.id.str.contains("-E")
    names = ", ".join(f"{key} *{title}*" for key, title in DOCUMENTS.items())
    return (
        f"The ids name the documents: {names}. Verdicts of {int((~errata).sum())} claims: "
        f"{claims.counts(each.verdict[~errata])}; of {int(errata.sum())} errata: "
        f"{claims.counts(each.verdict[errata])}."
    )


def parts_of_error(table: pd.DataFrame) -> str:
    """Return which families are all bias, which all variance, and which least of each."""
    wide = tables.decomposed(table)
    t = float(wide.temperature.min())
    sentences = []
    for name, part in wide[wide.temperature == t].groupby("input", sort=False):
        part = part.set_index("method")
        total = _total(part)
        drawn = total[np.isneginf(part.log_squared_bias)]
        fixed = total[np.isneginf(part.log_variance)]
        sentences.append(
            f"{name}: of the unbiased {_named(drawn)}, of those without variance {_named(fixed)}"
        )
    worse = int((_total(wide)[np.isneginf(wide.log_squared_bias)] > 0).sum())
    count = int(np.isneginf(wide.log_squared_bias).sum())
    return (
        f"Least relative squared error at t = {t:g}, on {'; '.join(sentences)}. Of the {count} "
        f"unbiased entries of both temperatures {worse} have an expected error above that of the "
        "zero matrix, 1."
    )


def _total(wide: pd.DataFrame) -> pd.Series:
    return pd.Series(np.logaddexp(wide.log_squared_bias, wide.log_variance), index=wide.index)


def _named(total: pd.Series) -> str:
    spec, log = str(total.idxmin()), float(total.min())
    return f"{style.look(spec)['label']} with {tables.power(float(np.exp(min(log, 700))), log)}"


def humps(ranks: pd.DataFrame) -> str:
    """Return on how many inputs the rank of exp(q·k) is a hump in t, and how softmax moves."""
    part = ranks[ranks.metric == "effective_rank"]
    hump, moves = 0, {"falls": 0, "rises": 0}
    for name in part.input.unique():
        kernel, rows = (
            part[(part.input == name) & (part.method == f"exact {space}")]
            .sort_values("temperature")
            .value.to_numpy()
            for space in ("kernel", "attention")
        )
        hump += int(0 < kernel.argmax() < len(kernel) - 1)
        moves["falls" if rows[-1] < rows[0] else "rises"] += 1
    count = part.input.nunique()
    return (
        f"The effective rank of exp(q·k) has its maximum inside the grid of temperatures on {hump} "
        f"of {count} inputs, at an end of it on {count - hump}; that of the softmax rows falls "
        f"from the coldest to the hottest temperature on {moves['falls']} and rises on "
        f"{moves['rises']}."
    )


# Conclusions


def conclusions(found: dict[str, pd.DataFrame], budget: float, d: int) -> list[str]:
    """Return what the tables say in the end, one statement an item.

    Parameters
    ----------
    found : dict of DataFrame
        error, price, moments, rank, decomposition, claims.
    budget : float
    d : int
        Head width of the operation counts.
    """
    errors = found["error"]
    return [
        oracle_conclusion(errors),
        runnable_conclusion(errors),
        scatterbrain_conclusion(errors),
        variance_conclusion(found["moments"], budget),
        polynomial_conclusion(found["price"], budget),
        humps(found["rank"]),
        normalisation_conclusion(errors),
        cost_conclusion(d, budget),
        claims_conclusion(found["claims"]),
    ]


def oracle_conclusion(errors: pd.DataFrame) -> str:
    """Return whether sparse or low-rank is the right class, by temperature."""
    found = error.crossings(errors, "attention")
    usual = found[(found.coldest == "sparse") & (found.hottest == "low-rank")]
    gains = f"{found.gain.min():.2f}× to {found.gain.max():.2f}×"
    if len(usual) == len(found):
        regime = "On every input sparse wins when it is cold and low-rank when it is hot"
    elif len(usual):
        regime = f"Sparse wins cold and low-rank wins hot on {len(usual)} of {len(found)} inputs"
    else:
        regime = "On no input does sparse win cold and low-rank hot"
    return (
        f"{regime}: the temperature decides which class of approximation is right. The best "
        f"combination found gains {gains} over the better class, at the temperature where that is "
        "most."
    )


def runnable_conclusion(errors: pd.DataFrame) -> str:
    """Return what runs without seeing the matrix, against uniform attention."""
    best = tables.best_methods(errors)
    beaten = best[best.tv < best.uniform]
    if not len(beaten):
        return (
            "No method that can be run at this budget is nearer to softmax attention than uniform "
            "attention, at any temperature of the grid."
        )
    ratio = (beaten.uniform / beaten.tv).median()
    names = beaten.best.map(style.label).value_counts()
    winners = ", ".join(f"{name} in {count}" for name, count in names.items())
    return (
        f"Of what can be run at this budget, something beats uniform attention in {len(beaten)} of "
        f"{len(best)} places, there by a factor of {ratio:.2f} in the median: {winners}."
    )


def scatterbrain_conclusion(errors: pd.DataFrame) -> str:
    """Return how often Scatterbrain beats both of its parts, each at the whole budget."""
    metric = error.SPACES["attention"]
    part = errors[errors.metric == metric].copy()
    part["kind"] = part.method.map(_kind)
    middle = part.groupby(["input", "temperature", "kind"]).value.median().unstack()
    counts = []
    for support in ("top-k", "window"):
        both = f"Scatterbrain with {support}"
        if {both, support, "positive"} <= set(middle.columns):
            wins = middle[both] < middle[["positive", support]].min(axis=1)
            flat = middle[both] < middle["uniform"]
            counts.append(
                f"with {support} it is below both parts in {int(wins.sum())} of {len(wins)} places "
                f"and below uniform attention in {int(flat.sum())}"
            )
    if not counts:
        return "Scatterbrain does not fit this budget."
    return f"Scatterbrain at the same budget as its parts alone: {'; '.join(counts)}."


def _kind(spec: str) -> str:
    if spec.startswith("scatterbrain"):
        return f"Scatterbrain with {'top-k' if 'top_k' in spec else 'window'}"
    names = {"positive": "positive", "top_k": "top-k", "sliding_window": "window"}
    head = spec.split("(")[0]
    return names.get(head, head)


def variance_conclusion(table: pd.DataFrame, budget: float) -> str:
    """Return how many positive features an error of 10 % would ask for."""
    part = table[(table.metric == "features_needed") & table.method.str.startswith("positive")]
    if part.empty:
        return "No positive feature fits this budget."
    t = min(part.temperature.unique(), key=lambda x: abs(np.log(x)))
    at = part[part.temperature == t]
    counts = [_tens(v) for v in at.value]
    named = ", ".join(f"{count} on {name}" for count, name in zip(counts, at.input))
    held = budget / 2
    enough = int((at.value <= held).sum())
    return (
        f"Positive features at t = {t:g} need, for an expected kernel error of "
        f"{percent(moments.TARGET)}, {named}; the budget buys {held:g}, enough on {enough} of "
        rf"{len(at)} inputs. The variance of one is $e^{{\lVert q+k\rVert^2}}-1$: tilts and shifts "
        "lower the exponent, couplings take a bounded part away."
    )


def _tens(value: float) -> str:
    return f"{value:.0f}" if value < 1e4 else f"$10^{{{min(np.log10(value), 300):.1f}}}$"


def percent(value: float) -> str:
    """Return a share in whole per cent, with the blank that does not break."""
    return f"{value:.0%}".replace("%", "\N{NO-BREAK SPACE}%")


def polynomial_conclusion(price: pd.DataFrame, budget: float) -> str:
    """Return what the least polynomial costs and reaches."""
    part = price[price.method == "taylor(degree=2)"]
    wide = part.pivot_table(index="input", columns="metric", values="value", sort=False)
    values, errors = wide.values_per_row, wide.attention_relative_frobenius
    return (
        f"Taylor of degree 2 stores {values.min():.0f} to {values.max():.0f} values a query row, "
        f"{values.min() / budget:.0f} to {values.max() / budget:.0f} budgets, for errors of "
        f"{errors.min():.2g} to {errors.max():.2g} at t = 1; it fits the budget on "
        f"{int((values <= budget).sum())} of {len(values)} inputs."
    )


def normalisation_conclusion(errors: pd.DataFrame) -> str:
    """Return how often the two error spaces name different winners."""
    medians = errors.groupby(["metric", "input", "temperature", "method"]).value.median()
    winners = {}
    for space, metric in error.SPACES.items():
        own = medians[metric].unstack()
        own = own[[spec for spec in own if tables.is_runnable(str(spec)) and spec != "zero()"]]
        winners[space] = own.idxmin(axis=1)
    differ = int((winners["kernel"] != winners["attention"]).sum())
    return (
        "The space of the error has to be named: of the methods that can be run, the best for "
        f"exp(q·k) is not the best after rows are normalised in {differ} of "
        f"{len(winners['kernel'])} places."
    )


def cost_conclusion(d: int, budget: float) -> str:
    """Return from which length on linear attention and Scatterbrain cost less than exact."""
    m, s = tables.sizes(budget)
    linear, both = (
        operations.break_even(kind.cost, kind.exact) for kind in operations.kinds(d, m, s, 256)[:2]
    )
    return (
        f"With {m} features linear attention takes fewer multiply-adds than exact attention from "
        f"n = {linear} on, with {s} exact entries a row beside them from n = {both} on; below that "
        "there is nothing to gain, whatever the error."
    )


def claims_conclusion(ledger: pd.DataFrame) -> str:
    """Return what became of the claims."""
    each = ledger.drop_duplicates("id")
    own = each[~each.id.str.contains("-E")]
    return (
        f"Verdicts of {len(own)} published statements: {claims.counts(own.verdict)}; "
        f"{len(each) - len(own)} printed errors have been put right by number."
    )
