"""A hook that computes the attention of a transformers model by a function of ours.

transformers gives every attention layer the function that its AttentionInterface knows by name.
Our function gets a `Call`: q and k after rotary embedding and norms, v, the layer's own scaling,
and the visible keys. Capture, replaced heads and generation each give such a function; what differs
between versions of transformers is here.
"""

import dataclasses
import functools
import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from analysis.inputs import Heads
from analysis.models.checkpoints import refuse
from approx import Mask
from approx.method.prices import Shape

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
    window: int  # 0: no window

    @classmethod
    def from_mask(cls, mask: Any, n: int, l: int) -> Self:
        """Return the keys that a mask shows; ValueError unless it is full, causal or a window."""
        import torch

        if mask is None:
            return cls(None, False, 0)
        visible = mask if mask.dtype == torch.bool else mask == 0
        if mask.dtype != torch.bool and not (visible | (mask <= _HIDDEN)).all():
            raise ValueError(
                "the attention mask adds a bias to the logits, as ALiBi does: "
                "Q, K, V cannot represent it"
            )
        # under a causal mask a single last query sees all keys, too
        if visible.all() and not n == 1 < l:
            return cls(None, False, 0)
        visible = visible.expand(1, 1, n, l)[0, 0]
        past = torch.ones_like(visible).tril(l - n)
        if (visible == past).all():
            return cls(visible, True, 0)
        window = int(visible[-1].sum())  # the last query sees its whole window
        if (visible == past.triu(l - n + 1 - window)).all():
            return cls(visible, True, window)
        raise ValueError(
            "the attention mask is neither full nor causal nor a window that looks back: if it "
            "depends on the length of the text, lower max_tokens"
        )


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an attention layer: q (batch, heads, n, d), k and v (batch, kv_heads, l, ·).

    l is n, or larger if earlier tokens were read before; the queries are then the last positions.
    ``layer`` is numbered from 0 in the order of calls, ``index`` as in the model's cache. ``mask``,
    (batch, 1, n, l), is boolean or added to the logits; ``sinks`` (heads,) are the logits of
    attention sinks. Both may be None.
    """

    hook: "Hook"
    layer: int
    index: int
    q: Any
    k: Any
    v: Any
    scaling: float
    mask: Any
    sinks: Any = None

    @property
    def seen(self) -> Seen:
        """What the queries of one text see; ValueError for a layer that compares anything else."""
        n, l = self.q.shape[2], self.k.shape[2]
        if self.q.shape[0] != 1 or n > l or (n < l and not self.hook.in_pieces):
            raise ValueError(
                "an attention layer does not compare the text with itself: "
                f"queries {tuple(self.q.shape)}, keys {tuple(self.k.shape)}"
            )
        known = self.hook.known  # layers share their masks, and examining one takes time
        for mask, seen in known:
            if mask is self.mask:
                return seen
        known.append((self.mask, Seen.from_mask(self.mask, n, l)))
        return known[-1][1]

    def output(self, first: int = 0) -> Any:
        """Return softmax(scaling q·k) v of every head for one text, (1, n − first, heads, c)."""
        visible, causal, window = self.seen
        if first:
            last = dataclasses.replace(self, q=self.q[:, :, first:])
            return last.under(None if visible is None else visible[first:])
        # a causal mask halves the work
        half = causal and not window and self.q.shape[2] == self.k.shape[2]
        return self.under(visible, causal=half)

    def under(self, mask: Any, *, causal: bool = False) -> Any:
        """Return softmax(scaling q·k) v under an additive or boolean mask, (batch, n, heads, c).

        The row sums of head h have e^sinks[h] in addition. Without sinks, ``causal`` takes the
        place of a mask; torch then aligns queries and keys at the first position.
        """
        import torch

        q = self.q
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (self.k, self.v))
        if self.sinks is None:
            seen: dict[str, Any] = {"is_causal": True} if causal else {"attn_mask": mask}
            attention = torch.nn.functional.scaled_dot_product_attention
            return attention(q, k, v, scale=self.scaling, **seen).transpose(1, 2).contiguous()
        y = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype, device=q.device)
        for head, sink in enumerate(self.sinks.to(q.dtype)):  # the logits of one head at a time
            logits = self.scaling * (q[:, head] @ k[:, head].transpose(-1, -2))
            if mask is not None:
                seen_by = mask.expand(len(q), 1, *logits.shape[1:])[:, 0]
                is_bool = mask.dtype == torch.bool
                logits = logits.masked_fill(~seen_by, -torch.inf) if is_bool else logits + seen_by
            all_logits = torch.cat([logits, sink.expand(*logits.shape[:2], 1)], dim=-1)
            y[:, head] = all_logits.softmax(-1)[..., :-1] @ v[:, head]
        return y.transpose(1, 2).contiguous()

    def inputs(self, name: str) -> Heads:
        """Return all heads as inputs; the arrays share the model's memory."""
        q, k, v = (x[0].detach().cpu().numpy() for x in (self.q, self.k, self.v))
        ids = tuple((self.layer, head, f"{self.layer}.{head}") for head in range(len(q)))
        sinks = None if self.sinks is None else self.sinks.detach().cpu().numpy()
        return Heads(name, q, k, v, self.scaling, self.shape.mask, sinks=sinks, ids=ids)

    @property
    def shape(self) -> Shape:
        """The shape of a head, which determines prices: n, l, d, c, the mask and the group."""
        (_, _, n, d), l = self.q.shape, self.k.shape[2]
        mask = looking_back(n, l, self.seen.window) if self.seen.causal else Mask.full(n, l)
        return Shape(n, l, d, self.v.shape[-1], mask, self.q.shape[1] // self.k.shape[1])


@functools.lru_cache(maxsize=8)
def looking_back(n: int, l: int, window: int) -> Mask:
    """Return the mask of the last n of l positions that see a window; 0 stands for all earlier."""
    return Mask.window(n, l, window) if window else Mask.causal(n, l)


Attention = Callable[[Call], Any]


class Hook:
    """Our attention in place of a model's own, with the masks of eager attention.

    It is there in a ``with`` block, or from `install` to `remove`.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    attention : callable
        Takes a `Call`, returns the outputs of all heads, (batch, n, heads, c).
    first : int
        The number of the first layer that is called.
    in_pieces : bool
        Whether layers may have keys of tokens that were read before.

    Raises
    ------
    ValueError
        Raised by the model's pass: a layer is not softmax(scaling q·k) v, or no layer attends
        through the AttentionInterface.
    """

    def __init__(
        self, model: Any, attention: Attention, *, first: int = 0, in_pieces: bool = False
    ) -> None:
        self.model, self.attention = weakref.ref(model), attention
        self.first, self.in_pieces = first, in_pieces
        self.name = f"expqk_{id(self)}"  # in the registries of transformers
        self.calls = 0  # calls in this pass
        self.known: list[tuple[Any, Seen]] = []  # masks of this pass

    def install(self) -> Self:
        """Let the model attend by our function until `remove`."""
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import eager_mask

        model = self.model()
        assert model is not None
        self.before = model.config._attn_implementation
        AttentionInterface.register(self.name, self)
        # Without this registration our function would get no causal or sliding mask.
        AttentionMaskInterface.register(self.name, eager_mask)
        model.set_attn_implementation(self.name)
        self.handles = [
            model.register_forward_pre_hook(self.enter, with_kwargs=True),
            model.register_forward_hook(self.leave),
        ]
        return self

    def remove(self, *_: object) -> None:
        """Restore the model's own attention."""
        from transformers import AttentionInterface, AttentionMaskInterface

        for handle in self.handles:
            handle.remove()
        if (model := self.model()) is not None:
            model.set_attn_implementation(self.before)
        for registry in (AttentionInterface, AttentionMaskInterface):
            registry._global_mapping.pop(self.name, None)  # there is no public way to unregister

    __enter__, __exit__ = install, remove

    def enter(self, model: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Begin a pass; a subclass may change the arguments of the model."""
        self.calls, self.known = 0, []
        return args, named

    def leave(self, model: Any, *_: Any) -> None:
        """End a pass; raise ValueError unless the model called our attention."""
        if not self.calls:
            raise unused(model)

    def __call__(
        self,
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
        """Return the outputs of a layer, in the format of transformers."""
        refuse(others, IN_CALL)
        layer = self.first + self.calls
        self.calls += 1
        factor = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
        index = getattr(module, "layer_idx", layer)
        call = Call(self, layer, index, query, key, value, factor, attention_mask, s_aux)
        return self.attention(call), None


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
