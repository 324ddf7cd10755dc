"""Plans, a method for every head of a language model, and their files; `planner` makes plans."""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from analysis.inputs import text_files
from analysis.models.checkpoints import Place, bare_name
from analysis.models.language_model import HeadIndex
from analysis.runs.output_files import replacing
from analysis.sentences import one_line
from approx import Mask, Method, checks, notebook, parse
from approx.method.evaluation import obstacle
from approx.method.prices import CURRENCIES

HEADINGS = "method", "heads"


@dataclass(frozen=True, repr=False)
class Plan:
    """A method for each of some heads of a model; all other heads stay exact.

    Parameters
    ----------
    model : str
        The name of the model, as in `analysis.models.language_model.LanguageModel.name`.
    heads : mapping of (layer, head) to Method
        Sized methods, in any order. A plan may be empty.
    facts : mapping of str, optional
        Other values about the plan, such as its price and its predicted damage, which JSON can
        hold. The file keeps them; this class does not interpret them.

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
    >>> Plan.from_json(plan.text()) == plan
    True
    """

    model: str
    heads: Mapping[HeadIndex, Method]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.instance("model", self.model, str, "a name")
        checks.instance("heads", self.heads, Mapping, "a mapping of (layer, head) to a method")
        for pair, method in self.heads.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(f"a head must be (layer, head), got {checks.display(pair)}")
            for name, number in zip(("layer", "head"), pair):
                checks.integer(name, number, least=0)
            checks.instance(f"the method of head {pair[0]}.{pair[1]}", method, Method, "a method")
            if method.is_template:
                raise ValueError(f"head {pair[0]}.{pair[1]}: {method} is a template: give its size")
        for name in {"budget", "target_kl"} & self.facts.keys():
            checks.positive(name, self.facts[name])
        if "currency" in self.facts:
            checks.one_of("currency", self.facts["currency"], CURRENCIES)
        digests = self.facts.get("model_sha256", {})
        checks.instance("model_sha256", digests, Mapping, "a mapping of files to their SHA-256")
        for name, value in digests.items():
            checks.instance(f"model_sha256 of {one_line(name, 60)}", value, str, "text")
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
            JSON cannot hold a fact, or a spec cannot be read back.
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
    def from_json(cls, text: str) -> Self:
        """Return the plan that `text` wrote.

        Raises
        ------
        ValueError
            The text is not a plan; the message names the error and its place.
        """
        found = text_files.json_object("a plan", text)
        if not isinstance(found.get("heads"), dict):
            raise ValueError('a plan is one JSON object {"model": …, "heads": {"3.1": SPEC, …}}')
        heads = {_pair(name): _method(name, spec) for name, spec in found.pop("heads").items()}
        return cls(found.pop("model", None), heads, found)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically."""
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
            There is no such file, or it is not a plan.
        """
        source = Path(path)
        text = text_files.read_text(source)
        try:
            return cls.from_json(text)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{one_line(source)}: {error}") from None


class HeadCounts(NamedTuple):
    """The layers of a model, heads in each, heads that share keys, their width, other layers."""

    layers: int
    heads: int
    group: int
    d: int
    other_kinds: tuple[str, ...] = ()  # of layers without full attention, as transformers has them

    @classmethod
    def from_model(cls, model_dir: str | os.PathLike[str]) -> Self:
        """Return the counts of a model on disk, from its configuration.

        Raises
        ------
        ImportError, ValueError
            transformers is missing, there is no model, or Q, K, V cannot represent it.
        """
        place = Place.from_path(model_dir)
        place.require("a model")
        config = place.config(runs=True).get_text_config()
        heads = int(config.num_attention_heads)
        keys = int(getattr(config, "num_key_value_heads", None) or heads)
        d = getattr(config, "head_dim", None) or config.hidden_size // heads
        kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        return cls(int(config.num_hidden_layers), heads, heads // keys, int(d), tuple(kinds))


def misfits(plan: Plan, model_dir: str | os.PathLike[str], *, decoding: bool = True) -> list[str]:
    """Return the reasons, as sentences, why a plan does not fit a model; empty if it fits.

    Parameters
    ----------
    plan : Plan
        If its facts have the SHA-256 of the model's files, these are compared; otherwise it is not
        known whether the weights are the plan's.
    model_dir : path
    decoding : bool
        Whether a method that this package cannot run token by token is a misfit.

    Raises
    ------
    ImportError, ValueError
        transformers is missing, there is no model, or Q, K, V cannot represent it.
    """
    place = Place.from_path(model_dir)
    layers, heads, _, d, _ = HeadCounts.from_model(model_dir)
    found = []
    if why := other_model(plan, {place.name}):
        found.append(why)
    if plan.facts.get("model_sha256"):
        found += _other_weights(plan, place.digests())
    absent = [f"{i}.{j}" for i, j in sorted(plan.heads) if not (i < layers and j < heads)]
    if absent:
        found.append(f"the model lacks {len(absent)} of its heads, the first is {absent[0]}")
    for spec, method in {str(m): m for m in plan.heads.values() if decoding}.items():
        try:
            if why := obstacle(method, Mask.causal(2, 2)):
                found.append(f"no model can run {spec}: {why}")
            else:
                method.cache(d=d, c=d)
        except ValueError as error:
            found.append(str(error))
    return found


def other_model(plan: Plan, names: Collection[str]) -> str:
    """Return why a plan is not for a model, which may have several names; "" if it is.

    A GGUF file and the folder it was made from have one name but for the format.
    """
    if not names or bare_name(plan.model) in map(bare_name, names):
        return ""
    this = " or ".join(sorted(names))
    return f"the plan is for the model {plan.model}, and this is {this}: make a plan for this one"


def check_weights(plans: Iterable[Plan], places: Iterable[Place]) -> None:
    """Raise ValueError if plans were made for the weights of none of the places of a model.

    Without places nothing is known, and a plan that names no files may be for any weights. Places
    are read once, until one has the weights.
    """
    known = [plan for plan in plans if plan.facts.get("model_sha256")]
    found: list[str] = []
    for place in places if known else ():
        digests = place.digests()
        other = [why for plan in known for why in _other_weights(plan, digests)]
        if not other:
            return
        found += other
    if found:
        raise ValueError(f"{found[0]}: make a plan for this model")


def _other_weights(plan: Plan, digests: Mapping[str, str]) -> list[str]:
    """Return why files have other weights than a plan's: digests count, whatever the names."""
    own = plan.facts["model_sha256"]
    other = [name for name in digests if digests[name] not in own.values()]
    other = other or [name for name in own if own[name] not in digests.values()]
    return [
        f"the weights in {one_line(name)} are not those that the plan was made for"
        for name in sorted(other)
    ]


def _pair(name: str) -> HeadIndex:
    parts = re.fullmatch(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})", name, re.ASCII)
    if not parts:
        raise ValueError(f"a head must be LAYER.HEAD such as 3.1, got {one_line(name, 60)!r}")
    return int(parts[1]), int(parts[2])


def _method(name: str, spec: Any) -> Method:
    if not isinstance(spec, str):
        raise ValueError(f"head {name}: a spec must be text, got {checks.display(spec)}")
    try:
        return parse(spec)
    except (TypeError, ValueError) as error:
        raise ValueError(f"head {name}: {error}") from None
