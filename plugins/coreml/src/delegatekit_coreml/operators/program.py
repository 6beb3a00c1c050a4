"""The argument of lowering functions: the MIL function under construction and the tensors of the program's calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import torch
from torch.fx import Node

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_toolkit.building import DebugHandles, Merging, PartitionBuilder
from delegatekit_toolkit.content import storage_key
from delegatekit_toolkit.expressions import is_fixed, sizes_of
from delegatekit_toolkit.spilling import spilled
from delegatekit_toolkit.support import Row

from ..ir.builder import HALF_MAX, FunctionBuilder, Var, datatype_of, number, numbers
from ..ir.program import symbol
from ..ir.types import DataType
from ..targets import TARGETS
from .interface import DEVICE, outer_type
from .precision import is_wide

if TYPE_CHECKING:
    from ..options import CoreMLOptions

#: Of integers between a quantize and a dequantize.
_INTEGERS: Final = {torch.int8: DataType.INT8, torch.uint8: DataType.UINT8}


class ProgramBuilder(PartitionBuilder[Var]):
    """Writes MIL for calls of the edge dialect."""

    def __init__(self, program: ProgramView, options: CoreMLOptions, function: FunctionBuilder) -> None:
        super().__init__(program)
        self.options: Final = options
        self.target: Final = TARGETS[options.target]
        self.half: Final = options.precision == "float16"
        #: What is returned, in order.
        self.outputs: Final[list[Var]] = []
        self.handles: Final = DebugHandles()
        self._function = function
        self._spills = any(program.release(node) for node in program.constants)
        self._constants: Merging[Var] = Merging()
        #: What constants were made of: as long as it lives, nothing else has its address.
        self._sources: list[torch.Tensor] = []
        self._fixed: set[str] = set(function.inputs)
        #: Whether the call that is being lowered is computed in float32 on request.
        self._is_wide = False

    # -- the walk over the program -----------------------------------------------------------------------------------

    def build(self, table: Mapping[str, Row[Any]], *, skip: Callable[[Call], bool] = lambda call: False) -> None:
        """States are read before everything else, and written after it."""
        buffers = self.program.buffers
        for node in buffers:
            operand = self.program.operand(node)
            self.define(operand, self.call("read_state", input=self._function.inputs[node.name]))
        super().build(table, skip=skip)
        self._is_wide = False
        for node, state in buffers.items():
            value = self.value(self.program.operand(state.updated))
            self.call("coreml_update_state", state=self._function.inputs[node.name], value=value)

    def begin(self, call: Call, entry: Row[Any]) -> None:
        """A call is lowered next."""
        super().begin(call, entry)
        self._is_wide = is_wide(call, self.options)

    def value(self, operand: Operand) -> Var:
        """The value of a tensor, in the type that the call is computed in."""
        data = operand.constant
        if data is not None and operand.dtype not in _INTEGERS:
            return self.constant(data, operand.node if self.program.release(operand.node) else None)
        found = super().value(operand)
        return self.cast(found, self.datatype(operand.dtype)) if datatype_of(found).is_float else found

    def make_input(self, operand: Operand) -> Var:
        """The model's next input, in the type that is computed with."""
        value = self._function.inputs[operand.name]
        if not operand.rank:
            value = self.call("squeeze", x=value, axes=numbers([0]))
        return self.cast(value, self._kept_type(operand.dtype))

    def make_constant(self, operand: Operand, data: torch.Tensor) -> Var:
        """A constant in the type that is computed with."""
        return self.constant(data)

    def make_output(self, value: Var, operand: Operand) -> None:
        """Return a value as the model's next output, under a name of its own."""
        self._is_wide = False
        value = self.cast(value, outer_type(operand.dtype, self.target))
        if not operand.rank:
            value = self.call("expand_dims", x=value, axes=numbers([0]))
        if value.name in self._fixed:
            value = self.call("identity", x=value)
        self._fixed.add(value.name)
        self.outputs.append(value)

    def define(self, operand: Operand, value: Var) -> None:
        """Say what an input or a result is; None is one that nothing uses.

        Raises LoweringError if type or shape are not the program's.
        """
        if value is None:
            return
        # What is computed in float32 stays so until it is read by a call that is not.
        wanted, found = self.datatype(operand.dtype), datatype_of(value)
        if wanted is not found:
            raise LoweringError(f"was lowered to {found}, not {wanted}", where=operand.description)
        super().define(operand, self._function.declare(value, operand.shape))

    # -- what lowering functions use ----------------------------------------------------------------------------------

    def call(self, kind: str, **arguments: Any) -> Any:
        """A MIL operation; its result, or a tuple of results. Raises LoweringError for what MIL does not have."""
        made = self._function.call(kind, **arguments)
        for value in made if isinstance(made, tuple | list) else (made,):
            self.handles.add(symbol(value.name, kind), self.debug_handle)
        return made

    def reshape(self, x: Var, shape: Sequence[Any]) -> Var:
        """The elements in another shape, of which one size may follow from the others."""
        changing = [axis for axis, size in enumerate(shape) if not is_fixed(size)]
        given = [-1 if [axis] == changing else size for axis, size in enumerate(shape)]
        return self.declare(self.call("reshape", x=x, shape=self.sizes(given)), shape if changing else ())

    def tile(self, x: Var, reps: Sequence[Any]) -> Var:
        """Copies along each axis."""
        shape = [size * count for size, count in zip(sizes_of(x.shape), sizes_of(reps), strict=True)]
        return self.declare(self.call("tile", x=x, reps=self.sizes(reps)), shape)

    def sizes(self, shape: Sequence[Any]) -> Any:
        """Sizes as an argument: numpy's integers if all are known, else a value."""
        return self._function.sizes(shape)

    def size(self, size: Any) -> Var:
        """A size that changes as a value without axes."""
        return self.call("squeeze", x=self.sizes([size]), axes=numbers([0]))

    def declare(self, value: Var, shape: Sequence[Any]) -> Var:
        """Say which sizes a value has, where they change."""
        return value if all(map(is_fixed, shape)) else self._function.declare(value, shape)

    def constant(self, data: torch.Tensor, released: Node | None = None) -> Var:
        """A constant in the type that is computed with, made once for equal memory, or for a node that was released."""
        datatype = self.datatype(data.dtype)

        def make() -> Var:
            array = device_array(data, datatype)
            if released is None:
                self._sources.append(data)
            else:
                array = spilled_array(array)
            made = self._function.constant(array)
            self._fixed.add(made.name)
            return made

        return self._constants.once((datatype, released or storage_key(data)), make)

    def number(self, value: float, datatype: DataType) -> Any:
        """A number as an argument beside values of this type."""
        return number(value, datatype)

    def packed(self, operand: Operand, form: Hashable, make: Callable[[torch.Tensor], Var]) -> Var:
        """A constant in a form that the device unpacks, made once for equal memory, or for a node that is released."""
        data = operand.constant
        assert data is not None
        if self.program.release(operand.node):
            return self._constants.once((form, operand.node), lambda: make(data.detach()))
        self._sources.append(data)
        return self._constants.once((form, storage_key(data)), lambda: make(data.detach()))

    def stored(self, data: np.ndarray[Any, Any], datatype: DataType | None = None) -> np.ndarray[Any, Any]:
        """An array for the file; integers in a type of MIL with less than 8 bits if one is given.

        It is on a temporary file if the program's large constants are computed one by one.
        """
        found = data if datatype is None else self._function.narrow(data, datatype)
        return spilled_array(found) if self._spills else found

    def cast(self, value: Var, datatype: DataType) -> Var:
        """A value in another type; itself if it has it."""
        found = datatype_of(value)
        if found is datatype:
            return value
        if datatype is DataType.BOOL:
            # MIL does not say what a cast makes of fractions.
            return self.call("not_equal", x=value, y=number(0, found))
        return self.call("cast", x=value, dtype=datatype.mil)

    def datatype(self, dtype: torch.dtype) -> DataType:
        """The type that is computed in for one of the program."""
        return DEVICE[dtype] if self._is_wide else self._kept_type(dtype)

    def _kept_type(self, dtype: torch.dtype) -> DataType:
        """The type in which values are kept between calls: also of integers between a quantize and a dequantize."""
        found = _INTEGERS.get(dtype) or DEVICE[dtype]
        return DataType.FLOAT16 if self.half and found is DataType.FLOAT32 else found

    def result_type(self, call: Call) -> DataType:
        """The type that a call's first result is computed in."""
        return self.datatype(call.results[0].dtype)


