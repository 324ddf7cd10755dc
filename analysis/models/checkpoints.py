"""Models and texts on this machine: the place of a model, reasons to refuse it, and its tokens."""

import functools
import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from analysis.inputs import text_files
from analysis.inputs.array_files import InputFileWarning
from analysis.sentences import one_line
from approx import checks
from approx.estimate import memory

MOST_TEXT = 2**28  # bytes of a text that a model reads
_INSTALL = "pip install -c constraints.txt -e '.[model]'"
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
_ONE = "model.safetensors"
_HEAD = re.compile(r"(lm_head|embed_out|output|cls)\.")  # names of arrays that AutoModel leaves out
WHOLE = 2**16  # characters: shorter texts are tokenised whole


class Place(NamedTuple):
    """The place of a model: its folder, its name, and its arguments of from_pretrained."""

    folder: Path
    name: str
    local: dict[str, Any]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Self:
        """Return the place of a folder in the format of Hugging Face, or of one GGUF file."""
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
        every = self.weight_files()
        return {path.relative_to(self.folder).as_posix(): digest(path) for path in every}

    def weight_files(self) -> list[Path]:
        """Return the files of weights that transformers reads: one, or those of an index."""
        if (gguf := self.local.get("gguf_file")) or (self.folder / _ONE).is_file():
            return [self.folder / (gguf or _ONE)]
        index = self.folder / f"{_ONE}.index.json"
        if not index.is_file():
            raise ValueError(f"{one_line(self.folder)} has no weights as .safetensors")
        with reading(index):
            names = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
            paths = [self.folder / name for name in sorted(names)]
        for path in paths:
            if path.suffix != ".safetensors" or not path.is_file():  # transformers reads pickles
                what = f"{one_line(index)} names {one_line(path.name)}"
                raise ValueError(f"{what}, which is no .safetensors file there")
        return paths

    def config(self, *, runs: bool = False) -> Any:
        """Return the configuration; raise ValueError if Q, K, V cannot represent the model."""
        from transformers import AutoConfig

        with reading(self.folder / self.local.get("gguf_file", "config.json")):
            config = AutoConfig.from_pretrained(self.folder, **self.local)
            for name in ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"):
                checks.integer(name, getattr(config.get_text_config(), name, 1), least=1)
        check(config, runs=runs)
        return config

    def tokenizer(self) -> Any:
        """Return the tokenizer of the model."""
        from transformers import AutoTokenizer

        try:
            with reading(self.folder / self.local.get("gguf_file", "")):
                return AutoTokenizer.from_pretrained(self.folder, **self.local)
        except ValueError as error:
            for file in sorted(self.folder.glob("*token*.json")):  # which the error does not name
                try:
                    json.loads(file.read_text(encoding="utf-8"))
                except (OSError, ValueError, RecursionError):
                    raise ValueError(f"{error}; {one_line(file.name)} is no JSON") from error
            raise

    def weights(self, kind: Any, config: Any, dtype: Any, beside: int = 0) -> Any:
        """Return the model, made by the class ``kind``, with its own eager attention.

        Raises
        ------
        ValueError
            A file is damaged, or the weights lack an array of the model, or have another shape.
        ResourceLimitError
            The model and ``beside`` more bytes would not fit. It is raised before weights are read.

        Warns
        -----
        InputFileWarning
            The weights have further arrays in their layers, or further layers.
        """
        sizes = self._sizes()
        beheaded = kind.__name__ == "AutoModel"
        read = [x for name, x in sizes.items() if not (beheaded and _HEAD.match(name))]
        held = sum(read) * dtype.itemsize + beside
        memory.reserve(held, f"the model {self.name}", "max_tokens, or take a smaller model")
        logger = logging.getLogger("transformers.modeling_utils")
        logger.addFilter(_unsaid)
        try:
            with reading(self.folder / self.local.get("gguf_file", "")):
                model, found = kind.from_pretrained(
                    self.folder,
                    config=config,
                    attn_implementation="eager",
                    dtype=dtype,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,  # they are refused below, by name
                    output_loading_info=True,
                    **self.local,
                )
        finally:
            logger.removeFilter(_unsaid)
        # AutoModel makes a pooler, which many weights lack and no attention needs
        every = (*found["missing_keys"], *found["mismatched_keys"])  # names, or names with shapes
        lacking = {name if isinstance(name, str) else name[0] for name in every}
        if wrong := sorted(name for name in lacking if not name.startswith("pooler.")):
            raise ValueError(
                f"{self.name}: the configuration asks for {checks.counted(len(wrong), 'array')} "
                f"that the weights lack or have in another shape, such as {wrong[0]}: take both "
                "from one model"
            )
        gguf, layers = "gguf_file" in self.local, config.get_text_config().num_hidden_layers
        further, least = (sizes, layers) if gguf else (found["unexpected_keys"], 0)
        numbers = {name: re.search(r"\.(\d+)\.", name) for name in further}  # heads have none
        more = [name for name, layer in numbers.items() if layer and int(layer[1]) >= least]
        if more:
            warnings.warn(
                f"{self.name}: the weights have {checks.counted(len(more), 'array')} that the "
                f"configuration does not ask for, such as {min(more)}: the model runs without",
                InputFileWarning,
                stacklevel=2,
            )
        return model

    def _sizes(self) -> dict[str, int]:
        """Return how many numbers each array of the weights has, from the headers of the files."""
        from safetensors import safe_open

        sizes: dict[str, int] = {}
        for path in self.weight_files():
            with reading(path):
                if path.suffix == ".gguf":
                    import gguf

                    sizes = {x.name: int(x.n_elements) for x in gguf.GGUFReader(str(path)).tensors}
                    continue
                with safe_open(path, "numpy") as file:
                    sizes |= {x: math.prod(file.get_slice(x).get_shape()) for x in [*file.keys()]}
        return sizes


