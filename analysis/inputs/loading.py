"""Heads from files, and the bundled heads of real models."""

import dataclasses
import math
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from analysis.inputs import array_files
from analysis.inputs.heads import Head, Heads
from analysis.sentences import one_line
from approx import Mask, checks
from approx.checks import Array
from approx.estimate import memory

Ids = tuple[tuple[int, int, str], ...]

LONGEST = 40  # characters of the name of a file in titles: two titles fit side by side

SAMPLES = {  # the bundled files, with the names of the model and of its heads
    "minilm": ("MiniLM", ("easy", "middling", "hard")),
    "smollm2": ("SmolLM2", ("sink", "local", "broad", "retrieval")),
}


def load(
    path: str | Path, layer: int | None = None, head: int | None = None, *, dtype: str = "float64"
) -> Head | Heads:
    """Read Q, K and optionally V from a file or a folder; return `Heads`, or one `Head`.

    Parameters
    ----------
    path : str or Path
        A folder with q.npy, k.npy[, v.npy] (memory-mapped), an .npz or a .safetensors file. The
        arrays q, k[, v] are unscaled, of shape (n, d), (heads, n, d) or (layers, heads, n, d). Keys
        of grouped queries stay shared. Optional arrays: ``scaling``; ``causal`` (0 or 1; the n
        queries are the last of l positions); ``window``, the number of keys that a query of a
        sliding-window layer sees (one for all, or one per layer or head; 0 for no window), or
        ``first`` and ``stop`` (n,), with keys first ≤ j < stop for a query of any head; ``sinks``,
        the logits of attention sinks at t = 1 (one for all, or one per head); ``layers``
        and ``heads``, the original indices of (heads, n, d). The heads get the name of the file; a
        long name is shortened in the middle, and unprintable characters become blanks.
    layer, head : int, optional
        The single head to read; for a file with one layer, ``head`` alone is enough.
    dtype : {"float64", "float32"}
        float16 and bfloat16 are upcast.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    InputFileError
        The file is not of these formats, or its arrays do not fit together.
    ResourceLimitError
        The file would not fit into memory. It is raised before the file is read.

    Warns
    -----
    InputFileWarning
        There are more heads than queries and keys, as if the shape were (n, heads, d); or heads
        seem to stand side by side; or the last keys are 0. The file is read unchanged.
    """
    path = Path(path)
    path = path if path.name else path.absolute()  # "." has no name
    checks.one_of("dtype", dtype, ("float64", "float32"))
    arrays = array_files.read(path)
    q, k, v = arrays["q"], arrays["k"], arrays.get("v")
    name = one_line(path.name if path.is_dir() else path.stem, LONGEST)
    scaling = None if "scaling" not in arrays else float(arrays["scaling"].item())
    mask = _mask(arrays, q.shape, k.shape[-2])
    sinks = arrays.get("sinks")
    if sinks is not None:
        sinks = sinks.reshape(() if sinks.size == 1 else sinks.shape).astype(np.float64)
        sinks = np.broadcast_to(sinks, q.shape[:-2]).reshape(-1)
    whole: Head | Heads
    if q.ndim == 2:
        ids: Ids = ()
        whole = Head(name, q, k, v, scaling, mask, sinks=None if sinks is None else sinks[0])
    else:
        ids = _ids(arrays, q.shape)
        q, k = q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:])
        v = None if v is None else v.reshape(-1, *v.shape[-2:])
        whole = Heads(name, q, k, v, scaling, mask, sinks=sinks, ids=ids)
    layers = {layer for layer, _, _ in ids}
    if (layer is None) != (head is None) and (head is None or len(layers) > 1):
        raise ValueError("give both layer and head, or head alone for a file of one layer")
    if head is not None:
        whole = whole.at(min(layers, default=0) if layer is None else layer, head)
    parts = [x for x in (whole.q, whole.k, whole.v) if x is not None]
    wide = np.dtype(dtype)  # another dtype needs a copy; the check for NaN needs booleans
    of_head = [x[0] if isinstance(whole, Heads) else x for x in parts]
    size = sum(x.size * (1 + wide.itemsize * (x.dtype != wide)) for x in of_head)
    memory.reserve(size, path.name, "the number of tokens in it")
    for letter, every in zip("qkv", parts):
        for one in every if isinstance(whole, Heads) else [every]:
            checks.array(letter, one)
    if isinstance(whole, Heads):
        return dataclasses.replace(whole, dtype=dtype)
    return dataclasses.replace(
        whole,
        q=whole.q.astype(dtype, copy=False),
        k=whole.k.astype(dtype, copy=False),
        v=None if whole.v is None else whole.v.astype(dtype, copy=False),
    )


def _ids(arrays: dict[str, Array], shape: tuple[int, ...]) -> Ids:
    if "layers" in arrays and "heads" in arrays:
        indices = zip(arrays["layers"].ravel().tolist(), arrays["heads"].ravel().tolist())
        return tuple((layer, head, f"{layer}.{head}") for layer, head in indices)
    layers, heads = (1, *shape)[-4:-2]
    return tuple((a, b, f"{a}.{b}") for a in range(layers) for b in range(heads))


def _mask(arrays: dict[str, Array], shape: tuple[int, ...], l: int) -> Any:
    """Return the mask of a file, or a tuple with the mask of each head."""
    n = shape[-2]
    if "stop" in arrays:
        return Mask(arrays.get("first", np.zeros(n, np.intp)), arrays["stop"], l)
    if "causal" not in arrays or not arrays["causal"].item():
        return None
    widths = arrays["window"].ravel().tolist() if "window" in arrays else [0]
    every = [Mask.window(n, l, width) if width else Mask.causal(n, l) for width in widths]
    if len(every) == 1:
        return every[0]
    heads = math.prod(shape[:-2]) // len(every)  # heads of a layer, or 1
    return tuple(mask for mask in every for _ in range(heads))


def sample(name: str = "minilm", *, dtype: str = "float64") -> Heads:
    """Return the bundled Q, K, V of a real model: heads of an encoder, or of a language model.

    analysis/data/README.md describes their origin.

    Parameters
    ----------
    name : {"minilm", "smollm2"}
        all-MiniLM-L6-v2: an easy, a middling and a hard head, which see all keys. SmolLM2-135M: a
        sink head, a local, a broad and a retrieval head, which are causal.
    dtype : {"float64", "float32"}

    Examples
    --------
    >>> [x.name for x in sample().heads()]
    ['MiniLM easy', 'MiniLM middling', 'MiniLM hard']
    >>> [x.name for x in sample("smollm2").heads()]
    ['SmolLM2 sink', 'SmolLM2 local', 'SmolLM2 broad', 'SmolLM2 retrieval']
    """
    title, labels = SAMPLES[checks.one_of("name", name, tuple(SAMPLES))]
    with resources.as_file(resources.files("analysis") / "data" / f"{name}.npz") as path:
        loaded = load(path, dtype=dtype)
    assert isinstance(loaded, Heads)
    ids = tuple((layer, head, label) for (layer, head, _), label in zip(loaded.ids, labels))
    return dataclasses.replace(loaded, name=title, ids=ids)
