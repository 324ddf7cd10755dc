"""How a plan is made: curves of every head, one multiplier, and what becomes of the model."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.compute import executors
from analysis.compute.finished import Finished
from analysis.costs.allocation import HEAD, Allocation, allocate, cheapest
from analysis.inputs.array_files import one_line
from analysis.models import checkpoints
from analysis.models.checkpoints import Place
from analysis.models.cost_curves import EXACT, SHARES, curves
from analysis.models.language_model import HeadIndex, LanguageModel
from analysis.models.needle import question
from analysis.models.plan import Plan as Plan, misfits
from analysis.models.replacement import (
    SKIP,
    Estimated,
    Passage,
    Replaced,
    Replacements,
    passes,
    perplexity,
)
from approx import Method, checks, parse
from approx.method.prices import CURRENCIES

FRONTIER = (0.25, 0.5, 1.0, 2.0, 4.0)  # shares of the budget at which plans are measured as well
ROUNDS = 4  # of a target: the first, and three that are corrected
NEAR = 0.9  # of the target: a measured KL between this share and all of it is good enough
LEAST = "least_predicted_kl"
NEEDLES = (0.25, 0.75)  # depths of a fact in the texts that a plan is chosen for
STEP = 8.0  # a correction changes what is allowed by no more than this factor


def plan(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    budget: float | None = None,
    kl: float | None = None,
    currency: str = "reads",
    methods: Sequence[Method] | None = None,
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
) -> Plan:
    """Return a method for every head: the least damage at an average price, or the cheapest for it.

    Parameters
    ----------
    model_dir : path
        See `analysis.models.language_model.LanguageModel.open`.
    text : path or sequence of paths
        What the plan is chosen on: the first tokens of each UTF-8 file, as many as the shortest
        of all texts has.
    budget : float
        What a query row of a head may cost on average.
    kl : float
        Instead of a budget: by how much the model may move, KL(model ‖ replaced) of the next token.
    currency : {"reads", "stored", "multiply_adds", "bytes", "bytes_read"}
    methods : sequence of Method, optional
        What a head may have, see `analysis.models.cost_curves.curves`; exact attention is always a
        choice.
    start : path, optional
        The file of an earlier plan of this model. Its choice is among those of each head, so that
        no less damage was predicted before at this price. Where it counted in the same currency,
        methods have the sizes of its curves, and what the folder FILE.heads beside it keeps is not
        computed again.
    in_place : int
        Rounds in which curves are measured with a choice in place: heads get the inputs that it
        leaves them, and gradients are taken there. The first choice is the one to start from or
        else that of the model's own curves; each round chooses from the mean of its curves and
        those of the rounds before it.
    needle : float
        How much a fact counts that stands in the first text at the depths `NEEDLES` and is asked
        for at its end (`analysis.models.needle`): the damage of a head is its KL on the texts plus
        so many times its KL at the tokens of the answer. Only with a budget.
    held_out : path, optional
        A text that chooses nothing, on which the plan is measured; by default the first text, so
        that the damage measured is too small.
    max_tokens : int
        Of each text.
    seed, jobs, progress
        As for `analysis.models.substitute.substitute`.
    scheduler : str or distributed.Client, optional
        A Dask cluster, see `analysis.sweeps.sweep.sweep`. Its tasks are the curves of the heads and
        the passes in which plans are measured, but for the rounds of a KL, which follow one
        another in this process.
    finished : path, optional
        A folder that keeps the curve of each head and what is measured of each plan, so that a
        stopped call goes on where it was.

    Returns
    -------
    Plan
        Heads that stay exact are left out. Its facts: ``budget``, ``currency``; ``price``, the mean
        over all heads, and ``exact_price``; ``chosen_on``, ``measured_on``, the names of the texts;
        ``model_sha256`` and ``text_sha256``, by name of the file; ``started_from``, the name of an
        earlier plan's file; ``in_place``, rounds, and ``needle``, where they were asked for: the
        latter has its ``weight`` and ``depths``, and ``predicted_kl`` and ``kl`` per token of the
        answer; ``version``, that of expqk;
        ``predicted_kl``, the sum over heads of the damages that were predicted, and
        ``least_predicted_kl``, below which no choice from the same curves is; ``kl``,
        ``kl_stderr``, ``same_top_1`` and ``perplexity``, measured with all heads replaced at once,
        beside ``exact_perplexity``; and ``frontier``, price, prediction and measurement of plans at
        other budgets. Where a KL is asked for: ``target_kl`` instead of ``budget``; ``least_price``
        instead of ``least_predicted_kl``, below which no choice is that predicts so little; and
        ``rounds``, those of `analysis.models.planner.aimed`.

    Raises
    ------
    ImportError, ValueError
        The model or a method cannot be used, the cheapest choice costs more than the budget, not
        one of budget and KL is given, or the earlier plan does not fit the model.

    Notes
    -----
    The damage of a head is predicted to second order from gradients of the model's loss
    (`analysis.models.sensitivity`), heads are chosen by one Lagrange multiplier
    (`analysis.costs.allocation`), and the sum over heads is the prediction. It is an estimate:
    damages of heads do not add up exactly, and ``kl`` says what becomes of the model itself. For a
    KL, what the prediction may add up to is corrected by what is measured on the texts that choose
    (`analysis.models.planner.aimed`), until these meet it; on ``held_out``, where ``kl`` is
    measured, the damage differs and can be above it.
    """
    texts = [text] if isinstance(text, str | os.PathLike) else list(text)
    if (budget is None) == (kl is None):
        raise ValueError("a plan is made for a budget or for a KL: give one of them")
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
    about = _price_of_exact(at, currency) / max(SHARES) if budget is None else budget
    since, kept = None, None
    if start is not None and earlier is not None:
        kept = Path(start).with_name(f"{Path(start).name}.heads")
        if earlier.facts.get("currency") == currency:
            since = earlier.facts.get("budget", _price_of_exact(at, currency) / max(SHARES))
    done = Finished(finished, kept)
    with contextlib.ExitStack() as stack:
        if scheduler is not None:  # one cluster for all
            scheduler = stack.enter_context(executors.client(scheduler, at.jobs))
        facts = [
            question(model, every[0], shortest, depth, seed=seed, jobs=jobs)
            for depth in NEEDLES
            if needle
        ]

        before = {} if earlier is None else earlier.heads

        def look(placed: Replacements) -> pd.DataFrame:
            """Return curves of the texts, and of the fact, with some heads in place."""
            given: dict[str, Any] = {
                "currency": currency, "methods": methods, "since": since, "start": before,
                "scheduler": scheduler, "done": done, "progress": progress,
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
            placed = heads(chosen.chosen)
        looks: list[pd.DataFrame] = []
        for _ in range(in_place):
            looks.append(look(placed))
            means = {x: np.mean([one[x] for one in looks], axis=0) for x in looks[0].columns[4:]}
            found = looks[0].assign(**means)
            chosen, rounds = choose(found)
            placed = heads(chosen.chosen)
        shares = allocated(found, chosen.price if budget is None else budget, chosen)
        bound = "least_damage" if facts else LEAST
        least = {s: "least_price" if s == 1 and budget is None else bound for s in shares}
        frontier = {}
        made = measured_all(at, shares, least, scheduler=scheduler, done=done)
        for share, one in tqdm(made, "measured", len(shares), leave=False, disable=not progress):
            frontier[share] = shares[share], one
    frontier = {share: frontier[share] for share in shares}
    demands: dict[str, Any] = {"target_kl": kl, "rounds": rounds} if kl else {"budget": budget}
    if facts:
        demands["needle"] = {
            "weight": needle,
            "depths": list(NEEDLES),
            "predicted_kl": float(shares[1.0].chosen.needle.sum()),
            "kl": float(np.mean([x.replace(heads(shares[1.0].chosen)).kl.mean() for x in facts])),
        }
    return assembled(
        model.name,
        found,
        frontier,
        {
            **demands,
            "currency": currency,
            **({} if start is None else {"started_from": one_line(Path(start).name)}),
            **({"in_place": in_place} if in_place else {}),
            "chosen_on": [one_line(Path(each).name) for each in texts],
            "measured_on": one_line(Path(texts[0] if held_out is None else held_out).name),
            "tokens": shortest,
            "model_sha256": Place.from_path(model_dir).digests(),
            "text_sha256": {
                one_line(Path(each).name): checkpoints.digest(each)
                for each in (*texts, held_out)
                if each is not None
            },
            "version": metadata.version("expqk"),
            "exact_perplexity": perplexity(at.surprisal),
        },
    )


def _earlier(start: str | os.PathLike[str], model_dir: str | os.PathLike[str]) -> Plan:
    """Return the plan of a file; raise ValueError if it does not fit the model."""
    plan = Plan.read(start)
    if against := misfits(plan, model_dir):
        raise ValueError(f"{one_line(Path(start).name)} cannot be started from: {against[0]}")
    return plan


def allocated(
    found: pd.DataFrame, budget: float, chosen: Allocation | None = None
) -> dict[float, Allocation]:
    """Return the choice at each share of a budget in `FRONTIER` that buys one.

    Parameters
    ----------
    found : DataFrame
        The curves.
    budget : float
        The mean price per head.
    chosen : Allocation, optional
        The choice at the budget itself, if it is known already.

    Raises
    ------
    ValueError
        The cheapest choice costs more than the budget itself.
    """
    some = {}
    for share in FRONTIER:
        if share == 1 and chosen is not None:
            some[share] = chosen
            continue
        try:
            some[share] = allocate(found, share * budget)
        except ValueError:
            if share >= 1:  # below, nothing is so cheap
                raise
    return some


def assembled(
    name: str,
    found: pd.DataFrame,
    frontier: Mapping[float, tuple[Allocation, dict[str, Any]]],
    facts: Mapping[str, Any],
) -> Plan:
    """Return the plan of a model from its curves and from what was measured.

    Parameters
    ----------
    name : str
    found : DataFrame
        The curves.
    frontier : mapping of a share of the budget to an allocation and what `measured` found of it
    facts : mapping
        What was asked.
    """
    chosen, measured = frontier[1.0]
    exact = float(found[found.method == EXACT].price.mean())
    facts = {**facts, "exact_price": exact, **measured}
    return Plan(
        name,
        heads(chosen.chosen),
        {**facts, "frontier": [one for _, one in frontier.values()]},
    )


def heads(chosen: pd.DataFrame) -> dict[HeadIndex, Method]:
    """Return the heads that do not stay exact, of rows of curves."""
    known = {str(spec): parse(str(spec)) for spec in chosen.method.unique()}
    return {
        (int(layer), int(head)): known[spec]
        for layer, head, spec in zip(chosen.layer, chosen["head"], chosen.method)
        if spec != EXACT
    }


def aimed(
    passages: Sequence[Passage], curves: pd.DataFrame, target: float, *, progress: bool = False
) -> tuple[Allocation, list[dict[str, Any]]]:
    """Return the cheapest choice that moves the model by at most a KL on the passages themselves.

    Parameters
    ----------
    passages : sequence of Passage
        The texts that the curves are of.
    curves : DataFrame
        From `analysis.models.cost_curves.curves`, with exact attention.
    target : float
        KL(model ‖ replaced), the mean over passages.

    Returns
    -------
    (Allocation, list of dict)
        A choice, and one dict a round: ``aim``, the predicted KL that was allowed, ``price``,
        ``predicted_kl`` and ``kl``, the mean that was measured on the passages, or None where it
        is infinite.

    Notes
    -----
    The first round takes the prediction at its word. Damages of heads do not add up, so each
    later one allows what the last one predicted or, where that was too little, what it allowed,
    times target/measured. At most `ROUNDS`, fewer once the measured KL is between `NEAR` of the
    target and the target, or nothing is predicted and it is above. The choice is the cheapest one
    whose measured KL is at most the target or, if no round comes there, the one with the least.
    It is met on the texts that chose; on others the KL differs.
    """
    aim = target
    rounds: list[dict[str, Any]] = []
    choices: list[Allocation] = []
    found: list[float] = []
    for _ in tqdm(range(ROUNDS), disable=not progress, desc="rounds", leave=False):
        some = cheapest(curves, aim)
        if choices and some.chosen.index.equals(choices[-1].chosen.index):
            break  # it would be measured as it was
        replaced = heads(some.chosen)
        kl = float(np.mean([passage.replace(replaced).kl.mean() for passage in passages]))
        known = {"aim": aim, "price": some.price, "predicted_kl": some.damage}
        rounds.append(known | {"kl": kl if math.isfinite(kl) else None})
        choices.append(some)
        found.append(kl)
        if NEAR * target <= kl <= target or (kl > target and not some.damage):
            break  # it is near, or no choice is predicted to do less
        # What fits below the predicted damage, but not below the aim, would be measured again.
        aim = some.damage if kl > target else aim
        aim *= max(target / max(kl, target / STEP), 1 / STEP)
    best = min(range(len(found)), key=lambda i: (max(found[i], target), choices[i].price))
    return choices[best], rounds


def _price_of_exact(passage: Passage, currency: str) -> float:
    checks.one_of("currency", currency, CURRENCIES)
    price = parse(EXACT).priced(passage.shapes[0])
    return float(getattr(price, currency))


def measured_all(
    passage: Passage,
    shares: Mapping[float, Allocation],
    least: Mapping[float, str],
    *,
    scheduler: Any = None,
    done: Finished,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield (share, `measured`) of several choices as they finish, in passes on a cluster."""
    chosen = {share: heads(some.chosen) for share, some in shares.items()}
    keys = {x: passage.key(some, errors=False) if done else "" for x, some in chosen.items()}
    left = []
    for share, some in shares.items():
        kept = done.get(keys[share])
        if kept is None:
            left.append(share)
        else:
            yield share, _choice(some, least[share]) | kept
    passed = passes(passage, [chosen[share] for share in left], scheduler=scheduler)
    for i, (replaced, _, _) in passed:
        some, known = shares[left[i]], _choice(shares[left[i]], least[left[i]])
        found = numbers(some, replaced, least[left[i]])
        done.put(keys[left[i]], {x: value for x, value in found.items() if x not in known})
        yield left[i], found


