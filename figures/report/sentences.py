"""The sentences of the report that a number decides, and what to use: each from a table."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis.advice import measurement
from analysis.advice.caveats import price_warnings
from analysis.advice.diagnose import diagnose
from analysis.advice.verdict import KEEP, TIE, Advice, advice, is_cheaper
from analysis.experiments import moments
from analysis.experiments.profile import Profile, nearest_to_one
from analysis.inputs import Head
from approx import parse
from approx.sparse.exact import Exact
from figures.drawing import looks
from figures.gallery import rank, summary
from figures.report.references import cited
from figures.show.diagnosis import MOST_MARGIN
from figures.words import amounts, numbers
from figures.words.translation import in_words, mark, share, share_of, tr

PLACE = ["input", "layer", "head"]
LISTS = ["warnings", "left_out"]  # of sentences, which no CSV holds
MOST = 12  # heads that a sentence names; more are counted


def advised(profile: Profile) -> pd.DataFrame:
    """Return the advisor's table at the temperature nearest 1, without its warnings."""
    return diagnose(
        profile.advised or profile.inputs,
        budget=profile.budget,
        currency=profile.currency,
        temperature=nearest_to_one(profile.temperatures),
        seed=profile.seed,
        jobs=profile.jobs,
        progress=profile.progress,
    ).drop(columns=LISTS)


def _groups(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame, Advice]]:
    """Return (name, rows, advice) of every head."""
    groups = table.groupby(PLACE, sort=False)
    return [(str(key[0]), part, one) for (key, part), one in zip(groups, advice(table))]


def summary_sentence(table: pd.DataFrame, advice_of: pd.DataFrame) -> str:
    """Return the finding: which class at which temperature, and on how much something helps."""
    said = [f"**{summary.finding(table)}**"]
    if not summary.crossings(table).empty:
        said.append(tr("Both see all logits first: they are references, and cannot be run."))
    worth = tr(
        "At t = {t:g}, a method that can be run is worth using on {share}: it has less than half "
        "of the total variation of uniform attention.",
        t=advice_of.temperature.iloc[0],
        share=_worth(advice_of),
    )
    return "\n".join([*said, worth])  # between Chinese sentences pandoc drops the line's end


def _worth(table: pd.DataFrame) -> str:
    """Return on how many heads or inputs some method is worth using."""
    all_heads = (table["layer"] >= 0).all()
    of = mark("attention heads") if all_heads else "inputs"
    return share_of((one.verdict != KEEP for _, _, one in _groups(table)), of)


def to_use(table: pd.DataFrame) -> str:
    """Return the advice: a method for each input, or exact attention."""
    by_method: dict[str, list[str]] = {}
    kept, dear = [], []
    affordable = set(table[table.budget >= table.exact_price].input)
    for name, part, one in _groups(table):
        best = part[part.winner].to_dict("records")
        if one.verdict != KEEP:
            use = looks.label(one.winner)
            if more := [tr(each.message, **each.values) for each in price_warnings(best[0])]:
                use = tr("{method} ({costs})", method=use, costs=tr(", ").join(more))
            by_method.setdefault(use, []).append(name)
        elif name not in affordable and best and not is_cheaper(best[0]):
            dear.append(name)
        else:
            kept.append(name)
    parts = [
        tr("use {method} on {inputs}", method=method, inputs=_listed(names))
        for method, names in by_method.items()
    ]
    bought = [name for name in kept if name in affordable]
    if bought:
        parts.append(
            tr(
                "keep exact attention on {inputs}, where the budget buys every entry",
                inputs=_listed(bought),
            )
        )
    if dear:
        parts.append(
            tr(
                "keep exact attention on {inputs}, where the best method saves storage only, "
                "and none of the other known costs",
                inputs=_listed(dear),
            )
        )
    if left := [name for name in kept if name not in affordable]:
        parts.append(
            tr(
                "keep exact attention on {inputs}, where no method that was tried and can be run "
                "has less than half of uniform attention's total variation",
                inputs=_listed(left),
            )
        )
    said = tr("; ").join(parts)
    return tr("At this budget and t = {t:g}: {parts}.", t=table.temperature.iloc[0], parts=said)


def rows_taken(profile: Profile) -> str:
    """Return which heads and how many of their queries are measured, where some are left out."""
    heads, queries = profile.given
    n = max(x.n for x in profile.inputs)
    said = []
    if profile.advised and heads > len(profile.inputs):
        said.append(
            tr(
                "The file has {heads} heads. This report shows {names}; the advice covers "
                "{advised}.",
                heads=heads,
                names=_listed([x.name for x in profile.inputs]),
                advised=in_words(len(profile.advised)),
            )
        )
    if queries > n:
        said.append(
            tr(
                "The report measures the first {n} of {queries} queries of each head, with "
                "the keys that they see. It says nothing about the others.",
                queries=queries,
                n=n,
            )
        )
    return " ".join(said)


