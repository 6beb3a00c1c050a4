"""A function of MIL under construction, written with coremltools' builder, which checks every operation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from delegatekit_api import LoweringError
from delegatekit_toolkit.expressions import Expression, sizes_of

from ..targets import Target
from .program import Feature, TensorType
from .sizes import SizeWriter
from .tools import Tools, tools
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
#: Largest float16 number.
HALF_MAX: Final = 65504.0


class FunctionBuilder:
    """Writes operations. Names depend on the program only, not on what was built before in this process."""

    def __init__(self, library: Tools, target: Target, function: Any) -> None:
        self.target: Final = target
        self._library = library
        self._function = function
        self._counts: dict[str, int] = {}
        self._names = set(function.inputs)
        self._sizes = SizeWriter(self.call)
        for value in function.inputs.values():
            self._sizes.note(value, value.shape)

    @property
    def inputs(self) -> Mapping[str, Var]:
        """The function's inputs by name."""
        found: Mapping[str, Var] = self._function.inputs
        return found

    def call(self, kind: str, **arguments: Any) -> Any:
        """An operation; its result, or a tuple of results. Arguments are values, numpy's arrays and numbers, or texts.

        Raises LoweringError for what MIL lacks.
        """
        try:
            made = getattr(self._library.builder, kind)(name=self._name(kind), **arguments)
        except (AssertionError, AttributeError, TypeError, ValueError, NotImplementedError) as error:
            raise LoweringError(f"MIL's {kind} refuses its operands: {error}", where="Core ML lowering") from error
        for value in made if isinstance(made, tuple | list) else (made,):
            self._sizes.note(value, value.shape)
        return made

    def sizes(self, shape: Sequence[Any]) -> Any:
        """Sizes as an argument: numpy's integers if all are known, else a value. Raises LoweringError."""
        return self._sizes.vector(shape)

    def declare(self, value: Var, shape: Sequence[Any]) -> Var:
        """Set the sizes of a value: for sizes that change, more is known here than in MIL's builder.

        Raises LoweringError for sizes that contradict the builder's.
        """
        wanted, found = sizes_of(shape), sizes_of(value.shape)
        if wanted == found:
            return value
        fixed = [(size, known) for size, known in zip(wanted, found, strict=False) if isinstance(size, int)]
        if len(wanted) != len(found) or any(isinstance(known, int) and size != known for size, known in fixed):
            raise LoweringError(f"{value.name} has the sizes {found}, not {wanted}", where="Core ML lowering")
        value._sym_type = self._library.types.tensor(value.dtype, wanted)
        self._sizes.note(value, value.shape)
        return value

    def constant(self, value: np.ndarray[Any, Any] | np.generic | str | bool) -> Var:
        """A constant."""
        return self.call("const", val=value)

    def narrow(self, integers: np.ndarray[Any, Any], datatype: DataType) -> np.ndarray[Any, Any]:
        """Integers as numpy's array of a type of MIL."""
        return integers.astype(self._library.types.nptype_from_builtin(_mil_type(self._library, datatype)))

    def finish(self, outputs: list[Var]) -> Any:
        """coremltools' function, with these outputs."""
        self._function.set_outputs(outputs)
        return self._function

    def _name(self, kind: str) -> str:
        while True:
            number = self._counts[kind] = self._counts.get(kind, -1) + 1
            name = f"{kind}_{number}"
            if name not in self._names:
                return name


@dataclass(frozen=True)
class Input:
    """An input of a function: the form of the caller's tensor, and its sizes as expressions."""

    feature: Feature
    shape: tuple[Expression, ...]


@contextmanager
def building(
    target: Target, inputs: Mapping[str, Input], states: Mapping[str, TensorType]
) -> Iterator[FunctionBuilder]:
    """A function with these inputs and states, for writing operations: one at a time in a process."""
    library = tools()
    versions = library.coremltools.target
    opset = next(item for item in versions if item.value == target.version)
    library.builder.name_count.clear()
    placeholders = {name: _placeholder(library, item) for name, item in inputs.items()}
    for name, kind in states.items():
        datatype = _mil_type(library, kind.datatype)
        placeholders[name] = library.program.StateTensorPlaceholder(kind.shape, dtype=datatype)
    function = library.program.Function(placeholders, opset_version=opset)
    function.input_types = [
        _input_type(library, name, item.feature) for name, item in inputs.items() if item.feature.is_flexible
    ]
    with function:
        yield FunctionBuilder(library, target, function)


def _placeholder(library: Tools, item: Input) -> Any:
    datatype = _mil_type(library, item.feature.datatype)
    made = library.program.Placeholder(item.feature.shape, dtype=datatype)
    if item.feature.is_flexible:
        made.outputs[0]._sym_type = library.types.tensor(datatype, item.shape)
    return made


def _input_type(library: Tools, name: str, feature: Feature) -> Any:
    """coremltools' type for the allowed sizes of an input."""
    make = library.coremltools
    if feature.shapes:
        shape = make.EnumeratedShapes(feature.shapes, default=feature.shape)
    else:
        shape = make.Shape(
            [
                low if low == high else make.RangeDim(low, high, default=usual)
                for (low, high), usual in zip(feature.ranges, feature.shape, strict=True)
            ]
        )
    return make.TensorType(name, shape=shape, dtype=_mil_type(library, feature.datatype))


def _mil_type(library: Tools, datatype: DataType) -> Any:
    return library.types.string_to_builtin(datatype.mil)


def program_of(functions: Mapping[str, Any]) -> Any:
    """A program of one function, or of several with merged equal constants."""
    program = tools().program.Program()
    for name, function in functions.items():
        program.add_function(name, function)
    program.default_function_name = next(iter(functions))
    if len(functions) > 1:
        program.export_as_multifunction = True
        for function in functions.values():
            _name_constants(function)
    return program


def _name_constants(function: Any) -> None:
    """Mark equal constants: those of the same name are written once."""
    for operation in function.find_ops(op_type="const"):
        value = operation.outputs[0].val
        if isinstance(value, np.ndarray):
            kind = tools().types.builtin_to_string(operation.outputs[0].dtype)
            digest = hashlib.sha256(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
            operation.weight_id = f"{kind} {value.shape} {digest.hexdigest()}"


def datatype_of(value: Var) -> DataType:
    """The element type of a value."""
    return BY_NAME[tools().types.builtin_to_string(value.dtype)]


def number(value: float, datatype: DataType) -> np.generic:
    """A number as a constant of a type; finite ones beyond float16's range become its largest."""
    if datatype is DataType.FLOAT16 and np.isfinite(value):
        value = min(max(value, -HALF_MAX), HALF_MAX)
    made: np.generic = NUMPY[datatype](value)
    return made


def numbers(values: Sequence[int]) -> np.ndarray[Any, Any]:
    """Sizes, axes and the like."""
    return np.array(values, dtype=np.int32)
