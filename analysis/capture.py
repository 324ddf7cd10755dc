"""Q, K, V of a real transformer: what its attention layers multiply when it reads a text.

transformers hands every attention layer a function of ours through its AttentionInterface. It gets
q and k after rotary embedding and norms, with the layer's own scaling, keeps them, and returns
softmax(scaling q·k) v, computed from what it kept, with which the model continues. The output of
the model must then equal that with its own attention, so that nothing is missing in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.files import replacing
from approx.checks import Array, integer, one_of

_FUNCTION = "expqk_capture"  # our name in the registries of transformers, for one forward pass
_HIDDEN = -1e4  # additive masks hide with −10⁴, the least float or −inf
_AGREEMENT = 1e-4  # of the largest output: above the rounding of float32 over many layers

_IN_CONFIG = {
    "is_encoder_decoder": "an encoder and a decoder",
    "attn_logit_softcapping": "a soft-cap on the logits",
    "alibi": "ALiBi",
    "relative_attention_num_buckets": "a relative position bias",
}
_IN_CALL = {
    "softcap": "a soft-cap on the logits",
    "s_aux": "attention sinks",
    "position_bias": "a relative position bias",
}


@dataclass(frozen=True, eq=False)
class Capture:
    """Q, K, V of one text, unscaled: logits are scaling q·k, of past keys only if causal.

    Parameters
    ----------
    q, k, v : ndarray
        (layers, heads, n, d), (layers, kv_heads, n, d), (layers, kv_heads, n, c). Head h attends to
        keys of head h // (heads // kv_heads).
    scaling : float
        The model's own, most often 1/√d.
    causal : bool
        Whether row i sees keys 0..i only.
    token_ids : ndarray
        (n,), int64.
    model : str
        Name of the model's folder.
    """

    q: Array
    k: Array
    v: Array
    scaling: float
    causal: bool
    token_ids: Array
    model: str = ""


def capture(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str],
    *,
    max_tokens: int = 512,
    dtype: str = "float32",
) -> Capture:
    """Return Q, K, V of every attention layer of a local model on the first tokens of a text file.

    Parameters
    ----------
    model_dir : path
        A folder in the format of Hugging Face: config.json, tokenizer, weights as safetensors.
        Nothing is looked up on the network, no code in the folder is run, and no pickle is read.
    text : path
        A UTF-8 file.
    max_tokens : int
        The text is cut after so many tokens, special ones included.
    dtype : {"float32", "float64"}
        The dtype of the model's arithmetic and of the arrays.

    Raises
    ------
    ImportError
        torch or transformers is missing.
    ValueError
        There is no model in the folder, there are more tokens than the model has positions, or its
        attention is not softmax(scaling q·k) v with one scaling, one shape and a full or a causal
        mask.

    Notes
    -----
    The model runs twice on the CPU, and n × n weights of one layer at a time are held. Layers are
    numbered in the order in which they are called.
    """
    folder = Path(model_dir)
    if not (folder / "config.json").is_file():
        raise ValueError(f"model_dir must be a local folder with a config.json, got {model_dir}")
    integer("max_tokens", max_tokens, least=2)
    one_of("dtype", dtype, ("float32", "float64"))
    words = _read(Path(text))
    _require()

    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    # Without trust_remote_code=False transformers asks at the terminal.
    local = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **local)
    _refuse(vars(config) | vars(config.get_text_config()), _IN_CONFIG)
    tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    token_ids = tokenizer(words, truncation=True, max_length=max_tokens)["input_ids"]
    _check_length(len(token_ids), tokenizer, config)
    model = AutoModel.from_pretrained(
        folder,
        attn_implementation="eager",
        dtype=getattr(torch, dtype),
        use_safetensors=True,
        **local,
    )
    return _forward(model, token_ids, name=folder.resolve().name)


def save(
    capture: Capture,
    path: str | os.PathLike[str],
    *,
    heads: Sequence[tuple[int, int]] | None = None,
) -> None:
    """Write a capture as .npz or .safetensors; the file appears whole, or not at all.

    Parameters
    ----------
    capture : Capture
    path : path
        Its ending chooses the format; missing folders are made.
    heads : sequence of (layer, head), optional
        The heads to keep, in this order: q, k, v are then (len(heads), n, d), with keys for each
        head, and the arrays `layers` and `heads` say where they come from.

    Raises
    ------
    ImportError
        The ending is .safetensors and the package safetensors is missing.
    ValueError
        The ending is unknown, or the capture does not have a layer or head.
    OSError
        The file cannot be written, or does not read back the same.
    """
    target = Path(path)
    write = _WRITERS[one_of("the ending of the file", target.suffix, tuple(_WRITERS))]
    arrays = _arrays(capture) if heads is None else _selected(capture, heads)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        write(temporary, arrays)


# The text and the model


def _require() -> None:
    """Raise ImportError with the install line unless torch and transformers are there."""
    try:
        import torch  # noqa: F401
        from transformers import AttentionInterface, AttentionMaskInterface  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "capture needs torch and transformers >= 4.56: pip install torch transformers"
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # editors on Windows write a mark first
    except UnicodeDecodeError:
        raise ValueError(f"text must be a UTF-8 file, got {path}") from None


def _refuse(properties: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Raise ValueError if there is a property that softmax(scaling q·k) v leaves out."""
    for name, reason in reasons.items():
        value = properties.get(name)
        if value is not None and value is not False:
            raise ValueError(f"the model has {reason} ({name}): Q, K, V cannot represent it")


