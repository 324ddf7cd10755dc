"""A hook that computes the attention of a transformers model by a function of ours.

transformers gives every attention layer the function that its AttentionInterface knows by name.
Our function gets a `Call`: q and k after rotary embedding and norms, v, the layer's own scaling,
and the visible keys.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from analysis.inputs import Heads
from analysis.models.checkpoints import refuse
from approx import Mask
from approx.method.prices import Shape

_NAME = "expqk"  # our name in the registries of transformers, for one forward pass
_HIDDEN = -1e4  # additive masks hide with −10⁴, the least float or −inf
CACHE_NAMES = "cache", "past_key_values"  # from transformers 5.24 on, and before

IN_CALL = {
    "softcap": "a soft-cap on the logits",
    "position_bias": "a relative position bias",
}


class Seen(NamedTuple):
    """The keys that a layer's queries, the last n of l positions, see.

    ``visible`` is (n, l) of bool, or None if all are visible.
    """

    visible: Any
    causal: bool
    window: int  # 0 for none

    @classmethod
    def from_mask(cls, mask: Any, n: int, l: int) -> Self:
        """Return what a mask shows; raise ValueError unless it is full, causal or a window."""
        import torch

        if mask is None:
            return cls(None, False, 0)
        visible = mask if mask.dtype == torch.bool else mask == 0
        if mask.dtype != torch.bool and not (visible | (mask <= _HIDDEN)).all():
            raise ValueError(
                "the attention mask adds a bias to the logits, as ALiBi does: "
                "Q, K, V cannot represent it"
            )
        if visible.all() and not n == 1 < l:  # a single last query sees all keys if causal, too
            return cls(None, False, 0)
        visible = visible.expand(1, 1, n, l)[0, 0]
        past = torch.ones(n, l, dtype=torch.bool).tril(l - n)
        if (visible == past).all():
            return cls(visible, True, 0)
        window = int(visible[-1].sum())  # the last query sees its whole window
        if (visible == past.triu(l - n + 1 - window)).all():
            return cls(visible, True, window)
        raise ValueError(
            "the attention mask is neither full nor causal nor a window that looks back: if it "
            "depends on the length of the text, lower max_tokens"
        )


class Call(NamedTuple):
    """One call of an attention layer: q (1, heads, n, d), k and v (1, kv_heads, l, ·), as tensors.

    l is n, or larger if the text is read in pieces; the queries are then the last positions.
    ``sinks`` (heads,) are the logits of attention sinks, or None. Layers are numbered from 0 in the
    order of their calls.
    """

    layer: int
    q: Any
    k: Any
    v: Any
    scaling: float
    seen: Seen
    sinks: Any = None

    def output(self) -> Any:
        """Return softmax(scaling q·k) v of every head, (1, n, heads, c)."""
        q, k, v, (visible, causal, window) = self.q, self.k, self.v, self.seen
        half = causal and not window and q.shape[2] == k.shape[2]  # of the work; torch aligns left
        return attended(q, k, v, visible, self.scaling, self.sinks, causal=half)

    def inputs(self, name: str) -> Heads:
        """Return all heads as inputs; the arrays share the model's memory."""
        q, k, v = (x[0].detach().numpy() for x in (self.q, self.k, self.v))
        ids = tuple((self.layer, head, f"{self.layer}.{head}") for head in range(len(q)))
        sinks = None if self.sinks is None else self.sinks.detach().numpy()
        return Heads(name, q, k, v, self.scaling, self.shape.mask, sinks=sinks, ids=ids)

    @property
    def shape(self) -> Shape:
        """The shape of a head, which determines its prices: n, l, d, c and the mask."""
        (_, _, n, d), l = self.q.shape, self.k.shape[2]
        mask = _mask(n, l, self.seen.window) if self.seen.causal else Mask.full(n, l)
        return Shape(n, l, d, self.v.shape[-1], mask)


