"""Planning: cost curves of groups of heads, one Lagrange multiplier, and what the model does.

Beside a plan stand single methods for all heads: those that people deploy, and the one that the
curves predict to be the best at the budget.
"""

import math
import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.costs.allocation import HEAD, Allocation, allocate, cheapest, single, undominated
from analysis.costs.budget import LENGTHS, MEMORY, cost
from analysis.costs.candidates import rivals
from analysis.models import checkpoints
from analysis.models.checkpoints import Place
from analysis.models.cost_curves import EXACT, MOST, SHARES, curves
from analysis.models.head_caches import footprint
from analysis.models.language_model import HeadIndex, LanguageModel
from analysis.models.plan import Plan as Plan, misfits
from analysis.models.replacement import (
    SKIP,
    Estimated,
    Pass,
    Passage,
    Replacements,
    outcomes,
    perplexity,
)
from analysis.models.retrieval import question
from analysis.runs import engines
from analysis.runs.store import Store
from analysis.sentences import one_line
from approx import Method, checks, parse
from approx.method.prices import CURRENCIES, Shape

FRONTIER = (0.25, 0.5, 1.0, 2.0, 4.0)  # shares of the budget at which plans are measured as well
ROUNDS = 4  # rounds for a target: the first, and three corrections
CLOSE = 0.9  # a measured KL between this share of the target and the target is good enough
LEAST_PREDICTED = "least_predicted_kl"
NEEDLES = (0.25, 0.75)  # depths of a fact in the texts that a plan is chosen for
DAMAGES = "damage", "needle", "kl"  # columns of curves that are means over rounds
STEP = 8.0  # a correction changes the allowed predicted KL by at most this factor

K = TypeVar("K", bound=Hashable)


