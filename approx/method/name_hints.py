"""Hints for names that are not methods here: which method is meant, or why there is none.

Short names for a spec, such as `performer`, are in `approx.ALIASES`.
"""

import re
from collections.abc import Sequence

from approx import checks

# plain name, see `plain` → a name in `approx.METHODS` or `approx.ALIASES`
MEANT = {
    "favor": "performer",
    "favorplus": "performer",
    "favorplusplus": "generalized_exponential",
    "favorsharp": "dense_exponential",
    "randomfeatures": "positive",
    "positiverandomfeatures": "positive",
    "randomfourierfeatures": "rff",
    "linearattention": "elu",
    "lineartransformer": "elu",
    "randomfeatureattention": "rfa",
    "lowrank": "truncated_svd",
    "svd": "truncated_svd",
    "pca": "key_pca",
    "nystroem": "nystrom",
    "attentionsink": "streaming_llm",
    "attentionsinks": "streaming_llm",
    "slidingwindowattention": "sliding_window",
    "localattention": "sliding_window",
    "swa": "sliding_window",
    "blockdiagonal": "chunk",
    "sparsetransformer": "strided",
    "heavyhitters": "h2o",
    "heavyhitteroracle": "h2o",
    "skewedattention": "sparq",
    "sparqattention": "sparq",
    "softmax": "exact",
    "softmaxattention": "exact",
    "fullattention": "exact",
    "attention": "exact",
    "gau": "flash",
    "drive": "eden",
}

_EXACT = (
    "{name} computes exact attention, faster or in less memory: it approximates nothing, so that "
    "its errors are those of exact()"
)
_TRAINED = (
    "{name} is trained with the model and does not approximate the attention of another one: what "
    "no state of m numbers can do for a trained head is `analysis.ranks.state_rank.lower_bound`"
)
_LEARNED = (
    "{name} learns with the model which keys are read, so that it has no meaning for a head that "
    "was trained without: quest and sparq choose keys without training"
)
_SHARED = (
    "{name} is how heads of a model share or compress their keys, not an approximation: a file may "
    "hold fewer heads of k than of q, and `analysis.costs.gqa_reads` has the prices of a group"
)
_POSITIONS = (
    "{name} says where a token stands, before the product q·k: capture keeps q and k after "
    "rotations, and refuses a bias of the logits"
)
NONE_HERE = {
    "FlashAttention": _EXACT,
    "FlashAttention-2": _EXACT,
    "FlashAttention-3": _EXACT,
    "PagedAttention": _EXACT,
    "RingAttention": _EXACT,
    "xFormers": _EXACT,
    "SDPA": _EXACT,
    "Mamba": _TRAINED,
    "RWKV": _TRAINED,
    "RetNet": _TRAINED,
    "S4": _TRAINED,
    "Hyena": _TRAINED,
    "DeltaNet": _TRAINED,
    "NSA": _LEARNED,
    "MoBA": _LEARNED,
    "Routing Transformer": _LEARNED,
    "Sinkhorn Transformer": _LEARNED,
    "MQA": _SHARED,
    "GQA": _SHARED,
    "MLA": _SHARED,
    "RoPE": _POSITIONS,
    "ALiBi": _POSITIONS,
    "Scissorhands": "{name} is not here: h2o keeps heavy hitters of the attention so far as well",
    "TOVA": "{name} is not here: it evicts by the attention of the last query, h2o by that of all",
    "PolarQuant": "{name} is not here: it rounds angles of pairs of rotated coordinates, "
    "turboquant the coordinates themselves",
    "RaBitQ": "{name} is not here: with 1 bit it is eden, with more bits eden with equal steps",
    "PyramidKV": "{name} is not here: snapkv chooses keys so, and plan a size for every head",
}
_OTHERS = {"flashattn": "FlashAttention", "vllm": "PagedAttention", "ssm": "Mamba"}


def plain(name: str) -> str:
    """Return a name in lower-case letters and digits only, so that spellings become equal.

    Examples
    --------
    >>> plain("Streaming-LLM") == plain("streaming_llm"), plain("FAVOR+")
    (True, 'favorplus')
    """
    text = name.lower().replace("+", "plus").replace("#", "sharp").replace("ö", "o")
    return re.sub(r"[^a-z0-9]", "", text)


def meant(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is meant by another spelling or a synonym; None if none is.

    Examples
    --------
    >>> meant("StreamingLLM", ["streaming_llm"]), meant("FAVOR+", ["performer"])
    ('streaming_llm', 'performer')
    """
    same = {plain(one): one for one in known}
    found = same.get(plain(name)) or MEANT.get(plain(name))
    return found if found in known else None


def why_none(name: str) -> str | None:
    """Return why a well-known name is not a method here; None if there is no such hint.

    Examples
    --------
    >>> why_none("flash_attention")
    'FlashAttention computes exact attention, faster or in less memory: it approximates nothing...
    """
    named = {plain(one): one for one in NONE_HERE} | _OTHERS
    one = named.get(plain(name))
    return None if one is None else NONE_HERE[one].format(name=one)


def unknown(name: str, known: Sequence[str], listed: str) -> str:
    """Return the message about an unknown name of a method, see `checks.unknown`."""
    if (reason := why_none(name)) is not None:
        return f"no method {checks.display(name)}: {reason}"
    return checks.unknown("method", name, known, listed, meant(name, known) or "")
