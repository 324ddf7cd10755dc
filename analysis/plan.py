"""A method for every head of a language model, and its file; `analysis.planning` chooses one."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from analysis.files import one_line, replacing
from analysis.needed import needed as needed
from approx import Method, checks, notebook, parse

Head = tuple[int, int]
HEADINGS = "method", "heads"


@dataclass(frozen=True, repr=False)
class Plan:
    """Which method computes which head of which model; all other heads stay exact.

    Parameters
    ----------
    model : str
        Name of the model, as `analysis.language_model.LanguageModel.name` has it.
    heads : mapping of (layer, head) to Method
        Sized methods, in any order. A plan may have no head at all.
    facts : mapping of str, optional
        What else is said about the plan, such as its price and the damage that is predicted: values
        that JSON can hold. They are kept in the file and never interpreted here.

    Raises
    ------
    TypeError, ValueError
        A head is not a pair of integers ≥ 0, or its method is a template.

    Notes
    -----
    The file is one JSON object: ``{"model": "…", "heads": {"3.1": "sink_window(k=32)", …}}``, with
    the facts beside these two names.

    Examples
    --------
    >>> plan = Plan("tiny", {(0, 1): parse("top_k(k=2)")}, {"reads": 256})
    >>> print(plan.text())
    {
      "model": "tiny",
      "reads": 256,
      "heads": {
        "0.1": "top_k(k=2)"
      }
    }
    >>> Plan.of(plan.text()) == plan
    True
    """

    model: str
    heads: Mapping[Head, Method]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.instance("model", self.model, str, "a name")
        checks.instance("heads", self.heads, Mapping, "a mapping of (layer, head) to a method")
        for pair, method in self.heads.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(f"a head must be (layer, head), got {checks.shown(pair)}")
            for name, number in zip(("layer", "head"), pair):
                checks.integer(name, number, least=0)
            checks.instance(f"the method of head {pair[0]}.{pair[1]}", method, Method, "a method")
            if method.is_template:
                raise ValueError(f"head {pair[0]}.{pair[1]}: {method} is a template: give its size")
        if clash := {"model", "heads"} & set(self.facts):
            raise ValueError(f"facts must have other names than {', '.join(sorted(clash))}")

    def __repr__(self) -> str:
        heads = checks.counted(len(self.heads), "head")
        methods = checks.counted(len(set(map(str, self.heads.values()))), "method")
        return f"<Plan of {self.model!r}: {heads} by {methods}>"

    def _repr_html_(self) -> str:
        used = Counter(map(str, self.heads.values())).most_common()
        rows = [(spec, heads) for spec, heads in used]
        return notebook.table(f"Plan of {self.model}: all other heads stay exact", HEADINGS, rows)

    def text(self) -> str:
        """Return the plan as JSON, heads in order of layer and head.

        Raises
        ------
        ValueError
            A fact cannot be held by JSON, or a spec cannot be read back.
        """
        specs = {
            f"{layer}.{head}": str(self.heads[layer, head]) for layer, head in sorted(self.heads)
        }
        for name, spec in specs.items():
            _method(name, spec)
        try:
            return json.dumps(
                {"model": self.model} | dict(self.facts) | {"heads": specs},
                ensure_ascii=False,
                indent=2,
                allow_nan=False,
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"the facts of a plan must be what JSON holds: {error}") from None

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the plan that `text` wrote.

        Raises
        ------
        ValueError
            It is not one: the message says what is wrong and where.
        """
        try:
            found = json.loads(text, object_pairs_hook=_once)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"a plan is one JSON object, and this is none: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("heads"), dict):
            raise ValueError('a plan is one JSON object {"model": …, "heads": {"3.1": SPEC, …}}')
        heads = {_pair(name): _method(name, spec) for name, spec in found.pop("heads").items()}
        return cls(found.pop("model", None), heads, found)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        target = Path(path)
        text = self.text()
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return the plan of a file.

        Raises
        ------
        OSError, ValueError
            There is no such file, or it holds no plan.
        """
        source = Path(path)
        try:
            return cls.of(source.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError:
            raise ValueError(f"{one_line(source)} must be a UTF-8 file") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{one_line(source)}: {error}") from None


def plan(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    budget: float | None = None,
    kl: float | None = None,
    currency: str = "reads",
    methods: Sequence[Method] | None = None,
    held_out: str | os.PathLike[str] | None = None,
    max_tokens: int = 512,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool = False,
) -> Plan:
    """Return a method for every head: the least damage at an average price, or the cheapest for it.

    Parameters
    ----------
    model_dir : path
        See `analysis.language_model.LanguageModel.open`.
    text : path or sequence of paths
        What the plan is chosen on: the first tokens of each UTF-8 file, as many as the shortest
        of all texts has.
    budget : float
        What a query row of a head may cost on average.
    kl : float
        Instead of a budget: by how much the model may move, KL(model ‖ replaced) of the next token.
    currency : {"reads", "stored", "multiply_adds", "bytes"}
    methods : sequence of Method, optional
        What a head may have, see `analysis.curves.curves`; exact attention is always a choice.
    held_out : path, optional
        A text that chooses nothing, on which the plan is measured; by default the first text, so
        that the damage measured is too small.
    max_tokens : int
        Of each text.
    seed, jobs, progress
        As for `analysis.substitute.substitute`.

    Returns
    -------
    Plan
        Heads that stay exact are left out. Its facts: ``budget``, ``currency``; ``price``, the mean
        over all heads, and ``exact_price``; ``chosen_on``, ``measured_on``, the names of the texts;
        ``predicted_kl``, the sum over heads of the damages that were predicted, and
        ``least_predicted_kl``, below which no choice from the same curves is; ``kl``,
        ``kl_stderr``, ``same_top_1`` and ``perplexity``, measured with all heads replaced at once,
        beside ``exact_perplexity``; and ``frontier``, price, prediction and measurement of plans at
        other budgets. Where a KL is asked for: ``target_kl`` instead of ``budget``; ``least_price``
        instead of ``least_predicted_kl``, below which no choice is that predicts so little; and
        ``rounds``, those of `analysis.planning.aimed`.

    Raises
    ------
    ImportError, ValueError
        The model or a method cannot be used, the cheapest choice costs more than the budget, or not
        one of budget and KL is given.

    Notes
    -----
    The damage of a head is predicted to second order from gradients of the model's loss
    (`analysis.damage`), heads are chosen by one Lagrange multiplier (`analysis.allocation`), and
    the sum over heads is the prediction. It is an estimate: damages of heads do not add up exactly,
    and ``kl`` says what becomes of the model itself. For a KL, what the prediction may add up to is
    corrected by what is measured on the texts that choose (`analysis.planning.aimed`), until these
    meet it; on ``held_out``, where ``kl`` is measured, the damage differs and can be above it.
    """
    from analysis import planning  # it needs plans itself

    texts = [text] if isinstance(text, str | os.PathLike) else list(text)
    return planning.made(
        model_dir, texts, budget=budget, kl=kl, currency=currency, methods=methods,
        held_out=held_out, max_tokens=max_tokens, seed=seed, jobs=jobs, progress=progress,
    )  # fmt: skip


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise ValueError if it has a name twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{one_line(twice, 60)} is there twice")
    return found


def _pair(name: str) -> Head:
    parts = re.fullmatch(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})", name, re.ASCII)
    if not parts:
        raise ValueError(f"a head must be LAYER.HEAD such as 3.1, got {one_line(name, 60)!r}")
    return int(parts[1]), int(parts[2])


def _method(name: str, spec: Any) -> Method:
    if not isinstance(spec, str):
        raise ValueError(f"head {name}: a spec must be text, got {checks.shown(spec)}")
    try:
        return parse(spec)
    except (TypeError, ValueError) as error:
        raise ValueError(f"head {name}: {error}") from None