def plan(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    budget: float | None = None,
    kl: float | None = None,
    currency: str = "bytes_read",
    methods: Sequence[Method] | None = None,
    frontier: bool = False,
    start: str | os.PathLike[str] | None = None,
    in_place: int = 0,
    needle: float = 0.0,
    held_out: str | os.PathLike[str] | None = None,
    max_tokens: int = 512,
    seed: int = 0,
    jobs: int | None = None,
    scheduler: Any = None,
    progress: bool = False,
    finished: str | os.PathLike[str] | None = None,
    announce: Callable[[float], None] | None = None,
) -> Plan:
    """Return a plan: the least predicted damage within a budget, or the least price within a KL.

    Parameters
    ----------
    model_dir : path
        See `analysis.models.language_model.LanguageModel.open`.
    text : path or sequence of paths
        The texts that choose the plan: the first tokens of each UTF-8 file, as many as the shortest
        text has.
    budget : float
        The largest mean price per query of a group of heads that share keys and values. In
        ``stored`` and ``multiply_adds`` it is that of one head.
    kl : float
        A target instead of a budget: the largest KL(model ‖ replaced) of the next token.
    currency : {"bytes_read", "reads", "bytes", "stored", "multiply_adds"}
    methods : sequence of Method, optional
        The choices of a group, see `analysis.models.cost_curves.curves`; exact attention is always
        a choice.
    frontier : bool
        Whether to choose and measure plans at the shares `FRONTIER` of the budget as well.
    start : path, optional
        The file of an earlier plan of this model. Each group can also keep its earlier method, so
        that the predicted damage at this price is not above that of an earlier plan by groups. If
        it has the same currency, methods have the sizes of its curves, and numbers in the folder
        FILE.heads beside it are not computed again.
    in_place : int
        The number of rounds that measure curves with a choice in place: heads get the inputs of the
        modified model, and gradients are taken there. The first choice is the plan of ``start``, or
        else the one from the model's own curves. Each round chooses from the mean of its curves
        and those of all earlier rounds.
    needle : float
        The weight of a fact that stands in the first text at the depths `NEEDLES` and is asked for
        at its end (`analysis.models.retrieval`). The damage of a head is then its KL on the texts
        plus this weight times its KL at the tokens of the answer. Only with a budget.
    held_out : path, optional
        A text that does not choose, on which the plan is measured. By default this is the first
        text, so that the measured damage is too small.
    max_tokens : int
        The largest number of tokens of each text.
    seed, jobs, progress
        As for `analysis.models.substitute.substitute`.
    scheduler : str or distributed.Client, optional
        A Dask cluster, see `analysis.sweeps.sweep.sweep`. Its tasks are the curves of the heads and
        the passes that measure plans. The rounds of a target KL run one after the other in this
        process.
    finished : path, optional
        A folder that keeps the curve of each group and the measurements of each plan, so that a
        stopped call can resume.
    announce : callable, optional
        Gets the expected seconds of a long run, see `analysis.models.forecast.Forecast`.

    Returns
    -------
    Plan
        Heads that stay exact are left out. Its facts:

        - ``budget``, ``currency``; ``price``, the mean over all groups of heads; ``exact_price``;
          ``group``, the most heads of a group
        - ``chosen_on``, ``measured_on``: the names of the texts; ``tokens``: their length
        - ``model_sha256``, ``text_sha256``, by name of the file; ``version`` of expqk
        - ``started_from``: the name of the earlier plan's file; ``in_place``: the rounds;
          ``needle``: ``weight``, ``depths``, and ``predicted_kl`` and ``kl`` per token of the
          answer; each only if requested
        - ``predicted_kl``: the sum of the heads' predicted damages; ``least_predicted_kl``: a lower
          bound of it for any choice from the same curves within the price
        - ``kl``, ``kl_stderr``, ``same_top_1``, ``perplexity``: measured with all heads replaced at
          once; ``exact_perplexity``
        - ``bytes_read``, ``bytes``: read and held for a group of heads; ``memory``: the bytes that
          all caches of the model hold, by number of tokens
        - ``frontier``: price, prediction and measurement of the plan, and of plans at other budgets
        - ``singles``: the same of single methods for all heads, see `beside`; ``kl`` is absent
          where it is only predicted

        With a target KL, ``target_kl`` replaces ``budget``; ``least_price``, a lower bound on the
        price of any choice with as small a predicted KL, replaces ``least_predicted_kl``; and
        ``rounds`` has the rounds of `analysis.models.planner.aimed`.

    Raises
    ------
    ImportError, ValueError
        The model or a method cannot be used, the cheapest choice costs more than the budget, not
        exactly one of budget and KL is given, or the earlier plan does not fit the model.

    Notes
    -----
    The damage of a head is predicted to second order from gradients of the model's loss
    (`analysis.models.sensitivity`). One Lagrange multiplier chooses the heads' methods
    (`analysis.costs.allocation`), and the prediction is the sum over heads. It is an estimate, as
    damages of heads do not add exactly; ``kl`` is the measured damage. On ``held_out`` it can be
    above a target KL.
    """
    texts = [text] if isinstance(text, str | os.PathLike) else list(text)
    if (budget is None) == (kl is None):
        raise ValueError("a plan is made for a budget or for a KL: give one of them")
    checks.one_of("currency", currency, CURRENCIES)
    checks.integer("in_place", in_place, least=0)
    if needle:
        checks.positive("needle", needle)
    if kl is not None:
        checks.positive("kl", kl)
        if needle:
            raise ValueError("a KL says nothing of a fact: give a budget with needle")
    if not texts:
        raise ValueError("a plan needs a text to be chosen on")
    every = checkpoints.texts(model_dir, *texts, held_out)
    earlier = None if start is None else _earlier(start, model_dir)
    model = LanguageModel.open(model_dir)
    tokens = [model.tokens_of(words, max_tokens) for words in every]
    shortest = min(map(len, tokens))  # sizes and prices follow from the length
    passages = [Passage(model, ids[:shortest], skip=SKIP, seed=seed, jobs=jobs) for ids in tokens]
    chosen_on, at = passages[: len(texts)], passages[0 if held_out is None else -1]
    most = cost(parse(EXACT), at.shapes[0], currency) / max(SHARES)
    about = most if budget is None else budget
    since, kept = None, None
    if start is not None and earlier is not None:
        kept = Path(start).with_name(f"{Path(start).name}.heads")
        if earlier.facts.get("currency") == currency:
            since = earlier.facts.get("budget", most)
    done = Store(finished, kept)
    with engines.client(scheduler, at.jobs) as scheduler:  # one cluster for all
        facts = [
            question(model, every[0], shortest, depth, seed=seed, jobs=jobs)
            for depth in NEEDLES
            if needle
        ]

        before = {} if earlier is None else earlier.heads

        def look(placed: Replacements) -> pd.DataFrame:
            """Return the curves on the texts and on the fact, with some heads in place."""
            given: dict[str, Any] = {
                "currency": currency, "methods": methods, "since": since, "start": before,
                "scheduler": scheduler, "done": done, "progress": progress, "announce": announce,
                "most": MOST if kl is None and not frontier else math.inf,
                "looks": max(in_place, 1) * (2 if facts else 1), "passes": len(rivals()),
            }  # fmt: skip
            found, *told = (
                curves([x.with_heads(placed) for x in some], about, **given)
                for some in (chosen_on, facts)
                if some
            )
            if told:
                keys = [*HEAD, "method"]
                damage = told[0].set_index(keys).damage
                found["needle"] = damage[pd.MultiIndex.from_frame(found[keys])].to_numpy()
                found["kl"] = found.damage
                found["damage"] += needle * found.needle
            return found

        def choose(found: pd.DataFrame) -> tuple[Allocation, list[dict[str, Any]]]:
            if kl is None:
                return allocate(found, about), []
            return aimed(chosen_on, found, kl, progress=progress)

        placed = before
        if not (in_place and before):
            found = look({})
            chosen, rounds = choose(found)
            placed = methods_by_head(chosen.chosen)
        looks: list[pd.DataFrame] = []
        for _ in range(in_place):
            looks.append(look(placed))
            averaged = [name for name in DAMAGES if name in looks[0]]
            means = {x: np.mean([one[x] for one in looks], axis=0) for x in averaged}
            found = looks[0].assign(**means)
            chosen, rounds = choose(found)
            placed = methods_by_head(chosen.chosen)
        own = chosen.price if budget is None else budget
        shares = (allocated(found, own) if frontier else {}) | {1.0: chosen}
        bound = "least_damage" if facts else LEAST_PREDICTED
        least = {s: "least_price" if s == 1 and budget is None else bound for s in shares}
        alone = beside(found, [own, *(x * own for x in shares)], currency, at.shapes)
        made = measured(
            at, {**shares, **alone}, scheduler=scheduler, store=done, progress=progress
        )  # fmt: skip
    demands: dict[str, Any] = {"target_kl": kl, "rounds": rounds} if kl else {"budget": budget}
    if facts:
        demands["needle"] = {
            "weight": needle,
            "depths": list(NEEDLES),
            "predicted_kl": float(shares[1.0].chosen.needle.sum()),
            "kl": float(
                np.mean([x.replace(methods_by_head(shares[1.0].chosen)).kl.mean() for x in facts])
            ),
        }
    about_start = {} if start is None else {"started_from": one_line(Path(start).name)}
    in_rounds = {"in_place": in_place} if in_place else {}
    told = {**demands, "currency": currency, **about_start, **in_rounds}
    told |= provenance(model_dir, texts, held_out, shortest)
    return assembled(model.name, found, shares, alone, made, at.shapes, told, least)


