"""The operators of a blob in readable form."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from delegatekit_api.blobs import BlobOperator
from delegatekit_toolkit.flatbuffer import Table

from .program import Program, kind_of, read, read_program, written
from .schema import Role, places
from .types import DTYPES

#: Fields that say little at these values.
_USUAL: Final[tuple[Any, ...]] = (None, False, 0, 1, 1.0, [])
_KINDS: Final = {Role.READS: "tensor", Role.WRITES: "tensor", Role.READS_VALUE: "value", Role.WRITES_VALUE: "value"}


def operators(blob: memoryview) -> list[BlobOperator]:
    """The operators in the order of the main chain, of our blobs and stock's. Raises FormatError for damage."""
    program = read_program(blob)
    known = _names(program)
    taken = set(known.values())
    found = []
    # A number may be used again: each result is a name of its own.
    for operator in program.chains[program.main]:
        reads = dict.fromkeys(_name(known, role, number) for role, number in read(operator))
        makes = []
        for role, number in written(operator):
            name = _made(program, role, number, taken)
            taken.add(name)
            known[_KINDS[role], number] = name
            makes.append(name)
        found.append(BlobOperator(kind_of(operator), tuple(reads), tuple(makes), _facts(operator)))
    return found


def _names(program: Program) -> dict[tuple[str, int], str]:
    names = {("tensor", item.number): f"constant {place}" for place, item in enumerate(program.constants)}
    names |= {("tensor", number): f"input {place}" for place, number in enumerate(program.inputs)}
    return names | {("tensor", number): f"buffer {place}" for place, number in enumerate(program.buffers)}


def _name(known: Mapping[tuple[str, int], str], role: Role, number: int) -> str:
    return known[_KINDS[role], number]


def _made(program: Program, role: Role, number: int, taken: Collection[str]) -> str:
    if role is Role.WRITES and number in program.outputs:
        name = f"output {program.outputs.index(number)}"
    elif role is Role.WRITES and number in program.buffers:
        name = f"new buffer {list(program.buffers).index(number)}"
    else:
        name = f"{_KINDS[role]} {number}"
    version, unique = 2, name
    while unique in taken:
        unique, version = f"{name} ({version})", version + 1
    return unique


def _facts(operator: Table) -> dict[str, str]:
    facts: dict[str, str] = {}
    for place in places(type(operator)):
        value: Any = getattr(operator, place.name)
        if place.role is Role.TERMS and value is not None:
            facts[place.name] = str([term.vid if term.is_vid else term.literal for term in value])
        elif place.role is Role.TERM and value is not None and hasattr(value, "literal") and value.vid is None:
            facts[place.name] = str(value.literal)
        elif place.role is Role.OTHER and not any(value is item or value == item for item in _USUAL):
            is_type = place.name in ("scalar_type", "dtype")
            facts[place.name] = str(DTYPES.get(value, value)) if is_type else str(value)
    return facts
