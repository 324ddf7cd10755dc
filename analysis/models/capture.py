"""Capture of Q, K, V: the arrays that a transformer's attention layers use when it reads a text.

`analysis.models.attention_hook` lets every attention layer call our function. It stores q, k and v
and returns softmax(scaling q·k) v under the layer's mask, so that the model continues. On request
the model runs again with its own attention. Equal outputs then show that the file contains
everything.
"""

import errno
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.models import checkpoints
from analysis.models.attention_hook import Attention, Call, Hook, cache_name
from analysis.models.checkpoints import Place
from analysis.runs.output_files import replacing
from approx.checks import Array, flag, integer, one_of

_AGREEMENT = 1e-4  # largest relative difference: above the rounding of float32 over many layers
PIECE = 1024  # tokens per piece if only the last queries are stored
DTYPES = ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Capture:
    """Q, K, V of one text, unscaled: logits are scaling q·k.

    Parameters
    ----------
    q, k, v : ndarray
        (layers, heads, n, d), (layers, kv_heads, l, d), (layers, kv_heads, l, c). Head h attends to
        keys of head h // (heads // kv_heads). l is the number of tokens; the queries are those of
        the last n tokens.
    scaling : float
        The model's own scaling, most often 1/√d.
    causal : bool
        Whether later keys are hidden: row i sees keys up to i + l − n only.
    token_ids : ndarray
        The ids of all tokens that were read, int64.
    model : str
        Name of the model's folder, or of its GGUF file.
    layers : tuple of int
        The model's number of each layer, from 0; empty if the capture has all layers.
    windows : tuple of int
        The window w of each layer, the query's own key included: row i sees keys j with
        i − w < j ≤ i. 0 stands for no window; empty if no layer has a window.
    tokens : int or None
        The number of tokens of the whole text; None if a long text was not read to its end.
    sinks : ndarray or None
        The logits of attention sinks, (layers, heads), if the model has them.
    """

    q: Array
    k: Array
    v: Array
    scaling: float
    causal: bool
    token_ids: Array
    model: str = ""
    layers: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    tokens: int | None = 0
    sinks: Array | None = None


def capture(
    model_dir: str | os.PathLike[str],
    text: str | os.PathLike[str],
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
    max_tokens: int = 512,
    queries: int | None = None,
    dtype: str = "float16",
    device: str = "cpu",
    check: bool = False,
) -> Capture:
    """Return Q, K, V of the attention layers of a local model on the first tokens of a text file.

    Parameters
    ----------
    model_dir : path
        A folder in the format of Hugging Face (config.json, tokenizer, weights as safetensors), a
        GGUF file, or a folder with one. Nothing is looked up on the network, no code in the folder
        is run, and no pickle is read.
    text : path
        A UTF-8 file.
    layers : sequence of int, optional
        The layers to store, numbered from 0 in the order of their calls; by default all. The other
        layers may have properties that Q, K, V cannot represent.
    heads : sequence of (layer, head), optional
        The heads for `save`, instead of ``layers``: the layers of these heads are captured, and a
        head that does not exist is refused before the model runs.
    max_tokens : int
        The largest number of tokens, special tokens included; the rest of the text is cut.
    queries : int, optional
        The number of last tokens whose queries are stored; by default all. All keys are stored. The
        model then reads a text of more than 1024 tokens in pieces, so that no array has n·l
        entries.
    dtype : {"float16", "float32", "float64"}
        The dtype of the arrays. The model computes in float64 for float64, otherwise in float32.
    device : str
        The device of torch on which the model computes, such as "cuda" or "mps".
    check : bool
        Whether to run the model again with its own attention and compare the outputs.

    Raises
    ------
    ImportError
        torch, transformers or, for a GGUF file, gguf or accelerate is missing.
    ValueError
        There is no model, the text has more tokens than the model has positions, torch cannot
        compute on the device, a value is too large for the dtype, or the attention is not
        softmax(scaling q·k) v with one scaling, one shape and a full mask, a causal mask or causal
        windows.

    Notes
    -----
    The model runs once. By default it computes on the CPU also where torch has another device, so
    that a file does not depend on the machine's devices.
    """
    integer("max_tokens", max_tokens, least=2)
    one_of("dtype", dtype, DTYPES)
    flag("check", check)
    if queries is not None:
        integer("queries", queries, least=1, most=max_tokens)
    if heads is not None:
        if layers is not None:
            raise ValueError("layers follow from heads: leave them out")
        layers = [layer for layer, _ in heads]
    kept = None if layers is None else _in_order(layers)
    [words] = checkpoints.texts(model_dir, text)
    place = Place.from_path(model_dir)
    place.require("capture")

    import torch
    from transformers import AutoModel

    precise = torch.float64 if dtype == "float64" else torch.float32
    where = checkpoints.usable_device(device, precise)
    with checkpoints.parsed_once():
        config = place.config()
        facts = config.get_text_config()
        for layer in kept or ():
            integer(
                "layer", layer, least=0, most=getattr(facts, "num_hidden_layers", layer + 1) - 1
            )
        for _, head in heads or ():
            count = getattr(facts, "num_attention_heads", head + 1)
            integer("head", head, least=0, most=count - 1)
        tokenizer = place.tokenizer()
        token_ids = checkpoints.token_ids(words, tokenizer, config, max_tokens)
        size = _numbers(facts, len(kept or ()), queries or len(token_ids), len(token_ids))
        beside = 2 * size * np.dtype(dtype).itemsize  # the layers one by one, then all in one array
        model = place.weights(AutoModel, config, precise, beside).to(where)
    tokens: int | None = len(token_ids)
    if tokens == max_tokens:
        short = len(words) <= checkpoints.WHOLE
        tokens = len(tokenizer(words, verbose=False)["input_ids"]) if short else None
    return _forward(
        model, token_ids, kept, queries=queries, name=place.name, tokens=tokens, dtype=dtype,
        check=check,
    )  # fmt: skip


