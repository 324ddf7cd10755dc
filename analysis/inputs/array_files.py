"""Arrays read from .npy folders, .npz and .safetensors: without pickle, sizes checked first."""

import difflib
import json
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from analysis.sentences import one_line
from approx import checks
from approx.checks import Array
from approx.estimate import memory
from approx.estimate.masks import Mask

# The arrays that are read from a file; arrays with other names are not read.
AXES = {  # a file of one head lacks the first two, a file of one layer the first
    "q": ("number of layers", "heads of q", "length of q", "width"),
    "k": ("number of layers", "heads of k", "length", "width"),
    "v": ("number of layers", "heads of v", "length", "columns"),
}
VALUES: dict[str, tuple[str, Callable[[float], bool]]] = {  # one value for all heads
    "scaling": ("finite and > 0", lambda x: 0 < x < math.inf),
    "causal": ("0 or 1", lambda x: x in (0, 1)),
}
USUAL = {  # other names of the arrays, as a word in a longer name
    "q": ("query", "queries", "q"),
    "k": ("key", "keys", "k"),
    "v": ("value", "values", "v"),
}
INDICES = ("layers", "heads")  # original indices: one integer per head
MASKS = ("window", "first", "stop")
NAMES = (*AXES, *VALUES, *INDICES, *MASKS, "sinks")
PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")
RECIPE = (
    "it may run code when read. Convert it where you trust it: "
    "x = torch.load(path, weights_only=True); "
    "numpy.savez('qk.npz', q=x['q'].float().numpy(), k=x['k'].float().numpy())"
)
LIKEWISE = ", and k and v likewise"
SHAPED = f"save q.reshape(heads, n, d){LIKEWISE}"
SIDE_BY_SIDE = (
    "if heads of width d stand side by side, "
    f"save q.reshape(*q.shape[:-1], -1, d).swapaxes(-3, -2){LIKEWISE}"
)
BFLOAT16 = (
    f"as bits of bfloat16 have: save (q.view('u2').astype('u4') << 16).view('f4'){LIKEWISE}, "
    "or q.astype('f4') if they are integers"
)
FUSED = (  # GPT-NeoX and BLOOM store the first, as query_key_value
    ("of each head stand together", "qkv.reshape(n, heads, 3, d)[:, :, 0].swapaxes(0, 1)"),
    (
        "(`groups` heads of k) stand side by side",
        "numpy.split(qkv, [heads * d, (heads + groups) * d], -1)[0]",
    ),
)
CAPTURED = "`expqk capture MODEL_DIR TEXT --out qk.npz` writes the q and k of one"
WIDEST = 256  # heads of usual models are not wider
MOST_NAMED = 6  # array names in the message about a file without q or k


class InputFileError(ValueError):
    """The file has no valid queries and keys; the message says which rule it breaks."""


class InputFileWarning(UserWarning):
    """A file may hold something else than its names or axes say."""


def read(path: Path) -> dict[str, Array]:
    """Return the arrays of a file with names in `NAMES`, upper or lower case, if they fit together.

    Raises
    ------
    FileNotFoundError, InputFileError, ResourceLimitError

    Warns
    -----
    InputFileWarning
        Shown at the caller of `analysis.inputs.load`.
    """
    arrays = _arrays(path)
    for broken in _broken_rules(arrays):
        raise InputFileError(f"{path.name}: {broken}")
    for doubt in filter(None, (_transposed(arrays), _flat(arrays), _padding(arrays))):
        warnings.warn(f"{path.name}: {doubt}", InputFileWarning, stacklevel=3)
    return arrays


def _flat(arrays: dict[str, Array]) -> str:
    """Return how to part heads that may stand side by side, or ""."""
    q = arrays["q"]
    if q.ndim == 4 or q.shape[-1] <= WIDEST or not {*INDICES}.isdisjoint(arrays):
        return ""
    return f"q {q.shape} is read as heads of width {q.shape[-1]}; {SIDE_BY_SIDE}"


def _padding(arrays: dict[str, Array]) -> str:
    """Return how to cut keys that are 0 up to the end, as in the unused tail of a buffer, or ""."""
    k, l = arrays["k"], arrays["k"].shape[-2]
    if "stop" in arrays or k[..., -1, :].any(axis=-1).all():
        return ""
    every = k.any(axis=-1).reshape(-1, l)
    used = [int(np.flatnonzero(one)[-1]) + 1 for one in every if one.any() and not one[-1]]
    if not used:
        return ""
    names = "q, k and v" if arrays["q"].shape[-2] == l else "k and v"
    return (
        f"the last {checks.counted(l - max(used), 'key')} of {l} are 0 in {len(used)} of "
        f"{len(every)} heads; if this is padding, save their {names} as [..., :{max(used)}, :]"
    )


