"""The values of a blob, each checked in isolation: type, sizes, quantization, and that its data is long enough."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.dataflow import element_count, section

from ..ir.formats import GROUP_STEP
from ..ir.types import MAX_RANK, DataType, constant_bytes
from . import schema

#: Quantization of a value -> the types that may have it. XNNPACK assumes that the table matches the type.
_TYPES: Final[Mapping[type, Collection[DataType]]] = {
    type(None): (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.INT32),
    schema.PerTensorQuant: (DataType.QINT8, DataType.QUINT8, DataType.QINT32),
    schema.PerChannelQuant: (DataType.QCINT8, DataType.QCINT32, DataType.QCINT4),
    schema.PerTokenDynamicQuant: (DataType.QDINT8,),
    schema.PerChannelGroupQuant: (DataType.QBINT4,),
}
#: Zero points of types with fewer than 32 bits.
_ZERO_POINTS: Final = {DataType.QINT8: range(-128, 128), DataType.QUINT8: range(256)}
#: Maximum bytes of an element: also of a value that is never in our memory.
_MOST_ITEM_BYTES: Final = 8


@dataclass(frozen=True)
class BlobValue:
    """A value as the blob declares it."""

    identifier: int
    datatype: DataType
    #: The declared sizes, with the axes in memory order.
    shape: tuple[int, ...]
    quantization: fb.Table | None
    #: The index of the delegate's argument, inputs first; None if it is not an argument.
    argument: int | None
    is_output: bool
    is_constant: bool
    #: Its name in messages.
    where: str


class Constants:
    """The table of constants: the location of each, in the blob or in the program's named data."""

    def __init__(
        self, entries: list[schema.ConstantDataOffset], section_: memoryview, named_data: Mapping[str, memoryview]
    ) -> None:
        self._entries = entries
        self._section = section_
        self._named_data = named_data
        #: The keys of the named data that were requested.
        self.keys: set[str] = set()

    def check(self, index: int, needed: int, what: str, where: str) -> None:
        """Raise FormatError unless entry `index` has `needed` bytes; `what` names the reader in the message."""
        if not 0 < index < len(self._entries):
            raise FormatError(f"constant {index} of {len(self._entries)} does not exist", where=where)
        entry = self._entries[index]
        key = entry.named_key
        if key is None:
            data = section(self._section, entry.offset, entry.size, f"XNNPACK blob, constant {index}")
        elif key in self._named_data:
            data = self._named_data[key]
            self.keys.add(key)
        else:
            raise FormatError(f"names the constant {key!r}, which the program does not have", where=where)
        if data.nbytes < needed:
            raise FormatError(f"has a constant of {data.nbytes} bytes where {what} needs {needed}", where=where)


def read_values(values: list[schema.XValue], constants: Constants) -> dict[int, BlobValue]:
    """All values by their ids. Raises FormatError."""
    found: dict[int, BlobValue] = {}
    arguments: dict[int, BlobValue] = {}
    for index, item in enumerate(values):
        value = _read(item, constants, f"XNNPACK blob, value {index}")
        if found.setdefault(value.identifier, value) is not value:
            raise FormatError(f"has the id {value.identifier} of another value", where=value.where)
        if value.argument is not None and arguments.setdefault(value.argument, value) is not value:
            raise FormatError(f"is argument {value.argument}, as another value", where=value.where)
    return found


def _read(item: schema.XValue, constants: Constants, where: str) -> BlobValue:
    tensor, quantization = _parts(item, where)
    value = _declared(tensor, quantization, where)
    count = element_count(value.shape, where, item_bytes=_MOST_ITEM_BYTES)
    if value.is_constant:
        if value.datatype is DataType.QDINT8 or value.argument is not None:
            raise FormatError("is a constant, and computed or an argument as well", where=where)
        needed = constant_bytes(value.datatype, value.shape)
        constants.check(tensor.constant_buffer_idx, needed, f"{tensor.dims}", where)
    _check_quantization(value, count, constants)
    return value


