"""A function of MIL under construction, written with coremltools' builder, which checks every operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np

from delegatekit_api import LoweringError

from ..targets import Target
from .program import TensorType
from .tools import LOCK, Tools, tools
from .types import BY_NAME, DataType

#: A value of the function: coremltools' `Var`, with a name, a shape and a type.
Var: TypeAlias = Any

NUMPY: Final = {
    DataType.BOOL: np.bool_,
    DataType.FLOAT16: np.float16,
    DataType.FLOAT32: np.float32,
    DataType.INT8: np.int8,
    DataType.UINT8: np.uint8,
    DataType.INT32: np.int32,
}
#: Largest number of float16.
_HALF_MAX: Final = 65504.0


class FunctionBuilder:
    """Writes operations. Names depend on the program only, not on what was built before in this process."""

    def __init__(self, library: Tools, target: Target, function: Any) -> None:
        self.target: Final = target
        self._library = library
        self._function = function
        self._counts: dict[str, int] = {}
        self._names = set(function.inputs)

    @property
    def inputs(self) -> Mapping[str, Var]:
        """The function's inputs by name."""
        found: Mapping[str, Var] = self._function.inputs
        return found

    def call(self, kind: str, **arguments: Any) -> Any:
        """An operation; its result, or a tuple of results. Arguments are values, numpy's arrays and numbers, or texts.

        Raises LoweringError for what MIL does not have.
        """
        try:
            return getattr(self._library.builder, kind)(name=self._name(kind), **arguments)
        except (AssertionError, AttributeError, TypeError, ValueError, NotImplementedError) as error:
            raise LoweringError(f"MIL's {kind} refuses its operands: {error}", where="Core ML lowering") from error

    def constant(self, value: np.ndarray[Any, Any] | np.generic | str | bool) -> Var:
        """A constant."""
        return self.call("const", val=value)

    def narrow(self, integers: np.ndarray[Any, Any], datatype: DataType) -> np.ndarray[Any, Any]:
        """Integers as numpy's array of a type of MIL."""
        return integers.astype(self._library.types.nptype_from_builtin(_mil_type(self._library, datatype)))

    def finish(self, outputs: Sequence[Var]) -> Any:
        """The program, with these outputs."""
        self._function.set_outputs(list(outputs))
        program = self._library.program.Program()
        program.add_function("main", self._function)
        return program

    def _name(self, kind: str) -> str:
        while True:
            number = self._counts[kind] = self._counts.get(kind, -1) + 1
            name = f"{kind}_{number}"
            if name not in self._names:
                return name


@contextmanager
def building(target: Target, inputs: Mapping[str, TensorType]) -> Iterator[FunctionBuilder]:
    """A function with these inputs, in which operations can be written."""
    library = tools()
    versions = library.coremltools.target
    opset = next(item for item in versions if item.value == target.version)
    with LOCK:
        library.builder.name_count.clear()
        placeholders = {
            name: library.program.Placeholder(kind.shape, dtype=_mil_type(library, kind.datatype))
            for name, kind in inputs.items()
        }
        function = library.program.Function(placeholders, opset_version=opset)
        with function:
            yield FunctionBuilder(library, target, function)


def _mil_type(library: Tools, datatype: DataType) -> Any:
    return library.types.string_to_builtin(datatype.mil)


def datatype_of(value: Var) -> DataType:
    """The element type of a value."""
    return BY_NAME[tools().types.builtin_to_string(value.dtype)]


def number(value: float, datatype: DataType) -> np.generic:
    """A number as a constant of a type; finite ones that float16 has not become its largest."""
    if datatype is DataType.FLOAT16 and np.isfinite(value):
        value = min(max(value, -_HALF_MAX), _HALF_MAX)
    made: np.generic = NUMPY[datatype](value)
    return made


def numbers(values: Sequence[int]) -> np.ndarray[Any, Any]:
    """Sizes, axes and the like."""
    return np.array(values, dtype=np.int32)
