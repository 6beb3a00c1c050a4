"""The flatbuffer tables of TOSA files (identifier TOSA), after the schema that Arm publishes with TOSA 1.0.

The tables of attributes are derived from the operators' fields.
"""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum
from typing import Any, Final, get_type_hints

from delegatekit_toolkit import flatbuffer as fb

from .operators import OPERATORS, Operator

IDENTIFIER: Final = b"TOSA"
#: Codes of the operators that define a constant and a shape.
CONST: Final = 67
CONST_SHAPE: Final = 75


class NoAttributes(fb.Table):
    """The table of an operator without attributes, and of one that is not read."""


def _column(hint: Any) -> Any:
    """The column for a field of an operator."""
    if hint is bool:
        return fb.bool_()
    if hint is int:
        return fb.i32()
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return fb.u32()
    if hint == int | float:  # bounds, in the bytes of the tensor's element type
        return fb.vector("u8", align=8)
    return fb.vector("i32")


#: Operator -> the types of its attributes, found once: annotations are texts that are evaluated.
HINTS: Final = {operator: get_type_hints(operator) for operator in OPERATORS.values()}


def _attributes(operator: type[Operator]) -> type[fb.Table]:
    columns = {item.name: _column(HINTS[operator][item.name]) for item in fields(operator)}
    return type(
        f"{operator.__name__}Attributes", (fb.Table,), {"__annotations__": dict.fromkeys(columns, Any), **columns}
    )


class ConstAttributes(fb.Table):
    """The table of CONST: the value is the output's."""


class ConstShapeAttributes(fb.Table):
    """The table of CONST_SHAPE: the value is the output's."""


#: Operator -> the table of its attributes.
ATTRIBUTES: Final = {operator: _attributes(operator) for operator in OPERATORS.values()}
#: The members of the union of attributes; a member's code is the operator's.
MEMBERS: Final[tuple[type[fb.Table], ...]] = tuple(
    ConstAttributes
    if code == CONST
    else ConstShapeAttributes
    if code == CONST_SHAPE
    else ATTRIBUTES[OPERATORS[code]]
    if code in OPERATORS
    else NoAttributes
    for code in range(1, CONST_SHAPE + 1)
)


class Version(fb.Table):
    """The version of the specification."""

    major: int = fb.i32(default=-1)
    minor: int = fb.i32(default=-1)
    patch: int = fb.i32(default=-1)
    draft: bool = fb.bool_(default=True)


class TosaTensor(fb.Table):
    """A tensor; with `data` a constant."""

    name: str | None = fb.string()
    shape: list[int] | None = fb.vector("i32")
    type: int = fb.u32()
    data: bytes | None = fb.vector("u8", align=8)
    variable: bool = fb.bool_()
    is_unranked: bool = fb.bool_()
    variable_name: str | None = fb.string()
    offset: int = fb.u64()
    size: int = fb.u64()


class TosaShape(fb.Table):
    """A list of sizes, int64."""

    name: str | None = fb.string()
    rank: int = fb.u32()
    data: bytes | None = fb.vector("u8", align=8)


class OpLocation(fb.Table):
    """The source location of an operator."""

    text: str | None = fb.string()


class TosaOperator(fb.Table):
    """An operator with the names of its operands and results."""

    op: int = fb.u32()
    attribute: fb.Table | None = fb.union(lambda: MEMBERS)
    inputs: list[str] | None = fb.strings()
    outputs: list[str] | None = fb.strings()
    location: OpLocation | None = fb.ref(lambda: OpLocation)


class TosaBasicBlock(fb.Table):
    """Operators in order, with their tensors and shapes."""

    name: str | None = fb.string()
    operators: list[TosaOperator] | None = fb.tables(lambda: TosaOperator)
    tensors: list[TosaTensor] | None = fb.tables(lambda: TosaTensor)
    inputs: list[str] | None = fb.strings()
    outputs: list[str] | None = fb.strings()
    shapes: list[TosaShape] | None = fb.tables(lambda: TosaShape)


class TosaRegion(fb.Table):
    """Basic blocks."""

    name: str | None = fb.string()
    blocks: list[TosaBasicBlock] | None = fb.tables(lambda: TosaBasicBlock)


class TosaGraph(fb.Table):
    """The root."""

    version: Version | None = fb.ref(lambda: Version)
    regions: list[TosaRegion] | None = fb.tables(lambda: TosaRegion)