def _parts(item: schema.XValue, where: str) -> tuple[schema.XNNTensorValue, fb.Table | None]:
    tensor, quantization = item.xvalue_union, None
    if isinstance(tensor, schema.XNNQuantizedTensorValue):
        quantization = tensor.quant_params
        if quantization is None:
            raise FormatError("has no quantization parameters", where=where)
        tensor = tensor.tensor_value
    if not isinstance(tensor, schema.XNNTensorValue):
        raise FormatError("is not a tensor", where=where)
    return tensor, quantization


def _declared(tensor: schema.XNNTensorValue, quantization: fb.Table | None, where: str) -> BlobValue:
    shape = tuple(tensor.dims or ())
    if len(shape) != tensor.num_dims:
        raise FormatError(f"has {len(shape)} sizes for {tensor.num_dims} axes", where=where)
    if len(shape) > MAX_RANK:
        raise FormatError(f"has {len(shape)} axes: XNNPACK allows {MAX_RANK}", where=where)
    if tensor.flags not in (0, schema.EXTERNAL_INPUT, schema.EXTERNAL_OUTPUT):
        raise FormatError(f"has flags {tensor.flags}", where=where)
    if (tensor.external_id == schema.NONE) != (tensor.flags == 0):
        raise FormatError(f"has flags {tensor.flags} and the argument {tensor.external_id}", where=where)
    if tensor.id_out == schema.NONE:
        raise FormatError("has the id that stands for no value", where=where)
    types = _TYPES[type(quantization)]
    if tensor.datatype not in types:
        kind = type(quantization).__name__ if quantization is not None else "no quantization"
        raise FormatError(f"has data type {tensor.datatype} with {kind}", where=where)
    if tensor.dq_datatype:
        raise FormatError(f"has the dynamic type {tensor.dq_datatype}, which is not supported", where=where)
    return BlobValue(
        tensor.id_out,
        DataType(tensor.datatype),
        shape,
        quantization,
        tensor.external_id if tensor.flags else None,
        tensor.flags == schema.EXTERNAL_OUTPUT,
        tensor.constant_buffer_idx != 0,
        where,
    )


def _check_quantization(value: BlobValue, count: int, constants: Constants) -> None:
    table: Any = value.quantization
    where = value.where
    match table:
        case schema.PerTensorQuant():
            if not 0 < table.scale < math.inf:
                raise FormatError(f"has the scale {table.scale}", where=where)
            if table.zero_point not in _ZERO_POINTS.get(value.datatype, (0,)):
                raise FormatError(f"has the zero point {table.zero_point}", where=where)
        case schema.PerTokenDynamicQuant():
            if value.argument is not None or not 0 < table.num_nonbatch_dims <= len(value.shape):
                what = f"has scales for its last {table.num_nonbatch_dims} of {len(value.shape)} axes"
                raise FormatError(f"{what}, or is an argument", where=where)
        case schema.PerChannelQuant():
            _check_constant(value)
            if not 0 <= table.channel_dim < len(value.shape):
                raise FormatError(f"has scales along axis {table.channel_dim} of {len(value.shape)}", where=where)
            _check_scales(table, value.shape[table.channel_dim], 4, constants, where)
        case schema.PerChannelGroupQuant():
            _check_constant(value)
            group = table.group_size
            if len(value.shape) != 2 or table.channel_dim != 0:
                raise FormatError(f"has groups of scales along axis {table.channel_dim} of {value.shape}", where=where)
            if group < 1 or group % GROUP_STEP or value.shape[1] % group:
                raise FormatError(f"has groups of {group} in {value.shape}", where=where)
            _check_scales(table, count // group, 2, constants, where)


def _check_constant(value: BlobValue) -> None:
    if not value.is_constant:
        raise FormatError("has scales of its channels, and is no constant", where=value.where)


def _check_scales(table: Any, wanted: int, item_bytes: int, constants: Constants, where: str) -> None:
    """Check for one scale for each channel or group, in a constant or, in older files, in the table."""
    if table.scale_buffer_idx:
        if table.num_scales != wanted:
            raise FormatError(f"has {table.num_scales} scales for {wanted} channels or groups", where=where)
        constants.check(table.scale_buffer_idx, wanted * item_bytes, f"{wanted} scales", where)
    elif isinstance(table, schema.PerChannelGroupQuant) or len(table.scale or ()) != wanted:
        raise FormatError(f"has {len(table.scale or ())} scales for {wanted} channels or groups", where=where)
