"""Reads exported programs (.pt2): looked through first, because PyTorch runs code that is in them."""

from __future__ import annotations

import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import FormatError

from ..foreign import torch_logs_nothing
from .pickles import UntrustedError, load_pickled
from .program_text import check_program_text
from .sources import open_file

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.export.pt2_archive import PT2ArchiveReader

_HINT: Final = "torch.export.save makes one"
#: Bytes that any archive may unpack to.
_COMPRESSED: Final = 64 << 20
#: Parts of files of PyTorch 2.7 and before.
_OLD_PICKLES: Final = ("serialized_state_dict.pt", "serialized_constants.pt", "serialized_example_inputs.pt")
_OLD_PROGRAM: Final = "serialized_exported_program.json"


def graphs_of(path: Path) -> list[bytes]:
    """The JSON parts of a .pt2 file. Raises FormatError if it is no archive."""
    try:
        with _archive(path) as archive:
            return [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    except FormatError:
        raise
    except (zipfile.BadZipFile, RuntimeError, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise FormatError(f"is not a .pt2 file: {error}", where=str(path), hint=_HINT) from error
    except Exception as error:  # zlib.error, struct.error
        raise FormatError(f"is damaged: {error}", where=str(path)) from error


def load_exported(path: Path, *, trust: bool = False) -> ExportedProgram:
    """Read a .pt2 file as torch.export.load does.

    Raises UntrustedError if it has something that can run code and `trust` is not given, FormatError if it is no such
    file or damaged.
    """
    import torch

    try:
        if not trust:
            check_exported(path)
        with torch_logs_nothing():
            return torch.export.load(str(path))
    except FormatError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FormatError(f"is not a .pt2 file, or damaged: {text}", where=str(path), hint=_HINT) from error


def check_exported(path: Path) -> None:
    """Raise UntrustedError for a .pt2 file that could run code while PyTorch loads it, FormatError if it is none."""
    where = str(path)
    with _archive(path) as archive:
        names = archive.namelist()
        twice = [name for name, count in Counter(map(str.lower, names)).items() if count > 1]
        if twice:  # readers of archives do not agree which of the two is meant
            raise FormatError("is in the archive twice", where=f"{where}, {twice[0]}", hint=_HINT)
        is_old = "version" in names
        if is_old:
            _check_old(archive, where)
    if not is_old or any(name.endswith("/archive_format") for name in names):
        _check_archive(path, where)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The opened archive. PyTorch does not compress: one that would become far larger than it is, is refused."""
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        size, whole = path.stat().st_size, sum(info.file_size for info in archive.infolist())
        if whole > max(_COMPRESSED, 4 * size):
            raise FormatError(f"has {size} bytes, but unpacks to {whole}", where=str(path), hint=_HINT)
        yield archive


def _check_old(archive: zipfile.ZipFile, where: str) -> None:
    for name in archive.namelist():
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

    payloads: dict[str, dict[str, Any]] = json.loads(reader.read_string(config))["config"]
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