def _listed(names: list[str]) -> str:
    if len(names) > MOST:
        return tr("{count} heads", count=len(names))
    *first, last = names
    return tr("{first} and {last}", first=tr(", ").join(first), last=last) if first else last


def masks(inputs: Iterable[Head]) -> str:
    """Return a sentence on the inputs with a mask; "" if there is none."""
    named: dict[str, list[str]] = {}
    for x in inputs:
        if not x.mask.is_full:
            named.setdefault(_seen(x), []).append(x.name)
    parts = [
        tr("on {inputs} it sees {what}", inputs=tr(", ").join(names), what=what)
        for what, names in named.items()
    ]
    return (
        tr("A query does not see every key: {parts}.", parts=tr("; ").join(parts)) if parts else ""
    )


def _seen(x: Head) -> str:
    kind = str(x.mask)
    if kind == "causal":
        return tr("its own and earlier keys")
    if kind.startswith("window"):
        return tr("the last {width} keys, its own included", width=int(x.mask.counts.max()))
    return tr(
        "an interval of {least} to {most} keys",
        least=int(x.mask.counts.min()),
        most=int(x.mask.counts.max()),
    )


def exact_cost(profile: Profile) -> str:
    """Return the cost of exact attention in the currency of the budget."""
    prices = [getattr(Exact().price(**x.shape.given), profile.currency) for x in profile.inputs]
    return amounts.amount_text(amounts.span(map(round, prices)), profile.currency)


def advice_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a head: what to use, its bound, its error over draws, price, the next best."""
    return pd.DataFrame([_row(*group) for group in _groups(table)])


def _adds(best: Any) -> str:
    """Return the multiply-adds of a query row, and the share of those of exact attention."""
    if best is None or math.isnan(best.multiply_adds):
        return "–"
    share = numbers.spaced_percent(best.multiply_adds / best.exact_multiply_adds)
    return numbers.unbroken(tr("{name} ({count})", name=f"{best.multiply_adds:.0f}", count=share))


def _row(name: str, part: pd.DataFrame, one: Advice) -> dict[str, str]:
    best = part[part.winner].iloc[0] if one.winner else None
    kept = one.verdict == KEEP
    nearest = cited(one.winner) if one.winner else "–"
    use = tr("keep exact (nearest: {name})", name=nearest) if kept else nearest
    runner = "–" if math.isnan(one.margin) else f"{min(one.margin, MOST_MARGIN):.2f}×"
    runner = f"> {MOST_MARGIN}×" if one.margin > MOST_MARGIN else runner
    runner = tr("{ratio}, a tie", ratio=runner) if one.margin < TIE else runner
    return {
        tr("input"): name,
        tr("use"): use,
        tr("lower bound"): numbers.three_decimals(one.bound) if np.isfinite(one.bound) else "–",
        tr("total variation"): _drawn(best),
        tr("uniform"): numbers.three_decimals(one.uniform.attention_tv),
        tr("multiply-adds"): _adds(best),
        tr("next best"): runner,
    }


def _drawn(best: Any) -> str:
    """Return a median with the range over draws, or with the standard error of sampled rows."""
    if best is None:
        return "–"
    middle = numbers.three_decimals(best.attention_tv)
    if best.attention_tv_most - best.attention_tv_least > numbers.LEAST_SHOWN:
        middle = tr(
            "{middle} ({least} to {most})",
            middle=middle,
            least=numbers.three_decimals(best.attention_tv_least),
            most=numbers.three_decimals(best.attention_tv_most),
        )
    return f"{middle} ± {best.attention_tv_stderr:.1g}" if best.attention_tv_stderr > 0 else middle


def answers(computed: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table of the first page: what is asked, the answers, and how sure these are.

    Parameters
    ----------
    computed : dict of DataFrame
        summary, advice, rank, moments.
    """
    rows = [
        (tr("rank"), rank.finding(computed["rank"]), tr("From all singular values.")),
        (tr("bias and variance"), *_random(computed["moments"])),
        (tr("entries or low rank"), *_class(computed["summary"])),
        (tr("runnable methods"), *_runnable(computed["advice"])),
    ]
    said = [(name, tr("{said} {sure}", said=said, sure=sure).strip()) for name, said, sure in rows]
    return pd.DataFrame(said, columns=[tr("question"), tr("answer, and how sure it is")])


def _class(table: pd.DataFrame) -> tuple[str, str]:
    crossed = summary.crossings(table)
    if crossed.empty:
        return tr(
            "These methods are matched by stored values only, so they are not compared "
            "in this currency."
        ), ""
    sure = tr("No support of as many entries has less error; a better low rank may exist.")
    said = tr(
        "On {crossing}, entries have less total variation below a crossover, low rank above it. "
        "The best sum of both found (GoDec) has the least total variation of the three in {share}.",
        crossing=share_of(crossed > 0),
        share=share(*summary.together(table), mark("cases")),
    )
    return said, sure


