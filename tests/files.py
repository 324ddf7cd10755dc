"""Write files of queries and keys, as `analysis.inputs.load` reads them: sound ones and others."""

import io
import json
import struct
import zipfile

import numpy as np

KINDS = ("npy", "npz", "compressed", "safetensors")
CODES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "b1": "BOOL"}


def npy(x, **changes):
    """Return the bytes of a .npy file, its header changed."""
    file, x = io.BytesIO(), np.asarray(x)
    fields = {"descr": x.dtype.str, "fortran_order": False, "shape": x.shape} | changes
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue() + x.tobytes()


def raw(x):
    return x if isinstance(x, bytes) else npy(x)


def archive(path, members, compression=zipfile.ZIP_STORED):
    """Write pairs of a member's name and bytes."""
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def safetensors(path, content, codes=None, header=None):
    """Write the format by hand: 8 bytes of length, JSON of dtype, shape and place, then data."""
    found, data = {}, b""
    for name, x in content.items():
        held = np.ascontiguousarray(x).tobytes()
        code = (codes or {}).get(name) or CODES[np.asarray(x).dtype.str[1:]]
        ends = [len(data), len(data) + len(held)]
        found[name] = {"dtype": code, "shape": list(np.shape(x)), "data_offsets": ends}
        data += held
    text = json.dumps(found).encode() if header is None else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def write(folder, content, kind="npz", stem="data"):
    """Write arrays, or bytes of .npy files, by name, in one of the formats."""
    if kind == "npy":
        (folder / stem).mkdir()
        for name, x in content.items():
            (folder / stem / f"{name}.npy").write_bytes(raw(x))
        return folder / stem
    if kind == "safetensors":
        return safetensors(folder / f"{stem}.safetensors", content)
    compression = zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED
    members = ((f"{name}.npy", raw(x)) for name, x in content.items())
    return archive(folder / f"{stem}.npz", members, compression)
