"""What a graph means on the device for one set of sizes: a list of dispatches on blocks of memory. No driver is involved.

Every element takes a word of 32 bits: float32 (a float16 tensor's numbers are rounded where they are stored), int32, or
0 and 1 for truth values. So one set of shaders serves devices with and without 8-bit and 16-bit memory. All tensors are
contiguous, and begin where their block begins.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delegatekit_api import FormatError
from delegatekit_toolkit.content import storage_key

from ..ir.graph import Argument, Graph, Node, SymInt, Tensor
from ..ir.types import DataType
from .transfer import constant_array, words_of

if TYPE_CHECKING:
    import numpy as np

WORD: Final = 4
#: Invocations in a work group of most shaders, along x (`local_size_x` in shaders/common.glsl).
GROUP: Final = 64
#: Work groups along one axis that every device allows.
_MOST_GROUPS: Final = 65535
#: Bytes of push constants that every device has.
PUSH_BYTES: Final = 128
#: Of one block: Vulkan's shaders count words in 32 bits.
MOST_BYTES: Final = 1 << 32


#: Elements of a constant in another order.
Packing: TypeAlias = "Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]"


@dataclass(eq=False)
class Block:
    """Memory of some words: of constants, which `content` makes once, or of values that are computed."""

    words: int
    #: Makes the words of a constant (a uint32 array); None for computed values.
    content: Callable[[], np.ndarray[Any, Any]] | None = None

    @property
    def bytes(self) -> int:
        """Its size, a multiple of four words: shaders take four at a time. Nothing is bound that has no bytes."""
        return -(-max(self.words, 1) // 4) * 4 * WORD


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor on the device."""

    shape: tuple[int, ...]
    datatype: DataType
    block: Block

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its words are float32 rather than int32."""
        return self.datatype.is_float

    @property
    def is_half(self) -> bool:
        """Whether what is stored is rounded to float16."""
        return self.datatype is DataType.FLOAT16


@dataclass(frozen=True, eq=False)
class Dispatch:
    """One run of a shader."""

    shader: str
    #: Specialization constants, from number 0, as words.
    constants: tuple[int, ...]
    #: Bound from 0; the last `written` are written (and may be read), the others read.
    buffers: tuple[Block, ...]
    written: int
    push: bytes
    groups: tuple[int, int, int]
    #: The number of the call that it belongs to.
    call: int


@dataclass
class Tape:
    """Dispatches in order, and where inputs and outputs are."""

    dispatches: list[Dispatch] = field(default_factory=list)
    values: dict[Tensor, Value] = field(default_factory=dict)
    numbers: dict[SymInt, int] = field(default_factory=dict)
    #: The graph's inputs.
    inputs: frozenset[Tensor] = frozenset()
    #: The call that is being written, for messages.
    call: int = 0
    where: str = ""
    #: Constants and what was made of them, shared by all tapes of a delegate.
    constants: dict[Hashable, Block] = field(default_factory=dict)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def value(self, tensor: Tensor) -> Value:
        """The value of a tensor: computed, an input, or a constant as it is in the file."""
        found = self.values.get(tensor)
        if found is None:
            if tensor.data is None:
                raise FormatError("reads a tensor that is not computed", where=self.where)
            found = self.values[tensor] = self.constant(tensor, tensor.sizes)
        return found

    def constant(self, tensor: Tensor, shape: Sequence[int], form: Hashable = "", pack: Packing | None = None) -> Value:
        """A constant, in the file's order or in another one.

        `pack` gets the elements in the file's type and shape, and gives those of a value of this shape (or uint32
        words, as many as its elements). `form` names what `pack` does: it runs once for each form, when the constant is
        uploaded.
        """
        data = tensor.data
        assert data is not None
        key = (storage_key(data), form)
        if key not in self.constants:

            def content() -> np.ndarray[Any, Any]:
                elements = constant_array(data)
                return words_of(elements if pack is None else pack(elements))

            self.constants[key] = Block(math.prod(shape), content)
        return Value(tuple(shape), tensor.datatype, self.constants[key])

    def result(self, tensor: Tensor | SymInt, shape: Sequence[int]) -> Value:
        """Memory for a result with the sizes of this call. Raises FormatError unless they are as declared."""
        target = self._declared(tensor, shape)
        return self.values.setdefault(target, Value(tuple(shape), target.datatype, Block(math.prod(shape))))

    def alias(self, tensor: Tensor | SymInt, source: Value, shape: Sequence[int]) -> None:
        """Let a result be the memory of another value: views need no dispatch."""
        target = self._declared(tensor, shape)
        if math.prod(shape) != source.count or target.datatype.is_float != source.is_float:
            raise FormatError(f"views {source.shape} as {tuple(shape)}", where=self.where)
        self.values[target] = Value(tuple(shape), target.datatype, source.block)

    def scratch(self, shape: Sequence[int], datatype: DataType = DataType.FLOAT32) -> Value:
        """Memory for an intermediate value."""
        return Value(tuple(shape), datatype, Block(math.prod(shape)))

    def _declared(self, tensor: Tensor | SymInt, shape: Sequence[int]) -> Tensor:
        if not isinstance(tensor, Tensor) or tensor.data is not None:
            raise FormatError("its result is not a tensor that can be written", where=self.where)
        fits = len(shape) == tensor.rank and all(
            0 <= size <= most for size, most in zip(shape, tensor.sizes, strict=True)
        )
        if not fits or (self.largest and tuple(shape) != tensor.sizes):
            raise FormatError(f"declares the result {tensor.sizes}, computes {tuple(shape)}", where=self.where)
        return tensor

    #: Whether this is the largest call: then sizes are the declared ones.
    largest: bool = True

    # -- dispatches ----------------------------------------------------------------------------------------------------

    def dispatch(
        self,
        shader: str,
        buffers: Sequence[Value],
        push: Sequence[int | float] = (),
        constants: Sequence[int | float | bool] = (),
        *,
        items: int = 0,
        groups: tuple[int, int, int] | None = None,
        written: int = 1,
    ) -> None:
        """Run a shader over `items` invocations in groups of 64, or in so many `groups`.

        `push` and `constants` are words: ints as they are, floats as their bits. The last `written` buffers are
        written. Shaders find their number with `item()` of common.glsl.
        """
        data = b"".join(map(word, push))
        if len(data) > PUSH_BYTES:
            raise FormatError(f"needs {len(data)} bytes of parameters: {PUSH_BYTES} are the most", where=self.where)
        if groups is None:
            if items <= 0:
                return
            count = -(-items // GROUP)
            across = min(count, _MOST_GROUPS)
            groups = (across, -(-count // across), 1)
        if 0 in groups:
            return
        if max(groups) > _MOST_GROUPS:
            raise FormatError(f"needs {groups} work groups: {_MOST_GROUPS} are the most", where=self.where)
        for value in buffers:
            if value.block.bytes > MOST_BYTES:
                raise FormatError(f"has a tensor of {value.block.bytes} bytes", where=self.where)
        words = tuple(int.from_bytes(word(item), "little") for item in constants)
        blocks = tuple(value.block for value in buffers)
        self.dispatches.append(Dispatch(shader, words, blocks, written, data, groups, self.call))


def word(value: int | float | bool) -> bytes:
    """A number as a word of a shader's parameters."""
    if isinstance(value, float):
        return struct.pack("<f", value) if abs(value) <= 3.4028234663852886e38 or value != value else _infinite(value)
    return (int(value) & 0xFFFFFFFF).to_bytes(4, "little")