def device_array(data: torch.Tensor, datatype: DataType) -> Any:
    """A constant of the program as numpy's array of a type; finite numbers that float16 has not become its largest."""
    elements = data.detach()
    if datatype is DataType.FLOAT16 and elements.dtype is not torch.float16 and not _fits_half(elements):
        elements = torch.where(elements.isfinite(), elements.clamp(-HALF_MAX, HALF_MAX), elements)
    array = elements.to(datatype.torch).contiguous().numpy()
    return array if array.ndim else array[()]


def spilled_array(array: Any) -> Any:
    """The same numbers, on a temporary file if they are many. Raises LoweringError as `spilled`."""
    if not isinstance(array, np.ndarray):
        return array
    # A type of numpy may stand for one of MIL, which tensors do not have.
    integers = np.dtype(f"i{array.itemsize}")
    return spilled(torch.from_numpy(array.view(integers))).numpy().view(array.dtype)


def _fits_half(elements: torch.Tensor) -> bool:
    """True if no element exceeds float16, as in nearly all constants: no copies are made on the way."""
    low, high = elements.aminmax()
    return bool((low >= -HALF_MAX) & (high <= HALF_MAX))


#: What calls of the program became: a value, or several where an operator has several results.
Made: TypeAlias = "Var | tuple[Var, ...]"
#: Lowers one call of the program: writes what computes it and returns its value, or several.
Lower: TypeAlias = Callable[[ProgramBuilder, Call], Made]