def _transposed(arrays: dict[str, Array]) -> str:
    """Return how to transpose arrays with more heads than tokens, or "".

    If another array gives the number of heads or tokens, there is no doubt.
    """
    q, k = arrays["q"], arrays["k"]
    if q.ndim == 2 or not {*INDICES, "stop"}.isdisjoint(arrays):
        return ""
    *layers, heads, n, _ = q.shape
    if heads <= max(n, k.shape[-2]):
        return ""
    order = (1, 0, 2) if q.ndim == 3 else (0, 2, 1, 3)
    layered = f"{checks.counted(layers[0], 'layer')} of " if layers else ""
    return (
        f"q {q.shape} is read as {layered}{heads} heads of {n} queries; if it is "
        f"{checks.counted(n, 'head')} of {heads} queries, save q.transpose{order}{LIKEWISE}"
    )


def _broken_rules(arrays: dict[str, Array]) -> Iterator[str]:
    """Yield the broken rules of `AXES`, `VALUES`, `INDICES`; the first may cause the later ones."""
    tensors = {name: arrays[name] for name in AXES if name in arrays}
    got = "got " + ", ".join(f"{name} {x.shape}" for name, x in tensors.items())
    if (ndims := {x.ndim for x in tensors.values()}) not in ({2}, {3}, {4}):
        how = f": {SHAPED}" if 1 in ndims else ""
        yield f"arrays must all be 2-, 3- or 4-dimensional, {got}{how}"
    if any(0 in x.shape for x in tensors.values()):
        yield f"arrays must not be empty, {got}"
    sizes: dict[str, tuple[str, int]] = {}
    for name, x in tensors.items():
        for axis, size in zip(AXES[name][-x.ndim :], x.shape):
            first, same = sizes.setdefault(axis, (name, size))
            if size != same:
                flat = axis == "width" and max(sizes[axis][1], size) > WIDEST
                yield f"{first} and {name} must have one {axis}, {got}" + f"; {SIDE_BY_SIDE}" * flat
    q = tensors["q"]
    for name, x in tensors.items():
        if x.ndim > 2 and q.shape[-3] % x.shape[-3]:
            yield f"the heads of q must be a multiple of those of {name}, {got}"
    for name, (rule, holds) in VALUES.items():
        if name in arrays and arrays[name].size != 1:
            yield f"{name} must be one value for all heads, got shape {arrays[name].shape}"
        if name in arrays and not holds(value := arrays[name].item()):
            yield f"{name} must be {rule}, got {value}"
    yield from _broken_masks(arrays, q.shape, arrays["k"].shape[-2])
    if "sinks" in arrays:
        sinks, heads = arrays["sinks"], q.shape[:-2]
        if sinks.shape not in ((), (1,) * sinks.ndim, heads, heads[1:]):
            yield f"sinks must be one logit, or one per head, {heads}, got shape {sinks.shape}"
        if not np.isfinite(sinks).all():
            yield "sinks must be finite: leave them out where there is none"
    indices = [arrays[name].ravel() for name in INDICES if name in arrays]
    if q.ndim > 2 and len(indices) == len(INDICES):
        if any(x.dtype.kind not in "iu" or (x.size and x.min() < 0) for x in indices):
            yield "layers and heads must be integers >= 0"
        count = math.prod(q.shape[:-2])
        if any(x.size != count for x in indices):
            yield f"layers and heads must have one index for each of {count} heads"
        if len(set(zip(*(x.tolist() for x in indices)))) < count:
            yield "layers and heads must not name a head twice"


def _broken_masks(arrays: dict[str, Array], shape: tuple[int, ...], l: int) -> Iterator[str]:
    """Yield the broken rules of causal, window, first and stop, for the shape of q."""
    n = shape[-2]
    causal = "causal" in arrays and bool(arrays["causal"].item())
    for name in MASKS:
        if name in arrays and arrays[name].dtype.kind not in "iu":
            yield f"{name} must hold integers, got dtype {arrays[name].dtype}"
    if causal and n > l:
        yield f"causal queries are the last n of l positions, so n must be <= l, got {n} and {l}"
    if "window" in arrays:
        widths = arrays["window"].ravel()
        layers, heads = (1, 1, *shape)[-4:-2]
        if not causal:
            yield "window is the keys that a causal query sees: it needs causal = 1"
        if widths.size not in {1, layers, layers * heads}:
            yield (
                f"window must be one width, or one per layer or head ({layers} layers of {heads} "
                f"heads), got {widths.size}"
            )
        if widths.min() < 0 or widths.max() > l:
            yield f"window must lie between 0 (none) and l={l}, got {widths.tolist()}"
    if "first" in arrays and "stop" not in arrays:
        yield "first needs stop, the key before which a query's interval ends"
    if "stop" in arrays:
        if causal or "window" in arrays:
            yield "the mask must be given once: by first and stop, or by causal and window"
        try:
            Mask(arrays.get("first", np.zeros(n, np.intp)), arrays["stop"], l)
        except (TypeError, ValueError) as error:
            yield str(error)
        if arrays["stop"].shape != (n,):
            yield f"first and stop must have one entry per query, ({n},)"