def save(
    capture: Capture,
    path: str | os.PathLike[str],
    *,
    heads: Sequence[tuple[int, int]] | None = None,
) -> None:
    """Write a capture as .npz or .safetensors, uncompressed and atomically.

    Parameters
    ----------
    capture : Capture
    path : path
        Its ending determines the format; missing folders are made.
    heads : sequence of (layer, head), optional
        The heads to store, in this order: q is then (len(heads), n, d), and the arrays `layers` and
        `heads` name their origin. k and v hold one head for every g heads of q, where g is the
        greatest common divisor of the lengths of the runs of heads that share their keys.

    Raises
    ------
    ImportError
        The ending is .safetensors and the package safetensors is missing.
    ValueError
        The ending is unknown, or the capture lacks a layer or head.
    OSError
        The file cannot be written, or its content differs when read back.
    """
    target = Path(path)
    write = _WRITERS[one_of("the ending of the file", target.suffix, tuple(_WRITERS))]
    arrays = _arrays(capture) if heads is None else _selected(capture, heads)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        write(temporary, arrays)


# The text and the model


def _numbers(facts: Any, layers: int, n: int, l: int) -> int:
    """Return the number of entries of q, k and v, as far as a configuration tells it."""
    heads = getattr(facts, "num_attention_heads", 0)
    groups = getattr(facts, "num_key_value_heads", None) or heads
    d = getattr(facts, "head_dim", None) or getattr(facts, "hidden_size", 0) // max(heads, 1)
    return (layers or getattr(facts, "num_hidden_layers", 0)) * d * (heads * n + 2 * groups * l)


