"""Generation with a plan: a language model that runs token by token from the plan's caches.

`attach` lets a model of transformers attend by a plan in its own ``generate``, until `detach`.
`generate` does this for a folder and a prompt, and counts reads and storage.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.costs.budget import cost
from analysis.models import checkpoints
from analysis.models.attention_hook import (
    CACHE_NAMES,
    Call,
    Hook,
    Seen,
    cache_name,
    looking_back,
)
from analysis.models.checkpoints import Place
from analysis.models.head_caches import (
    EXACT,
    HeadCaches,
    after_prompt,
    in_groups,
    prompt_length,
)
from analysis.models.language_model import HeadIndex, LanguageModel
from analysis.models.plan import Plan, check_weights, other_model
from analysis.runs.seeds import seed_sequence
from approx import Mask, Method, checks
from approx.checks import Array
from approx.method.evaluation import obstacle
from approx.method.prices import Shape

MOST = 2**31 - 1  # tokens of a prompt: the limit of a tokenizer's count

_ATTACHED: weakref.WeakKeyDictionary[Any, _Attached] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, repr=False)
class Generated:
    """The text that a model generated with a plan, with its reads, storage and time.

    Attributes
    ----------
    text, tokens
        The generated text, without the prompt.
    prompt_tokens : int
    layers : DataFrame
        One row per layer, at the last token that was read: ``bytes_read``, by the price of all
        groups of heads that share keys, and ``exact_bytes_read``; ``numbers`` and ``code_bytes`` in
        the caches, counted from the arrays; ``bytes``, at 16 bits per number, and ``exact_bytes``.
    seconds : float
        The time of all tokens except the first, which the pass over the prompt gives.
    exact : Generated or None
        The text of exact attention, if it was requested for comparison.
    agreement : float
        The share of tokens that are also exact attention's likeliest token after the same prompt
        and the same earlier tokens; NaN without comparison.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    layers: pd.DataFrame
    seconds: float
    exact: Generated | None = None
    agreement: float = float("nan")

    def __repr__(self) -> str:
        return f"<Generated {checks.display(self.text)}: {len(self.tokens)} tokens>"

    @property
    def per_second(self) -> float:
        """Tokens per second, without the prompt."""
        return (len(self.tokens) - 1) / self.seconds if self.seconds else float("nan")

    @property
    def parts_at(self) -> int | None:
        """The index of the first token that differs from ``exact``; None if there is none."""
        if self.exact is None:
            return None
        a, b = self.tokens, self.exact.tokens
        same = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        return None if same == len(a) == len(b) else same


def generate(
    model_dir: str | os.PathLike[str],
    prompt: str,
    plan: Plan | Method,
    *,
    tokens: int = 64,
    heads: Sequence[HeadIndex] | None = None,
    max_tokens: int | None = None,
    compare: bool = False,
    chat: bool = False,
    setting: str = "rows",
    prompt_tokens: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    jobs: int | None = None,
) -> Generated:
    """Return a local model's greedy continuation of a prompt with a plan.

    Parameters
    ----------
    model_dir : path
        See `analysis.models.language_model.LanguageModel.open`.
    prompt : str
    plan : Plan or Method
        A method computes all ``heads``.
    tokens : int
        The largest number of tokens; fewer if the model ends the text.
    heads : sequence of (layer, head), optional
    max_tokens : int, optional
        The prompt is cut to this number of tokens; by default it is not cut.
    compare : bool
        Whether to generate with exact attention, too.
    chat : bool
        Whether the prompt is a user's message, which the tokenizer's chat template surrounds. It is
        then not cut.
    setting, prompt_tokens
        As for `attach`.
    dtype : {"float32", "float64"}
    seed, jobs
        As for `analysis.models.substitute.substitute`, with the same draws.

    Returns
    -------
    Generated

    Raises
    ------
    ImportError, ValueError
        As for `attach`; or the prompt has fewer than 2 tokens, or too many for the model, or the
        tokenizer has no chat template.
    """
    checks.integer("tokens", tokens, least=1)
    checks.integer("seed", seed, least=0)
    if checks.flag("chat", chat) and max_tokens is not None:
        raise ValueError("max_tokens would cut the end of the chat template: leave it out")
    place = Place.from_path(model_dir)
    if isinstance(plan, Plan):
        check_weights([plan], [place])
        plan = Plan(plan.model, plan.heads)  # whose weights `attach` need not read again
    model = LanguageModel.open(model_dir, dtype=dtype)
    ids = model.tokens_of(prompt, MOST if max_tokens is None else max_tokens, chat=chat)
    prompt_length(setting, prompt_tokens, len(ids), len(ids))
    attach(
        model.model, plan, heads=heads, setting=setting, prompt_tokens=prompt_tokens,
        name=model.name, seed=seed, jobs=jobs,
    )  # fmt: skip
    try:
        found = _said(model, ids, tokens)
    finally:
        detach(model.model)
    if not compare:
        return found
    exact = _said(model, ids, tokens)
    same = _likeliest(model, [*ids, *found.tokens])[len(ids) - 1 : -1] == found.tokens
    values = {**vars(found), "exact": exact, "agreement": float(np.mean(same))}
    return Generated(**values)


