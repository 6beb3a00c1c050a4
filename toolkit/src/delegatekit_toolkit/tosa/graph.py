"""A TOSA graph in memory: tensors and operations in order, from a lowering to the file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit.dataflow import Dataflow

from .operators import Cast, Concat, Matmul, Operator
from .rules import result_of
from .tensors import Operation, Tensor
from .types import INTEGER_RANGES, NUMPY_TYPES, DType


class Graph:
    """A graph under construction. All tensors have unique names; a number is appended to a name that is taken."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        #: Constants in order of definition, shapes included.
        self.constants: list[Tensor] = []
        self.operations: list[Operation] = []
        self._names: dict[str, int] = {}
        self._known: dict[Any, Tensor] = {}

    def input(self, name: str, shape: Sequence[int], dtype: DType) -> Tensor:
        """A new input."""
        tensor = Tensor(self._unique(name), tuple(map(int, shape)), dtype)
        self.inputs.append(tensor)
        return tensor

    def constant(self, array: Any, dtype: DType, name: str = "") -> Tensor:
        """A constant tensor, or for SHAPE a list of sizes. Equal constants are one tensor, with the first one's name.

        Raises LoweringError for values that do not fit the type.
        """
        data = np.asarray(array)
        # np.ascontiguousarray adds an axis to a 0-d array.
        converted = np.ascontiguousarray(data.astype(NUMPY_TYPES[dtype])).reshape(data.shape)
        low, high = INTEGER_RANGES.get(dtype, (0, 0))
        if low and data.size and (data.min() < low or data.max() > high):
            raise LoweringError(f"values from {data.min()} to {data.max()} do not fit {dtype.name}", where=name or None)
        key = dtype, data.shape, hashlib.blake2b(converted.data if converted.size else b"").digest()
        known = self._known.get(key)
        if known is None:
            unique = self._unique(name or f"{dtype.name.lower()}_constant")
            known = self._known[key] = Tensor(unique, data.shape, dtype, converted)
            self.constants.append(known)
        return known

    def add(
        self, operator: Operator, inputs: Sequence[Tensor], shape: Sequence[int], dtype: DType, name: str
    ) -> Tensor:
        """Append an operation; its result has this shape and dtype."""
        output = Tensor(self._unique(name), tuple(map(int, shape)), dtype)
        self.operations.append(Operation(operator, tuple(inputs), output))
        return output

    def output(self, tensor: Tensor) -> None:
        """Make a tensor the next output."""
        self.outputs.append(tensor)

    def verify(self) -> None:
        """Check that everything is defined before it is used, and TOSA's requirements on operands and results.

        Raises LoweringError with the operation and the violated rule.
        """
        self.verify_order()
        for operation in self.operations:
            output = operation.output
            where = f"{operation.operator.name} {output.name}"
            try:
                shape, dtype = result_of(operation.operator, operation.inputs)
            except LoweringError as error:
                raise LoweringError(error.what, where=where) from error
            # The type of a conversion is chosen, and so is that of the sums in a product of halves.
            wider = isinstance(operation.operator, Matmul) and dtype == DType.FP16 and output.dtype == DType.FP32
            if isinstance(operation.operator, Cast) or wider:
                dtype = output.dtype
            if (shape, dtype) != (output.shape, output.dtype):
                given = f"{output.dtype.name}{list(output.shape)}"
                raise LoweringError(f"gives {dtype.name}{list(shape)}, not {given}", where=where)

    def verify_order(self) -> None:
        """Check that operations have the operands they take, defined before use, and that nothing is defined twice.

        Raises LoweringError.
        """
        try:
            flow = Dataflow(_names(self.inputs), _names(self.constants), f"graph {self.name}")
            for operation in self.operations:
                where = f"{operation.operator.name} {operation.output.name}"
                wanted = operation.operator.operands
                if isinstance(operation.operator, Concat):
                    wanted *= max(1, len(operation.inputs))
                if len(operation.inputs) != len(wanted):
                    raise LoweringError(f"has {len(operation.inputs)} operands, not {' '.join(wanted)}", where=where)
                flow.step(_names(operation.inputs), [operation.output.name], where)
            flow.check_outputs(_names(self.outputs))
        except FormatError as error:
            raise LoweringError(error.what, where=error.where) from error

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        if not count:
            return name
        return self._unique(f"{name}_{count}")


def _names(tensors: Sequence[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]