def usable_device(name: str, dtype: Any) -> Any:
    """Return torch's device of this name, on which a model of ``dtype`` can compute.

    Raises
    ------
    ValueError
        torch has no such device here, it has no numbers of this type, or it computes nothing.
    """
    import torch

    try:
        device = torch.device(name)
        torch.zeros(1, dtype=dtype, device=device).cpu()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        kind = str(dtype).removeprefix("torch.")
        what = f"torch cannot compute {kind} on the device {one_line(name, 60)} here"
        raise ValueError(f"{what}: give cpu, or another device") from error
    return device


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
    except MemoryError:
        raise
    except Exception as error:  # transformers may raise anything
        reason = one_line(error) or type(error).__name__
        if isinstance(error, KeyError):  # its text is only the key
            reason = f"{type(error).__name__}: {reason}"
        if "trust_remote_code" in reason:
            reason = "it needs code of its own (auto_map), and none is run"
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


def _unsaid(record: logging.LogRecord) -> bool:
    """Return whether a log record says something other than `Place.weights` itself says."""
    return not re.search("LOAD REPORT|Some weights of", record.getMessage())


def digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, which may be larger than memory."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def texts(model_dir: str | os.PathLike[str], *paths: str | os.PathLike[str] | None) -> list[str]:
    """Return the texts of files that are not None; an error of the model comes first."""
    Place.from_path(model_dir)
    return [read(path) for path in paths if path is not None]


def read(path: str | os.PathLike[str]) -> str:
    """Return a text; raise ValueError if the file is not UTF-8."""
    return text_files.read_text(Path(path), "text", MOST_TEXT)


def token_ids(
    words: str, tokenizer: Any, config: Any, max_tokens: int, *, special: bool = True
) -> list[int]:
    """Return the ids of the first tokens of a text, with the special tokens around it.

    Of a long text a beginning is tokenised, and one twice as long, until both give the same ids.

    Raises
    ------
    ValueError
        The text has fewer than 2 tokens, or more than the model has positions, or the tokenizer has
        more tokens than the model.
    """
    if re.search("[\ud800-\udfff]", words):
        raise ValueError(
            "the text has a lone surrogate, which no Unicode text has: give it as UTF-8"
        )
    facts = config.get_text_config()
    positions = getattr(facts, "max_position_embeddings", None)
    limit = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
    most, length = min(max_tokens, limit + 1), WHOLE
    found: list[int] = []
    while True:
        text, before = words[:length], found
        how = {"truncation": True, "max_length": most, "add_special_tokens": special}
        found = tokenizer(text, **how)["input_ids"]
        if len(text) == len(words) or (found == before and len(found) == most):
            break
        length *= 2
    if len(found) < 2:
        raise ValueError(
            f"the text must give at least 2 tokens, got {len(found)}: give a longer one"
        )
    if len(found) > limit:
        raise ValueError(
            f"the model has {limit} positions, and the text more tokens: lower max_tokens"
        )
    if max(found) >= (known := getattr(facts, "vocab_size", max(found) + 1)):
        raise ValueError(
            f"the tokenizer in {one_line(tokenizer.name_or_path)} gives token {max(found)}, and "
            f"the model has only {known}: take both from one model"
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