def _check_length(n: int, tokenizer: Any, config: Any) -> None:
    """Raise ValueError unless 2 ≤ n ≤ the positions of the model."""
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    limit = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
    if not 2 <= n <= limit:
        raise ValueError(f"the text must give 2 to {limit} tokens, got {n}: change max_tokens")


# The forward pass


class _Layer(NamedTuple):
    """The arrays of one attention layer: q (1, heads, n, d), k and v (1, kv_heads, n, ·)."""

    q: Any
    k: Any
    v: Any
    scaling: float
    causal: bool


def _forward(model: Any, token_ids: Sequence[int], *, name: str = "") -> Capture:
    """Return the capture of one forward pass, checked against the model's own attention."""
    import torch

    model.eval()
    ids = torch.as_tensor(token_ids, dtype=torch.int64)[None]
    layers: list[_Layer] = []

    def attention(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        scaling: float | None = None,
        **others: Any,
    ) -> tuple[Any, Any]:
        _refuse(others, _IN_CALL)
        layers.append(_layer(query, key, value, attention_mask, scaling))
        return _attend(layers[-1])

    with torch.inference_mode():
        expected = model(input_ids=ids)[0]
        with _attention_function(model, attention):
            output = model(input_ids=ids)[0]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} does not call its attention through the AttentionInterface "
            "of transformers (models with ALiBi do not), so its Q, K, V cannot be taken"
        )
    error, size = (output - expected).abs().max().item(), expected.abs().max().item()
    if not error <= _AGREEMENT * size:  # also where it is NaN
        raise ValueError(
            f"the attention of {type(model).__name__} is not softmax(scaling q·k) v: "
            f"its output differs by {error:.2g} at a size of {size:.2g}"
        )
    return _assemble(layers, np.asarray(token_ids, dtype=np.int64), name)


