"""A causal language model whose attention is computed by our function, from any layer on.

It can start at any layer, from the states of an earlier run. So `analysis.models.replacement` does
not run unchanged layers again.
"""

import inspect
import os
import pickle  # noqa: TID251 - between workers, which run any code anyway; never from a file
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

import numpy as np

from analysis.models import checkpoints
from analysis.models.attention_hook import Attention, Call, Hook, unused
from analysis.models.checkpoints import Place
from analysis.sentences import one_line
from approx.checks import Array, integer, one_of

HeadIndex = tuple[int, int]  # (layer, head)
HOOKED = threading.RLock()  # models have the hooks of one pass at a time


class LanguageModel:
    """A causal language model and its tokenizer; it can start at any layer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A model with logits, such as LlamaForCausalLM.
    tokenizer : transformers.PreTrainedTokenizer, optional
        Needed only by `tokens`.
    name : str

    Attributes
    ----------
    layers, heads : int
        The number of layers, and of heads in each layer. Layers and heads are numbered from 0.

    Raises
    ------
    ValueError
        The model has no list of its layers.
    """

    def __init__(self, model: Any, tokenizer: Any = None, name: str = "model") -> None:
        from torch.nn import ModuleList

        self.model, self.tokenizer, self.name = model.eval().requires_grad_(False), tokenizer, name
        checkpoints.check(model.config, runs=True)
        facts = model.config.get_text_config()
        facts.use_cache = False  # a cache would store every key twice
        self.layers, self.heads = int(facts.num_hidden_layers), int(facts.num_attention_heads)
        lists = (m for m in model.modules() if isinstance(m, ModuleList) and len(m) == self.layers)
        blocks = next(lists, None)
        if blocks is None:
            raise ValueError(f"{type(model).__name__} has no list of its {self.layers} layers")
        self._blocks: Any = blocks
        self._wrapped = False  # whether a block returns its state in a tuple

    def __reduce__(self) -> tuple[Callable[[type[Self], bytes], Self], tuple[type[Self], bytes]]:
        """Pickle the model without the hooks of a pass: a running pass ends before."""
        with HOOKED:
            return _unpickled, (type(self), pickle.dumps(vars(self), protocol=5))

    @classmethod
    def open(
        cls, model_dir: str | os.PathLike[str], *, dtype: str = "float32", device: str = "cpu"
    ) -> Self:
        """Return the model of a local folder in the format of Hugging Face, or of a GGUF file.

        Parameters
        ----------
        model_dir : path
            Nothing is looked up on the network, no code in the folder is run, and no pickle is
            read.
        dtype : {"float32", "float64"}
            The dtype in which the model computes.
        device : str
            The device of torch on which the model computes, such as "cuda" or "mps". What
            `analysis.models.replacement` computes of methods, and logits, are on the CPU.

        Raises
        ------
        ImportError
            torch, transformers or, for a GGUF file, gguf or accelerate is missing.
        ValueError
            There is no model, a file is damaged, the weights lack an array of the model or have
            another shape, the model is not causal, it is quantised in another format than
            GGUF, its attention is not softmax(scaling q·k) v, or torch cannot compute on the
            device.
        """
        one_of("dtype", dtype, ("float32", "float64"))
        place = Place.from_path(model_dir)
        place.require("a model")

        import torch

        precise = getattr(torch, dtype)
        where = checkpoints.usable_device(device, precise)
        with checkpoints.parsed_once():
            return cls._opened(place, precise, where)

    @classmethod
    def _opened(cls, place: Place, dtype: Any, device: Any) -> Self:
        from transformers import AutoModelForCausalLM

        config = place.config(runs=True)
        quantised = getattr(config, "quantization_config", None)
        if quantised and "gguf_file" not in place.local:
            how = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
            raise ValueError(
                f"{place.name} is quantised ({one_line(how, 60)}), and only GGUF files may be: "
                "give the folder that it was made from, or a GGUF file"
            )
        if type(config) not in AutoModelForCausalLM._model_mapping:
            raise ValueError(f"{place.name} is no causal language model, but {config.model_type}")
        model = place.weights(AutoModelForCausalLM, config, dtype).to(device)
        return cls(model, place.tokenizer(), place.name)

    def tokens(self, text: str | os.PathLike[str], max_tokens: int = 512) -> Array:
        """Return the ids of the first tokens of a text file, special tokens included, (n,) int64.

        Raises
        ------
        OSError, ValueError
            There is no such file, it is not UTF-8, or it has fewer than 2 tokens or more than the
            model has positions.
        """
        return self.tokens_of(checkpoints.read(text), max_tokens)

    def tokens_of(self, words: str, max_tokens: int = 512, *, chat: bool = False) -> Array:
        """Return the ids of the first tokens of a text, as `tokens` does for a file.

        With ``chat``, the text is the message of a user, see `chat`.
        """
        integer("max_tokens", max_tokens, least=2)
        words, how = (self.chat(words), {"special": False}) if chat else (words, {})
        found = checkpoints.token_ids(words, self.tokenizer, self.model.config, max_tokens, **how)
        return np.asarray(found, np.int64)

    def chat(self, words: str) -> str:
        """Return a user's message in the tokenizer's chat template, up to the model's answer.

        Raises
        ------
        ValueError
            The tokenizer has no chat template, or cannot apply it.
        """
        if getattr(self.tokenizer, "chat_template", None) is None:
            raise ValueError(f"the tokenizer of {self.name} has no chat template: leave out chat")
        message = [{"role": "user", "content": words}]
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    message, tokenize=False, add_generation_prompt=True
                )
            )
        except Exception as error:  # a template is a program of its author
            why = one_line(error) or type(error).__name__
            raise ValueError(f"the chat template of {self.name} fails: {why}") from error

    def states(
        self,
        ids: Sequence[int] | Array,
        attention: Attention = Call.output,
        *,
        start: int = 0,
        state: Any = None,
        watch: Callable[[int, Any], None] | None = None,
        first: int = 0,
    ) -> Any:
        """Return the states after the last layer, a tensor (1, n, width), before the last norm.

        Parameters
        ----------
        ids : (n,)
            The tokens.
        attention : callable
            Computes the attention of every layer from a `Call`; by default exact attention.
        start : int
            The first layer to run; earlier layers are not run.
        state : tensor (1, n, width), optional
            The state that enters this layer, for example from ``watch`` of an earlier run. It is
            required if ``start`` is above 0; layer 0 has the embeddings by default.
        watch : callable, optional
            Called as ``watch(layer, state)`` with the state that enters each layer and, under the
            number `layers`, with the state after the last layer.
        first : int
            The position of the first token, if ``ids`` and ``state`` are the end of a text.

        Raises
        ------
        ValueError
            A layer is not softmax(scaling q·k) v, a layer has no attention or several attentions,
            or the mask is not causal.

        Notes
        -----
        Gradients are recorded if torch's grad mode is on.
        """
        import torch

        integer("start", start, least=0, most=self.layers)
        if start and state is None:
            raise ValueError(f"to start at layer {start} needs the state that enters it")
        last: Any = state
        calls: list[int] = []

        def attend(call: Call) -> Any:
            calls.append(call.layer)
            if not call.seen.causal and call.q.shape[2] > 1:
                raise ValueError(f"layer {call.layer} sees later keys: the model is not causal")
            return attention(call)

        def enters(layer: int, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            if state is not None and layer == start:
                given, named = (state, *given[1:]), {**named}
                named.pop("hidden_states", None)
            if watch is not None:
                watch(layer, given[0] if given else named["hidden_states"])
            if layer > start and not calls:
                raise unused(self.model)
            if len(calls) != layer - start:
                raise ValueError(
                    f"layer {layer - 1} has {len(calls) - layer + start + 1} attentions, not one"
                )
            return given, named

        def leaves(given: Any) -> None:
            nonlocal last
            self._wrapped = isinstance(given, tuple)
            last = given[0] if self._wrapped else given

        with HOOKED, ExitStack() as stack:
            for layer in range(start, self.layers):
                hook = self._blocks[layer].register_forward_pre_hook(
                    lambda _, given, named, layer=layer: enters(layer, given, named),
                    with_kwargs=True,
                )
                stack.callback(hook.remove)
            if start < self.layers:
                hook = self._blocks[-1].register_forward_hook(lambda _m, _i, out: leaves(out))
                stack.callback(hook.remove)
                stack.enter_context(Hook(self.model, attend, first=start))
            stack.enter_context(self._skipping(start, state))
            takes = inspect.signature(self.model.forward).parameters
            tokens = torch.as_tensor(ids, device=self.model.device)[None]
            given: dict[str, Any] = {"logits_to_keep": 1}
            if first:
                given["position_ids"] = first + torch.arange(len(ids), device=tokens.device)[None]
            self.model(input_ids=tokens, **{x: y for x, y in given.items() if x in takes})
        if watch is not None:
            watch(self.layers, last)
        return last

    def logits(self, ids: Sequence[int] | Array, state: Any, rows: Sequence[int] | Array) -> Any:
        """Return the logits of the next token at some positions: (rows, vocabulary), on the CPU.

        Parameters
        ----------
        ids : (n,)
        state : tensor (1, n, width)
            The state after the last layer, from `states`.
        rows : (rows,)
            Positions, in any order.
        """
        import torch

        kept = torch.as_tensor(np.asarray(rows, np.int64))
        given = torch.as_tensor(ids, device=self.model.device)[None]
        with HOOKED, self._skipping(self.layers, state):
            output = self.model(input_ids=given, logits_to_keep=kept.to(given.device))
        found = output.logits[0].cpu()
        return found if len(found) == len(kept) else found[kept]

    @contextmanager
    def _skipping(self, start: int, state: Any) -> Iterator[None]:
        """Let the layers before ``start`` return ``state`` without computing anything."""
        skipped, given = self._blocks[:start], (state,) if self._wrapped else state
        try:
            for block in skipped:
                block.forward = lambda *_, **__: given
            yield
        finally:
            for block in skipped:
                del block.forward


M = TypeVar("M")


def _unpickled(cls: type[M], attributes: bytes) -> M:
    model = cls.__new__(cls)
    vars(model).update(pickle.loads(attributes))
    return model