def _arrays(path: Path) -> dict[str, Array]:
    try:
        exists = path.exists()
    except OSError as error:  # a name that is too long, or a folder without access
        raise InputFileError(f"{one_line(path, 120)} cannot be read: {error.strerror}") from None
    if not exists:
        raise FileNotFoundError(f"no such file or folder: {one_line(path)}")
    if path.suffix.lower() == ".bin" and path.is_file():
        with path.open("rb") as file:
            if not re.match(rb"PK|\x80[\x00-\x05]", file.read(2)):  # an archive of torch, a pickle
                how = SHAPED.replace("q", "numpy.fromfile(path, 'float32')", 1)
                raise InputFileError(f"{path.name} holds numbers without a shape: {how}")
    if path.suffix.lower() in PICKLED:
        raise InputFileError(f"{path.name} is a pickle and is not read: {RECIPE}")
    try:
        if path.is_dir():
            return _folder(path)
        if not path.is_file():  # reading a pipe would wait forever
            raise InputFileError(f"{path.name} is not a regular file")
        if path.suffix.lower() == ".npz":
            return _npz(path)
        if path.suffix.lower() == ".safetensors":
            return _safetensors(path)
    except (InputFileError, memory.ResourceLimitError, ImportError):
        raise
    except Exception as error:  # the three parsers may raise any exception on damaged bytes
        reason = one_line(error, 120) or type(error).__name__
        raise InputFileError(f"{path.name} cannot be read: {reason}") from error
    if path.suffix.lower() == ".gguf":
        raise InputFileError(f"{path.name} is a model: {CAPTURED}")
    raise InputFileError(f"{path.name} must be a folder of .npy, an .npz or a .safetensors file")


