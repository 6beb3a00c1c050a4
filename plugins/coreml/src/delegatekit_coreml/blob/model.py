"""The model's file as a program: messages of `Model.proto` and `MIL.proto` (Core ML specification 6 to 10)."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import FormatError
from delegatekit_toolkit.dataflow import element_count

from ..ir.program import Argument, Extent, Feature, Function, Literal, Model, Name, Operation, TensorType
from ..ir.types import FEATURE_CODES, MOST_AXES, DataType
from .protobuf import Fields, signed
from .weights import WeightFile, known_shape, stored_bytes, unpacked

_WHERE: Final = "Core ML model"
#: The programs' path of their weights.
_WEIGHTS: Final = "@model_path/weights/weight.bin"
_MOST_OPERATIONS: Final = 1 << 20
#: A lookup table of a constant has two axes more than the constant.
_MOST_CONSTANT_AXES: Final = MOST_AXES + 2


def read_model(data: memoryview, weights: WeightFile, function: str = "main") -> Model:
    """A model with one of its functions.

    Raises FormatError for a model that is not an ML program, or in which something is missing, damaged or unknown.
    """
    model = Fields(data, _WHERE)
    if not model.has(502):
        raise FormatError("is no ML program", where=_WHERE)
    functions = model.message(502).entries(2)
    if function not in functions:
        raise FormatError(f"has no function {function!r:.60}", where=_WHERE)
    description = model.message(2)
    for described in description.messages(20):
        if described.text(1) == function:
            inputs, outputs = described, described
            break
    else:
        if len(functions) > 1:
            raise FormatError(f"does not describe its function {function!r:.60}", where=_WHERE)
        inputs = outputs = description
    return Model(
        model.number(1),
        _function(functions[function], weights, function),
        _features(inputs, 1 if inputs is description else 2),
        _features(outputs, 10 if outputs is description else 3),
    )


def _features(description: Fields, number: int) -> dict[str, Feature]:
    """The input or output tensors, by name."""
    found: dict[str, Feature] = {}
    for feature in description.messages(number):
        name = feature.text(1)
        where = f"{_WHERE}, feature {name[:60]}"
        array = feature.message(3)
        if not array.has(5) or name in found:
            raise FormatError("is no tensor, or there twice", where=where)
        array = array.message(5)
        datatype = FEATURE_CODES.get(array.number(2))
        if datatype is None:
            raise FormatError(f"has elements of the unknown type {array.number(2)}", where=where)
        found[name] = _feature(array, datatype, where)
    return found


def _feature(array: Fields, datatype: DataType, where: str) -> Feature:
    """A tensor with its allowed sizes."""
    shape = _shape(array)
    shapes = tuple(map(_shape, array.message(21).messages(1))) if array.has(21) else ()
    ranges = array.message(31).messages(1) if array.has(31) else ()
    bounds = tuple((item.number(1), signed(item.number(2))) for item in ranges)
    if any(len(item) != len(shape) for item in shapes) or (bounds and len(bounds) != len(shape)):
        raise FormatError("has sizes of different numbers of axes", where=where)
    return Feature(datatype, shape, bounds, shapes)


def _shape(message: Fields) -> tuple[int, ...]:
    return tuple(map(signed, message.varints(1)))


def _function(message: Fields, weights: WeightFile, name: str) -> Function:
    inputs: dict[str, TensorType] = {}
    states: dict[str, TensorType] = {}
    for item in message.messages(1):
        kind = item.message(2)
        table, kind = (states, kind.message(5).message(1)) if kind.has(5) else (inputs, kind)
        found = _tensor_type(kind, f"{_WHERE}, input {item.text(1)[:60]}", MOST_AXES)
        if found is None:
            raise FormatError("is no tensor", where=f"{_WHERE}, input {item.text(1)[:60]}")
        table[item.text(1)] = found
    blocks = message.entries(3)
    block = blocks.get(message.text(2))
    if block is None:
        raise FormatError(f"has no block for {message.text(2)!r:.40}", where=f"{_WHERE}, function {name}")
    operations = tuple(_operation(item, index, weights) for index, item in enumerate(block.messages(3)))
    return Function(inputs, states, operations, block.texts(2))


def _operation(message: Fields, index: int, weights: WeightFile) -> Operation:
    kind = message.text(1)
    where = f"{_WHERE}, operation {index} ({kind[:40]})"
    if index >= _MOST_OPERATIONS:
        raise FormatError(f"more than {_MOST_OPERATIONS} operations", where=_WHERE)
    if message.has(4):
        raise FormatError("has blocks of its own: control flow is not supported", where=where)
    arguments: dict[str, Argument] = {
        name: tuple(_bound(item, weights, where) for item in argument.messages(1))
        for name, argument in message.entries(2).items()
    }
    for name, value in message.entries(5).items():
        if name != "name":
            arguments[name] = (_literal(value, weights, where),)
    most = _MOST_CONSTANT_AXES if kind == "const" or kind.startswith("constexpr_") else MOST_AXES
    results = tuple((item.text(1), _tensor_type(item.message(2), where, most)) for item in message.messages(3))
    return Operation(kind, arguments, results, where)


def _bound(message: Fields, weights: WeightFile, where: str) -> Name | Literal:
    return _literal(message.message(2), weights, where) if message.has(2) else Name(message.text(1))


def _tensor_type(message: Fields, where: str, most: int) -> TensorType | None:
    """The type of a tensor, which has at most this many axes; None for another type."""
    if not message.has(1):
        return None
    tensor = message.message(1)
    code = tensor.number(1)
    try:
        datatype = DataType(code)
    except ValueError:
        raise FormatError(f"has elements of the unknown type {code}", where=where) from None
    shape = tuple(_extent(item) for item in tensor.messages(3))
    if len(shape) > most or len(shape) != tensor.number(2):
        raise FormatError(f"has {len(shape)} axes", where=where)
    element_count(tuple(size or 0 for size in shape), where, item_bytes=4, least=0)
    return TensorType(datatype, shape)


def _extent(message: Fields) -> Extent:
    return message.message(1).number(1) if message.has(1) else None


# -- literals ----------------------------------------------------------------------------------------------------------


def _literal(message: Fields, weights: WeightFile, where: str) -> Literal:
    """A value in place or in the file of weights."""
    kind = _tensor_type(message.message(2), where, _MOST_CONSTANT_AXES)
    if message.has(5):
        file = message.message(5)
        if kind is None or file.text(1) != _WEIGHTS:
            raise FormatError(f"has a constant in {file.text(1)!r:.60}", where=where)
        return weights.read(file.number(2), kind, where)
    value = message.message(3)
    for number in (2, 3):
        if value.has(number):
            return tuple(_literal(item, weights, where) for item in value.message(number).messages(1))
    if kind is None or not value.has(1):
        raise FormatError("has a constant that is neither tensor, text nor list", where=where)
    tensor = value.message(1)
    if kind.datatype is DataType.STRING:
        texts = tensor.message(4).texts(1)
        return texts[0] if not kind.shape and texts else tuple(texts)
    return _in_place(tensor, kind, where)


def _in_place(message: Fields, kind: TensorType, where: str) -> torch.Tensor:
    """A tensor whose elements are in the message; one element may stand for all."""
    shape, dtype = known_shape(kind, where), kind.datatype.torch
    count = math.prod(shape)
    if message.has(7):
        data = message.message(7).data(1)
        if len(data) != stored_bytes(kind.datatype, count):
            raise FormatError(f"a constant {kind} has {len(data)} bytes", where=where)
        return unpacked(data, kind.datatype, shape)
    numbers = _numbers(message)
    if len(numbers) not in (count, 1):
        raise FormatError(f"a constant {kind} has {len(numbers)} elements", where=where)
    try:
        made = torch.tensor(numbers, dtype=dtype)
    except (OverflowError, RuntimeError):
        raise FormatError(f"a constant {kind} has numbers that do not fit", where=where) from None
    return made.expand(count).reshape(shape) if len(numbers) != count else made.reshape(shape)


def _numbers(message: Fields) -> list[float]:
    """The elements, from the list that has them."""
    if message.has(1):
        return message.message(1).floats(1)
    lists = [message.message(number) for number in (2, 3, 5) if message.has(number)]
    return [signed(value) for found in lists[:1] for value in found.varints(1)]
