"""Models and texts on this machine: the place of a model, reasons to refuse it, and its tokens."""

import functools
import hashlib
import importlib.util
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from analysis.inputs import array_files
from analysis.inputs.array_files import one_line

MOST_TEXT = 2**28  # bytes of a text that a model reads
_INSTALL = "pip install -c constraints.txt -e '.[capture]'"
_IN_CONFIG = {
    "is_encoder_decoder": "an encoder and a decoder",
    "attn_logit_softcapping": "a soft-cap on the logits",
    "alibi": "ALiBi",
    "relative_attention_num_buckets": "a relative position bias",
}
_NO_KEYS = {
    "kv_lora_rank": "multi-head latent attention, whose cache is one latent vector for all heads",
    "num_kv_shared_layers": "layers that read the keys of others",
}


class Place(NamedTuple):
    """The place of a model: its folder, its name, and its arguments of from_pretrained."""

    folder: Path
    name: str
    local: dict[str, Any]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Self:
        """Return the place of a folder in the format of Hugging Face, or of one GGUF file.

        Raises
        ------
        ValueError
            There is no model, or there are several.
        """
        path = Path(path)
        # Without trust_remote_code=False transformers would ask at the terminal.
        local = {"local_files_only": True, "trust_remote_code": False}
        if (path / "config.json").is_file():
            return cls(path, one_line(folder_name(path.resolve())), local)
        found = [path] if path.is_file() else sorted(path.glob("*.gguf"))
        if len(found) > 1:
            raise ValueError(f"{one_line(path)} holds {len(found)} GGUF files: name one of them")
        if not found or found[0].suffix != ".gguf":
            raise ValueError(
                "a model is a local folder with a config.json or a GGUF file, "
                f"or a .gguf file, got {one_line(path)}"
            )
        return cls(found[0].parent, one_line(found[0].stem), local | {"gguf_file": found[0].name})

    def require(self, what: str) -> None:
        """Raise ImportError, with the install command, if a needed package is missing."""
        try:
            import torch  # noqa: F401
            from transformers import AttentionInterface, AttentionMaskInterface  # noqa: F401
        except ImportError as error:
            raise ImportError(f"{what} needs torch and transformers >= 4.56: {_INSTALL}") from error
        for package in ("gguf", "accelerate"):
            if "gguf_file" in self.local and importlib.util.find_spec(package) is None:
                raise ImportError(f"a GGUF file needs gguf and accelerate: {_INSTALL}")

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file of weights, by name."""
        return {
            path.relative_to(self.folder).as_posix(): digest(path) for path in self.weight_files()
        }

    def weight_files(self) -> list[Path]:
        """Return the files of weights that transformers reads: one, or those that an index names.

        Raises
        ------
        ValueError
            There is none, or an index is damaged, or names a pickle or a file that is not there.
        """
        if gguf := self.local.get("gguf_file"):
            return [self.folder / gguf]
        index = self.folder / "model.safetensors.index.json"
        if (one := self.folder / "model.safetensors").is_file():
            return [one]
        if not index.is_file():
            raise ValueError(
                f"{one_line(self.folder)} has no model.safetensors, nor an index of one"
            )
        with reading(index):
            names = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
            paths = [self.folder / name for name in sorted(names)]
        for path in paths:
            if path.suffix != ".safetensors" or not path.is_file():
                raise ValueError(
                    f"{one_line(index)} names {one_line(path.name)}, which is no .safetensors file "
                    "beside it: pickles are not read"
                )
        return paths

    def config(self, *, runs: bool = False) -> Any:
        """Return the configuration; raise ValueError if Q, K, V cannot represent the model."""
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(self.folder, **self.local)
        check(config, runs=runs)
        return config

    def tokenizer(self) -> Any:
        """Return the tokenizer of the model."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder, **self.local)

    def weights(self, kind: Any, config: Any, dtype: Any) -> Any:
        """Return the model, made by the class ``kind``, with its own eager attention."""
        logger = logging.getLogger("transformers.modeling_utils")
        logger.addFilter(_serious)
        try:
            return kind.from_pretrained(
                self.folder,
                config=config,
                attn_implementation="eager",
                dtype=dtype,
                use_safetensors=True,
                **self.local,
            )
        finally:
            logger.removeFilter(_serious)