def _said(model: LanguageModel, ids: Array, tokens: int) -> Generated:
    import torch
    from transformers import DynamicCache

    inner = model.model
    cache = DynamicCache(config=inner.config)
    past = {cache_name(inner): cache}
    ends = np.atleast_1d(inner.generation_config.eos_token_id or [])
    said: list[int] = []
    given = torch.as_tensor(ids)[None]
    start = 0.0
    with torch.inference_mode():
        while len(said) < tokens:
            out = inner(given, use_cache=True, logits_to_keep=1, **past)
            start = start or time.perf_counter()
            said.append(int(out.logits[0, -1].argmax()))
            given = torch.tensor([said[-1:]])
            if said[-1] in ends:
                break
    seconds = time.perf_counter() - start
    layers = pd.DataFrame([_numbers(layer) for layer in cache.layers]).rename_axis("layer")
    text = model.tokenizer.decode(said, skip_special_tokens=True)
    return Generated(text, tuple(said), len(ids), layers.reset_index(), seconds)


def _likeliest(model: LanguageModel, ids: Sequence[int]) -> Array:
    import torch

    with torch.inference_mode():
        logits = model.model(torch.as_tensor(np.array(ids))[None]).logits[0]
    return np.asarray(logits.argmax(-1).numpy())


def _numbers(layer: Any) -> dict[str, float]:
    """Return the bytes that a layer reads and holds, and those of exact attention."""
    if isinstance(layer, _layer_kind()):
        found: dict[str, float] = layer.numbers()
        return found
    count = layer.keys.numel() + layer.values.numel()
    return _row(2 * count, count, 0, 2 * count)


def _row(read: float, numbers: int, code_bytes: int, exact: int) -> dict[str, float]:
    return {
        "bytes_read": read,
        "exact_bytes_read": exact,
        "numbers": numbers,
        "code_bytes": code_bytes,
        "bytes": 2 * numbers + code_bytes,
        "exact_bytes": exact,
    }


# A model that attends by a plan


