"""Compiles graphs in a process of its own, one for every context.

A process that has compiled before produces other bytes for the same graph. The two exchange unnamed files: however
either of them ends, nothing is left behind. The library's own files go into a folder that is then deleted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from delegatekit_api import LoweringError
from delegatekit_toolkit.limited import Process
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
        scratch() as folder,
    ):
        request.write(json.dumps(graphs_request(options, graphs, constants)).encode())
        constants.write(data)
        for file in (request, data):
            file.flush()
        failure, printed = _run(found, (request, data, context), folder)
        context.seek(0)
        made = context.read()
        if failure or len(made) <= HEADER_SIZE:
            raise _error(failure or "made no context", printed)
        if schematics:
            _hand_over(folder, Path(schematics))
    # The binding writes a header of its own, whose signature is the time.
    return Blob(memoryview(made)[HEADER_SIZE:], found.version, tuple(map(border_of, graphs)))


def border_of(graph: Graph) -> int:
    """The inputs and outputs of a graph in the blob header's form."""
    return border(graph.name, *map(_described, (graph.inputs, graph.outputs)))


def _described(tensors: Sequence[Tensor]) -> list[tuple[str, tuple[int, ...]]]:
    return [(_NAMES[item.datatype], item.shape) for item in tensors]


def _run(found: Installation, files: Sequence[IO[bytes]], folder: Path) -> tuple[str, str]:
    """The ending of the process in words, "" if successful, and the end of its output."""
    numbers = [file.fileno() for file in files]
    try:
        process = Process(command(found, "compile", *map(str, numbers)), joined=True, files=numbers, folder=folder)
    except OSError as error:
        return f"cannot be started: {error}", ""
    ended = process.wait(_SECONDS)
    return "" if ended.code == 0 else ended.ending, "\n".join(ended.last)


def _hand_over(made: Path, folder: Path) -> None:
    """Move the schematic files into the user's folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in made.glob(_SCHEMATICS):
            shutil.move(file, folder / file.name)
    except OSError as error:
        raise LoweringError(f"its schematic files cannot be written into {folder}: {error}", where=WHERE) from error


def _error(failure: str, text: str) -> LoweringError:
    lines = "".join(f"\n    {line}" for line in complaints(text))
    return LoweringError(f"{own_words(text) or failure}{lines}", where=WHERE)
