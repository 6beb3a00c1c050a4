"""A delegate's computation in memory: calls of operators, in the order of execution, on tensors and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit.dataflow import Dataflow
from delegatekit_toolkit.sizes import Size, largest

from .types import DataType, Layout, Storage, device_type

if TYPE_CHECKING:
    import torch

    from delegatekit_api.schemes import Quantization


@dataclass(eq=False, repr=False)
class Tensor:
    """A tensor of the graph; with `data` it is a constant, whose elements are stored in the file in row-major order."""

    shape: tuple[Size, ...]
    datatype: DataType
    #: The type that the host passes or receives, after narrowing 64 bits to 32.
    staging: DataType
    data: torch.Tensor | None = field(default=None, repr=False)
    storage: Storage = Storage.DEFAULT
    layout: Layout = Layout.DEFAULT
    #: Tensors with the same number share memory, one after the other; a negative number is never shared.
    memory: int = -1
    #: The quantization of a constant that is kept as integers; None if the data are the elements.
    integers: Quantization | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"{self.datatype.name.lower()} {self.sizes}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape in the largest call."""
        return tuple(map(largest, self.shape))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


#: The operator that uploads a constant to the device, once, when the delegate is loaded.
PREPACK: Final = "et_vk.prepack.default"

#: Largest float16 number.
HALF_MAX: Final = 65504.0


def constant(data: torch.Tensor, *, half: bool = False) -> Tensor:
    """A constant of these elements: 64 bits are narrowed, and with `half` float32 to float16."""
    datatype = device_type(data.dtype, half=half)
    elements = data.detach()
    if datatype is DataType.FLOAT16 and elements.dtype is not datatype.torch:
        elements = elements.clamp(-HALF_MAX, HALF_MAX)
    return Tensor(tuple(data.shape), datatype, datatype, elements.to(datatype.torch))


@dataclass(eq=False)
class SymInt:
    """A number that is computed from the sizes of a call."""


#: An argument of a call: a tensor, a number, a list of these (a tuple), or nothing.
Argument: TypeAlias = "Tensor | SymInt | bool | int | float | str | tuple[Argument, ...] | None"


@dataclass(eq=False)
class Node:
    """A call of an operator. Passes may replace everything."""

    #: The runtime's name of it: "aten.add.Tensor".
    operator: str
    #: One for each argument of the operator's schema, in its order, defaults included.
    arguments: list[Argument]
    #: One tensor or number; for an operator with several results a tuple of tensors.
    result: Tensor | SymInt | tuple[Tensor, ...]
    #: Debug handles of the operators of the program that the node was made for.
    debug_handles: tuple[int, ...] = ()

    @property
    def results(self) -> tuple[Tensor | SymInt, ...]:
        """All results."""
        return self.result if isinstance(self.result, tuple) else (self.result,)

    @property
    def reads(self) -> tuple[Tensor | SymInt, ...]:
        """Tensors and computed numbers among the arguments, in order."""
        return tuple(values_in(self.arguments))

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Read another tensor instead of one."""
        self.arguments = [_replaced(argument, old, new) for argument in self.arguments]


@dataclass(eq=False)
class Graph:
    """The computation of a delegate."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    #: Notes for users about the lowering: a line of text each.
    notes: list[str] = field(default_factory=list)

    def users(self) -> dict[Tensor | SymInt, list[Node]]:
        """Value -> the nodes that read it, in order."""
        users: dict[Tensor | SymInt, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.reads):
                users.setdefault(value, []).append(node)
        return users

    def producers(self) -> dict[Tensor | SymInt, Node]:
        """Value -> the node that computes it. Tensors that are kept from call to call have none."""
        kept = self.kept()
        return {value: node for node in self.nodes for value in node.results if value not in kept}

    def kept(self) -> dict[Tensor, Tensor]:
        """The tensors that are kept from call to call -> the constant with their first value.

        Such a tensor is uploaded when the delegate is loaded, and then is the result of another node, too.
        """
        written = {value for node in self.nodes if node.operator != PREPACK for value in node.results}
        found = {}
        for node in self.nodes:
            if node.operator != PREPACK or node.result not in written or not node.arguments:
                continue
            source, tensor = node.arguments[0], node.result
            if isinstance(source, Tensor) and isinstance(tensor, Tensor) and source.data is not None:
                found[tensor] = source
        return found

    def verify(self) -> None:
        """Check that every value is computed before it is read, and once unless it is kept. Raises LoweringError."""
        try:
            self.check_flow("Vulkan graph")
        except FormatError as error:
            raise LoweringError(error.what, where=error.where) from error

    def check_flow(self, where: str) -> None:
        """As `verify`, for a graph that was read. Raises FormatError."""
        kept, loaded = self.kept(), set[object]()
        flow = Dataflow(self.inputs, dict.fromkeys(self.constants()), where)
        for index, node in enumerate(self.nodes):
            place = f"{where}, call {index} ({node.operator:.60})"
            if node.operator == PREPACK:
                loaded.update(node.results)
            again = [value for value in node.results if value in kept and node.operator != PREPACK]
            if not loaded.issuperset(again):
                raise FormatError("overwrites a tensor before it is brought to the device", where=place)
            flow.step(node.reads, [value for value in node.results if value not in again], place)
        flow.check_outputs(self.outputs)

    def constants(self) -> Iterator[Tensor]:
        """The constants that nodes read."""
        for node in self.nodes:
            for value in node.reads:
                if isinstance(value, Tensor) and value.data is not None:
                    yield value


def values_in(arguments: list[Argument] | tuple[Argument, ...]) -> Iterator[Tensor | SymInt]:
    """Tensors and computed numbers among some arguments, and in their lists."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from values_in(argument)
        elif isinstance(argument, Tensor | SymInt):
            yield argument


def _replaced(argument: Argument, old: Tensor, new: Tensor) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_replaced(item, old, new) for item in argument)
    return new if argument is old else argument
