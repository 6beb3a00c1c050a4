"""The calls of a blob in readable form. The data of constants is not read: it may be in another file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_api.blobs import BlobOperator
from delegatekit_toolkit.dataflow import Dataflow

from ..ir.graph import PREPACK
from ..ir.types import DataType, Storage
from . import schema
from .reader import parse

_WHERE: Final = "Vulkan blob"
#: The maximum length in characters of a list of numbers.
_LONGEST: Final = 60


def operators(blob: memoryview) -> list[BlobOperator]:
    """The calls in order, of our blobs and stock's. Raises FormatError for damage.

    A call that overwrites a tensor kept from call to call makes a value of its own.
    """
    tables, _ = parse(blob)
    return list(_Calls(tables).told())


class _Calls:
    def __init__(self, tables: schema.VkGraph) -> None:
        self._values = tables.values or []
        self._chain = tables.chain or []
        self._outputs = tables.output_ids or []
        inputs = tables.input_ids or []
        #: The name of each value at this point of the chain.
        self._names = {number: f"input {place}" for place, number in enumerate(inputs)}
        constants = [number for number in range(len(self._values)) if self._is_constant(number)]
        self._names |= {number: f"constant {number}" for number in constants}
        self._flow = Dataflow(inputs, (number for number in constants if number not in inputs), _WHERE)

    def told(self) -> Iterator[BlobOperator]:
        """The calls in order."""
        loaded: set[int] = set()
        for index, call in enumerate(self._chain):
            where = f"{_WHERE}, call {index}"
            if not call.name or not call.args:
                raise FormatError("has no operator or no arguments", where=where)
            *arguments, result = call.args
            reads = [number for argument in arguments for number in self._tensors(argument, where)]
            writes = list(self._tensors(result, where))
            if not writes:
                raise FormatError("its result is not a tensor", where=where)
            again = loaded.intersection(writes) if call.name != PREPACK else set()
            self._flow.step(reads, [number for number in writes if number not in again], where)
            if call.name == PREPACK:
                loaded.update(writes)
            read = dict.fromkeys(self._names[number] for number in reads)
            for number in writes:
                self._names[number] = f"value {number}, written by {index}" if number in again else f"value {number}"
            facts = {"result": ", ".join(self._type(number) for number in writes)}
            others = [text for argument in arguments if (text := self._plain(argument))]
            if others:
                facts["arguments"] = ", ".join(others)
            returned = [str(place) for place, number in enumerate(self._outputs) if number in writes]
            if returned:
                facts["returned"] = f"as output {', '.join(returned)}"
            yield BlobOperator(call.name, tuple(read), tuple(self._names[number] for number in writes), facts)
        self._flow.check_outputs(self._outputs)

    def _value(self, number: int, where: str) -> Any:
        if not 0 <= number < len(self._values):
            raise FormatError(f"names value {number} of {len(self._values)}", where=where)
        return self._values[number].value

    def _is_constant(self, number: int) -> bool:
        table = self._values[number].value
        return isinstance(table, schema.VkTensor) and table.constant_id >= 0

    def _tensors(self, number: int, where: str) -> Iterator[int]:
        """The tensors and computed numbers in a value: itself, or those in its list."""
        table = self._value(number, where)
        listed: Sequence[int] = (table.items or ()) if isinstance(table, schema.ValueList) else (number,)
        for item in listed:
            if isinstance(self._value(item, where), schema.VkTensor | schema.SymInt):
                yield item

    def _type(self, number: int) -> str:
        table = self._values[number].value
        if not isinstance(table, schema.VkTensor):
            return "a size"
        try:
            datatype, storage = DataType(table.datatype), Storage(table.storage_type)
        except ValueError as error:
            raise FormatError(f"has an unknown type: {error}", where=f"{_WHERE}, value {number}") from None
        kept = "" if storage is Storage.DEFAULT else f" {storage.name.lower()}"
        return f"{datatype.name.lower()}{list(table.dims or ())}{kept}"

    def _plain(self, number: int) -> str:
        """A non-tensor argument as text; nothing for None."""
        match self._values[number].value:
            case schema.Int(int_val=value) | schema.Double(double_val=value) | schema.Bool(bool_val=value):
                return str(value)
            case schema.String(string_val=value):
                return str(value)[:_LONGEST]
            case schema.IntList(items=items) | schema.DoubleList(items=items) | schema.BoolList(items=items):
                return str(items or [])[:_LONGEST]
        return ""
