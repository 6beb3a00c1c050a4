"""Folders as `save_pretrained` leaves them: the model, and the files that tell its tokens."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

import torch

from delegatekit.errors.misuse import MissingFileError, OutputError, WrongArgumentError
from delegatekit_api import DelegateKitError, FormatError

from .checkpoints.formats import Packing, packing_of
from .checkpoints.layers import DTYPES, FLOATS, Stored
from .families import check_family, is_encoder_decoder
from .mapped import LARGE, convert_at_use

#: What a tokenizer and a chat need, as the folder has it; it is written beside the file.
BESIDE: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
CONFIG: Final = "config.json"
#: Bytes of the header of a safetensors file, at most, after the 8 that tell them.
_HEADER: Final = 100_000_000
#: Characters of an error of transformers, at most.
_LONGEST: Final = 400
_DTYPES: Final = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def load_config(folder: Path, *, known_family: bool = True) -> Any:
    """The configuration of a folder's model.

    Raises MissingFileError for a folder without config.json or weights, FormatError for one that cannot be read, and
    UnsupportedError for a family that is not known.
    """
    from transformers import AutoConfig

    if not (folder / CONFIG).is_file():
        raise MissingFileError(
            f"has no {CONFIG}" if folder.is_dir() else "is not a folder",
            where=str(folder),
            hint="a folder with config.json, *.safetensors and tokenizer.json is needed, as save_pretrained writes it",
        )
    if not any(folder.glob("*.safetensors")):
        raise MissingFileError(
            "has no *.safetensors", where=str(folder), hint="model.save_pretrained(folder) writes them"
        )
    with _reading(folder):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if known_family:
        check_family(config)
    packing_of(config, str(folder / CONFIG))
    return config


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """The tensors of a folder's weights, by their headers. Raises FormatError for a file that cannot be read."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with _reading(folder), file.open("rb") as opened:
            size = min(int.from_bytes(opened.read(8), "little"), _HEADER)
            entries = json.loads(opened.read(size))
            for name, entry in entries.items():
                if name != "__metadata__":
                    found[name] = Stored(str(entry["dtype"]), tuple(int(item) for item in entry["shape"]))
    return found


def mapped_dtype(folder: Path) -> torch.dtype | None:
    """The type of a large model's weights, which stay in their files; None for a small one, and for weights of several.

    Integers, which packed weights are, are not counted. Raises FormatError for a file that cannot be read.
    """
    if sum(file.stat().st_size for file in folder.glob("*.safetensors")) <= LARGE:
        return None
    found = {stored.dtype for stored in stored_tensors(folder).values()} - {"I32", "I64"}
    return DTYPES[found.pop()] if len(found) == 1 and found <= set(FLOATS) else None


def load_model(folder: Path, config: Any, dtype: str = "float32") -> torch.nn.Module:
    """The model of a folder, in eval mode; the weights of a large one stay in their files. No code of it is run.

    Raises WrongArgumentError for an unknown dtype, and FormatError for weights that cannot be read.
    """
    import transformers

    if dtype not in _DTYPES:
        raise WrongArgumentError(f"dtype {dtype!r} is not one of {', '.join(_DTYPES)}", where=str(folder))
    mapped = mapped_dtype(folder)
    kind: Any = transformers.AutoModelForCausalLM
    if is_encoder_decoder(config):
        speech = type(config) in transformers.AutoModelForSpeechSeq2Seq._model_mapping
        kind = transformers.AutoModelForSpeechSeq2Seq if speech else transformers.AutoModelForSeq2SeqLM
    packing = packing_of(config, str(folder / CONFIG))
    with _reading(folder), _as_packed(folder, config, packing):
        loaded: Any = kind.from_pretrained(
            folder,
            config=config,
            # Weights of the type that they are stored in are not read, but mapped.
            dtype=mapped or _DTYPES[dtype],
            local_files_only=True,
            use_safetensors=True,
            # Refused below, with the names: transformers' error points to a report in its log.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    model, told = loaded
    if other := sorted(told["mismatched_keys"], key=str):
        name, size, wanted = other[0]
        first = f"{name} has {tuple(size)}, not {tuple(wanted)}"
        raise FormatError(
            f"{len(other)} weights have other sizes than config.json says: {first}",
            where=str(folder),
            hint="config.json and the weights are of different models",
        )
    if missing := sorted(told["missing_keys"]):
        raise FormatError(
            f"has no weights for {', '.join(missing[:4])}{' ...' if len(missing) > 4 else ''}",
            where=str(folder),
            hint="they would be random: config.json and the weights are of different models, or a shard is missing",
        )
    found: torch.nn.Module = model.eval()
    #: Weights of the folder that the model has no place for.
    model.unused_weights = tuple(sorted(told["unexpected_keys"]))
    if packing is not None:
        from .checkpoints.loading import unpack

        unpack(found, packing, _DTYPES[dtype], mapped=mapped is not None)
    if mapped is not None:
        convert_at_use(found, _DTYPES[dtype])
    return found


def _as_packed(folder: Path, config: Any, packing: Packing | None) -> AbstractContextManager[None]:
    """A block in which layers of packed weights are loaded as they are stored."""
    if packing is None:
        return nullcontext()
    from .checkpoints.loading import packed_as

    return packed_as(config, packing, stored_tensors(folder), str(folder))


def files_beside(folder: Path) -> dict[str, bytes]:
    """The tokenizer's files and the chat template, by name."""
    return {name: (folder / name).read_bytes() for name in BESIDE if (folder / name).is_file()}


def checked_beside(place: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """Where files are written beside a .pte file. Raises OutputError if others of these names are there."""
    beside = {place.parent / name: data for name, data in files.items()}
    for file, data in beside.items():
        if file.is_file() and file.read_bytes() != data:
            raise OutputError("is there already, of another model", where=str(file), hint="choose a folder of its own")
    return beside


def token_ids(model: Any, files: Mapping[str, bytes]) -> dict[str, list[int]]:
    """The numbers of the tokens that begin and end a text, "bos", "eos" and "decoder_start"; empty if there are none.

    generation_config.json comes first, as in transformers.
    """
    generation = json.loads(files["generation_config.json"]) if "generation_config.json" in files else {}
    found = {}
    for kind in ("bos", "eos", "decoder_start"):
        name = f"{kind}_token_id"
        given = generation.get(name, getattr(model.config, name, None))
        found[kind] = [] if given is None else [int(item) for item in (given if isinstance(given, list) else [given])]
    return found


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """What transformers raises becomes a FormatError of the folder, and its notes are not shown."""
    from transformers.utils import logging as notes

    told: Any = notes
    bars, level = told.is_progress_bar_enabled(), told.get_verbosity()
    told.set_verbosity(logging.CRITICAL)
    told.disable_progress_bar()
    try:
        yield
    except DelegateKitError:
        raise
    except Exception as error:
        text = shorten(str(error), _LONGEST, placeholder=" ...")
        raise FormatError(f"cannot be read: {type(error).__name__}: {text}", where=str(folder)) from error
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()
