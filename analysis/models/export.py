"""A plan as the configuration of an inference engine: kvpress, transformers or llama.cpp.

An `Exporter` writes what its engine can express, and lists where the engine computes something
else. It refuses any other plan and says why; `EXPORTERS` has one for each engine.
"""

import json
import textwrap
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from analysis.models.language_model import HeadIndex
from analysis.models.plan import HeadCounts, Plan
from analysis.sentences import one_line
from approx import Method
from approx.combinations.rounded_values import RoundedValues
from approx.compressed_logits.quantised import Quantised
from approx.sparse.columns import Columns
from approx.sparse.exact import Exact
from approx.sparse.sink_window import SinkWindow
from approx.sparse.sliding_window import SlidingWindow

LISTED = 3  # reasons, or methods, that a refusal names of those that there are
BLOCK = 32  # numbers that share a scale in llama.cpp
Differences = list[str]

# By the score of `columns`: what builds a press, and where its score differs from ours.
PRESSES = {
    "key_norm": ("KnormPress()", ""),
    "key_diff": ("KeyDiffPress()", ""),
    "cur": ("CURPress(num_sinks={sinks}, leverage_type='key')", ""),
    "snapkv": ("SnapKVPress(window_size={window}, kernel_size={kernel_size})", ""),
    "tova": ("TOVAPress()", "it keeps the same keys for all heads of a layer"),
    "h2o": (
        "ObservedAttentionPress()",
        "its score is the mean attention from all queries that see the key, not the sum from "
        "queries that read the cache; it needs attn_implementation='eager'",
    ),
    "expected": (
        "ExpectedAttentionPress(n_sink={sinks}, use_vnorm=False)",
        "it fits the queries before rotary positions and turns the fit to 512 later positions",
    ),
    "leverage": ("LeverageScorePress()", "it draws a sketch of the keys before rotary positions"),
}
PER_LAYER, EAGER = "PerLayerCompressionPress", "ObservedAttentionPress()"
ONCE = "it evicts once, at the end of the prompt, and keeps all keys that come later"
WITH_SINKS = "cur", "expected"  # whose presses keep the first keys
BY_QUERIES = "snapkv", "h2o", "expected"  # whose presses average over heads that share keys


class Expression(NamedTuple):
    """How an engine says a method, where it computes something else, and the keys it keeps."""

    words: str
    differences: Differences
    keys: int | None = None


class Exported(NamedTuple):
    """The text of a configuration, and where the engine computes something else than the plan."""

    text: str
    differences: tuple[str, ...]


