"""Arrays from .npy folders, .npz and .safetensors files: no pickle, sizes checked first."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from approx import memory
from approx.checks import Array

NAMES = ("q", "k", "v", "scaling", "causal", "layers", "heads")
PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")
RECIPE = (
    "it may run code when read. Convert it where you trust it: "
    "x = torch.load(path, weights_only=True); "
    "numpy.savez('qk.npz', q=x['q'].numpy(), k=x['k'].numpy())"
)


_BROKEN = (
    OSError, EOFError, ValueError, MemoryError, NotImplementedError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class InputFileError(ValueError):
    """A file that does not hold queries and keys; says which rule it breaks."""


def read(path: Path) -> dict[str, Array]:
    """Return the arrays named q, k, v, scaling, causal, layers, heads (any case) of a file.

    Raises
    ------
    FileNotFoundError, InputFileError, ResourceLimitError
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.suffix.lower() in PICKLED:
        raise InputFileError(f"{path.name} is a pickle and is not read: {RECIPE}")
    try:
        if path.is_dir():
            return _folder(path)
        if path.suffix.lower() == ".npz":
            return _npz(path)
        if path.suffix.lower() == ".safetensors":
            return _safetensors(path)
    except (InputFileError, memory.ResourceLimitError):
        raise
    except _BROKEN as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputFileError(f"{path.name} cannot be read: {reason}") from error
    raise InputFileError(f"{path.name} must be a folder of .npy, an .npz or a .safetensors file")


def _wanted(path: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the names in a file of the arrays we want, by ours."""
    pairs = [(name.lower(), name) for name in names if name.lower() in NAMES]
    found = dict(sorted(pairs))
    if len(found) < len(pairs):
        raise InputFileError(f"{path.name} has an array twice")
    return found


def _folder(path: Path) -> dict[str, Array]:
    wanted = _wanted(path, sorted(file.stem for file in path.glob("*.npy")))
    return {
        key: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        for key, name in wanted.items()
    }


def _npz(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        sizes = [(m.filename.removesuffix(".npy"), m.file_size) for m in archive.infolist()]
    wanted = _wanted(path, [name for name, _ in sizes])
    total = sum(size for name, size in sizes if name in wanted.values())
    memory.reserve(2 * total, path.name, "what the file holds")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {key: archive[name] for key, name in wanted.items()}
    if raw := [key for key, x in arrays.items() if not isinstance(x, np.ndarray)]:
        raise InputFileError(f"{path.name}: {raw[0]} is not an array")
    return arrays


def _safetensors(path: Path) -> dict[str, Array]:
    try:
        import safetensors
    except ImportError:
        raise ImportError("reading .safetensors needs: pip install 'expqk[qk]'") from None
    memory.reserve(3 * path.stat().st_size, path.name, "what the file holds")
    try:
        tensors = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise InputFileError(f"{path.name} cannot be read: {error}") from error
    found = dict(tensors)
    return {key: _decode(path, found[name]) for key, name in _wanted(path, found).items()}


def _decode(path: Path, tensor: dict[str, object]) -> Array:
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
    kind, shape, data = str(tensor["dtype"]), tensor["shape"], tensor["data"]
    assert isinstance(shape, list)
    assert isinstance(data, bytes | bytearray)
    if kind == "BF16":  # the upper half of a float32
        x = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in kinds:
        x = np.frombuffer(data, kinds[kind])
    else:
        raise InputFileError(f"{path.name}: dtype {kind} is not supported, use F32, F16 or BF16")
    if x.size != math.prod(shape):
        raise InputFileError(f"{path.name}: {x.size} values do not fit the shape {shape}")
    return x.reshape(shape)
