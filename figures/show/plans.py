"""A plan as text: what its heads are computed by, its price, and what becomes of the model."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.models.plan import Plan
from analysis.models.replacement import SKIP
from approx.checks import required
from figures.drawing import looks
from figures.words.amounts import amount_text
from figures.words.numbers import or_infinity
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import tr


def text(plan: Plan) -> str:
    """Return the methods of a plan, its frontier as a table, and the finding in plain words."""
    facts = plan.facts
    names = method_counts(plan).most_common()
    kinds = [tr("{count} heads: {name}", count=n, name=name) for name, n in names]
    head = [tr("price"), tr("KL predicted"), tr("KL measured"), tr("same"), tr("perplexity")]
    rows = [tuple(head)]
    for one in facts["frontier"]:
        error = "" if one["kl_stderr"] is None else f" ±{one['kl_stderr']:.2g}"
        rows.append((
            f"{one['price']:.0f}", f"{one['predicted_kl']:.3g}",
            or_infinity(one["kl"], ".3g") + error,
            f"{one['same_top_1']:.0%}", or_infinity(one["perplexity"], ".4g"),
        ))  # fmt: skip
    table = aligned(rows)
    sentence = tr(
        "The plan costs {price} on average, {share:.1%} of exact attention. On {text} the model "
        "moves by a KL of {kl} (predicted: {predicted:.3g}), keeps its first choice at "
        "{same:.0%} of the positions, and its perplexity on tokens {first}…{last} goes from "
        "{before:.4g} to {after}.",
        price=amount_text(facts["price"], facts["currency"]),
        share=facts["price"] / facts["exact_price"],
        text=facts["measured_on"], kl=or_infinity(facts["kl"], ".3g"),
        predicted=facts["predicted_kl"], same=facts["same_top_1"],
        first=SKIP + 2, last=facts["tokens"],
        before=facts["exact_perplexity"], after=or_infinity(facts["perplexity"], ".4g"),
    )  # fmt: skip
    lines = [sentence, *_target(plan.facts)]
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
    return "\n\n".join(["\n".join(kinds), table, paragraphs(lines)])


def sizes(plan: Plan) -> str:
    """Return the sizes of a plan by a rule, layer by layer, and what becomes of the model."""
    facts, by_layer = plan.facts, dict[int, list[int]]()
    for (layer, _), method in sorted(plan.heads.items()):
        by_layer.setdefault(layer, []).append(getattr(method, required(method.sized_by).field))
    rows = [
        (str(layer), str(min(some)), f"{sum(some) / len(some):.1f}", str(max(some)))
        for layer, some in by_layer.items()
    ]
    head = (tr("layer"), tr("fewest keys"), tr("mean of keys"), tr("most keys"))
    name = looks.label(str(next(iter(plan.heads.values()))))
    sentence = tr(
        "With {method} in every head the plan costs {price} per group of heads, {share:.1%} of "
        "exact attention. On {text} the KL(model ‖ replaced) is {kl} per token, the likeliest next "
        "token stays at {same:.0%} of the positions, and the perplexity goes from {before:.4g} to "
        "{after}.",
        method=name, price=amount_text(facts["price"], facts["currency"]),
        share=facts["price"] / facts["exact_price"], text=facts["measured_on"],
        kl=or_infinity(facts["kl"], ".3g"), same=facts["same_top_1"],
        before=facts["exact_perplexity"], after=or_infinity(facts["perplexity"], ".4g"),
    )  # fmt: skip
    return "\n\n".join([aligned([head, *rows]), paragraphs([sentence])])


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