def attach(
    model: Any,
    plan: Plan | Method,
    *,
    heads: Sequence[HeadIndex] | None = None,
    setting: str = "rows",
    prompt_tokens: int | None = None,
    name: str | None = None,
    seed: int = 0,
    jobs: int | None = None,
) -> None:
    """Let a model of transformers attend by a plan until `detach`, also in its own ``generate``.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        For example from AutoModelForCausalLM.
    plan : Plan or Method
        A method computes all ``heads``; all other heads stay exact.
    heads : sequence of (layer, head), optional
    setting : {"rows", "prompt"}
        Whether methods compute all rows, or those after the prompt; see `head_caches`.
    prompt_tokens : int, optional
        In the setting ``prompt``, the number of first tokens whose rows are exact; by default all
        tokens of the model's first pass.
    name : str, optional
        The name of the model, which must be the plan's; by default the name of its folder. Where
        that is on the disk, its weights, or a GGUF file there, must be the plan's, too.
    seed, jobs
        As for `analysis.models.substitute.substitute`.

    Raises
    ------
    ValueError
        The plan is for another model; a method reads the future, needs all logits or has no cache;
        or the model has a property that softmax(scaling q·k) v lacks, such as a soft-cap or latent
        attention; or exact attention does not give the logits of the model itself, because it is
        training or its transformers is too new. A plan that was attached before then stays. The
        model's own calls raise it for beam search, for a batch with rows of different lengths and
        no mask, and for a cache that is not empty.

    Notes
    -----
    It uses the AttentionInterface of transformers. In every empty DynamicCache that the model gets,
    it replaces the layers that have a method by layers with the methods' caches, head by head.
    Tokens that the attention mask hides are never stored. Caches are NumPy arrays on the CPU, and
    no gradient passes through them.
    """
    if isinstance(plan, Plan) and heads is not None:
        raise ValueError("a plan names its own heads: leave heads out")
    checks.instance("plan", plan, (Plan, Method), "a plan or a method")  # type: ignore[arg-type]
    prompt = prompt_length(setting, prompt_tokens, MOST, MOST)
    facts = model.config.get_text_config()
    checkpoints.check(model.config, runs=True)
    layers, count = int(facts.num_hidden_layers), int(facts.num_attention_heads)
    if isinstance(plan, Plan):
        if why := other_model(plan, _names(model) if name is None else {name}):
            raise ValueError(why)
        # the likely place first
        own = sorted(_places(model), key=lambda place: place.name != plan.model)
        check_weights([plan], own)
        chosen: Mapping[HeadIndex, Method] = plan.heads
    else:
        every = [(i, j) for i in range(layers) for j in range(count)] if heads is None else heads
        chosen = dict.fromkeys(every, plan)
    for (layer, head), method in chosen.items():
        if not (0 <= layer < layers and 0 <= head < count):
            raise ValueError(
                f"the model has no head {layer}.{head}: its layers are 0 to {layers - 1}, and "
                f"their heads 0 to {count - 1}"
            )
        if why := obstacle(after_prompt(method, prompt), Mask.causal(2, 2)):
            raise ValueError(f"no model can run {method}: {why}")
    if before := _ATTACHED.get(model):
        detach(model)
    try:
        _agree(model, dict.fromkeys(chosen, EXACT), count)
    except BaseException:
        if before:
            before.install()
            _ATTACHED[model] = before
        raise
    _ATTACHED[model] = _Attached(model, chosen, count, seed, jobs or os.cpu_count() or 1, prompt)


def detach(model: Any) -> None:
    """Let a model attend as before `attach`; raise ValueError if no plan is attached to it."""
    if model not in _ATTACHED:
        raise ValueError("no plan is attached to this model")
    _ATTACHED.pop(model).remove()


def _agree(model: Any, exact: Mapping[HeadIndex, Method], count: int) -> None:
    """Raise ValueError unless exact attention by our hooks gives the logits of the model itself.

    The last token is read from the cache that the model returns, as in its ``generate``, and is one
    of three or, where the model has a window of at most 62, of two more: some keys leave it. Half
    of the digits must agree: sums of other orders differ in the rest. Padding is not tested.
    """
    import torch
    import transformers

    facts = model.config.get_text_config()
    window = getattr(facts, "sliding_window", None) or 0
    n = max(3, window + 2 if window <= 62 else 0)
    ids = torch.arange(1, n + 1, device=model.device)[None] % facts.vocab_size
    with torch.inference_mode():
        own = model(ids, use_cache=False).logits[0, 1:]
        attached = _Attached(model, exact, count, 0, 1)
        try:
            out = model(ids[:, :-1], use_cache=True)
            past = {name: out[name] for name in out if name in CACHE_NAMES}
            last = model(ids[:, -1:], use_cache=True, **past)
        finally:
            attached.remove()
        found = torch.cat([out.logits[0, 1:], last.logits[0]])
    error, size = (found - own).abs().max().item(), own.abs().max().item()
    if not error <= max(torch.finfo(own.dtype).eps, _FLOAT32) ** 0.5 * size:  # true for NaN, too
        raise ValueError(
            f"{type(model).__name__} of transformers {transformers.__version__} does not attend as "
            f"exact() does (its logits differ by {error:.2g} at a size of {size:.2g}): call eval() "
            "if it is training, or install with -c constraints.txt"
        )


_FLOAT32 = float(np.finfo(np.float32).eps)  # norms round to float32 in every dtype


def _names(model: Any) -> set[str]:
    """Return the possible names of a model: its folder's, and those of GGUF files there."""
    where = getattr(model, "name_or_path", "")
    found = {place.name for place in _places(model)}
    return found | {checkpoints.folder_name(Path(where).resolve())} if where else found


def _places(model: Any) -> list[Place]:
    """Return where a model may be read from: its folder on the disk, and GGUF files there."""
    where = getattr(model, "name_or_path", "")
    if not where or not (folder := Path(where)).is_dir():
        return []
    own = [Place(folder, folder.name, {})] if [*folder.glob("model.safetensors*")] else []
    return own + [Place.from_path(path) for path in sorted(folder.glob("*.gguf"))]