def measured(passage: Passage, some: Allocation, least: str = LEAST) -> dict[str, Any]:
    """Return price and prediction of a choice, and what becomes of a passage with it.

    Returns
    -------
    dict
        ``price``, ``predicted_kl``, the bound of the choice under the name ``least``,
        ``exact_heads``, ``kl``, ``kl_stderr``, ``same_top_1``, ``perplexity``; what is not finite
        is None.
    """
    return numbers(some, passage.replace(heads(some.chosen)), least)


def numbers(some: Allocation, done: Replaced, least: str = LEAST) -> dict[str, Any]:
    """Return what `measured` does, of a choice with which a passage was read already."""
    kl = Estimated.from_positions(done.kl)
    found = {
        **_choice(some, least),
        "kl": kl.mean,
        "kl_stderr": kl.stderr,
        "same_top_1": float(np.mean(done.same_top)),
        "perplexity": done.perplexity,
    }
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _choice(some: Allocation, least: str) -> dict[str, Any]:
    """Return what is known of a choice before a passage is read with it."""
    return {
        "price": some.price,
        "predicted_kl": float(some.chosen.kl.sum()) if "kl" in some.chosen else some.damage,
        least: max(some.least, 0.0),
        "exact_heads": int((some.chosen.method == EXACT).sum()),
    }
