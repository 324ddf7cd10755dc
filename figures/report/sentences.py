"""The sentences of the report that a number decides: each from a table, none from memory."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.advice import diagnose, verdict
from analysis.costs import operations
from analysis.costs.candidates import TRIVIAL
from analysis.experiments import moments
from analysis.experiments.profile import Profile
from analysis.inputs import Head
from approx import parse
from approx.random_features.features import RandomFeatures
from approx.sparse.exact import Exact
from figures.drawing import style
from figures.gallery import error, moments as moments_figure
from figures.report import tables
from figures.show import claims_ledger
from figures.show.diagnosis import MOST_MARGIN
from figures.words import amounts
from figures.words.translation import mark, share_of, tr


def masks(inputs: Iterable[Head]) -> str:
    """Return what queries see, by the names of the inputs with a mask; "" if there is none."""
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


def uniform_wins(best: pd.DataFrame) -> str:
    """Return in how many places no candidate beats uniform attention, or is worth its price."""
    return tr(
        "Uniform attention, which costs nothing, is the best of the methods that can be run "
        "in {count}; a method with random features is the best in {random}. `expqk diagnose` "
        "advises exact attention in {kept}: there no method has less than {share} of uniform "
        "attention's total variation, or the budget buys every entry.",
        count=share_of(best.winner == TRIVIAL, mark("cases")),
        random=share_of(best.winner.map(_has_random_features), mark("cases")),
        kept=share_of(best.verdict == verdict.KEEP, mark("cases")),
        share=tables.percent(diagnose.ACCEPT),
    )


def _has_random_features(spec: str) -> bool:
    method = parse(spec)
    return isinstance(getattr(method, "low_rank", method), RandomFeatures)


def exact_cost(profile: Profile) -> str:
    """Return what exact attention costs in the currency of the budget."""
    prices = [getattr(Exact().price(**x.shape.given), profile.currency) for x in profile.inputs]
    return amounts.amount_text(amounts.span(map(round, prices)), profile.currency)


def verdicts(ledger: pd.DataFrame) -> str:
    """Return how many claims there are of each verdict."""
    each = ledger.drop_duplicates("id")
    errata = each.id.str.contains("-E")
    return tr(
        "{claims} statements of {documents} notes and papers were checked by machine: "
        "{counts}. These texts and their public code contain {errata} errors.",
        documents=each.id.str.split("-").str[0].nunique(),
        claims=int((~errata).sum()),
        counts=claims_ledger.counts(each.verdict[~errata]),
        errata=int(errata.sum()),
    )


def parts_of_error(table: pd.DataFrame) -> str:
    """Return which families are all bias, which all variance, and which least of each."""
    wide = tables.decomposed(table)
    t = float(wide.temperature.min())
    sentences = []
    here = wide[(wide.temperature == t) & (wide.budget > 0)]  # nothing above the budget
    for name, part in here.groupby("input", sort=False):
        part = part.set_index("method")
        total = part.total
        drawn, fixed = total[_unbiased(part)], total[np.isneginf(part.log_variance)]
        without = tr("{name}: {fixed} (no variance)", name=name, fixed=_named(fixed))
        if len(drawn):
            without = tr("{without}, {drawn} (unbiased)", without=without, drawn=_named(drawn))
        sentences.append(without)
    worse = wide.total[_unbiased(wide)] > 0
    return tr(
        "The least expected squared errors at this budget and t = {t:g}: {sentences}. Returning "
        "zero has error 1. At the temperatures shown, the errors of {worse} are larger.",
        t=t,
        sentences=tr("; ").join(sentences),
        worse=share_of(worse, mark("unbiased estimates")),
    )


def _unbiased(wide: pd.DataFrame) -> pd.Series:
    """Return which have no bias by their closed form; a sampled 0 is only below the noise."""
    return (wide.log_squared_bias == -np.inf) & (wide.closed_form == 1.0)


def _named(total: pd.Series) -> str:
    spec, log = str(total.idxmin()), float(total.min())
    return tr(
        "{method} with {error}",
        method=style.look(spec)["label"],
        error=tables.power(float(np.exp(min(log, 700))), log),
    )


def runnable_conclusion(best: pd.DataFrame) -> str:
    """Return what runs without seeing the matrix, against uniform attention."""
    beaten = best[best.attention_tv < best.uniform_tv]
    if not len(beaten):
        return tr(
            "At this budget, no method that can be run has less error than uniform "
            "attention, at any temperature of the grid."
        )
    ratio = (beaten.uniform_tv / beaten.attention_tv).median()
    names = beaten.winner.map(style.label).value_counts()
    winners = tr("; ").join(
        tr("{name} in {count}", name=name, count=count) for name, count in names.items()
    )
    return tr(
        "At this budget, a method that can be run beats uniform attention in {beaten}, by a "
        "median factor of {ratio}: {winners}.",
        beaten=share_of(best.attention_tv < best.uniform_tv, mark("cases")),
        ratio=f"> {MOST_MARGIN}" if ratio > MOST_MARGIN else f"{ratio:.2f}",
        winners=winners,
    )


def scatterbrain_conclusion(errors: pd.DataFrame) -> str:
    """Return how often Scatterbrain beats both of its parts, each at the whole budget."""
    metric = error.SPACES["attention"]
    part = errors[errors.metric == metric].copy()
    part["kind"] = part.method.map(_kind)
    middle = part.groupby(["input", "temperature", "kind"]).value.median().unstack()
    counts = []
    for support in (mark("top-k"), mark("window")):
        both = f"Scatterbrain with {support}"
        if {both, support, "positive"} <= set(middle.columns):
            wins = middle[both] < middle[["positive", support]].min(axis=1)
            flat = middle[both] < middle["uniform"]
            counts.append(
                tr(
                    "with {support} its error is below that of both parts in {wins}, and below "
                    "that of uniform attention in {flat}",
                    support=tr(support),
                    wins=share_of(wins, mark("cases")),
                    flat=share_of(flat, mark("cases")),
                )
            )
    if not counts:
        return tr("Scatterbrain does not fit this budget.")
    return tr(
        "Scatterbrain is compared with each of its parts at the same budget: {counts}.",
        counts=tr("; ").join(counts),
    )


def _kind(spec: str) -> str:
    if spec.startswith("scatterbrain"):
        return f"Scatterbrain with {'top-k' if 'top_k' in spec else 'window'}"
    names = {"positive": "positive", "top_k": "top-k", "sliding_window": "window"}
    head = spec.split("(")[0]
    return names.get(head, head)


def variance_conclusion(table: pd.DataFrame) -> str:
    """Return how many positive features an error of 10 % would ask for."""
    needed = tables.needed(table)
    if needed is None:
        return tr("No positive feature fits this budget.")
    named = tr(", ").join(
        tr("{number} on {name}", number=tables.count(value), name=name)
        for value, name in zip(needed.rows.value, needed.rows.input)
    )
    return tr(
        "At t = {t:g}, an expected kernel error of {error} needs this many positive features: "
        "{named}. The budget pays for {held}; this is enough on {enough}. The total variation of "
        "{many} features is {measured}.",
        t=needed.temperature,
        error=tables.percent(moments.TARGET),
        named=named,
        held=amounts.span(needed.held),
        enough=needed.enough,
        many=moments.MANY,
        measured=tr(", ").join(
            tr("{tv:.2g} ± {stderr:.1g} on {name}", tv=tv, stderr=stderr, name=name)
            for tv, stderr, name in zip(needed.tv.value, needed.tv.stderr, needed.tv.input)
        ),
    )


def lies(table: pd.DataFrame) -> str:
    """Return how many samples of positive features are reliable, and how one misleads."""
    part = table[table.method.str.startswith("positive")]
    worst = moments_figure.hidden(table)
    if worst is None:
        return tr("No positive feature fits this budget.")
    reliable = part[part.metric == "believable"].value
    z = moments_figure.z_scores(part)
    said = tr(
        "A sample is reliable in {share}. On {name} at t = {t:g} the deviation is "
        "{closed}, and the draws show {sampled}. {criterion}",
        share=share_of(reliable, mark("cases")),
        name=worst.input,
        t=worst.temperature,
        closed=moments_figure.power(worst.closed),
        sampled=moments_figure.power(worst.sampled),
        criterion=moments_figure.criterion(),
    )
    if not len(z):
        return said
    return tr(
        "{said} Reliable samples agree with the closed form: the largest |z| of a mean is {z:.1f}.",
        said=said,
        z=z.max(),
    )


def normalisation_conclusion(errors: pd.DataFrame) -> str:
    """Return how often no method is best, or a tie with the best, in both error spaces."""
    medians = errors.groupby(["metric", "input", "temperature", "method"]).value.median()
    near = []
    for metric in error.SPACES.values():
        own = medians[metric].unstack()
        own = own[[spec for spec in own if not parse(spec).oracle and spec != "zero()"]]
        near.append(own.le(verdict.TIE * own.min(axis=1), axis=0))
    same = (near[0] & near[1]).any(axis=1)
    return tr(
        "An error has to name its space. In {same}, one method of @fig:error that can be run is "
        "within a factor {tie:g} of the best in both errors, that of exp(q·k) and that of "
        "normalised rows.",
        tie=verdict.TIE,
        same=share_of(same, mark("cases")),
    )


def cost_conclusion(d: int, m: int) -> str:
    """Return from which length on linear attention and Scatterbrain cost less than exact."""
    linear, both = tables.cheaper_from(d, m)
    return tr(
        "With {m} features, linear attention takes fewer multiply-adds than exact attention "
        "from n = {linear} on; with {s} exact entries per row beside them, from n = {both} on. At "
        "shorter lengths no arithmetic is saved, whatever the error.",
        m=m,
        linear=linear,
        s=m,
        both=both,
    )


def causal_cost(d: int, m: int, length: int = tables.LENGTH) -> str:
    """Return what a causal mask saves exact attention, and the lengths that follow."""
    costs = [kind.cost for kind in operations.kinds(d, m, m, tables.CHUNK)[:2]]
    linear, both = (
        operations.break_even(cost, lambda n: operations.causal_attention(n, d).total)
        for cost in costs
    )
    return tr(
        "Under a causal mask, exact attention can skip what is not seen: it takes $n(n+1)d$, "
        "which is {count} at n = {length}. Linear attention keeps running sums and costs the "
        "same as without a mask. So {m} features are cheaper from n = {linear} on; with {s} "
        "exact entries per row beside them, from n = {both} on.",
        count=f"{operations.causal_attention(length, d).total:,}".replace(
            ",", "\N{NO-BREAK SPACE}"
        ),
        length=length,
        m=m,
        linear=linear,
        s=m,
        both=both,
    )