@contextmanager
def _attention_function(model: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Let a model attend by `function`, with the masks that eager attention gets."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    before = model.config._attn_implementation
    AttentionInterface.register(_FUNCTION, function)
    # A function of unknown name gets no mask, so that a causal or a sliding one would go unseen.
    AttentionMaskInterface.register(_FUNCTION, eager_mask)
    try:
        model.set_attn_implementation(_FUNCTION)
        yield
    finally:
        model.set_attn_implementation(before)
        for registry in (AttentionInterface, AttentionMaskInterface):
            registry._global_mapping.pop(_FUNCTION, None)  # there is no public way back


def _layer(query: Any, key: Any, value: Any, mask: Any, scaling: float | None) -> _Layer:
    """Return copies of what a layer was given, with its mask as full or causal."""
    if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise ValueError(
            "an attention layer does not compare the text with itself: "
            f"queries {tuple(query.shape)}, keys {tuple(key.shape)}"
        )
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    # q and k are transposed views, so they are made contiguous; the model may reuse them: cloned.
    q, k, v = (x.detach().clone().contiguous() for x in (query, key, value))
    return _Layer(q, k, v, float(scaling), _is_causal(mask, query.shape[2]))


def _is_causal(mask: Any, n: int) -> bool:
    """Return True if a mask hides the future, False if nothing, and else raise ValueError."""
    import torch

    if mask is None:
        return False
    visible = mask if mask.dtype == torch.bool else mask == 0
    if mask.dtype != torch.bool and not (visible | (mask <= _HIDDEN)).all():
        raise ValueError(
            "the attention mask adds a bias to the logits, as ALiBi does: "
            "Q, K, V cannot represent it"
        )
    if visible.all():
        return False
    if (visible == torch.ones(n, n, dtype=torch.bool).tril()).all():
        return True
    raise ValueError(
        "the attention mask is neither full nor causal: if the model has a sliding window, "
        "let max_tokens be at most its width"
    )


def _attend(layer: _Layer) -> tuple[Any, Any]:
    """Return output (1, n, heads, c) and weights (1, heads, n, n), from the captured values."""
    import torch

    q, k, v, scaling, causal = layer
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    logits = (q @ k.transpose(2, 3)) * scaling
    if causal:
        past = torch.ones(logits.shape[2:], dtype=torch.bool).tril()
        logits = logits.masked_fill(~past, -torch.inf)
    weights = logits.softmax(dim=-1)
    return (weights @ v).transpose(1, 2).contiguous(), weights


def _same(what: str, values: Sequence[Hashable]) -> None:
    """Raise ValueError unless all layers have one value."""
    kinds = list(dict.fromkeys(values))
    if len(kinds) > 1:
        raise ValueError(
            f"attention layers differ in {what}, which one file cannot hold: "
            f"{' and '.join(map(str, kinds))}"
        )


def _assemble(layers: Sequence[_Layer], token_ids: Array, name: str) -> Capture:
    """Return the layers as one capture; raise ValueError if they differ in what it holds once."""
    shapes = [tuple(tuple(x.shape[1:]) for x in layer[:3]) for layer in layers]
    _same("the shapes of q, k, v", shapes)
    _same("scaling", [layer.scaling for layer in layers])
    _same("causality", [layer.causal for layer in layers])
    q, k, v = (np.stack([x[0].numpy() for x in column]) for column in zip(*(y[:3] for y in layers)))
    return Capture(q, k, v, layers[0].scaling, layers[0].causal, token_ids, name)


# The file


def _arrays(capture: Capture) -> dict[str, Array]:
    """Return the arrays of a file, as C-contiguous copies."""
    values = {
        "q": capture.q,
        "k": capture.k,
        "v": capture.v,
        "scaling": np.float64(capture.scaling),
        "causal": np.bool_(capture.causal),
        "token_ids": capture.token_ids,
    }
    return {name: np.array(value, order="C") for name, value in values.items()}


def _selected(capture: Capture, heads: Sequence[tuple[int, int]]) -> dict[str, Array]:
    """Return the arrays of a file with these (layer, head) only, and with keys for each head."""
    if not heads:
        raise ValueError("heads must name at least one (layer, head)")
    n_layers, n_heads = capture.q.shape[:2]
    layer = np.array([integer("layer", i, least=0, most=n_layers - 1) for i, _ in heads])
    head = np.array([integer("head", j, least=0, most=n_heads - 1) for _, j in heads])
    kv_head = head // (n_heads // capture.k.shape[1])
    chosen = {
        "q": capture.q[layer, head],
        "k": capture.k[layer, kv_head],
        "v": capture.v[layer, kv_head],
        "layers": layer,
        "heads": head,
    }
    return _arrays(capture) | {name: np.array(value, order="C") for name, value in chosen.items()}


def _write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    with path.open("wb") as file:  # np.savez would append .npz to a name
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _write_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file, save_file
    except ImportError as error:
        raise ImportError(
            "a .safetensors file needs safetensors: pip install safetensors"
        ) from error
    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    written = load_file(path)  # safetensors 0.8.0 scrambles arrays that are not C-contiguous
    if any(not np.array_equal(written[name], value) for name, value in arrays.items()):
        raise OSError(
            f"{path.name} does not read back as it was written: use another format or disk"
        )


_WRITERS = {".npz": _write_npz, ".safetensors": _write_safetensors}