def provenance(
    model_dir: str | os.PathLike[str],
    texts: Sequence[str | os.PathLike[str]],
    held_out: str | os.PathLike[str] | None,
    tokens: int,
) -> dict[str, Any]:
    """Return the facts of a plan about its model, its texts and their length, and this version."""
    every = [*texts, *([] if held_out is None else [held_out])]
    names = [one_line(Path(each).name) for each in every]
    return {
        "chosen_on": names[: len(texts)],
        "measured_on": names[0 if held_out is None else -1],
        "tokens": tokens,
        "model_sha256": Place.from_path(model_dir).digests(),
        "text_sha256": dict(zip(names, map(checkpoints.digest, every))),
        "version": metadata.version("expqk"),
    }


def _earlier(start: str | os.PathLike[str], model_dir: str | os.PathLike[str]) -> Plan:
    """Return the plan of a file; raise ValueError if it does not fit the model."""
    plan = Plan.read(start)
    if against := misfits(plan, model_dir):
        raise ValueError(f"{one_line(Path(start).name)} cannot be started from: {against[0]}")
    return plan


def allocated(found: pd.DataFrame, budget: float) -> dict[float, Allocation]:
    """Return the choice from curves at each share of a mean budget in `FRONTIER` that buys one.

    Raises
    ------
    ValueError
        The cheapest choice costs more than the budget itself.
    """
    some = {}
    for share in FRONTIER:
        try:
            some[share] = allocate(found, share * budget)
        except ValueError:
            if share >= 1:  # smaller shares may buy no choice
                raise
    return some


