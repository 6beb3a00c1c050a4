"""The blob: a list of steps as JSON, sealed; written and read.

Values are numbered: first the inputs, then the constants, then the result of each step.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from delegatekit_api import FormatError
from delegatekit_toolkit.blob import Seal

#: Names of steps.
NAMES = ("add", "mul")
SEAL = Seal(
    b"DKITDEMO",
    version=1,  # changes whenever an older runtime would misread the blob
    name="DemoBackend blob",
    hint="install the delegatekit-demo that made the file: `delegatekit inspect FILE` names it",
)


@dataclass(frozen=True)
class Program:
    """The steps that the runtime executes, with their constants and outputs."""

    #: Number of inputs.
    inputs: int
    #: Key of the named data and shape of each constant.
    constants: tuple[tuple[str, tuple[int, ...]], ...]
    #: Name, first operand, second operand.
    steps: tuple[tuple[str, int, int], ...]
    #: The values that are returned.
    outputs: tuple[int, ...]
    #: Sizes of each input; none in blobs of older releases.
    sizes: tuple[tuple[int, ...], ...] = ()


def write_blob(program: Program) -> bytes:
    """The program as a blob: the same program gives the same bytes."""
    return SEAL.wrap(json.dumps(asdict(program), sort_keys=True).encode())


def read_blob(data: bytes | memoryview) -> Program:
    """Read a blob, every field checked. Raises FormatError for anything that is not one."""
    try:
        fields = json.loads(bytes(SEAL.unwrap(data)))
        program = Program(
            inputs=_count(fields["inputs"]),
            constants=tuple((str(key), tuple(map(_count, shape))) for key, shape in fields["constants"]),
            steps=tuple((str(name), _count(first), _count(second)) for name, first, second in fields["steps"]),
            outputs=tuple(map(_count, fields["outputs"])),
            sizes=tuple(tuple(map(_count, shape)) for shape in fields.get("sizes", ())),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"has a damaged field: {error}", where=SEAL.name) from error
    if program.sizes and len(program.sizes) != program.inputs:
        raise FormatError("has not the sizes of each input", where=SEAL.name)
    known = program.inputs + len(program.constants)
    for index, (name, first, second) in enumerate(program.steps):
        if name not in NAMES or max(first, second) >= known + index:
            raise FormatError(f"step {index} is damaged", where=SEAL.name)
    if any(output >= known + len(program.steps) for output in program.outputs):
        raise FormatError("returns a value that it does not compute", where=SEAL.name)
    return program


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of 0 or more")
    return value
