"""A plan as text: what its heads are computed by, its price, and what becomes of the model."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.costs.allocation import undominated
from analysis.models.plan import Plan
from analysis.models.replacement import SKIP
from approx.checks import required
from figures.drawing import looks
from figures.show import scarcity
from figures.words.amounts import amount_text
from figures.words.numbers import or_infinity
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import tr

PLANNED = "plan"  # instead of a method, in the table of choices
EXACT = "exact()"


def text(plan: Plan) -> str:
    """Return what to deploy, the choices as a table, the methods of the plan, and the finding."""
    facts = plan.facts
    names = method_counts(plan).most_common()
    kinds = [tr("{count} heads: {name}", count=n, name=name) for name, n in names]
    lines = [effect(plan), *_target(plan.facts)]
    if fact := facts.get("needle"):
        lines.append(
            tr(
                "At the answer to a question about a fact in the text, which counts {weight:g} "
                "times in the choice, the KL is {kl} per token (predicted: {predicted:.3g}).",
                weight=fact["weight"], kl=or_infinity(fact["kl"], ".3g"),
                predicted=fact["predicted_kl"],
            )
        )  # fmt: skip
    lines += filter(None, [nothing_to_approximate(plan)])
    if facts["measured_on"] in facts["chosen_on"]:
        lines.append(
            tr(
                "The plan was chosen on this text, so the damage is understated. Give "
                "another text as --held-out."
            )
        )
    first = paragraphs([*deployed(plan), *legend(plan)])
    return "\n\n".join(
        [first, lines_of(table_of_choices(plan)), "\n".join(kinds), paragraphs(lines)]
    )


def effect(plan: Plan) -> str:
    """Return the price of a plan, and what becomes of the model."""
    facts = plan.facts
    return tr(
        "The plan costs {price} on average, {share:.1%} of exact attention. On {text} the model "
        "moves by a KL of {kl}, keeps its first choice at {same:.0%} of the positions, and its "
        "perplexity on tokens {first}…{last} goes from {before:.4g} to {after}.",
        price=amount_text(facts["price"], facts["currency"]),
        share=facts["price"] / facts["exact_price"], text=facts["measured_on"],
        kl=or_infinity(facts["kl"], ".3g"), same=facts["same_top_1"],
        first=SKIP + 2, last=facts["tokens"],
        before=facts["exact_perplexity"], after=or_infinity(facts["perplexity"], ".4g"),
    )  # fmt: skip


def lines_of(shown: pd.DataFrame) -> str:
    """Return a table as lines of a terminal."""
    return aligned([tuple(map(str, shown.columns)), *shown.itertuples(index=False, name=None)])


def choices(plan: Plan) -> pd.DataFrame:
    """Return a row per plan and per single method for all heads, by bytes read of a group.

    Columns are ``name``, ``method`` (a spec, "plan", or "exact()") and the numbers of the plan's
    facts. ``kl`` is inf where it is infinite, and NaN where it is only predicted.
    """
    facts = plan.facts
    many = len(facts["frontier"]) > 1
    named = tr("the plan at {price:,.0f}") if many else tr("the plan")
    rows = [
        {**one, "method": PLANNED, "name": named.format(price=one["price"])}
        for one in facts["frontier"]
    ]
    rows += [{**one, "name": named_size(one["method"])} for one in facts["singles"]]
    for one in rows:
        kl = one.get("kl", math.nan)
        one["kl"] = math.inf if kl is None else kl
    found = pd.DataFrame(rows).sort_values(["bytes_read", "kl"], kind="stable")
    return found.reset_index(drop=True)


def named_size(spec: str) -> str:
    """Return the label of a method with the size that its label leaves out."""
    name = looks.label(spec)
    if spec == EXACT or name == spec or "rounded" in spec:
        return name
    return tr("{name} ({count})", name=name, count=spec)


def limit(plan: Plan) -> float:
    """Return the bytes at which choices are compared: the budget, or what the plan itself reads."""
    facts = plan.facts
    in_bytes = facts["currency"] in ("bytes_read", "bytes")
    return float(facts.get("budget", facts["bytes_read"]) if in_bytes else facts["bytes_read"])


def deployed(plan: Plan) -> list[str]:
    """Return what to use if bandwidth is scarce, if memory is, and if neither is."""
    return scarcity.sentences(choices(plan), limit(plan))


def table_of_choices(plan: Plan) -> pd.DataFrame:
    """Return the measured choices as they are printed: their bytes, KL and memory."""
    known = choices(plan)
    known = known[known.kl.notna()]
    best = set(undominated(known).index)
    exact = known.bytes_read.max()
    rows = []
    for at, one in known.iterrows():
        error = one.kl_stderr
        rows.append({
            tr("choice"): one["name"] + (" *" if at in best else ""),
            tr("bytes read"): f"{one.bytes_read:,.0f}",
            tr("of exact"): f"{one.bytes_read / exact:.1%}",
            tr("bytes held"): f"{one.bytes:,.0f}",
            tr("KL predicted"): or_infinity(one.predicted_kl, ".3g"),
            tr("KL measured"): or_infinity(one.kl if math.isfinite(one.kl) else None, ".3g")
            + (f" ±{error:.2g}" if error is not None and error > 0 else ""),
            tr("same"): f"{one.same_top_1:.0%}",
            **{tr("MB at {tokens}k", tokens=int(tokens) // 1024): f"{held / 1e6:.3g}"
               for tokens, held in one.memory.items()},
        })  # fmt: skip
    return pd.DataFrame(rows)


def legend(plan: Plan) -> list[str]:
    """Return what the columns of `table_of_choices` count, and what is not measured."""
    facts = plan.facts
    said = tr(
        "Bytes are those of a group of {group} heads that share keys, after {tokens} tokens; MB, "
        "those of all caches of the model. Nothing here that reads fewer bytes has a smaller KL "
        "than a choice with *.",
        group=facts["group"], tokens=facts["tokens"],
    )  # fmt: skip
    predicted = int(choices(plan).kl.isna().sum())
    more = tr(
        "Further single methods in the plan's file: {count}. By prediction no cheaper one beats "
        "them; they were not measured.",
        count=predicted,
    )  # fmt: skip
    return [said, more][: 1 + (predicted > 0)]


def sizes(plan: Plan) -> str:
    """Return the sizes of a plan by a rule, layer by layer, and what becomes of the model."""
    by_layer = dict[int, list[int]]()
    for (layer, _), method in sorted(plan.heads.items()):
        by_layer.setdefault(layer, []).append(getattr(method, required(method.sized_by).field))
    rows = [
        (str(layer), str(min(some)), f"{sum(some) / len(some):.1f}", str(max(some)))
        for layer, some in by_layer.items()
    ]
    head = (tr("layer"), tr("fewest keys"), tr("mean of keys"), tr("most keys"))
    name = looks.label(str(next(iter(plan.heads.values()))))
    said = tr("{method} in every head, and how many keys it keeps:", method=name)
    return "\n\n".join([said, aligned([head, *rows]), paragraphs([effect(plan)])])


def nothing_to_approximate(plan: Plan) -> str:
    """Return a sentence if the budget pays for exact attention in every head, else ""."""
    facts = plan.facts
    if facts.get("budget", 0.0) < facts["exact_price"]:
        return ""
    return tr(
        "The budget pays for exact attention in every head, which costs {price}, so "
        "there is nothing to approximate. Choose a smaller budget.",
        price=amount_text(facts["exact_price"], facts["currency"]),
    )


def checked(plan: Plan, misfits: Sequence[str]) -> str:
    """Return a paragraph: which parts of a plan do not fit a model, or that all of it fits."""
    if misfits:
        said = tr("The plan of {model} does not fit:", model=plan.model)
        return "\n".join([said, *(f"- {one}" for one in misfits)])
    agree = tr(
        "The plan of {model} fits: name and weights agree, its {heads} heads and methods can run.",
        model=plan.model, heads=len(plan.heads),
    )  # fmt: skip
    unknown = tr(
        "The plan of {model} fits by name, and its {heads} heads and methods can run. It does not "
        "say for which weights it was made.", model=plan.model, heads=len(plan.heads),
    )  # fmt: skip
    return paragraphs([agree if plan.facts.get("model_sha256") else unknown])


def exported(differences: Sequence[str], engine: str) -> str:
    """Return a paragraph: where an engine computes something else than the plan."""
    if not differences:
        return tr("{engine} differs from the plan in nothing that is known.", engine=engine)
    said = tr("{engine} differs from the plan:", engine=engine)
    return "\n".join([said, *(f"- {one}" for one in differences)])


def method_counts(plan: Plan) -> Counter[str]:
    """Return the number of heads of a plan with each method, exact attention included."""
    names = Counter(looks.label(str(method)) for method in plan.heads.values())
    if exact := plan.facts["exact_heads"]:
        names[tr("exact attention")] = exact
    return names


def _target(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield whether a plan that was made for a KL keeps to it."""
    if "target_kl" not in facts:
        return
    target, count = facts["target_kl"], len(facts["rounds"])
    mine = next(one for one in facts["rounds"] if one["price"] == facts["price"])
    known = {"target": target, "kl": or_infinity(mine["kl"], ".3g")}
    first = facts["rounds"][0]
    if mine["kl"] is None or mine["kl"] > target:
        yield tr(
            "On the texts that it was chosen on, the plan does not reach the target, a KL of "
            "{target:.3g}, in {count} rounds. The nearest is {kl}.", count=count, **known,
        )  # fmt: skip
    else:
        yield tr(
            "On the texts that chose it the KL is {kl}, at most the target of {target:.3g}: in "
            "round {number} of {count} a prediction of {aim:.3g} was allowed. In round 1, where "
            "the prediction was the target, the KL was {first}.",
            number=facts["rounds"].index(mine) + 1, count=count, aim=mine["aim"],
            first=or_infinity(first["kl"], ".3g"), **known,
        )  # fmt: skip
    if facts["measured_on"] not in facts["chosen_on"]:
        ratio = or_infinity(None if facts["kl"] is None else facts["kl"] / target, ".2f")
        yield tr(
            "On {text}, which was not used for choosing, the KL is {ratio} times the target.",
            text=facts["measured_on"], ratio=ratio,
        )  # fmt: skip
