"""A checked blob: its values and nodes, and the check of a call's sizes against them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delegatekit_api import DelegatePayload, FormatError, TensorSpec
from delegatekit_toolkit.dataflow import Dataflow
from delegatekit_toolkit.signature import Extent, Range, Signature, TensorType, check_payload

from ..ir.types import DataType
from .nodes import ArgMaxPool, BlobNode
from .values import BlobValue

_WHERE: Final = "XNNPACK blob"
#: Types that arguments may have -> the element type of a caller's tensors with the same bytes.
_CALLERS: Final[Mapping[DataType, str]] = {
    DataType.FLOAT32: "float32",
    DataType.FLOAT16: "float16",
    DataType.BFLOAT16: "bfloat16",
    DataType.QINT8: "int8",
    DataType.QUINT8: "uint8",
    DataType.QINT32: "int32",
    DataType.INT32: "int32",
}
#: The number of combinations of sizes whose checks are cached.
_REMEMBERED: Final = 128
#: ExecuTorch widens 32-bit indices in the caller's tensor.
_INDICES: Final = ("int64", "int32")


@dataclass(frozen=True)
class BlobProgram:
    """Values by id, nodes in order, and the keys of the named data that the blob uses."""

    values: Mapping[int, BlobValue]
    nodes: Sequence[BlobNode]
    keys: frozenset[str]

    def check(self) -> None:
        """Check that every value has one source, and that results have the declared sizes. Raises FormatError."""
        values = self.values.values()
        flow = Dataflow(
            (item.identifier for item in values if item.argument is not None and not item.is_output),
            (item.identifier for item in values if item.is_constant),
            _WHERE,
        )
        for node in self.nodes:
            flow.step(node.inputs, node.outputs, node.where)
            inputs = [self.values[identifier].shape for identifier in node.inputs]
            found = node.shape(inputs)
            for identifier in node.outputs:
                declared = self.values[identifier].shape
                if found != declared:
                    raise FormatError(f"makes {found} of {tuple(inputs)}, but declares {declared}", where=node.where)
        flow.check_outputs(item.identifier for item in values if item.is_output)

    def check_payload(self, payload: DelegatePayload) -> None:
        """Check that the blob's arguments are those that the program passes. Raises FormatError.

        Sizes that change are compared in each call: a blob declares them for one call, of any size.
        """
        inputs, outputs = _places(payload)
        arguments = {item.argument: item for item in self.values.values() if item.argument is not None}
        if set(arguments) != {*inputs, *outputs}:
            what = f"has the arguments {sorted(arguments)[:40]}"
            raise FormatError(f"{what}, the program calls it with {sorted([*inputs, *outputs])[:40]}", where=_WHERE)
        for place, value in sorted(arguments.items()):
            if value.is_output != (place in outputs):
                kinds = ("an output", "an input") if value.is_output else ("an input", "an output")
                raise FormatError(f"is {kinds[0]}, for the program {kinds[1]}", where=f"{_WHERE}, argument {place}")
        symbols = itertools.count()
        signature = Signature(
            *(
                tuple(self._described(arguments[place], spec, symbols) for place, spec in specs.items())
                for specs in (inputs, outputs)
            )
        )
        check_payload(payload, signature, _WHERE)

    def _described(self, value: BlobValue, spec: TensorSpec, symbols: Iterator[int]) -> TensorType:
        """An argument as the program would describe it."""
        types = _INDICES if value.identifier in self._indices else (_CALLERS[value.datatype],)
        dtype = spec.dtype if spec.dtype in types else " or ".join(types)
        order = spec.dim_order or tuple(range(len(spec.shape)))
        declared = value.shape if value.shape != (1,) else value.shape[: len(order)]
        if len(declared) != len(order):
            return TensorType(dtype, declared)
        if spec.dynamic:
            return TensorType(dtype, tuple(Range(0, size, next(symbols)) for size in spec.shape))
        sizes: list[Extent] = [0] * len(order)
        for axis, size in zip(order, declared, strict=True):
            sizes[axis] = size
        return TensorType(dtype, tuple(sizes))

    def check_call(self, sizes: Mapping[int, tuple[int, ...]]) -> None:
        """Check the sizes of a call, which are those of inputs by position, in memory order. Raises FormatError.

        Constants keep their sizes, as do inputs that are not given.
        """
        shapes = {
            value.identifier: sizes.get(value.argument, value.shape) if value.argument is not None else value.shape
            for value in self.values.values()
        }
        for node in self.nodes:
            found = node.in_call([shapes[identifier] for identifier in node.inputs])
            shapes.update(dict.fromkeys(node.outputs, found))

    @property
    def _indices(self) -> set[int]:
        return {node.outputs[1] for node in self.nodes if isinstance(node.operator, ArgMaxPool)}


def _places(payload: DelegatePayload) -> tuple[dict[int, TensorSpec], dict[int, TensorSpec]]:
    """Position among the arguments of the file's call -> its tensor; without numbers, which XNNPACK ignores."""
    count = len(payload.inputs) + len(payload.outputs) + len(payload.numbers)
    places = [place for place in range(count) if place not in payload.numbers]
    split = len(payload.inputs)
    return (
        dict(zip(places[:split], payload.inputs, strict=True)),
        dict(zip(places[split:], payload.outputs, strict=True)),
    )


class CallSizes:
    """Checks the sizes of calls that change; those that were checked before cost only a look-up."""

    def __init__(self, program: BlobProgram, payload: DelegatePayload) -> None:
        self._program = program
        inputs, _ = _places(payload)
        #: Position among the inputs, position in the file's call, order of axes.
        self._changing = [
            (position, place, spec.dim_order or tuple(range(len(spec.shape))))
            for position, (place, spec) in enumerate(inputs.items())
            if spec.dynamic
        ]
        self._count = len(inputs)
        self._known: set[tuple[tuple[int, ...], ...]] = set()

    def check(self, shapes: Sequence[Sequence[int]]) -> None:
        """Raise FormatError if a call with inputs of these shapes does not match the blob."""
        if not self._changing:
            return
        if len(shapes) != self._count:
            raise FormatError(f"has {self._count} inputs, is called with {len(shapes)}", where=_WHERE)
        key = tuple(tuple(shapes[position]) for position, _, _ in self._changing)
        if key in self._known:
            return
        if any(len(shape) != len(order) for shape, (_, _, order) in zip(key, self._changing, strict=True)):
            raise FormatError(f"is called with inputs of {key}", where=_WHERE)
        physical = {
            place: tuple(shape[axis] for axis in order)
            for shape, (_, place, order) in zip(key, self._changing, strict=True)
        }
        self._program.check_call(physical)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(key)
