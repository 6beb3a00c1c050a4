"""The argument of lowering functions: the graph under construction and the tensors of the program's calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_api.nodes import argument
from delegatekit_api.schemes import QUANTIZE
from delegatekit_toolkit.building import Merging, PartitionBuilder
from delegatekit_toolkit.content import storage_key
from delegatekit_toolkit.sizes import Dynamic, Size, dynamic_count
from delegatekit_toolkit.support import Row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Argument, Graph, Node, SymInt, Tensor, constant
from ..ir.stock import BUFFER, VIEW
from ..ir.types import DataType, device_type

if TYPE_CHECKING:
    from torch.fx import Node as FxNode

    from delegatekit_api.schemes import Quantization

    from ..options import VulkanOptions

#: What a tensor of the program became: one tensor, or several where an operator has several results.
Made: TypeAlias = "Tensor | tuple[Tensor, ...]"


class ProgramBuilder(PartitionBuilder[Tensor]):
    """Writes calls of the runtime's operators."""

    spills = True

    def __init__(self, program: ProgramView, options: VulkanOptions) -> None:
        super().__init__(program)
        self.options: Final = options
        self.graph: Final = Graph()
        self._constants: Merging[Tensor] = Merging()
        #: What constants were made of: as long as it lives, nothing else has its address.
        self._sources: list[torch.Tensor] = []
        self._prepacked: dict[Tensor, Tensor] = {}
        self._sizes: dict[FxNode, SymInt] = {}
        #: What several calls need, computed once.
        self.shared: Final[Merging[Any]] = Merging()

    # -- the walk over the program -----------------------------------------------------------------------------------

    def build_with_state(self, table: Mapping[str, Row[Any]]) -> None:
        """State, what `build` makes, and the new values of the state.

        Raises LoweringError for an operator that has no row.
        """
        states = {}
        for node, state in self.program.buffers.items():
            operand = self.program.operand(node)
            states[node] = self._kept(state.initial)
            self.define(operand, states[node])
        self.build(table)
        self.debug_handle = None
        self._keep([(self.program.operand(self.program.buffers[node].updated), to) for node, to in states.items()])

    def _kept(self, initial: torch.Tensor) -> Tensor:
        """A tensor that begins as a constant when the delegate is loaded. Buffers may be overwritten in place."""
        made = self.call("et_vk.prepack.default", [self.constant(initial)], tuple(initial.shape))
        made.storage, made.layout = BUFFER.storage, BUFFER.layout
        return made

    def _keep(self, updates: Sequence[tuple[Operand, Tensor]]) -> None:
        """Write new values into state, after everything has read the old ones."""
        old = {to for _, to in updates}
        # What is another state's old value is copied before that is overwritten.
        values = [self.tensor(operand) for operand, _ in updates]
        copies = {value: self.copied(value) for value in dict.fromkeys(values) if value in old}
        for value, (_, to) in zip(values, updates, strict=True):
            if value is not to:
                self.graph.nodes.append(Node(VIEW, [copies.get(value, value), to.sizes], to))

    def copied(self, tensor: Tensor) -> Tensor:
        """The same elements in memory of their own."""
        return self.call(VIEW, [tensor, tensor.sizes], tensor.shape)

    def make_input(self, operand: Operand) -> Tensor:
        """The delegate's next input: the host narrows 64 bits."""
        tensor = self._like(operand)
        self.graph.inputs.append(tensor)
        return tensor

    def make_constant(self, operand: Operand, data: torch.Tensor) -> Tensor:
        """A constant as it lies in the file, in the type that the device computes in."""
        return self.constant(data)

    def make_output(self, value: Tensor, operand: Operand) -> None:
        """Return a tensor as the delegate's next output."""
        if value in self.graph.outputs or value in self.graph.inputs or value.data is not None:
            # The runtime writes each output once, and never an input: a copy has memory of its own.
            value = self.call("aten.clone.default", [self.computed(value), None], value.shape, value.datatype)
        # The program's type, which with fp16 may be float32 or float16.
        value.staging = self._like(operand).staging
        self.graph.outputs.append(value)

    def define(self, operand: Operand, value: Tensor) -> None:
        """Say what an input or a result is. Raises LoweringError if the shape is not the program's."""
        shape = shape_of(operand)
        if value.shape != shape:
            raise LoweringError(f"was lowered to shape {value.shape}, not {shape}", where=operand.description)
        super().define(operand, value)

    # -- what lowering functions use ---------------------------------------------------------------------------------

    def tensor(self, operand: Operand) -> Tensor:
        """The tensor of an operand; a constant is brought to the device by a call of its own."""
        return self.computed(self.value(operand))

    def weight(self, operand: Operand | None) -> Tensor | None:
        """The tensor of an operand, a constant as it lies in the file: for operators that pack it themselves."""
        return None if operand is None else self.value(operand)

    def computed(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or of a constant its copy on the device."""
        if tensor.data is None:
            return tensor
        if tensor not in self._prepacked:
            made = self.call("et_vk.prepack.default", [tensor], tensor.shape, tensor.datatype)
            self._prepacked[tensor] = made
        return self._prepacked[tensor]

    def operand(self, item: Operand | float, like: DataType) -> Tensor:
        """The tensor of an operand, or a number as a constant without axes."""
        return self.tensor(item) if isinstance(item, Operand) else self.scalar(item, like)

    def term(self, call: Call, name: str, like: DataType) -> Tensor:
        """An argument as a tensor: a number has no axes where the call's result has none, else at most one."""
        item = call[name]
        if isinstance(item, Operand | int | float):
            return self.operand(item, like)
        made = self.number(self.numbers(call, name), like)
        return made if call.result.rank else self.view(made, ())

    def number(self, number: Argument, datatype: DataType) -> Tensor:
        """A number that is computed in each call as a tensor of one element: the runtime takes it where it counts."""
        counting: list[Argument] = [number, self._computed_number("add", [number, 1]), 1, *[None] * 4]
        return self.call("aten.arange.start_step", counting, (1,), datatype)

    def scalar(self, number: float, datatype: DataType) -> Tensor:
        """A number as a constant without axes, on the device."""
        return self.computed(self.constant(torch.tensor(number, dtype=datatype.torch)))

    def constant(self, data: torch.Tensor) -> Tensor:
        """A constant, made once for equal memory: 64 bits are narrowed, and float32 to float16 if that is asked for."""

        def make() -> Tensor:
            self._sources.append(data)
            return constant(data, half=self.options.fp16)

        if data.dim() == 0:
            return self._constants.once((data.dtype, data.item().__repr__()), make)
        return self._constants.once(storage_key(data), make)

    def integers(self, data: torch.Tensor, quantization: Quantization, datatype: DataType) -> Tensor:
        """A constant of numbers that is kept as integers, as long as whoever reads it can."""

        def make() -> Tensor:
            self._sources.append(data)
            return Tensor(tuple(data.shape), datatype, datatype, data.detach(), integers=quantization)

        return self._constants.once((storage_key(data), quantization, datatype), make)

    def call(
        self,
        operator: str,
        arguments: Sequence[Argument],
        shape: Sequence[Size],
        datatype: DataType | None = None,
    ) -> Tensor:
        """Call an operator with one result. The type of the first tensor argument is the result's, if none is given."""
        if datatype is None:
            datatype = next(item.datatype for item in arguments if isinstance(item, Tensor))
        (result,) = self.calls(operator, arguments, [(tuple(shape), datatype)], listed=False)
        return result

    def calls(
        self,
        operator: str,
        arguments: Sequence[Argument],
        results: Sequence[tuple[Sequence[Size], DataType]],
        *,
        listed: bool = True,
    ) -> tuple[Tensor, ...]:
        """Call an operator with several results, given by their shapes and types."""
        made = tuple(Tensor(tuple(shape), datatype, self._staging(datatype)) for shape, datatype in results)
        handles = () if self.debug_handle is None else (self.debug_handle,)
        self.graph.nodes.append(Node(operator, list(arguments), made if listed else made[0], handles))
        return made

    def view(
        self, tensor: Tensor, shape: Sequence[Size], numbers: Callable[[], Sequence[Argument]] | None = None
    ) -> Tensor:
        """The same elements in another shape. Where several sizes change, `numbers` gives what they are in a call.

        Raises LoweringError where that is needed and not given.
        """
        shape = tuple(shape)
        if shape == tensor.shape:
            return tensor
        if dynamic_count(shape) <= 1:
            sizes: Sequence[Argument] = [-1 if isinstance(size, Dynamic) else size for size in shape]
        elif numbers is not None:
            sizes = numbers()
        else:
            raise LoweringError(f"views {tensor.shape} as {shape}: one size may change", where="Vulkan lowering")
        return self.call("aten.view_copy.default", [tensor, tuple(sizes)], shape)

    def datatype(self, dtype: torch.dtype) -> DataType:
        """The type on the device for one of the program."""
        return device_type(dtype, half=self.options.fp16)

    def result_type(self, call: Call) -> DataType:
        """The type of a call's first result on the device."""
        return self.datatype(call.results[0].dtype)

    def shape(self, call: Call) -> tuple[Size, ...]:
        """The shape of a call's only result."""
        return shape_of(call.result)

    def numbers(self, call: Call, name: str) -> Argument:
        """An argument of numbers, of which some may be computed from sizes in each call."""
        return self._number(argument(call.node, name))

    def _number(self, item: Any) -> Argument:
        if isinstance(item, list | tuple):
            return tuple(self._number(element) for element in item)
        if not hasattr(item, "op"):
            return item  # type: ignore[no-any-return]
        if item not in self._sizes:
            self._sizes[item] = self._size(item)
        return self._sizes[item]

    def size(self, tensor: Tensor, axis: int) -> SymInt:
        """A size of a tensor in each call, as a number."""
        return self._computed_number("sym_size.int", [tensor, axis])

    def product(self, numbers: Sequence[Argument]) -> Argument:
        """Numbers multiplied, of which some may be computed in each call."""
        known = math.prod(number for number in numbers if isinstance(number, int))
        changing = [number for number in numbers if not isinstance(number, int)]
        if not changing:
            return known
        made, *rest = changing
        for number in (*rest, *[known] * (known != 1)):
            made = self._computed_number("mul", [made, number])
        return made

    def sizes(self, tensor: Tensor, axes: Iterable[int]) -> list[Argument]:
        """Sizes of a tensor in each call."""
        return [
            self.size(tensor, axis) if isinstance(tensor.shape[axis], Dynamic) else tensor.sizes[axis] for axis in axes
        ]

    def _size(self, node: FxNode) -> SymInt:
        target: Any = node.target
        if str(target) == "aten.sym_size.int":
            source, axis = node.args
            return self.size(self.tensor(self.program.operand(source)), axis)  # type: ignore[arg-type]
        return self._computed_number(target.__name__, [self._number(item) for item in node.args])

    def _computed_number(self, name: str, arguments: list[Argument]) -> SymInt:
        result = SymInt()
        self.graph.nodes.append(Node(name, arguments, result))
        return result

    def _like(self, operand: Operand) -> Tensor:
        staging = device_type(operand.dtype, half=False)
        return Tensor(shape_of(operand), self.datatype(operand.dtype), staging)

    def _staging(self, datatype: DataType) -> DataType:
        return DataType.FLOAT32 if datatype is DataType.FLOAT16 and self.options.fp16 else datatype


#: Lowers one call of the program: adds what computes it and returns its tensor, or several.
Lower: TypeAlias = Callable[[ProgramBuilder, Call], Made]


def build_layer(layer: Sequence[Call], table: Mapping[str, Row[Lower]], options: VulkanOptions) -> Graph:
    """Lower some calls of a program, in graph order, that begin with dequantizes and end with quantizes.

    Raises LoweringError for an operator that the table does not have.
    """
    builder = ProgramBuilder(layer[0].program, options)
    inside = {call.node for call in layer}
    for operand in dict.fromkeys(item for call in layer for item in call.operands if item.node not in inside):
        if not operand.is_constant:
            builder.define(operand, builder.make_input(operand))
    builder.lower(layer, table)
    for call in layer:
        if call.operator in QUANTIZE:
            builder.make_output(builder.value(call.result), call.result)
    return builder.graph