def assembled(
    name: str,
    found: pd.DataFrame,
    shares: Mapping[float, Allocation],
    alone: Mapping[str, Allocation],
    made: Mapping[Any, Mapping[str, Any]],
    shapes: Sequence[Shape],
    facts: Mapping[str, Any],
    least: Mapping[float, str] | None = None,
) -> Plan:
    """Return the plan of a model.

    It follows from its curves, the choice at each share of the budget, the methods `beside` it, the
    outcomes of `measured` for both, and the facts of the request. ``least`` is as in `numbers`.
    """
    least = dict.fromkeys(shares, LEAST_PREDICTED) if least is None else least
    exact_perplexity = made[1.0]["exact_perplexity"]
    frontier = {x: numbers(some, made[x], shapes, least[x]) for x, some in shares.items()}
    facts = {
        **facts, "exact_perplexity": exact_perplexity,
        "exact_price": float(found[found.method == EXACT].price.mean()),
        "group": int(found.heads.max()), **frontier[1.0], "frontier": [*frontier.values()],
        "singles": singles(found, alone, made, shapes, exact_perplexity),
    }  # fmt: skip
    return Plan(name, methods_by_head(shares[1.0].chosen), facts)


def methods_by_head(chosen: pd.DataFrame) -> dict[HeadIndex, Method]:
    """Return the heads that do not stay exact, with their methods, from rows of curves."""
    known = {str(spec): parse(str(spec)) for spec in chosen.method.unique()}
    rows = zip(chosen.layer, chosen["head"], chosen.heads, chosen.method)
    return {
        (int(layer), int(head)): known[spec]
        for layer, first, heads, spec in rows
        if spec != EXACT
        for head in range(first, first + heads)
    }


def beside(
    found: pd.DataFrame, budgets: Sequence[float], currency: str, shapes: Sequence[Shape]
) -> dict[str, Allocation]:
    """Return the single methods for all heads that are measured beside plans, by their specs.

    They are the method with the least predicted damage at each budget, and what people deploy
    (`analysis.costs.candidates.rivals`) but exact attention. A template has the size that the first
    budget buys, or else the least larger one that is among the curves of all groups.
    """

    def filled(method: Method) -> Method | None:
        amounts = [share * budgets[0] for share in SHARES if share >= 1]
        sizes = (method.within(x, currency=currency, **shapes[0].given) for x in amounts)
        every = (size for size in sizes if str(size) in whole)
        return next(every, None) if method.is_template else method

    groups = found.groupby("method").size()
    whole = set(groups[groups == groups[EXACT]].index)
    best = [single(found, budget) for budget in budgets]
    specs = [str(x.chosen.method.iloc[0]) for x in best if x is not None]
    specs += [str(filled(method)) for method in rivals()]
    return {
        spec: Allocation(
            chosen := found[found.method == spec],
            float(chosen.price.mean()), float(chosen.damage.sum()), least=0.0, multiplier=0.0,
        )
        for spec in specs
        if spec != EXACT and spec in whole
    }  # fmt: skip


