"""A graph as dispatches on blocks of memory, for one set of sizes. No driver is involved.

Every element takes a word of 32 bits: float32 (a float16 tensor's numbers are rounded when they are stored), int32, or
0 and 1 for booleans. So one set of shaders serves devices with and without 8-bit and 16-bit memory. All tensors are
contiguous, and begin at the start of their block.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delegatekit_api import FormatError
from delegatekit_toolkit.constraints import FLOAT32_MAX
from delegatekit_toolkit.content import storage_key

from ..ir.graph import SymInt, Tensor
from ..ir.types import DataType
from ..shaders.numbers import Limit
from .memory import Block, Kept, Padded, Value
from .transfer import constant_array, words_of

if TYPE_CHECKING:
    import numpy as np

#: The limit of work groups along one axis on every device.
_MOST_GROUPS: Final = 65535
#: The limit of push constants in bytes on every device.
PUSH_BYTES: Final = 128
#: Of one block: Vulkan's shaders count words in 32 bits.
MOST_BYTES: Final = 1 << 32


#: Elements of a constant in another order.
Packing: TypeAlias = "Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]"


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
    """Dispatches in order, and the locations of inputs and outputs."""

    #: The graph's inputs.
    inputs: frozenset[Tensor]
    numbers: dict[SymInt, int]
    #: Constants and values derived from them, shared by all tapes of a delegate.
    constants: dict[Hashable, Block]
    #: Values kept from call to call.
    kept: Kept
    #: True if this is the largest call: then sizes are the declared ones.
    largest: bool
    dispatches: list[Dispatch] = field(default_factory=list)
    values: dict[Tensor, Value] = field(default_factory=dict)
    #: The call that is being written, for messages.
    call: int = 0
    where: str = ""

    @property
    def fault(self) -> Value:
        """A word, 0 when a call begins: the number, from 1, of the last call of the graph that failed."""
        if self.may_fail is None:
            self.may_fail = self.scratch((1,), DataType.INT32)
        return self.may_fail

    #: The word, if a dispatch has it.
    may_fail: Value | None = None

    # -- tensors -------------------------------------------------------------------------------------------------------

    def value(self, tensor: Tensor) -> Value:
        """The value of a tensor: computed, an input, or a constant as stored in the file."""
        found = self.values.get(tensor)
        if found is None and tensor in self._padded:
            found = self._written(tensor, self._padded[tensor])
        if found is None:
            if tensor.data is None:
                raise FormatError("reads a tensor that is not computed", where=self.where)
            found = self.values[tensor] = self.constant(tensor, tensor.sizes)
        return found

    def constant(self, tensor: Tensor, shape: Sequence[int], form: Hashable = "", pack: Packing | None = None) -> Value:
        """A constant, in the file's order or in another one.

        `pack` gets the elements in the file's type and shape, and returns those of a value of this shape (or uint32
        words, as many as its elements). `form` names the packing: it runs once for each form, when the constant is
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
        if target in self.kept.blocks and not self.writes_in_place:
            made = self._replacements[target] = self.scratch(shape, target.datatype)
            return made
        return self.values.setdefault(target, Value(tuple(shape), target.datatype, Block(math.prod(shape))))

    def replace(self) -> None:
        """Replace the state by the value that the call computed beside it."""
        for tensor, made in self._replacements.items():
            self.move(made, self.values[tensor])
        self._replacements.clear()

    def alias(self, tensor: Tensor | SymInt, source: Value, shape: Sequence[int]) -> None:
        """Let a result be the memory of another value: views need no dispatch."""
        target = self._declared(tensor, shape)
        if math.prod(shape) != source.count or target.datatype.is_float != source.is_float:
            raise FormatError(f"views {source.shape} as {tuple(shape)}", where=self.where)
        if target in self.kept.blocks or self.kept.changes_under(target, source.block, self.call):
            self.move(source, self.result(target, shape))
        else:
            self.values[target] = Value(tuple(shape), target.datatype, source.block)

    def pad(self, tensor: Tensor | SymInt, padded: Padded) -> None:
        """Let a result be a value with zeros around it, which a convolution does not need in memory."""
        target = self._declared(tensor, padded.shape)
        if not (target.datatype.is_float and padded.source.is_float):
            raise FormatError("has a result of another kind than its operand", where=self.where)
        self._padded[target] = padded
        if target in self.kept.blocks or padded.source.block.lasting:
            self._written(target, padded)

    def unpadded(self, tensor: Tensor) -> Padded | None:
        """The value inside the zeros; None if there are none."""
        return self._padded.get(tensor)

    def is_made(self, tensor: Tensor) -> bool:
        """True if a tensor has a value, or can have one."""
        return tensor in self.values or tensor in self._padded

    def _written(self, tensor: Tensor, padded: Padded) -> Value:
        now, self.call = self.call, padded.call
        target = self.result(tensor, padded.shape)
        padded.write(target)
        self.call = now
        return target

    def move(self, source: Value, target: Value) -> None:
        """Copy all elements, unless they are already in place."""
        if source.block is not target.block:
            # One row, in fours: blocks are padded to them.
            fours, row = -(-source.count // 4), [0] * 7
            push = (fours, 0, 0, *row, fours, *row, 1, *row, 1, 1)
            self.dispatch("copy", (source, target), push, (target.is_half, 1, True, True), items=fours)

    def scratch(self, shape: Sequence[int], datatype: DataType = DataType.FLOAT32) -> Value:
        """Memory for an intermediate value."""
        return Value(tuple(shape), datatype, Block(math.prod(shape)))

    def _declared(self, tensor: Tensor | SymInt, shape: Sequence[int]) -> Tensor:
        if not isinstance(tensor, Tensor) or tensor.data is not None:
            raise FormatError("its result is not a tensor that can be written", where=self.where)
        fits = len(shape) == tensor.rank and all(
            0 <= size <= most for size, most in zip(shape, tensor.sizes, strict=True)
        )
        if not fits or ((self.largest or tensor in self.kept.blocks) and tuple(shape) != tensor.sizes):
            raise FormatError(f"declares the result {tensor.sizes}, computes {tuple(shape)}", where=self.where)
        return tensor

    #: True if the call may write into state directly: it does not read it, or only element by element.
    writes_in_place: bool = True
    #: State -> the value that the call computes to replace it.
    _replacements: dict[Tensor, Value] = field(default_factory=dict)
    #: Results with zeros around a value.
    _padded: dict[Tensor, Padded] = field(default_factory=dict)

    # -- dispatches ----------------------------------------------------------------------------------------------------

    def dispatch(
        self,
        shader: str,
        buffers: Sequence[Value],
        push: Sequence[int | float],
        constants: Sequence[int | float | bool],
        *,
        items: int,
        written: int = 1,
    ) -> None:
        """Run a shader over `items` invocations in groups of 64.

        `push` and `constants` are words, as many as the shader declares: ints unchanged, floats as their bits. The last
        `written` buffers are written. Shaders compute their index with `item()` of common.glsl; the first of
        `constants` is true if results are rounded to float16.
        """
        # Vulkan accepts zero groups, too; MOST_BYTES keeps both dimensions small.
        count = -(-items // Limit.GROUP)
        across = min(max(count, 1), _MOST_GROUPS)
        groups = (across, -(-count // across), 1)
        for value in buffers:
            if value.block.bytes > MOST_BYTES:
                raise FormatError(f"has a tensor of {value.block.bytes} bytes", where=self.where)
        words = tuple(int.from_bytes(word(item), "little") for item in constants)
        blocks = tuple(value.block for value in buffers)
        self.dispatches.append(Dispatch(shader, words, blocks, written, b"".join(map(word, push)), groups, self.call))


def word(value: int | float | bool) -> bytes:
    """A number as a word of a shader's parameters."""
    if isinstance(value, float):
        # Numbers beyond float32's range become infinite.
        return struct.pack("<f", math.copysign(math.inf, value) if abs(value) > FLOAT32_MAX else value)
    return (int(value) & 0xFFFFFFFF).to_bytes(4, "little")