def _wanted(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return {name in `NAMES`: name in the file} for the arrays to read."""
    pairs: list[tuple[str, str]] = []
    for name in names:
        if name.lower() in NAMES:
            pairs.append((name.lower(), name))
        elif difflib.get_close_matches(name.lower(), (*VALUES, "window", "sinks"), 1) or (
            difflib.get_close_matches(name.lower(), ("first", "stop"), 1, 0.8)  # but not "step"
        ):
            # a misspelt option would silently get its default
            raise InputFileError(f"{path.name}: {checks.unknown('array', name, NAMES)}")
        elif "mask" in name.lower():
            raise InputFileError(
                f"{path.name}: array {one_line(name, 60)!r} is not read: give the mask by causal "
                "and window, or by first and stop"
            )
    wanted = dict(sorted(pairs))
    if len(wanted) < len(pairs):
        raise InputFileError(f"{path.name} has an array twice")
    return wanted


def _complete(path: Path, names: Sequence[str], arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays of a file; raise InputFileError if q or k is not among them."""
    for name in ("q", "k"):
        if name not in arrays:
            raise InputFileError(f"{path.name or path}: {_without(name, path, names)}")
    return arrays


def _without(name: str, path: Path, names: Sequence[str]) -> str:
    """Return the message that q or k is missing: what the file has, and what to do."""
    some = ", ".join(one_line(one, 40) for one in sorted(names)[:MOST_NAMED])
    some += f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    said = f"the file has no array {name!r}, it has {some or 'nothing'}"
    if any(one.endswith(".weight") for one in names) or (path / "config.json").is_file():
        return f"{said}; it is a model: {CAPTURED}"
    letters = {one: _letters(one) for one in sorted(names)}
    likely = [(one, x) for x in AXES for one in letters if letters[one] == x != one.lower()]
    if fused := [one for one in letters if letters[one] == "qkv"]:
        layout, how = FUSED["query_key_value" not in fused[0].lower()]
        return (
            f"{said}; the layout must be known: if q, k and v {layout}, save {how} or, where an "
            f"axis has length 3, numpy.take(qkv, 0, axis){LIKEWISE}"
        )
    if "k" in letters.values() and "q" not in letters.values():
        return f"{said}; no query follows from keys and values, so run the model: {CAPTURED}"
    if len({x for _, x in likely}) < len(likely):
        like = re.sub(r"\d+", r"\\d+", re.escape(one_line(likely[0][0], 60)))
        order = r"[int(n) for n in re.findall(r'\d+', i)]"
        return (
            f"{said}: save numpy.stack([x[i] for i in sorted(x, key=lambda i: {order}) if "
            f"re.fullmatch(r'{like}', i)]), with the file as x{LIKEWISE}, or a file for each layer "
            "if their lengths differ"
        )
    if name in letters.values():
        said += ": rename " + ", ".join(f"{one_line(one, 40)} to {x}" for one, x in likely)
    return said


def _letters(name: str) -> str:
    """Return for which of q, k and v a name is usual.

    Examples
    --------
    >>> [_letters(x) for x in ("query_states", "blocks.0.hook_q", "query_key_value", "Wqkv", "x")]
    ['q', 'q', 'qkv', 'qkv', '']
    """
    words = {*re.split(r"[^a-z]+", name.lower())}
    found = "".join(x for x, usual in USUAL.items() if not words.isdisjoint(usual))
    return "qkv" if "qkv" in name.lower() else found


def _folder(path: Path) -> dict[str, Array]:
    names = sorted(file.stem for file in path.glob("*.npy"))
    wanted = _wanted(path, names)
    arrays = {key: _mapped(path / f"{name}.npy") for key, name in wanted.items()}
    return _complete(path, names, arrays)


def _mapped(path: Path) -> Array:
    if not path.is_file():
        raise InputFileError(f"{path.name} is not a regular file")
    with path.open("rb") as file:
        _claim(path.name, file, path.stat().st_size)
    mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _claim(name: str, file: IO[bytes], size: int) -> None:
    """Raise InputFileError unless a .npy stream has as many bytes as its header claims."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise InputFileError(
            f"{name} holds Python objects: layers of different lengths need a file each"
        )
    if name[:-4].lower() in AXES and dtype.itemsize == 2 and dtype.kind in "iuV":
        raise InputFileError(f"{name} has dtype {dtype}, {BFLOAT16}")
    if dtype.kind not in "fiub":
        raise InputFileError(f"{name} must hold real numbers, got dtype {one_line(dtype, 60)}")
    if dtype.itemsize > 8:  # the format of long double depends on the processor
        raise InputFileError(f"{name} must hold at most 64 bits a number, got dtype {dtype}")
    claimed, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or claimed != held:
        raise InputFileError(f"{name} claims {claimed} bytes and holds {held}")


def _npz(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if raw := [m for m in members if m.filename.lower() in NAMES]:
            raise InputFileError(f"{path.name}: {raw[0].filename} is not an array")
        arrays = [m for m in members if m.filename.endswith(".npy")]
        names = [m.filename.removesuffix(".npy") for m in arrays]
        wanted = _wanted(path, names)
        chosen = [m for m in arrays if m.filename.removesuffix(".npy") in wanted.values()]
        memory.reserve(
            2 * sum(m.file_size for m in chosen), path.name, "the number of heads or tokens in it"
        )
        for member in chosen:
            with archive.open(member) as file:
                _claim(member.filename, file, member.file_size)
    with np.load(path, allow_pickle=False) as loaded:
        return _complete(path, names, {key: loaded[name] for key, name in wanted.items()})


def _safetensors(path: Path) -> dict[str, Array]:
    try:
        import safetensors
    except ImportError:
        raise ImportError("reading .safetensors needs: pip install -e '.[qk]'") from None
    try:
        with safetensors.safe_open(path, framework="numpy") as opened:  # checks every offset
            names = list(opened.keys())
    except safetensors.SafetensorError as error:
        reason = one_line(error, 120)
        raise InputFileError(f"{path.name} cannot be read: {reason}") from error
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        # Of two entries with the same name the parser keeps one, not always the same.
        header = json.loads(file.read(size), object_pairs_hook=lambda x: _distinct(path, x))
    begin, end = 8 + size, path.stat().st_size
    data = np.memmap(path, np.uint8, "r", begin) if end > begin else np.empty(0, np.uint8)
    wanted = _wanted(path, names)
    arrays = {key: _decode(path, header[name], np.asarray(data)) for key, name in wanted.items()}
    return _complete(path, names, arrays)


def _distinct(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs of a JSON object as a dict; raise if names repeat or are not text."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise InputFileError(f"{path.name} has an array twice")
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        raise InputFileError(f"{path.name} has a name that is not text")
    return dict(pairs)


def _decode(path: Path, tensor: dict[str, Any], data: Array) -> Array:
    """Return an array mapped from the file; bfloat16 is converted."""
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
    kind, (begin, end) = str(tensor["dtype"]), tensor["data_offsets"]
    if kind == "BF16":  # the upper half of a float32
        memory.reserve(2 * (end - begin), path.name, "the number of heads or tokens in it")
        x = (data[begin:end].view("<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in kinds:
        x = data[begin:end].view(kinds[kind])
    else:
        how = f", {BFLOAT16}" if kind[1:] == "16" else " is not supported, use F32, F16 or BF16"
        raise InputFileError(f"{path.name}: dtype {kind}{how}")
    return x.reshape(tensor["shape"])
