"""The argument of lowering functions: OpenVINO's model under construction, and the tensors of the program's calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, LoweringError, MutableState, Operand, ProgramView
from delegatekit_toolkit.building import DebugHandles, Merging, PartitionBuilder
from delegatekit_toolkit.content import storage_key
from delegatekit_toolkit.support import Row

from ..blob.library import openvino, told
from .sizes import Size, SizeWriter, is_fixed, size_of, sizes_of
from .types import DTYPES, NAMES

_WHERE: Final = "OpenVINO lowering"
#: Above it the product that rounds to bfloat16 may be infinite: such numbers are made smaller first.
_MOST_SPLIT: Final = 2.0**110
_SMALLER: Final = 2.0**-32
#: float32's largest number, which is infinite in bfloat16.
_MOST: Final = torch.finfo(torch.float32).max
#: The least normal float16, the steps of smaller ones in 1, and what is rounded to infinity.
_LEAST_HALF: Final = 2.0**-14
_HALF_STEPS: Final = 2.0**24
_BEYOND_HALF: Final = 65520.0
#: Elements that a copy takes at once.
_LEAST_ROW: Final = 1 << 14
#: Its product with such numbers is infinite.
_LARGE: Final = 2.0**127


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the model: OpenVINO's output of a node, and its sizes."""

    output: Any
    shape: tuple[Size, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements."""
        return DTYPES[self.output.get_element_type().get_type_name()]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers."""
        return self.dtype.is_floating_point


class ModelBuilder(PartitionBuilder[Value]):
    """Writes nodes of OpenVINO's operator set for calls of the edge dialect."""

    def __init__(self, program: ProgramView) -> None:
        super().__init__(program)
        self.handles: Final = DebugHandles()
        self._library = openvino()
        self._parameters: list[Any] = []
        self._results: list[Any] = []
        self._sinks: list[Any] = []
        self._names: set[str] = set()
        self._constants: Merging[Value] = Merging()
        #: The tensors that constants were made of: as long as they live, nothing else has their addresses.
        self._sources: list[torch.Tensor] = []
        self._sizes = SizeWriter(self.op, self.integers)

    # -- the walk over the program -------------------------------------------------------------------------------------

    def build(self, table: Mapping[str, Row[Any]], *, skip: Callable[[Call], bool] = lambda call: False) -> None:
        """As the base class; buffers that the delegate keeps are variables, read before and written after all else."""
        kept = {}
        for node, state in self.program.buffers.items():
            kept[node] = self._variable(state)
            self.define(self.program.operand(node), self._read(kept[node], state))
        super().build(table, skip=skip)
        for node, state in self.program.buffers.items():
            value, dtype = self.value(self.program.operand(state.updated)), state.initial.dtype
            value = self.cast(self.rounded(value) if dtype is torch.bfloat16 else value, kept_in(dtype))
            sink = self._library.op.assign(self._copied(value, state.initial.shape).output.get_node(), kept[node])
            self._named(sink, "assign")
            self._sinks.append(sink)

    def _unblocked(self, value: Value) -> Value:
        """What becomes bfloat16, in PyTorch's layout: OpenVINO crashes where it converts its own, in blocks, of eight
        channels with eight places."""
        sizes: tuple[Any, ...] = value.shape
        crashes = sizes[1:2] == (8,) and all(map(is_fixed, sizes[2:])) and math.prod(sizes[2:]) == 8
        return self._copied(value, sizes) if crashes else value

    def _copied(self, value: Value, shape: Sequence[int]) -> Value:
        """A copy that OpenVINO does not remove: a variable whose new value is an input or an output, or a view of one,
        would have its memory, which is the caller's."""
        # A Roll copies row by row, with a few divisions for each.
        rows = len(shape) - 1
        while rows and math.prod(shape[rows:]) < _LEAST_ROW:
            rows -= 1
        wide = self.reshape(value, (math.prod(shape[:rows]), math.prod(shape[rows:])))
        return self.reshape(self.op("roll", wide, self.integers([0]), self.integers([0])), shape)

    def _variable(self, state: MutableState) -> Any:
        library, info = self._library, self._library.op.util.VariableInfo()
        info.data_shape = library.PartialShape(list(state.initial.shape))
        info.data_type = self._type(kept_in(state.initial.dtype))
        info.variable_id = state.name
        return library.op.util.Variable(info)

    def _read(self, variable: Any, state: MutableState) -> Value:
        initial = state.initial.detach().to(kept_in(state.initial.dtype)).contiguous()
        node = self._library.op.read_value(self._made_constant(initial).output, variable)
        self._named(node, "read_value")
        return self.cast(Value(node.output(0), _shape(node.output(0))), computed_in(state.initial.dtype))

    def make_input(self, operand: Operand) -> Value:
        """The model's next parameter, in the type that is computed with."""
        shape = sizes_of(operand.shape)
        dimensions = [size if isinstance(size, int) else -1 for size in shape]
        node = self._library.opset15.parameter(dimensions, self._type(operand.dtype))
        node.output(0).get_tensor().set_names({self._named(node, "input")})
        self._parameters.append(node)
        value = Value(node.output(0), shape)
        self._sizes.note(value, shape)
        return self.cast(value, computed_in(operand.dtype))

    def make_constant(self, operand: Operand, data: torch.Tensor) -> Value:
        """A constant."""
        return self.constant(data)

    def make_output(self, value: Value, operand: Operand) -> None:
        """Return a value as the model's next result, in the program's type."""
        if operand.dtype is torch.bfloat16:
            value = self._converted(self._unblocked(self.rounded(value)), operand.dtype)
        node = self._library.opset15.result(value.output)
        value.output.get_tensor().add_names({self._named(node, "output")})
        self._results.append(node)

    def define(self, operand: Operand, value: Value) -> None:
        """Set the value of a result, whose type and shape must be the program's. None is one that nothing uses.

        Raises LoweringError if type or shape are not the program's.
        """
        if value is None:
            return
        wanted = sizes_of(operand.shape)
        fits = len(wanted) == value.rank and all(
            size == found or not isinstance(size, int) or not isinstance(found, int)
            for size, found in zip(wanted, value.shape, strict=True)
        )
        if not fits or value.dtype is not computed_in(operand.dtype):
            what = f"was lowered to {NAMES[value.dtype]} {value.shape}, not {NAMES[operand.dtype]} {wanted}"
            raise LoweringError(what, where=operand.description)
        value = Value(value.output, wanted)
        self._sizes.note(value, wanted)
        super().define(operand, value)

    @property
    def names(self) -> frozenset[str]:
        """The names of all nodes of the model."""
        return frozenset(self._names)

    def finish(self) -> Any:
        """OpenVINO's model."""
        return self._library.Model(self._results, self._sinks, self._parameters, "delegate")

    # -- what lowering functions use -----------------------------------------------------------------------------------

    def op(self, kind: str, *operands: Any, **attributes: Any) -> Value:
        """A node with one output. Raises LoweringError for what OpenVINO refuses."""
        return self.ops(kind, *operands, **attributes)[0]

    def ops(self, kind: str, *operands: Any, **attributes: Any) -> tuple[Value, ...]:
        """A node; all of its outputs."""
        with told(f"OpenVINO's {kind} refuses its operands", LoweringError, _WHERE):
            node = getattr(self._library.opset15, kind)(*map(_given, operands), **attributes)
        self.handles.add(self._named(node, kind), self.debug_handle)
        return tuple(Value(output, _shape(output)) for output in node.outputs())

    def constant(self, data: torch.Tensor) -> Value:
        """A constant, made once for equal memory."""

        def make() -> Value:
            self._sources.append(data)
            return self._made_constant(data.detach().to(computed_in(data.dtype)).contiguous())

        return self._constants.once((data.dtype, storage_key(data)), make)

    def _made_constant(self, data: torch.Tensor) -> Value:
        shape, kind = self._library.Shape(list(data.shape)), self._type(data.dtype)
        tensor = self._library.Tensor(data.reshape(-1).numpy(), shape, kind)
        return self._named_constant(self._library.op.Constant(tensor, shared_memory=False))

    def _named_constant(self, node: Any) -> Value:
        self._named(node, "constant")
        return Value(node.output(0), _shape(node.output(0)))

    def _named(self, node: Any, kind: str) -> str:
        """Name a node: names depend on the program only, not on what was built before in this process."""
        name = f"{kind}_{len(self._names)}"
        self._names.add(name)
        node.set_friendly_name(name)
        return name

    def packed(self, data: torch.Tensor, shape: Sequence[int], kind: str, source: torch.Tensor) -> Value:
        """A constant of a type with 4 bits, made once for equal memory of `source`.

        `data` has two elements in a byte, the first in the low half.
        """

        def make() -> Value:
            self._sources.append(source)
            array, sizes = data.reshape(-1).numpy(), self._library.Shape(list(shape))
            tensor = self._library.Tensor(array, sizes, getattr(self._library.Type, kind))
            return self._named_constant(self._library.op.Constant(tensor, shared_memory=False))

        return self._constants.once((kind, tuple(shape), storage_key(source)), make)

    def integers(self, numbers: Sequence[int]) -> Value:
        """Axes, sizes and the like: an int64 vector."""
        array = np.array(list(numbers), dtype=np.int64)
        return self._constants.once(
            ("integers", tuple(array.tolist())), lambda: self._named_constant(self._library.opset15.constant(array))
        )

    def scalar(self, number: int) -> Value:
        """An axis or the like without axes: an int64."""
        return self._constants.once(
            ("scalar", number),
            lambda: self._named_constant(self._library.opset15.constant(np.array(number, dtype=np.int64))),
        )

    def number(self, number: float, dtype: torch.dtype) -> Value:
        """A number of a type, without axes."""
        # repr tells zeros of both signs, and NaN, apart.
        return self._constants.once(
            ("number", repr(number), dtype), lambda: self._made_constant(torch.tensor(number, dtype=dtype))
        )

    def sizes(self, shape: Sequence[Any]) -> Value:
        """Sizes as an operand, computed where they change."""
        found: Value = self._sizes.vector(shape)
        return found

    def size(self, size: Any, dtype: torch.dtype) -> Value:
        """A size that changes as a number of a type, without axes."""
        return self.cast(self.op("squeeze", self.sizes([size]), self.integers([0])), dtype)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """A value in another type; itself if it has it."""
        if dtype is torch.bfloat16:
            return self.rounded(self.cast(value, computed_in(dtype)))
        if value.dtype is dtype:
            return value
        if dtype is torch.bool:
            return self.declare(self.op("not_equal", value, self.number(0, value.dtype)), value.shape)
        if dtype is torch.float16 and value.is_float:
            value = self.rounded_to_half(value)
        return self._converted(value, dtype)

    def _converted(self, value: Value, dtype: torch.dtype) -> Value:
        return self.declare(self.op("convert", value, destination_type=NAMES[dtype]), value.shape)

    def absolute(self, value: Value) -> Value:
        """The sizes of numbers. Those of a vector are computed as a row: OpenVINO takes vectors for sizes of tensors,
        puts those of a joined vector's parts in its place for all that reads it, and leaves some numbers negative."""
        if value.rank != 1:
            return self.declare(self.op("abs", value), value.shape)
        axis = self.integers([0])
        return self.declare(self.op("squeeze", self.op("abs", self.op("unsqueeze", value, axis)), axis), value.shape)

    def rounded(self, value: Value) -> Value:
        """float32 rounded to the nearest bfloat16: OpenVINO's conversion cuts the other bits off on some processors."""
        dtype = value.dtype
        finite = self.op("clamp", value, min_value=-_MOST, max_value=_MOST)
        large = self._split(self.op("multiply", finite, self.number(_SMALLER, dtype)), 16)
        large = self.op("multiply", large, self.number(1 / _SMALLER, dtype))
        is_large = self.op("less", self.number(_MOST_SPLIT, dtype), self.absolute(value))
        return self.declare(self.op("select", is_large, large, self._split(value, 16)), value.shape)

    def rounded_to_half(self, value: Value) -> Value:
        """float32 rounded to the nearest float16: processors without it compute in float32 on both sides of a
        conversion, which then changes nothing."""
        size, dtype = self.absolute(value), value.dtype
        small = self.op("round", self.op("multiply", value, self.number(_HALF_STEPS, dtype)), mode="half_to_even")
        small = self.op("multiply", small, self.number(1 / _HALF_STEPS, dtype))
        infinite = self.op("multiply", value, self.number(_LARGE, dtype))
        made = self.op("select", self.op("less", size, self.number(_LEAST_HALF, dtype)), small, self._split(value, 13))
        is_large = self.op("less_equal", self.number(_BEYOND_HALF, dtype), size)
        return self.declare(self.op("select", is_large, infinite, made), value.shape)

    def _split(self, value: Value, bits: int) -> Value:
        """float32 without its last bits, rounded to the nearest, by a product that makes room for them (Veltkamp)."""
        large = self.op("multiply", value, self.number(2.0**bits + 1, value.dtype))
        return self.op("subtract", large, self.op("subtract", large, value))

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        """The elements in another shape, of which one size may follow from the others."""
        wanted = sizes_of(shape)
        if wanted == value.shape and None not in wanted:
            return value
        changing = [axis for axis, size in enumerate(wanted) if not is_fixed(size)]
        given = [-1 if len(changing) == 1 and [axis] == changing else size for axis, size in enumerate(wanted)]
        return self.declare(self.op("reshape", value, self.sizes(given), special_zero=False), wanted)

    def declare(self, value: Value, shape: Sequence[Any]) -> Value:
        """Say which sizes a value has, where they change."""
        return Value(
            value.output,
            tuple(
                found if isinstance(found, int) else size_of(size)
                for found, size in zip(value.shape, shape, strict=True)
            ),
        )

    def result_type(self, call: Call) -> torch.dtype:
        """The type that a call's first result is computed in."""
        return computed_in(call.results[0].dtype)

    def _type(self, dtype: torch.dtype) -> Any:
        return getattr(self._library.Type, NAMES[dtype])


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The type of the model's values for one of the program: processors without bfloat16 compute it in float32."""
    return torch.float32 if dtype is torch.bfloat16 else dtype


def kept_in(dtype: torch.dtype) -> torch.dtype:
    """The type of a variable for a buffer of the program: OpenVINO has no variables of int64, which it computes in 32
    bits anyway."""
    return torch.int32 if dtype is torch.int64 else computed_in(dtype)


def _given(operand: Any) -> Any:
    if isinstance(operand, Value):
        return operand.output
    if isinstance(operand, list | tuple):
        return [_given(item) for item in operand]
    return operand


def _shape(output: Any) -> tuple[Size, ...]:
    found = output.get_partial_shape()
    return tuple(size.get_length() if size.is_static else None for size in found)


#: What a call becomes: a value, or several where an operator has several results (None: nothing uses it).
Made: TypeAlias = "Value | tuple[Value | None, ...]"
#: Lowers one call of the program: writes what computes it and returns its value, or several.
Lower: TypeAlias = Callable[[ModelBuilder, Call], Made]