class Exporter(ABC):
    """What one engine can express of a plan for one model."""

    name: ClassVar[str]
    about: ClassVar[str]  # what it has, for refusals
    always: ClassVar[tuple[str, ...]] = ()  # where it differs from every plan
    by_layer: ClassVar[bool] = False  # whether layers may differ

    def __init__(self, model: HeadCounts) -> None:
        self.counts = model

    @abstractmethod
    def expression(self, method: Method) -> Expression:
        """Return how the engine says a method, or raise ValueError with the reason."""

    def text(self, plan: Plan, layers: list[Expression], differences: Differences) -> str:
        """Return the configuration, from the expression of each layer."""
        return layers[0].words

    def counterpart(self, method: Method) -> Method | None:
        """Return the nearest method that the engine can express, None if there is none."""
        return None if self._why_not(method) else method

    def export(self, plan: Plan) -> Exported:
        """Return the plan as a configuration.

        For kvpress it is a Python module whose ``press(prompt_tokens)`` builds a press; for
        transformers, an object of JSON with the keyword arguments of ``generate``; for llama.cpp, a
        line of arguments of llama-server.

        Raises
        ------
        ValueError
            The engine cannot express the plan. The message has the reasons, and the nearest plan.
        """
        layers = self._layers(plan)
        if reasons := self._reasons(layers):
            raise ValueError(
                f"{self.name} cannot express this plan: {_listed(reasons, '; ')}. "
                f"{self._advice(plan)}"
            )
        methods = [method for [method] in layers]
        if all(isinstance(method, Exact) for method in methods):
            raise ValueError("every head of the plan is exact: there is nothing to export")
        said = [self.expression(method) for method in methods]
        every: dict[str, list[str]] = {}
        for spec, one in {str(method): one for method, one in zip(methods, said)}.items():
            for reason in one.differences:
                every.setdefault(reason, []).append(spec)
        found = [f"{', '.join(specs)}: {reason}" for reason, specs in every.items()]
        return Exported(self.text(plan, said, [*self.always, *found]), (*self.always, *found))

    def nearest(self, plan: Plan) -> Plan:
        """Return the nearest plan that the engine can express.

        Where heads must agree, it has the method that most of them have, among those that the
        engine can express; where there is none, the method that most heads of the plan have, or for
        kvpress exact attention. Codes of other forms become codes of the engine with as many bits
        or more.

        Raises
        ------
        ValueError
            No method of the plan has a counterpart in the engine.
        """
        layers = self._layers(plan)
        whole = self._most(sum((Counter(x) for x in layers), Counter()))
        if whole is None:
            raise ValueError(f"no method of the plan has a counterpart: {self.name} {self.about}")
        heads: dict[HeadIndex, Method] = {}
        for layer, methods in enumerate(layers):
            if self.by_layer and all(isinstance(method, Exact) for method in methods):
                continue
            method = (self._most(methods) if self.by_layer else None) or whole
            heads |= {(layer, head): method for head in range(self.counts.heads)}
        facts = {k: x for k, x in plan.facts.items() if k in ("model_sha256", "version")}
        return Plan(plan.model, heads, facts | {"nearest_for": self.name})

    def _layers(self, plan: Plan) -> list[Counter[Method]]:
        """Return how many heads of each layer have which method."""
        exact = Exact()
        return [
            Counter(plan.heads.get((layer, head), exact) for head in range(self.counts.heads))
            for layer in range(self.counts.layers)
        ]

    def _reasons(self, layers: list[Counter[Method]]) -> list[str]:
        if kinds := self.counts.other_kinds:
            return [f"layers of the kind {', '.join(sorted(kinds))} keep a cache of their own"]
        found = {str(method): self._why_not(method) for methods in layers for method in methods}
        alike: dict[tuple[str, str], list[str]] = {}  # the words around a spec → specs
        for spec, why in found.items():
            before, named, after = why.partition(spec)
            if why:
                alike.setdefault((before, after), []).append(named)
        reasons = [before + _listed(specs) + after for (before, after), specs in alike.items()]
        if self.by_layer:
            return reasons + [
                f"layer {layer} has {len(methods)} methods, and a layer has one press"
                for layer, methods in enumerate(layers)
                if len(methods) > 1
            ]
        if len(found) > 1:
            reasons.append(f"it has {len(found)} methods, and all layers have one cache")
        return reasons

    def _advice(self, plan: Plan) -> str:
        try:
            found = self.nearest(plan)
        except ValueError as error:
            return f"There is no nearest plan: {error}"
        methods = Counter(map(str, found.heads.values())).most_common()
        used = _listed([f"{spec} for {heads} heads" for spec, heads in methods])
        return f"The nearest plan that it can express has {used}: --nearest exports that one"

    def _most(self, methods: Mapping[Method, int]) -> Method | None:
        counts: Counter[Method] = Counter()
        for method, heads in methods.items():
            if (found := self.counterpart(method)) is not None:
                counts[found] += heads
        ranked = sorted(counts, key=lambda method: (-counts[method], str(method)))
        return ranked[0] if ranked else None

    def _why_not(self, method: Method) -> str:
        try:
            self.expression(method)
        except ValueError as error:
            return str(error)
        return ""


def _listed(some: Sequence[str], between: str = ", ") -> str:
    more = len(some) - LISTED
    return between.join(some[:LISTED]) + (f" and {more} more" if more > 0 else "")