def _runnable(table: pd.DataFrame) -> tuple[str, str]:
    groups = _groups(table)
    names = Counter(cited(one.winner) for _, _, one in groups if one.winner)
    tv = np.array([one.attention_tv for _, _, one in groups])
    uniform = np.array([one.uniform.attention_tv for _, _, one in groups])
    winners = tr(", ").join(
        tr("{name} on {count}", name=name, count=in_words(count)) if len(groups) > 1 else name
        for name, count in names.most_common()
    )
    best = table[table.winner]
    middle, least, most = best.attention_tv, best.attention_tv_least, best.attention_tv_most
    spread = np.maximum(most - middle, middle - least).max()
    return (
        tr(
            "At t = {t:g}: {winners}. The total variation is {tv}, that of uniform attention "
            "{uniform}. Worth using on {share}.",
            t=table.temperature.iloc[0],
            winners=winners,
            tv=_range(*map(numbers.three_decimals, (np.nanmin(tv), np.nanmax(tv)))),
            uniform=_range(*map(numbers.three_decimals, (np.nanmin(uniform), np.nanmax(uniform)))),
            share=_worth(table),
        ),
        tr(
            "Medians of {draws} draws, which {spread}.",
            draws=in_words(measurement.TRIALS),
            spread=tr("differ from their median by at most {spread:.2g}", spread=spread)
            if spread >= numbers.LEAST_SHOWN
            else tr("agree to three decimals"),
        ),
    )


def features(table: pd.DataFrame) -> str:
    """Return the number of positive features that the budget pays for; "" if none."""
    specs = looks.of_methods(table, "positive").method.unique()
    return amounts.span(vars(parse(spec))["m"] for spec in specs) if len(specs) else ""


def _deviation(logs: pd.Series) -> str:
    """Return the range of standard deviations, of logarithms of variances."""
    ends = [float(log) / 2 for log in (logs.min(), logs.max())]
    return "–".join(dict.fromkeys(numbers.formula_power(math.exp(min(x, 700)), x) for x in ends))


def _random(table: pd.DataFrame) -> tuple[str, str]:
    sure = tr("Closed form, one pair of each input.")
    positive = looks.of_methods(table, "positive")
    closed = positive[positive.metric == "log_relative_variance"]
    if closed.empty:
        return tr("No positive feature fits this budget."), sure
    ends = closed.temperature.min(), closed.temperature.max()
    cold, hot = (_deviation(closed.value[closed.temperature == t]) for t in ends)
    said = tr(
        "For exp(q·k), polynomials have bias only, random features variance only; normalised "
        "attention has a bias with both. The relative standard deviation of {held} positive "
        "features is {cold} at t = {coldest:g} and {hot} at t = {hottest:g}.",
        cold=cold,
        hot=hot,
        coldest=ends[0],
        hottest=ends[1],
        held=features(closed),
    )
    return said, sure


def bias_of_polynomials(table: pd.DataFrame) -> str:
    """Return the bias of the polynomials of one pair, at the temperature nearest 1."""
    part = table[table.metric == "relative_bias"]
    part = part[part.temperature == nearest_to_one(part.temperature)]
    taylor, power = (looks.of_methods(part, name) for name in ("taylor", "tensor_power"))
    return tr(
        "At t = {t:g} the bias of this pair at degree {degree} is {first} (Taylor) and {second} "
        "(tensor power).",
        t=part.temperature.iloc[0],
        degree=vars(parse(taylor.method.iloc[0]))["degree"],
        first=_signed(taylor.value),
        second=_signed(power.value),
    )


def _signed(biases: pd.Series) -> str:
    ends = float(biases.min()), float(biases.max())
    low, high = ("−" * (x < 0) + numbers.formula_power(abs(x)) for x in ends)
    return _range(low, high)


def _range(low: str, high: str) -> str:
    """Return a range of numbers, one number where they agree."""
    low = numbers.unbroken(low)
    return tr("{low} to {high}", low=low, high=high) if low != numbers.unbroken(high) else low


def features_needed(table: pd.DataFrame) -> str:
    """Return how many positive features a small error takes; "" if none fits the budget."""
    needed = table[table.metric == "features_needed"]
    if needed.empty:
        return ""
    tv = table[table.metric == "attention_tv_of_many"].value
    return tr(
        "At t = {t:g}, {needed} positive features are needed for a relative Frobenius error of "
        "exp(q·k) of {error}, the root mean square over draws. With {many}, the total variation of "
        "attention is {range} (means of {draws} draws), at most {tv:g} on {reached}.",
        t=needed.temperature.iloc[0],
        error=numbers.spaced_percent(moments.TARGET),
        needed=_range(*map(numbers.formula_count, needed.value.agg(["min", "max"]))),
        many=moments.MANY,
        range=_range(*map(numbers.three_decimals, tv.agg(["min", "max"]))),
        draws=in_words(moments.DRAWS),
        tv=moments.TV,
        reached=share_of(tv <= moments.TV),
    )