def singles(
    found: pd.DataFrame,
    alone: Mapping[str, Allocation],
    made: Mapping[Any, Mapping[str, Any]],
    shapes: Sequence[Shape],
    exact_perplexity: float,
) -> list[dict[str, Any]]:
    """Return a row per single method for all heads, cheapest first.

    Rows have ``method`` and the `numbers` of methods that are measured, and of exact attention. Of
    other methods that no cheaper one beats in predicted damage, the measured numbers are left out.
    """
    groups = found.groupby("method", as_index=False, sort=False).agg(
        groups=("price", "size"), price=("price", "mean"), kl=("damage", "sum")
    )
    whole = groups[groups.groups == groups.groups.max()]
    line = set(undominated(whole, "price").method)
    rows = []
    for row in whole.sort_values("price", kind="stable").itertuples():
        spec = str(row.method)
        if spec in line | {*alone, EXACT}:
            chosen = found[found.method == spec]
            known = held_by(chosen, shapes)
            price = {"method": spec, "price": float(row.price), "predicted_kl": float(row.kl)}
            rows.append(price | known | (made[spec]["numbers"] if spec in alone else {}))
        if spec == EXACT:
            rows[-1] |= {
                "kl": 0.0, "kl_stderr": 0.0, "same_top_1": 1.0,
                "perplexity": exact_perplexity,
            }  # fmt: skip
    return rows