class Kvpress(Exporter):
    """Presses that evict keys at the end of the prompt, a press and a size for each layer."""

    name = "kvpress"
    about = "evicts keys by the scores of its presses"
    by_layer = True
    eager = True  # whether the nearest plan may have the press that needs eager attention

    def expression(self, method: Method) -> Expression:
        if isinstance(method, Exact):
            return Expression("", [])
        if isinstance(method, SinkWindow):
            return Expression(f"StreamingLLMPress(n_sink={method.sinks})", [ONCE], method.k)
        if isinstance(method, SlidingWindow):
            return Expression("StreamingLLMPress(n_sink=0)", [ONCE], method.width)
        if not isinstance(method, Columns) or method.by not in PRESSES:
            raise ValueError(f"no press computes {method}: {self.name} {self.about}")
        press, differs = PRESSES[method.by]
        differences = [differs] if differs else []
        if method.sinks and method.by not in WITH_SINKS:
            differences.append("it may evict the first keys")
        if method.by == "snapkv":
            if method.recent != method.window:
                differences.append(f"it keeps the last {method.window} keys")
            if method.pooling != "average":
                differences.append("it pools by the mean")
        elif method.by != "tova" and (method.recent or method.evicts):
            differences.append("it may evict the last keys")
        if method.by in BY_QUERIES and self.counts.group > 1:
            differences.append(f"it keeps the same keys for {self.counts.group} heads")
        if method.evicts:
            differences.append(ONCE)
        return Expression(press.format(**vars(method)), differences, method.k)

    def counterpart(self, method: Method) -> Method | None:
        if isinstance(method, Exact) or (not self.eager and getattr(method, "by", "") == "h2o"):
            return None
        return super().counterpart(method)

    def nearest(self, plan: Plan) -> Plan:
        found = super().nearest(plan)
        layers = [self.expression(method) for [method] in self._layers(found)]
        self.eager = self._sizes_suit(layers)
        return found if self.eager else super().nearest(plan)

    def _sizes_suit(self, layers: list[Expression]) -> bool:
        """Return whether all layers keep as many keys, or none needs eager attention."""
        return len({said.keys for said in layers}) == 1 or EAGER not in {x.words for x in layers}

    def text(self, plan: Plan, layers: list[Expression], differences: Differences) -> str:
        kept: dict[str, dict[int, int]] = {}
        for layer, said in enumerate(layers):
            if said.keys is not None:
                kept.setdefault(said.words, {})[layer] = said.keys
        if not self._sizes_suit(layers):
            raise ValueError(
                f"{EAGER} needs attn_implementation='eager', where all layers keep as many keys"
            )
        notes = differences or ["as far as is known, in nothing"]
        used = {press.partition("(")[0] for press in kept} | {"ComposedPress", PER_LAYER}
        rows = "\n".join(
            f"    (\n        {press},\n{_wrapped(f'{keys},', ' ' * 8, ' ' * 9)}\n    ),"
            for press, keys in kept.items()
        )
        return _SCRIPT.format(
            model=one_line(plan.model), layers=self.counts.layers, rows=rows,
            notes="\n".join(_wrapped(f"- {one}.", "", "  ") for one in notes),
            names=",\n    ".join(sorted(used)),
        )  # fmt: skip


class RoundedCache(Exporter):
    """An engine that keeps all keys and values in few bits, alike in all layers."""

    bits: ClassVar[tuple[int, ...]]  # of keys or values in few bits
    most: ClassVar[int]  # numbers that share two scales, at most d

    def counterpart(self, method: Method) -> Method | None:
        keys, values = _parts(method)
        bits = [getattr(part, "bits", None) for part in (keys, values)]
        if bits == [None, None] or (bits[0] is None and not isinstance(keys, Exact)):
            return None
        of_keys, of_values = (
            min((x for x in self.bits if b and x >= b), default=None) for b in bits
        )
        group = min(self.most, self.counts.d)
        found: Method = Exact() if of_keys is None else Quantised(of_keys, group=group)
        if of_values is not None:
            found = RoundedValues(found, of_values, group=group)
        return super().counterpart(found)

    def codes(self, method: Method) -> tuple[Quantised | None, RoundedValues | None]:
        """Return the codes of keys and of values, None where they are exact; or ValueError."""
        keys, values = _parts(method)
        if not isinstance(keys, Exact | Quantised):
            raise ValueError(f"no cache of it computes {keys}: {self.name} {self.about}")
        equal = isinstance(keys, Exact) or not (keys.dither or keys.corrected)
        if not equal or "normal" in {getattr(part, "levels", "") for part in (keys, values)}:
            raise ValueError(f"{method}: it rounds to equal steps, without dither or correction")
        if values and values.by != "token":
            raise ValueError(f"{values}: it rounds values by token")
        return None if isinstance(keys, Exact) else keys, values