@contextmanager
def parsed_once() -> Iterator[None]:
    """Let transformers parse a GGUF file once, and name its tensors once.

    Otherwise it parses the file for the configuration, the tokenizer and the weights, and names all
    tensors again for each module. This takes two thirds of the time to open a small model.
    """
    if importlib.util.find_spec("gguf") is None:
        yield
        return
    import gguf

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        """A reader with its data as a plain array: half a million slices of a memmap are slow."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    quick = {"GGUFReader": Reader, "get_tensor_name_map": gguf.get_tensor_name_map}
    before = {name: getattr(gguf, name) for name in quick}
    try:
        for name, slow in quick.items():
            setattr(gguf, name, functools.cache(slow))
        yield
    finally:
        for name, slow in before.items():
            setattr(gguf, name, slow)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in whatever transformers and its parsers raise where it is damaged."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        reason = one_line(error) or type(error).__name__
        raise ValueError(f"{one_line(path)} cannot be read: {reason}") from error


def folder_name(folder: Path) -> str:
    """Return the name of a folder or, in a cache of the Hub, of the repository, not of the commit.

    The name in a configuration is not used: it is often the base model's, or a path.

    Examples
    --------
    >>> folder_name(Path("/hub/models--org--SmolLM2-135M/snapshots/93efa2f0"))
    'SmolLM2-135M'
    """
    if folder.parent.name == "snapshots":
        return folder.parents[1].name.rpartition("--")[2]
    return folder.name


def _serious(record: logging.LogRecord) -> bool:
    """Return whether a log record about weights is more than a notice of unused weights."""
    said = record.getMessage()
    return "UNEXPECTED" not in said or "MISSING" in said


def digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, which may be larger than memory."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def texts(model_dir: str | os.PathLike[str], *paths: str | os.PathLike[str] | None) -> list[str]:
    """Return the texts of files that are not None; an error of the model comes first.

    Raises
    ------
    OSError, ValueError
        There is no model or no such file, or the file is not UTF-8.
    """
    Place.from_path(model_dir)
    return [read(path) for path in paths if path is not None]


def read(path: str | os.PathLike[str]) -> str:
    """Return a text; raise ValueError if the file is not UTF-8."""
    return array_files.text(Path(path), "text", MOST_TEXT)


def token_ids(words: str, tokenizer: Any, config: Any, max_tokens: int) -> list[int]:
    """Return the ids of the first tokens of a text, special tokens included.

    Raises
    ------
    ValueError
        The text has fewer than 2 tokens, or more than the model has positions.
    """
    found: list[int] = tokenizer(words, truncation=True, max_length=max_tokens)["input_ids"]
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    limit = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
    if len(found) < 2:
        raise ValueError(
            f"the text must give at least 2 tokens, got {len(found)}: give a longer one"
        )
    if len(found) > limit:
        raise ValueError(
            f"the model has {limit} positions, got {len(found)} tokens: lower max_tokens"
        )
    return found


def check(config: Any, *, runs: bool = False) -> None:
    """Raise ValueError if Q, K, V cannot represent a model of this configuration.

    With ``runs``, also if the model could not run a plan, which keeps keys head by head.
    """
    facts = config.get_text_config()
    refuse(vars(config) | vars(facts), _IN_CONFIG)
    if not getattr(facts, "num_attention_heads", None):
        raise ValueError(f"a model of the kind {config.model_type} has no attention heads")
    for field, why in _NO_KEYS.items():
        if runs and getattr(facts, field, None):
            raise ValueError(f"the model has {why} ({field}): a plan keeps keys head by head")


def bare_name(name: str) -> str:
    """Return a model's name without the format in which names of GGUF files end.

    Examples
    --------
    >>> bare_name("SmolLM2-135M-Instruct.Q4_1"), bare_name("SmolLM2-135M-Instruct")
    ('SmolLM2-135M-Instruct', 'SmolLM2-135M-Instruct')
    """
    return re.sub(r"[.-](i?q\d\w*|b?f(16|32))$", "", name, flags=re.IGNORECASE)


def refuse(properties: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Raise ValueError if the model has a property that softmax(scaling q·k) v lacks."""
    for name, reason in reasons.items():
        value = properties.get(name)
        if value is not None and value is not False:
            raise ValueError(f"the model has {reason} ({name}): Q, K, V cannot represent it")
