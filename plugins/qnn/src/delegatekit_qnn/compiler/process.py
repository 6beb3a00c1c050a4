"""Compiles graphs in a process of its own, one for every context.

A process that has compiled before produces other bytes for the same graph. The two exchange unnamed files: however
either of them ends, nothing is left behind. The library's own files go into a folder that is then deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from delegatekit_api import LoweringError
from delegatekit_toolkit.processes import ending, guarded, search_path, stop
from delegatekit_toolkit.scratch import scratch

from ..blob.header import HEADER_SIZE, Blob, border
from ..blob.installation import Installation
from ..blob.words import complaints, own_words
from ..ir.graph import Graph, Tensor
from ..ir.types import DataType
from .requests import Constants, graphs_request
from .starting import WHERE, command, installation
from .validator import Validator

#: Seconds to wait for a context: large networks take minutes.
_SECONDS: Final = 3600.0
#: Bytes of the library's output that are read: the last ones.
_MOST_PRINTED: Final = 1 << 16
#: Files that the library writes beside a context measured with optrace: one for each graph.
_SCHEMATICS: Final = "*_schematic.bin"
#: torch's names of the types at a delegate's border.
_NAMES: Final = {
    DataType.FLOAT32: "float32",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.BOOL: "bool",
    DataType.UFIXED8: "uint8",
    DataType.SFIXED8: "int8",
    DataType.UFIXED16: "uint16",
    DataType.SFIXED16: "int16",
}

__all__ = ["Validator", "border_of", "compile_graphs", "installation"]


def compile_graphs(graphs: Sequence[Graph], options: bytes, schematics: str = "") -> Blob:
    """One context of all graphs. The library's schematic files go to the folder `schematics`, if it is given.

    Raises LoweringError with the process's ending and the library's output, or if the folder cannot be written.
    """
    found = installation()
    constants = Constants()
    with (
        TemporaryFile() as request,
        TemporaryFile() as data,
        TemporaryFile() as context,
        TemporaryFile() as printed,
        scratch() as folder,
    ):
        request.write(json.dumps(graphs_request(options, graphs, constants)).encode())
        constants.write(data)
        for file in (request, data):
            file.flush()
        failure = _run(found, (request, data, context), printed, folder)
        context.seek(0)
        made = context.read()
        if failure or len(made) <= HEADER_SIZE:
            raise _error(failure or "made no context", _end_of(printed))
        if schematics:
            _hand_over(folder, Path(schematics))
    # The binding writes a header of its own, whose signature is the time.
    return Blob(memoryview(made)[HEADER_SIZE:], found.version, tuple(map(border_of, graphs)))


def border_of(graph: Graph) -> int:
    """The inputs and outputs of a graph in the blob header's form."""
    return border(graph.name, *map(_described, (graph.inputs, graph.outputs)))


def _described(tensors: Sequence[Tensor]) -> list[tuple[str, tuple[int, ...]]]:
    return [(_NAMES[item.datatype], item.shape) for item in tensors]


def _run(found: Installation, files: Sequence[IO[bytes]], printed: IO[bytes], folder: Path) -> str:
    """The ending of the process in words; "" if successful. It ends with this one."""
    numbers = [file.fileno() for file in files]
    try:
        process = subprocess.Popen(
            guarded(command(found, "compile", *map(str, numbers))),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=numbers,
            cwd=folder,
            env=search_path(),
            start_new_session=True,
        )
    except OSError as error:
        return f"cannot be started: {error}"
    try:
        code = process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        return f"took longer than {_SECONDS:g} s and was stopped"
    finally:
        stop(process)
    return ending(code) if code else ""


def _hand_over(made: Path, folder: Path) -> None:
    """Move the schematic files into the user's folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in made.glob(_SCHEMATICS):
            shutil.move(file, folder / file.name)
    except OSError as error:
        raise LoweringError(f"its schematic files cannot be written into {folder}: {error}", where=WHERE) from error


def _end_of(printed: IO[bytes]) -> str:
    """The end of the output."""
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - _MOST_PRINTED))
    return printed.read().decode(errors="replace")


def _error(failure: str, text: str) -> LoweringError:
    lines = "".join(f"\n    {line}" for line in complaints(text))
    return LoweringError(f"{own_words(text) or failure}{lines}", where=WHERE)
