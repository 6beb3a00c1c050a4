"""The operations of a blob in readable form: known numbers and texts are facts, not operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from delegatekit_api.blobs import BlobOperator

from ..ir.program import Literal, Name, Operation
from ..ir.types import DataType
from .reader import read_program

#: A constant with more elements is shown by its type.
_FEW: Final = 8
_MIL: Final = {datatype.torch: datatype.mil for datatype in DataType if datatype is not DataType.STRING}


def operators(blob: memoryview, named_data: Mapping[str, memoryview]) -> list[BlobOperator]:
    """The operations of the blob's function in order, of our blobs and stock's. Raises FormatError for damage."""
    _, model = read_program(blob, named_data)
    known: dict[str, str] = {}
    found = []
    for operation in model.function.operations:
        if operation.kind == "const":
            literals = [item for item in operation.arguments.get("val", ()) if not isinstance(item, Name)]
            known |= {name: _text(item) for (name, _), item in zip(operation.results, literals, strict=False)}
        else:
            found.append(_told(operation, known, model.function.outputs))
    return found


def _told(operation: Operation, known: Mapping[str, str], outputs: tuple[str, ...]) -> BlobOperator:
    facts = {"result": ", ".join(str(kind) for _, kind in operation.results if kind is not None)}
    reads: dict[str, None] = {}
    for parameter, items in operation.arguments.items():
        told = [known.get(item.name) if isinstance(item, Name) else _text(item) for item in items]
        facts[parameter] = ", ".join(text for text in told if text)
        reads |= dict.fromkeys(item.name for item in items if isinstance(item, Name) and item.name not in known)
    makes = tuple(name for name, _ in operation.results)
    facts["returned"] = ", ".join(name for name in makes if name in outputs)
    return BlobOperator(operation.kind, tuple(reads), makes, {key: text for key, text in facts.items() if text})


def _text(literal: Literal) -> str:
    """A constant as a short text."""
    if isinstance(literal, tuple):
        return ", ".join(map(_text, literal[:_FEW]))
    if isinstance(literal, str):
        return literal
    if literal.numel() == 1 or (literal.numel() <= _FEW and not literal.is_floating_point()):
        return str(literal.tolist())
    return f"{_MIL.get(literal.dtype, str(literal.dtype))}{list(literal.shape)}"