def _in_order(layers: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of layers without repetition, in the order of their calls."""
    if not layers:
        raise ValueError("layers must name at least one layer")
    return tuple(sorted({integer("layer", layer, least=0) for layer in layers}))


# The forward pass


class _Layer(NamedTuple):
    """The arrays of one attention layer: q (heads, n, d), k and v (kv_heads, l, ·)."""

    q: Array
    k: Array
    v: Array
    scaling: float
    causal: bool
    window: int
    sinks: Array | None


def _forward(
    model: Any,
    token_ids: Sequence[int],
    kept: tuple[int, ...] | None = None,
    *,
    queries: int | None = None,
    name: str = "",
    tokens: int | None = 0,
    dtype: str = "float32",
    check: bool = False,
) -> Capture:
    """Return the capture of one forward pass; `check` also runs the model's own attention."""
    import torch

    model.eval()
    model.config.get_text_config().use_cache = False  # a cache would store every key twice
    ids = torch.as_tensor(token_ids, dtype=torch.int64, device=model.device)[None]
    pieces = _pieces(len(token_ids), queries)
    layers: dict[int, _Layer] = {}
    calls = 0

    def attention(call: Call) -> Any:
        nonlocal calls
        number, calls = call.layer, call.layer + 1
        if len(pieces) > 1 and not call.seen.causal:
            raise ValueError(
                f"layer {number} is not causal, so that the text cannot be read in pieces: leave "
                f"out queries, or lower max_tokens to {PIECE}"
            )
        if (kept is None or number in kept) and call.k.shape[2] >= len(token_ids):
            last = slice(-queries if queries else None, None)
            some = call.q[:, :, last], call.k, call.v
            q, k, v = (_array(x, dtype, number) for x in some)
            sinks = None if call.sinks is None else _array(call.sinks[None], "float64", number)
            about = call.scaling, call.seen.causal, call.seen.window, sinks
            layers[number] = _Layer(q, k, v, *about)
            _fit(next(iter(layers.values())), layers[number])
        return call.output()

    with torch.inference_mode():
        output = _read(model, ids, pieces, attention)
        if kept is not None and kept[-1] >= calls:
            raise ValueError(f"the model has layers 0 to {calls - 1}, got {kept[-1]}")
        if check:
            _agree(type(model).__name__, output, _read(model, ids, pieces))
    return _assemble(layers, kept is not None, np.asarray(token_ids, np.int64), name, tokens)


def _pieces(tokens: int, queries: int | None) -> list[slice]:
    """Return the pieces in which a text is read, one after the other; the last has the queries.

    Examples
    --------
    >>> [(piece.start, piece.stop) for piece in _pieces(2100, 64)]
    [(0, 1024), (1024, 2036), (2036, 2100)]
    """
    if queries is None or tokens <= max(PIECE, queries):
        return [slice(0, tokens)]
    ends = [*range(PIECE, tokens - queries, PIECE), tokens - queries, tokens]
    return [slice(*ends) for ends in itertools.pairwise(sorted({0, *ends}))]


def _read(model: Any, ids: Any, pieces: Sequence[slice], attention: Attention | None = None) -> Any:
    """Return a model's output for the last piece, with our attention or its own."""
    from transformers import DynamicCache

    # without a config every layer keeps all keys, even if the model has windows
    cache = {cache_name(model): DynamicCache(), "use_cache": True}
    past = cache if len(pieces) > 1 else {}
    with Hook(model, attention, in_pieces=bool(past)) if attention else nullcontext():
        for piece in pieces:
            output = model(input_ids=ids[:, piece], **past)[0]
    return output


def _agree(name: str, output: Any, expected: Any) -> None:
    """Raise ValueError unless two outputs of a model are equal up to rounding."""
    error, size = (output - expected).abs().max().item(), expected.abs().max().item()
    if not error <= _AGREEMENT * size:  # true for NaN, too
        raise ValueError(
            f"the attention of {name} is not softmax(scaling q·k) v: "
            f"its output differs by {error:.2g} at a size of {size:.2g}"
        )


def _array(x: Any, dtype: str, number: int) -> Array:
    """Return a contiguous copy of a tensor (1, heads, n, d): the model may reuse its memory."""
    with np.errstate(over="ignore"):
        array = np.array(x[0].detach().cpu().numpy(), dtype, order="C")
    if not np.isfinite(array).all():
        raise ValueError(
            f"layer {number} has values beyond {dtype}, up to {x.abs().max().item():.3g}: "
            "choose another dtype"
        )
    return array


def _fit(first: _Layer, layer: _Layer) -> None:
    """Raise ValueError if two layers differ in a property that a file stores only once."""
    shapes = (tuple(array.shape for array in x[:3]) for x in (first, layer))
    for what, known, found in (
        ("the shapes of q, k, v", *shapes),
        ("scaling", first.scaling, layer.scaling),
        ("causality", first.causal, layer.causal),
        ("attention sinks", first.sinks is not None, layer.sinks is not None),
    ):
        if known != found:
            raise ValueError(
                f"attention layers differ in {what}, which one file cannot hold: "
                f"{known} and {found}; choose layers that agree"
            )


def _assemble(
    layers: Mapping[int, _Layer], some: bool, token_ids: Array, name: str, tokens: int | None
) -> Capture:
    first = next(iter(layers.values()))
    q, k, v = (np.stack(column) for column in zip(*(layer[:3] for layer in layers.values())))
    windows = tuple(layer.window for layer in layers.values())
    sinks = [layer.sinks for layer in layers.values() if layer.sinks is not None]
    return Capture(
        q,
        k,
        v,
        scaling=first.scaling,
        causal=first.causal,
        token_ids=token_ids,
        model=name,
        layers=tuple(layers) if some else (),
        windows=windows if any(windows) else (),
        tokens=tokens,
        sinks=np.stack(sinks) if sinks else None,
    )


# The file


def _arrays(capture: Capture) -> dict[str, Array]:
    arrays = {"q": capture.q, "k": capture.k, "v": capture.v} | _facts(capture, capture.windows)
    if capture.sinks is not None:
        arrays["sinks"] = capture.sinks
    if capture.layers:
        heads = np.arange(capture.q.shape[1])
        arrays["layers"] = np.repeat(capture.layers, heads.size)
        arrays["heads"] = np.tile(heads, len(capture.layers))
    return _contiguous(arrays)


def _facts(capture: Capture, windows: Sequence[int]) -> dict[str, Array]:
    """Return the other arrays of a file; `windows` has one entry per row of q, or is empty."""
    facts = {
        "scaling": np.array(capture.scaling, np.float64),
        "causal": np.array(capture.causal, np.bool_),
        "token_ids": capture.token_ids,
    }
    if any(windows):
        same = len(set(windows)) == 1
        facts["window"] = np.array(windows[0] if same else windows, np.int64)
    return facts


def _selected(capture: Capture, heads: Sequence[tuple[int, int]]) -> dict[str, Array]:
    """Return the arrays of a file with these (layer, head) only."""
    if not heads:
        raise ValueError("heads must name at least one (layer, head)")
    n_layers, n_heads = capture.q.shape[:2]
    known = capture.layers or tuple(range(n_layers))
    for number, _ in heads:
        if integer("layer", number, least=known[0], most=known[-1]) not in known:
            raise ValueError(f"layer must be one of those captured, {known}, got {number}")
    row = np.array([known.index(number) for number, _ in heads])
    head = np.array([integer("head", j, least=0, most=n_heads - 1) for _, j in heads])
    source = np.stack([row, head // (n_heads // capture.k.shape[1])])
    # Keys are stored once for as many heads as divide the length of every run that shares them.
    change = np.flatnonzero(np.any(np.diff(source), axis=0)) + 1
    runs = np.diff(np.concatenate([[0], change, [len(heads)]]))
    length = int(np.gcd.reduce(runs))
    sharing = tuple(source[:, ::length])
    chosen = {
        "q": capture.q[row, head],
        "k": capture.k[sharing],
        "v": capture.v[sharing],
        "layers": np.array([number for number, _ in heads]),
        "heads": head,
    }
    if capture.sinks is not None:
        chosen["sinks"] = capture.sinks[row, head]
    windows = [capture.windows[i] for i in row] if capture.windows else []
    return _contiguous(chosen | _facts(capture, windows))


def _contiguous(arrays: Mapping[str, Array]) -> dict[str, Array]:
    # ascontiguousarray would make a scalar one-dimensional
    return {name: np.asarray(value, order="C") for name, value in arrays.items()}


def _write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    with path.open("wb") as file:  # np.savez would append .npz to a name
        np.savez(file, allow_pickle=False, **arrays)


def _write_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file, save_file
    except ImportError as error:
        raise ImportError(
            "a .safetensors file needs safetensors: pip install -e '.[qk]'"
        ) from error
    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from error
    written = load_file(path)  # safetensors 0.8.0 scrambles arrays that are not C-contiguous
    if any(not np.array_equal(written[name], value) for name, value in arrays.items()):
        raise OSError(errno.EIO, "does not read back as it was written: use another format or disk")


_WRITERS = {".npz": _write_npz, ".safetensors": _write_safetensors}