def held_by(chosen: pd.DataFrame, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Return the `footprint` of a choice for a plan's facts.

    Returns
    -------
    dict
        ``bytes_read`` and ``bytes``, means over groups of heads; and ``memory``: by number of
        tokens the bytes that all caches of the model hold. None if it is not known.
    """
    known = {str(spec): parse(str(spec)) for spec in chosen.method.unique()}
    total = footprint((known[x], shapes[i]) for x, i in zip(chosen.method, chosen.layer))
    found = {name: x if math.isfinite(x) else None for name, x in total.items()}
    now = {x: found[x] and total[x] / len(chosen) for x in ("bytes_read", "bytes")}
    memory = {str(tokens): found[name] for tokens, name in zip(LENGTHS, MEMORY)}
    return {**now, "memory": memory}


def aimed(
    passages: Sequence[Passage], curves: pd.DataFrame, target: float, *, progress: bool = False
) -> tuple[Allocation, list[dict[str, Any]]]:
    """Return the cheapest choice found whose measured KL on the passages is at most a target.

    Parameters
    ----------
    passages : sequence of Passage
        The texts of the curves.
    curves : DataFrame
    target : float
        KL(model ‖ replaced), the mean over passages.

    Returns
    -------
    (Allocation, list of dict)
        The choice, and one dict per round: ``aim``, the allowed predicted KL; ``price``;
        ``predicted_kl``; and ``kl``, the measured mean over the passages, or None if it is
        infinite.

    Notes
    -----
    The first round allows the target as predicted KL. Damages of heads do not add exactly. So each
    later round allows target/measured times the last predicted KL if the measured KL was above the
    target, and times the last allowed KL otherwise. There are at most `ROUNDS` rounds. They stop
    when the measured KL is between `CLOSE` of the target and the target, or when it is above the
    target although the predicted KL is 0. The choice is the cheapest round with a measured KL of at
    most the target or, if there is none, the round with the least KL.
    """
    aim = target
    rounds: list[dict[str, Any]] = []
    choices: list[Allocation] = []
    found: list[float] = []
    for _ in tqdm(range(ROUNDS), disable=not progress, desc="rounds", leave=False):
        some = cheapest(curves, aim)
        if choices and some.chosen.index.equals(choices[-1].chosen.index):
            break  # the same choice would be measured again
        replaced = methods_by_head(some.chosen)
        kl = float(np.mean([passage.replace(replaced).kl.mean() for passage in passages]))
        known = {"aim": aim, "price": some.price, "predicted_kl": some.damage}
        rounds.append(known | {"kl": kl if math.isfinite(kl) else None})
        choices.append(some)
        found.append(kl)
        if CLOSE * target <= kl <= target or (kl > target and not some.damage):
            break
        # The predicted damage may be far below the aim; a scaled aim could choose the same again.
        aim = some.damage if kl > target else aim
        aim *= max(target / max(kl, target / STEP), 1 / STEP)
    best = min(range(len(found)), key=lambda i: (max(found[i], target), choices[i].price))
    return choices[best], rounds


@dataclass(frozen=True, eq=False)
class Measurement(Pass):
    """The effect of a choice on the next token of a text, on request at each position, too."""

    by_position: bool = False

    def run(self, passage: Passage) -> dict[str, Any]:
        """Return ``numbers``, ``exact_perplexity`` and ``positions``, a table or None.

        Numbers that are not finite are None. The table has the KL, and the likeliest token and its
        probability in the model itself (own) and with the choice (plan).
        """
        done = passage.replace(self.heads)
        kl = Estimated.from_positions(done.kl)
        numbers = {
            "kl": kl.mean,
            "kl_stderr": kl.stderr,
            "same_top_1": float(np.mean(done.same_top)),
            "perplexity": perplexity(done.surprisal),
        }
        positions = None
        if self.by_position:
            positions = pd.DataFrame({"position": passage.positions, "kl": done.kl})
            for name, (token, probability) in (("own", done.own), ("plan", done.likeliest)):
                positions[f"{name}_token"], positions[f"{name}_probability"] = token, probability
        return {
            "numbers": {x: value if math.isfinite(value) else None for x, value in numbers.items()},
            "exact_perplexity": perplexity(passage.surprisal),
            "positions": positions,
        }


def measured(
    passage: Passage,
    choices: Mapping[K, Allocation],
    *,
    by_position: Collection[K] = (),
    **how: Any,
) -> dict[K, dict[str, Any]]:
    """Return the outcome of the `Measurement` of each choice, with the options of `outcomes`."""
    passes = [
        Measurement(passage.digest, methods_by_head(some.chosen), name in by_position)
        for name, some in choices.items()
    ]
    return dict(zip(choices, outcomes(passes, passage, **how)))


def numbers(
    some: Allocation,
    found: Mapping[str, Any],
    shapes: Sequence[Shape],
    least: str = LEAST_PREDICTED,
) -> dict[str, Any]:
    """Return price and prediction of a choice, and the numbers of its `Measurement`.

    Returns
    -------
    dict
        ``price``, ``predicted_kl``, the bound of the choice under the name ``least``,
        ``exact_heads``, those of `held_by`, ``kl``, ``kl_stderr``, ``same_top_1``,
        ``perplexity``; None replaces numbers that are not finite.
    """
    known = {
        "price": some.price,
        "predicted_kl": float(some.chosen.kl.sum()) if "kl" in some.chosen else some.damage,
        least: max(some.least, 0.0),
    }
    finite = {name: value if math.isfinite(value) else None for name, value in known.items()}
    exact = int(some.chosen.heads[some.chosen.method == EXACT].sum())
    held = held_by(some.chosen, shapes)
    return {**finite, "exact_heads": exact, **held, **found["numbers"]}