@functools.lru_cache(maxsize=8)
def _mask(n: int, l: int, window: int) -> Mask:
    return Mask.window(n, l, window) if window else Mask.causal(n, l)


Attention = Callable[[Call], Any]


@contextmanager
def attending(
    model: Any, attention: Attention, *, first: int = 0, in_pieces: bool = False
) -> Iterator[None]:
    """Let a model attend by our function in a ``with`` block, with the masks of eager attention.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Its layers call ``attention`` in the block, and their own attention again afterwards.
    attention : callable
        Takes a `Call`, returns the outputs of all heads, (1, n, heads, c).
    first : int
        The number of the first layer that is called.
    in_pieces : bool
        Whether layers may have keys of tokens that were read before.

    Raises
    ------
    ValueError
        Raised by the model's pass: a layer is not softmax(scaling q·k) v within one text.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    known: list[tuple[Any, Seen]] = []  # layers share their masks, and examining one takes time
    number = first

    def call(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        scaling: float | None = None,
        *,
        s_aux: Any = None,
        **others: Any,
    ) -> tuple[Any, None]:
        nonlocal number
        layer, number = number, number + 1
        refuse(others, IN_CALL)
        n, l = query.shape[2], key.shape[2]
        if query.shape[0] != 1 or n > l or (n < l and not in_pieces):
            raise ValueError(
                "an attention layer does not compare the text with itself: "
                f"queries {tuple(query.shape)}, keys {tuple(key.shape)}"
            )
        factor = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
        seen = next((s for mask, s in known if mask is attention_mask), None)
        if seen is None:
            seen = Seen.from_mask(attention_mask, n, l)
            known.append((attention_mask, seen))
        return attention(Call(layer, query, key, value, factor, seen, s_aux)), None

    before = model.config._attn_implementation
    AttentionInterface.register(_NAME, call)
    # Without this registration our function would get no causal or sliding mask.
    AttentionMaskInterface.register(_NAME, eager_mask)
    try:
        model.set_attn_implementation(_NAME)
        yield
    finally:
        model.set_attn_implementation(before)
        for registry in (AttentionInterface, AttentionMaskInterface):
            registry._global_mapping.pop(_NAME, None)  # there is no public way to unregister


def attended(
    q: Any, k: Any, v: Any, mask: Any, scaling: float, sinks: Any = None, *, causal: bool = False
) -> Any:
    """Return softmax(scaling q·k) v under an additive or boolean mask, (batch, n, heads, c).

    The row sums of head h have e^sinks[h] in addition. Without sinks, ``causal`` takes the place of
    a mask.
    """
    import torch

    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    if sinks is None:
        seen: dict[str, Any] = {"is_causal": True} if causal else {"attn_mask": mask}
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling, **seen)
    else:
        y = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype, device=q.device)
        for head, sink in enumerate(sinks.to(q.dtype)):  # the logits of one head at a time
            logits = scaling * (q[:, head] @ k[:, head].transpose(-1, -2))
            if mask is not None:
                seen_by = mask.expand(len(q), 1, *logits.shape[1:])[:, 0]
                is_bool = mask.dtype == torch.bool
                logits = logits.masked_fill(~seen_by, -torch.inf) if is_bool else logits + seen_by
            all_logits = torch.cat([logits, sink.expand(*logits.shape[:2], 1)], dim=-1)
            y[:, head] = all_logits.softmax(-1)[..., :-1] @ v[:, head]
    return y.transpose(1, 2).contiguous()


def cache_name(model: Any) -> str:
    """Return the name of a model's argument for its cache, which transformers 5.24 has changed."""
    parameters = inspect.signature(model.forward).parameters
    return CACHE_NAMES[0] if CACHE_NAMES[0] in parameters else CACHE_NAMES[1]


def unused(model: Any) -> ValueError:
    """Return the error for a model that never called our attention."""
    return ValueError(
        f"{type(model).__name__} does not call its attention through the AttentionInterface of "
        "transformers (models with ALiBi do not), so its Q, K, V cannot be taken"
    )