def _infinite(value: float) -> bytes:
    return struct.pack("<f", math.copysign(math.inf, value))


class Reader:
    """The arguments of one call, checked as they are read: everything that a file may get wrong is a FormatError."""

    def __init__(self, tape: Tape, node: Node) -> None:
        self._tape = tape
        self.operator: Final = node.operator
        self._arguments: Final = node.arguments
        self.results: Final = node.results
        #: Where messages say that something is wrong.
        self.where: Final = tape.where

    @property
    def result(self) -> Tensor | SymInt:
        """The only result."""
        if len(self.results) != 1:
            raise self.error(f"has {len(self.results)} results")
        return self.results[0]

    @property
    def count(self) -> int:
        """How many arguments there are."""
        return len(self._arguments)

    def error(self, what: str) -> FormatError:
        """A FormatError about this call."""
        return FormatError(what, where=self.where)

    def raw(self, position: int) -> Argument:
        """An argument as it is; None if the call has fewer."""
        return self._arguments[position] if position < len(self._arguments) else None

    def is_none(self, position: int) -> bool:
        """Whether an argument is left out."""
        return self.raw(position) is None

    def tensor(self, position: int, *ranks: int) -> Value:
        """A tensor, of one of these ranks."""
        return self._ranked(self._tape.value(self.declared(position)), position, ranks)

    def optional(self, position: int, *ranks: int) -> Value | None:
        """A tensor or nothing."""
        return None if self.is_none(position) else self.tensor(position, *ranks)

    def declared(self, position: int) -> Tensor:
        """A tensor as the blob declares it: kernels pack constants in ways of their own."""
        found = self.raw(position)
        if not isinstance(found, Tensor):
            raise self.error(f"argument {position} is not a tensor")
        return found

    def is_constant(self, position: int) -> bool:
        """Whether an argument is a constant of the file."""
        found = self.raw(position)
        return isinstance(found, Tensor) and found.data is not None

    def tensors(self, position: int) -> tuple[Value, ...]:
        """A list of tensors."""
        found = self.raw(position)
        if not isinstance(found, tuple) or not found or not all(isinstance(item, Tensor) for item in found):
            raise self.error(f"argument {position} is not a list of tensors")
        return tuple(self._tape.value(item) for item in found if isinstance(item, Tensor))

    def optional_tensors(self, position: int) -> tuple[Value | None, ...]:
        """A list of tensors, some of them left out."""
        found = self.raw(position)
        if not isinstance(found, tuple) or not all(item is None or isinstance(item, Tensor) for item in found):
            raise self.error(f"argument {position} is not a list of tensors")
        return tuple(self._tape.value(item) if isinstance(item, Tensor) else None for item in found)

    def int(self, position: int, default: int | None = None) -> int:
        """A whole number, also one computed from sizes."""
        found = self.raw(position)
        if found is None and default is not None:
            return default
        return self._number(found, position)

    def float(self, position: int, default: float | None = None) -> float:
        """A number."""
        found = self.raw(position)
        if found is None and default is not None:
            return default
        if isinstance(found, SymInt):
            found = self._number(found, position)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.error(f"argument {position} is not a number")
        return float(found)

    def bool(self, position: int, default: bool | None = None) -> bool:
        """A truth value."""
        found = self.raw(position)
        if found is None and default is not None:
            return default
        if not isinstance(found, bool | int) or found not in (0, 1):
            raise self.error(f"argument {position} is not a truth value")
        return bool(found)

    def ints(self, position: int, length: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers; of length 1 it stands for `length` equal ones."""
        found = self.raw(position)
        if isinstance(found, int) and not isinstance(found, bool):
            found = (found,)
        if not isinstance(found, tuple):
            raise self.error(f"argument {position} is not a list of numbers")
        numbers = tuple(self._number(item, position) for item in found)
        if length is not None and len(numbers) == 1:
            numbers *= length
        if length is not None and len(numbers) != length:
            raise self.error(f"argument {position} has {len(numbers)} numbers instead of {length}")
        return numbers

    def axis(self, position: int, rank: int, default: int | None = None) -> int:
        """An axis, counted from the front."""
        return self.checked_axis(self.int(position, default), rank)

    def axes(self, position: int, rank: int) -> tuple[int, ...]:
        """Several axes, counted from the front, ascending; nothing or an empty list stands for all."""
        found = self.raw(position)
        if found is None or found == ():
            return tuple(range(rank))
        axes = tuple(self.checked_axis(axis, rank) for axis in self.ints(position))
        if len(set(axes)) != len(axes):
            raise self.error(f"argument {position} names an axis twice")
        return tuple(sorted(axes))

    def checked_axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front, after a look whether there is such a one."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise self.error(f"has no axis {axis}: {rank} axes")
        return axis % max(rank, 1)

    def _number(self, found: Any, position: int) -> int:
        if isinstance(found, SymInt):
            if found not in self._tape.numbers:
                raise self.error(f"argument {position} is a number that is not computed")
            return self._tape.numbers[found]
        if isinstance(found, bool) or not isinstance(found, int) or abs(found) >= 1 << 63:
            raise self.error(f"argument {position} is not a whole number")
        return found

    def _ranked(self, value: Value, position: int, ranks: tuple[int, ...]) -> Value:
        if ranks and value.rank not in ranks:
            raise self.error(f"argument {position} has {value.rank} axes: {' or '.join(map(str, ranks))} are taken")
        return value


#: Writes down what a call does: dispatches, or nothing where its result shows its input's memory.
Kernel = Callable[[Tape, Reader], None]


def write_tape(
    graph: Graph,
    kernels: dict[str, Kernel],
    sizes: Sequence[Sequence[int]],
    constants: dict[Hashable, Block],
    *,
    largest: bool,
    caches: Sequence[Tensor] = (),
    numbers: Mapping[SymInt, int] | None = None,
) -> Tape:
    """The dispatches of a graph for inputs of these sizes. Raises FormatError for what is unknown or does not fit.

    `caches` are constants that calls overwrite, `numbers` those that stand in the inputs (as far as they are known).
    """
    tape = Tape(constants=constants, largest=largest, numbers=dict(numbers or {}), inputs=frozenset(graph.inputs))
    for tensor in caches:
        tape.values[tensor] = Value(tensor.sizes, tensor.datatype, Block(math.prod(tensor.sizes)))
    for tensor, shape in zip(graph.inputs, sizes, strict=True):
        tape.values[tensor] = Value(tuple(shape), tensor.datatype, Block(math.prod(shape)))
    for index, node in enumerate(graph.nodes):
        tape.call, tape.where = index, f"Vulkan blob, call {index} ({node.operator:.60})"
        kernel = kernels.get(node.operator)
        if kernel is None:
            raise FormatError("the runtime does not know the operator", where=tape.where)
        kernel(tape, Reader(tape, node))
        for result in node.results:
            if isinstance(result, Tensor) and result not in tape.values:
                # An operator's second results that nobody asks for need not be computed.
                if len(node.results) == 1:
                    raise FormatError("computes nothing", where=tape.where)
            elif isinstance(result, SymInt) and result not in tape.numbers:
                raise FormatError("computes no number", where=tape.where)
    return tape