class Transformers(RoundedCache):
    """The quantised cache of transformers, with the backend quanto."""

    name = "transformers"
    about = "rounds all keys and values to 2 or 4 bits, and has no other cache of a chosen size"
    always = (
        "keys and values of generated tokens stay exact until there are 128 of them; then it "
        "rounds everything again, from what it had rounded",
    )
    bits, most = (2, 4), 64

    def expression(self, method: Method) -> Expression:
        (keys, values), d = self.codes(method), self.counts.d
        if keys is None or values is None or keys.bits != values.bits:
            raise ValueError(f"{method}: it rounds keys and values to the same number of bits")
        if keys.bits not in self.bits:
            raise ValueError(f"{method}: quanto has 2 or 4 bits")
        by_token = keys.by == "token"
        group = min(keys.group, d) if by_token else keys.group
        if d % group:
            raise ValueError(f"{method}: the group must divide d = {d}")
        differences = []
        if min(values.group, d) != group:
            differences.append(f"values have groups of {group}")
        if not by_token:
            differences.append(f"the prompt must be a multiple of {group} tokens")
        if keys.recent or not by_token:
            differences.append("it rounds the last keys of the prompt, too")
        config = {
            "backend": "quanto", "nbits": keys.bits, "q_group_size": group,
            "axis_key": 0 if by_token else -1, "axis_value": 0, "residual_length": 128,
        }  # fmt: skip
        found = {"cache_implementation": "quantized", "cache_config": config}
        return Expression(json.dumps(found, indent=2) + "\n", differences)


class LlamaCpp(RoundedCache):
    """The types of K and V of llama.cpp's cache."""

    name = "llama.cpp"
    about = "keeps all keys and values as f16, q8_0, q5_1 or q4_1, alike in all layers"
    always = (
        "it rotates queries, keys and values before it rounds (Hadamard), unless the environment "
        "has LLAMA_ATTN_ROT_DISABLE=1; scales have 16 bits",
    )
    bits, most = (4, 5, 8), BLOCK
    types: ClassVar[dict[int | None, str]] = {None: "f16", 4: "q4_1", 5: "q5_1", 8: "q8_0"}

    def expression(self, method: Method) -> Expression:
        keys, values = self.codes(method)
        if keys is not None and keys.by != "token":
            raise ValueError(f"{method}: it rounds keys by token")
        if self.counts.d % BLOCK:
            raise ValueError(f"its blocks of {BLOCK} do not divide d = {self.counts.d}")
        differences, said = [], "--flash-attn on"
        for name, part in (("key", keys), ("value", values)):
            bits = None if part is None else part.bits
            if bits not in self.types:
                raise ValueError(f"{method}: it has 4, 5 or 8 bits for each {name}")
            said += f" --cache-type-{name[0]} {self.types[bits]}"
            if part is not None and min(part.group, self.counts.d) != BLOCK:
                differences.append(f"{BLOCK} numbers of a {name} share a scale")
            if bits == 8:
                differences.append(f"q8_0 rounds each {name} in equal steps around 0")
        if keys is not None and keys.recent:
            differences.append("it rounds the last keys, too")
        return Expression(said + "\n", differences)


EXPORTERS: dict[str, Callable[[HeadCounts], Exporter]] = {
    kind.name: kind for kind in (Kvpress, Transformers, LlamaCpp)
}


def _parts(method: Method) -> tuple[Method, RoundedValues | None]:
    """Return the method of the keys, and that of the values if they are rounded."""
    return (method.method, method) if isinstance(method, RoundedValues) else (method, None)


def _wrapped(text: str, first: str, later: str) -> str:
    return textwrap.fill(
        text, 98, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )


_SCRIPT = '''"""The press of a plan for {model}, written by expqk for kvpress 0.5.

    with press(prompt_tokens)(model):
        model.generate(...)

It differs from the plan:
{notes}
"""

from kvpress import (
    {names},
)

LAYERS = {layers}
KEYS = [  # a press, and how many keys of a prompt it keeps in each layer
{rows}
]


def press(prompt_tokens: int) -> ComposedPress:
    """Return the press for a prompt of so many tokens; half a key keeps rounding exact."""
    parts = []
    for kind, keys in KEYS:
        kept = [(keys.get(layer, prompt_tokens) + 0.5) / prompt_tokens for layer in range(LAYERS)]
        parts.append(PerLayerCompressionPress(kind, [max(0.0, 1.0 - share) for share in kept]))
    return ComposedPress(parts)
'''
