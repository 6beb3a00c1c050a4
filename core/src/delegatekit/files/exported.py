"""Reads exported programs (.pt2): checked first, because PyTorch runs code that is in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import decoded, parse_object

from ..errors.foreign import torch_logs_nothing
from .archives import Archive, open_archive
from .pickles import UntrustedError, load_pickled
from .program_text import check_program_text

if TYPE_CHECKING:
    from torch.export.pt2_archive import PT2ArchiveReader

_HINT: Final = "torch.export.save makes one"
_KIND: Final = ".pt2 file"
#: Parts of files of PyTorch 2.7 and before.
_OLD_PICKLES: Final = ("serialized_state_dict.pt", "serialized_constants.pt", "serialized_example_inputs.pt")
_OLD_PROGRAM: Final = "serialized_exported_program.json"


def graphs_of(path: Path) -> list[bytes]:
    """The JSON parts of a .pt2 file. Raises FormatError if it is no archive."""
    with open_archive(path, _KIND, hint=_HINT) as archive:
        return [archive.read(name) for name in archive.names if name.endswith(".json")]


def load_exported(path: Path, *, trust: bool = False, read: Callable[[Path], Any] | None = None) -> Any:
    """Read a .pt2 file as torch.export.load does, or as `read` does, which may read more.

    Raises UntrustedError if it has anything that can run code and `trust` is not given, FormatError if it is no such
    file or damaged.
    """
    import torch

    try:
        if not trust:
            check_exported(path)
        with torch_logs_nothing():
            return torch.export.load(str(path)) if read is None else read(path)
    except FormatError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FormatError(f"is no .pt2 file, or damaged: {text}", where=str(path), hint=_HINT) from error


def check_exported(path: Path) -> None:
    """Raise UntrustedError for a .pt2 file that could run code while PyTorch loads it, FormatError if it is none."""
    where = str(path)
    with open_archive(path, _KIND, hint=_HINT) as archive:
        names = archive.names
        is_old = "version" in names
        if is_old:
            _check_old(archive, where)
    if not is_old or any(name.endswith("/archive_format") for name in names):
        _check_archive(path, where)


def _check_old(archive: Archive, where: str) -> None:
    for name in archive.names:
        if name in _OLD_PICKLES:
            _check_pickle(archive.read(name), f"{where}, {name}")
        elif name == _OLD_PROGRAM:
            check_program_text(archive.read(name), f"{where}, {name}")
        elif name.endswith(".json"):  # pickles by an older name
            _check_pickle(archive.read(name), f"{where}, {name}")


def _check_archive(path: Path, where: str) -> None:
    """The parts that torch.export.load reads, read as it does: by the same reader, by the same names."""
    from torch.export.pt2_archive import PT2ArchiveReader, constants

    reader = PT2ArchiveReader(str(path))
    names = reader.get_file_names()
    compiled = next((name for name in names if name.startswith(constants.AOTINDUCTOR_DIR)), None)
    if compiled is not None:
        raise UntrustedError("compiled code", where=f"{where}, {compiled}")
    before, after = constants.MODELS_FILENAME_FORMAT.split("{}")
    for name in names:
        if not name.startswith(constants.MODELS_DIR):
            continue
        model = name[len(before) : -len(after)]
        check_program_text(reader.read_bytes(name), f"{where}, {name}")
        inputs = constants.SAMPLE_INPUTS_FILENAME_FORMAT.format(model)
        _check_pickle(reader.read_bytes(inputs), f"{where}, {inputs}")
        for folder, config in (
            (constants.WEIGHTS_DIR, constants.WEIGHTS_CONFIG_FILENAME_FORMAT),
            (constants.CONSTANTS_DIR, constants.CONSTANTS_CONFIG_FILENAME_FORMAT),
        ):
            legacy = f"{folder}{model}.pt"
            if legacy in names:
                _check_pickle(reader.read_bytes(legacy), f"{where}, {legacy}")
            elif config.format(model) in names:
                _check_payloads(reader, folder, config.format(model), where)


def _check_payloads(reader: PT2ArchiveReader, folder: str, config: str, where: str) -> None:
    from torch.export.pt2_archive import constants

    content = parse_object(reader.read_bytes(config), f"{where}, {config}", hint=_HINT)
    payloads = decoded(dict[str, dict[str, Any]], content["config"], f"{where}, {config}", hint=_HINT)
    # PyTorch before 2.13 has no such objects.
    objects = constants.CUSTOM_OBJ_FILENAME_PREFIX, getattr(constants, "OPAQUE_OBJ_FILENAME_PREFIX", "opaque_obj_")
    for key, payload in payloads.items():
        name = os.path.join(folder, payload["path_name"])  # noqa: PTH118  (as PyTorch does)
        if folder == constants.CONSTANTS_DIR and payload["path_name"].startswith(objects):
            raise UntrustedError(f"a pickled object ({key})", where=f"{where}, {name}")
        if payload["use_pickle"]:
            _check_pickle(reader.read_bytes(name), f"{where}, {name}")


def _check_pickle(data: bytes, where: str) -> None:
    if data:
        load_pickled(data, where)