class _Attached(Hook):
    """A model that attends by methods, and the cache layers of the current pass."""

    def __init__(
        self,
        model: Any,
        heads: Mapping[HeadIndex, Method],
        count: int,
        seed: int,
        jobs: int,
        prompt: int = 0,
    ) -> None:
        super().__init__(model, self.attend)
        self.seed, self.jobs, self.prompt = seed, jobs, prompt
        self.methods = {
            layer: [heads.get((layer, head), EXACT) for head in range(count)]
            for layer in sorted({layer for layer, _ in heads})
        }
        self.layers: list[Any] = []
        self.real: Any = None  # (batch, tokens) of this pass: False for padding
        self.install()

    def enter(self, model: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Prepare a pass: find or make the layers of its cache, and its padding."""
        from transformers import DynamicCache

        known = inspect.signature(model.forward).parameters
        # with **kwargs any name may follow
        if not any(one.kind is one.VAR_POSITIONAL for one in known.values()):
            args, named = (), dict(zip(known, args)) | named
        given = [named.pop(name, None) for name in CACHE_NAMES]
        cache = next((one for one in given if one is not None), None)
        if cache is None:
            cache = DynamicCache(config=model.config)
        own = _layer_kind()
        if not any(isinstance(layer, own) for layer in cache.layers) and self.methods:
            if type(cache) is not DynamicCache or cache.get_seq_length():
                raise ValueError(
                    "a plan is attached, which needs an empty DynamicCache: detach it, or generate "
                    f"without {cache_name(model)} and cache_implementation"
                )
            if not cache.layers:
                cache = DynamicCache(config=model.config)
            for number, methods in self.methods.items():
                kind = type(cache.layers[number]).__name__
                if kind not in ("DynamicLayer", "DynamicSlidingWindowLayer"):
                    raise ValueError(f"layer {number} has no keys for a plan, but a {kind}")
                window = getattr(cache.layers[number], "sliding_window", 0)
                cache.layers[number] = own(self, number, methods, int(window))
        self.layers = cache.layers
        self.real = _real(model, named.get("input_ids", *args[:1]), named.get("attention_mask"))
        return super().enter(model, args, named | {cache_name(model): cache})

    def attend(self, call: Call) -> Any:
        """Return the outputs of a layer, (batch, n, heads, c)."""
        layer = self.layers[call.index]
        return layer.attend(call) if isinstance(layer, _layer_kind()) else call.under(call.mask)


def _real(model: Any, ids: Any, mask: Any) -> Any:
    """Return which tokens of a pass are not padding, (batch, n) of bool; None without padding.

    Raises
    ------
    ValueError
        Rows of a batch begin or end with padding, and there is no mask.
    """
    if ids is None or ids.ndim != 2:
        return None
    if mask is not None and mask.ndim == 2:
        real = mask[:, -ids.shape[1] :].bool()
        if not real.all():
            return real.cpu().numpy()
    pad = model.config.get_text_config().pad_token_id
    if pad is None and model.generation_config is not None:
        pad = model.generation_config.pad_token_id
    if len(ids) > 1 and ids.shape[1] > 1 and pad is not None and mask is None:
        ends = (ids[:, 0] == pad) | (ids[:, -1] == pad)
        if ends.any():
            raise ValueError(
                "rows of the batch begin or end with padding and have other lengths: give the "
                "attention_mask that the tokenizer makes"
            )
    return None


@functools.cache
def _layer_kind() -> Any:
    """Return the class of a plan's cache layers; transformers is imported only here."""
    import torch
    from transformers.cache_utils import CacheLayerMixin

    class PlanLayer(CacheLayerMixin):  # type: ignore[misc]
        """The caches of the heads of a layer, for each row of a batch."""

        is_sliding = False

        def __init__(self, owner: _Attached, number: int, methods: list[Method], window: int):
            super().__init__()
            self.owner, self.number, self.methods, self.window = owner, number, methods, window
            self.is_sliding = bool(window)
            self.rows: list[HeadCaches] = []
            self.seen = 0

        def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
            """Do nothing: the caches are made with the first token."""
            self.is_initialized = True

        def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            """Return the new keys and values, which `attend` stores."""
            self.seen += keys.shape[2]
            self.is_initialized = True
            return keys, values

        def get_seq_length(self) -> int:
            """Return the number of tokens so far."""
            return self.seen

        def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
            """Return the number of keys of the mask, and the number of keys before them."""
            if not isinstance(query_length, int):  # transformers 4 gives the positions
                query_length = len(query_length)
            before = max(self.seen - self.window + 1, 0) if self.window else 0
            return self.seen - before + query_length, before

        def get_max_length(self) -> int:
            """Return the window, or −1."""
            return self.window or -1

        get_max_cache_shape = get_max_length  # its name in transformers 4

        def reset(self) -> None:
            """Forget all tokens."""
            self.rows, self.seen = [], 0

        def _refused(self, *_: Any, **__: Any) -> None:
            raise ValueError(
                "beam search and speculative decoding copy a cache or take tokens back, and what "
                "a plan has evicted cannot come back: generate with num_beams=1, or detach the plan"
            )

        reorder_cache = crop = batch_repeat_interleave = batch_select_indices = _refused

        def attend(self, call: Call) -> Any:
            """Return the outputs of the new tokens, (batch, n, heads, c)."""
            q, real, n = call.q, self.owner.real, call.q.shape[2]
            root = call.scaling**0.5
            dtype = np.float64 if q.dtype == torch.float64 else np.float32
            kind = getattr(torch, np.dtype(dtype).name)
            Q, K, V = (x.detach().to("cpu", kind).numpy() for x in (q, call.k, call.v))
            Q, K = Q * root, K * root
            begins = not self.rows
            if begins:
                whole = call.under(call.mask).detach().to("cpu", kind)
                exactly = whole.transpose(1, 2).numpy()
                sinks = call.sinks
                logits = None if sinks is None else sinks.detach().to("cpu", kind).numpy()
                counts = np.full(len(Q), n) if real is None else real.sum(axis=1)
                self.rows = [self._caches(K, V, dtype, logits, int(x)) for x in counts]
            output = np.zeros((len(Q), n, Q.shape[1], V.shape[-1]), dtype)
            for b, caches in enumerate(self.rows):
                at = np.arange(n) if real is None else np.flatnonzero(real[b])
                if begins and n > 1:
                    self._check(call.mask, b, at)
                    output[b, at] = caches.prompt(
                        Q[b][:, at], K[b][:, at], V[b][:, at], exactly[b][:, at]
                    ).transpose(1, 0, 2)
                    continue
                for i in at:
                    output[b, i] = caches.token(Q[b][:, i], K[b][:, i], V[b][:, i])
            return torch.from_numpy(output).to(q.device, q.dtype)

        def _check(self, mask: Any, b: int, at: Array) -> None:
            """Raise ValueError unless the mask, without padding, is causal or this window."""
            if mask is None:
                raise ValueError(f"layer {self.number} sees later keys: the model is not causal")
            some = mask[b : b + 1][:, :, at][..., at]
            seen = Seen.from_mask(some, len(at), len(at))
            if len(at) > 1 and (not seen.causal or seen.window not in (0, self.window)):
                raise ValueError(f"layer {self.number} does not see what its cache says")

        def _caches(
            self, K: Array, V: Array, dtype: Any, sinks: Array | None, tokens: int
        ) -> HeadCaches:
            owner = self.owner
            if owner.prompt > tokens and owner.prompt != MOST:
                raise ValueError(f"the prompt has only {tokens} of {owner.prompt} prompt_tokens")
            return HeadCaches(
                self.methods,
                K.shape[1],
                K.shape[-1],
                V.shape[-1],
                window=self.window,
                seed=lambda group: seed_sequence(owner.seed, "substitute", self.number, group),
                dtype=dtype,
                jobs=owner.jobs,
                sinks=sinks,
                prompt=min(owner.prompt, tokens),
            )

        def numbers(self) -> dict[str, float]:
            """Return the bytes read and held for the first row of a batch."""
            caches, n = self.rows[0], self.seen
            d, c = caches.caches[0].d, caches.caches[0].c
            mask = looking_back(n, n, self.window)
            shape = Shape(n, n, d, c, mask, caches.group)
            read = sum(cost(*one, "bytes_read") for one in in_groups(caches.methods, shape))
            numbers, code_bytes = caches.storage
            kv, tokens = len(self.methods) // caches.group, min(n, self.window or n)
            return _row(read, numbers, code_bytes, 2 * kv * tokens * (d + c))

    return PlanLayer
