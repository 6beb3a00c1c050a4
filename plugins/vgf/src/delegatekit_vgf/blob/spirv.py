"""The TOSA graph of a SPIR-V module with the extensions SPV_ARM_tensors and SPV_ARM_graph.

Operators are instructions of the set TOSA.001000.1: attributes as constants, then the operands. Numbers of instructions
are those of the SPIR-V specification and its extensions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final

import numpy as np

from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit.dataflow import element_count
from delegatekit_toolkit.tosa import OPERATORS, DType, Graph, Identity, Operator, Tensor
from delegatekit_toolkit.tosa.schema import HINTS
from delegatekit_toolkit.tosa.types import NUMPY_TYPES, Array, packed_size, unpack

from .container import Container

WHERE: Final = "SPIR-V module"
_MAGIC: Final = 0x07230203
_EXTENSION: Final = "TOSA.001000.1"
#: Sets of instructions that compute nothing, by SPV_KHR_non_semantic_info: notes for debuggers.
_NOTES: Final = "NonSemantic."
#: What a module may declare that it uses, beside tensors and graphs: none of it changes what operators compute.
_DECLARED: Final = frozenset(
    (
        "SPV_ARM_tensors",
        "SPV_ARM_graph",
        "SPV_KHR_vulkan_memory_model",
        "SPV_EXT_replicated_composites",
        "SPV_KHR_non_semantic_info",
    )
)
#: Types of elements by width: integers have no sign, and of 48 bits are stored in 64.
_INTEGERS: Final = {8: DType.INT8, 16: DType.INT16, 32: DType.INT32, 64: DType.INT48}
_FLOATS: Final = {16: DType.FP16, 32: DType.FP32}
#: The types of sums by their numbers in the instruction set.
_SUMS: Final = {1: DType.INT32, 2: DType.FP16, 3: DType.FP32, 4: DType.INT48}
#: Operands that are lists of sizes; in a module they are tensors of 32-bit integers.
_SIZES: Final = frozenset(("shape", "padding", "start", "size", "multiples", "scale", "offset", "border"))
#: Bytes of constants inside of a module; the larger ones are in the container.
_MOST_BYTES: Final = 1 << 26
#: Sizes in a list: the padding of six axes.
_MOST_SIZES: Final = 12
#: Characters of a name in an error.
_SHOWN: Final = 60


@dataclass(frozen=True)
class _TensorType:
    """A tensor's type."""

    dtype: DType
    shape: tuple[int, ...]


def read_graph(container: Container) -> Graph:
    """The graph of a model. Raises FormatError for a damaged module, or for what TOSA 1.0 does not have."""
    reader = _Reader(container)
    try:
        for code, operands in _instructions(container.words):
            handle = _HANDLERS.get(code)
            if handle is not None:
                handle(reader, operands)
        return reader.finish()
    except LoweringError as error:
        raise FormatError(error.what, where=f"{WHERE}, {error.where}") from error
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError, struct.error) as error:
        raise FormatError(f"is damaged: {type(error).__name__} {error}", where=WHERE) from error


def _instructions(words: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    if len(words) < 5 or words[0] != _MAGIC:
        raise FormatError("does not begin with SPIR-V's header", where=WHERE)
    place = 5
    while place < len(words):
        count, code = words[place] >> 16, words[place] & 0xFFFF
        if not count or place + count > len(words):
            raise FormatError(f"the instruction at word {place} has {count} words", where=WHERE)
        yield code, words[place + 1 : place + count]
        place += count


class _Reader:
    """Collects what the instructions define, by id."""

    def __init__(self, container: Container) -> None:
        self.container: Final = container
        self.graph: Final = Graph("main")
        self.scalars: Final[dict[int, DType]] = {}
        self.tensor_types: Final[dict[int, _TensorType]] = {}
        #: Constants: numbers, and flat lists of them.
        self.numbers: Final[dict[int, Any]] = {}
        #: Constants that are tensors -> their types.
        self.typed: Final[dict[int, _TensorType]] = {}
        self.tensors: Final[dict[int, Tensor]] = {}
        self.inputs: Final[dict[int, Tensor]] = {}
        self.outputs: Final[dict[int, int]] = {}
        self.sets: Final[set[int]] = set()
        self.notes: Final[set[int]] = set()
        self._bytes = 0

    # -- types and constants -------------------------------------------------------------------------------------------

    def bool_type(self, words: Sequence[int]) -> None:
        self.scalars[words[0]] = DType.BOOL

    def int_type(self, words: Sequence[int]) -> None:
        self.scalars[words[0]] = _INTEGERS[words[1]]

    def float_type(self, words: Sequence[int]) -> None:
        self.scalars[words[0]] = _FLOATS[words[1]]

    def tensor_type(self, words: Sequence[int]) -> None:
        shape = () if len(words) < 4 else _sizes(self.numbers[words[3]])
        if len(shape) != int(self.numbers[words[2]]):
            raise FormatError(f"a tensor of {int(self.numbers[words[2]])} axes has the shape {shape}", where=WHERE)
        self.tensor_types[words[0]] = _TensorType(self.scalars[words[1]], shape)

    def true(self, words: Sequence[int]) -> None:
        self.numbers[words[1]] = True

    def false(self, words: Sequence[int]) -> None:
        self.numbers[words[1]] = False

    def constant(self, words: Sequence[int]) -> None:
        dtype = NUMPY_TYPES[self.scalars[words[0]]]
        self.numbers[words[1]] = np.frombuffer(struct.pack(f"<{len(words) - 2}I", *words[2:]), dtype)[0].item()

    def composite(self, words: Sequence[int]) -> None:
        parts = [_listed(self.numbers[part]) for part in words[2:]]
        self._count(sum(map(len, parts)))
        self._constant(words[0], words[1], [number for part in parts for number in part])

    def null(self, words: Sequence[int]) -> None:
        kind = self.tensor_types.get(words[0])
        if kind is None:
            self.numbers[words[1]] = 0
        else:
            self._repeated(words[0], words[1], [0])

    def replicated(self, words: Sequence[int]) -> None:
        self._repeated(words[0], words[1], _listed(self.numbers[words[2]]))

    def _repeated(self, kind: int, name: int, numbers: list[Any]) -> None:
        count = element_count(self.tensor_types[kind].shape, WHERE, item_bytes=8)
        self._count(count)
        self._constant(kind, name, numbers * (count // len(numbers)))

    def _count(self, count: int) -> None:
        self._bytes += 8 * count
        if self._bytes > _MOST_BYTES:
            raise FormatError(f"its constants have more than {_MOST_BYTES} bytes", where=WHERE)

    def _constant(self, kind: int, name: int, numbers: list[Any]) -> None:
        self.numbers[name] = numbers
        known = self.tensor_types.get(kind)
        if known is None:
            return
        if element_count(known.shape, WHERE) != len(numbers):
            raise FormatError(f"a constant of {len(numbers)} numbers has the shape {known.shape}", where=WHERE)
        self.typed[name] = known

    def stored_constant(self, words: Sequence[int]) -> None:
        kind, data = self.tensor_types[words[0]], self.container.constants[words[2]]
        count = element_count(kind.shape, f"constant {words[2]}")
        if kind.dtype == DType.INT48 and len(data) == 8 * count:
            numbers: Array = np.frombuffer(data, "<i8")
        elif len(data) == packed_size(count, kind.dtype):
            numbers = unpack(bytes(data), count, kind.dtype)
        else:
            raise FormatError(
                f"has {len(data)} bytes for {kind.dtype.name}{list(kind.shape)}", where=f"constant {words[2]}"
            )
        self.tensors[words[1]] = self.graph.constant(numbers.reshape(kind.shape), kind.dtype)

    # -- the graph -----------------------------------------------------------------------------------------------------

    def extension(self, words: Sequence[int]) -> None:
        if (name := _text(words)) not in _DECLARED:
            raise FormatError(f"uses the extension {name[:_SHOWN]!r}, which is not read here", where=WHERE)

    def set_of_instructions(self, words: Sequence[int]) -> None:
        name = _text(words[1:])
        if name == _EXTENSION:
            self.sets.add(words[0])
        elif name.startswith(_NOTES):
            self.notes.add(words[0])
        else:
            what = f"uses the instructions {name[:_SHOWN]!r}: those of {_EXTENSION} are run here"
            raise FormatError(what, where=WHERE)

    def input(self, words: Sequence[int]) -> None:
        kind, place = self.tensor_types[words[0]], int(self.numbers[words[2]])
        element_count(kind.shape, f"input {place}")
        tensor = Tensor(f"input_{place}", kind.shape, kind.dtype)
        if place in self.inputs:
            raise FormatError(f"input {place} is defined twice", where=WHERE)
        self.inputs[place] = self.tensors[words[1]] = tensor

    def output(self, words: Sequence[int]) -> None:
        self.outputs[int(self.numbers[words[1]])] = words[0]

    def operation(self, words: Sequence[int]) -> None:
        kind, made, instructions, number, *operands = words
        if instructions in self.notes:
            return
        if instructions not in self.sets:
            raise FormatError(f"an instruction of another set than {_EXTENSION}", where=WHERE)
        operator = OPERATORS.get(number + 1)
        if operator is None:
            raise FormatError(f"instruction {number} of {_EXTENSION} is not run here", where=WHERE)
        attributes = _ATTRIBUTES[operator]
        settings = {
            name: convert(self.numbers[item]) for (name, convert), item in zip(attributes, operands, strict=False)
        }
        given = operands[len(attributes) :]
        names = operator.operands * (len(given) if operator.name == "CONCAT" else 1)
        inputs = [self._operand(item, sizes=name in _SIZES) for name, item in zip(names, given, strict=True)]
        result = self.tensor_types[kind]
        element_count(result.shape, operator.name)
        self.tensors[made] = self.graph.add(
            operator(**settings), inputs, result.shape, result.dtype, operator.name.lower()
        )

    def _operand(self, name: int, *, sizes: bool) -> Tensor:
        if name in self.tensors and not sizes:
            return self.tensors[name]
        if sizes:
            data = self.tensors[name].data if name in self.tensors else self.numbers[name]
            return self.graph.constant(_sizes(data), DType.SHAPE)
        kind = self.typed[name]
        array = np.array(self.numbers[name], NUMPY_TYPES[kind.dtype]).reshape(kind.shape)
        found = self.tensors[name] = self.graph.constant(array, kind.dtype)
        return found

    def finish(self) -> Graph:
        """The graph with its inputs and outputs in order."""
        for numbers, what in ((self.inputs, "inputs"), (self.outputs, "outputs")):
            if sorted(numbers) != list(range(len(numbers))):
                raise FormatError(f"has the {what} {sorted(numbers)}", where=WHERE)
        self.graph.inputs += [self.inputs[place] for place in range(len(self.inputs))]
        made = {id(operation.output) for operation in self.graph.operations}
        for place in range(len(self.outputs)):
            tensor = self._operand(self.outputs[place], sizes=False)
            if id(tensor) not in made or tensor in self.graph.outputs:
                tensor = self.graph.add(Identity(), (tensor,), tensor.shape, tensor.dtype, "output")
            self.graph.output(tensor)
        self.graph.verify()
        return self.graph


def _attributes(operator: type[Operator]) -> list[tuple[str, Callable[[Any], Any]]]:
    """The names of an operator's attributes in the order of its instruction, and how each is made of a constant."""
    names = [item.name for item in fields(operator)]
    if "local_bound" in names:  # the last one in an instruction
        names.remove("local_bound")
        names.append("local_bound")
    return [(name, _conversion(HINTS[operator][name])) for name in names]


def _conversion(hint: Any) -> Callable[[Any], Any]:
    if hint is DType:
        return _SUMS.__getitem__
    if hint is bool:
        return bool
    if hint == int | float:
        return lambda number: number
    if isinstance(hint, type) and issubclass(hint, IntEnum | int):
        return hint
    return _sizes


def _sizes(numbers: Any) -> tuple[int, ...]:
    if len(numbers) > _MOST_SIZES:
        raise FormatError(f"{len(numbers)} sizes: TOSA has {_MOST_SIZES} at most", where=WHERE)
    return tuple(map(int, numbers))


def _listed(numbers: Any) -> list[Any]:
    return numbers if isinstance(numbers, list) else [numbers]


def _text(words: Sequence[int]) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode(errors="replace")


#: Operator -> its attributes.
_ATTRIBUTES: Final = {operator: _attributes(operator) for operator in OPERATORS.values()}
#: SPIR-V's instructions that are read; all others say nothing about what is computed.
_HANDLERS: Final[dict[int, Callable[[_Reader, Sequence[int]], None]]] = {
    10: _Reader.extension,
    11: _Reader.set_of_instructions,
    12: _Reader.operation,
    20: _Reader.bool_type,
    21: _Reader.int_type,
    22: _Reader.float_type,
    41: _Reader.true,
    42: _Reader.false,
    43: _Reader.constant,
    44: _Reader.composite,
    46: _Reader.null,
    4163: _Reader.tensor_type,
    4181: _Reader.stored_constant,
    4184: _Reader.input,
    4185: _Reader.output,
    4461: _Reader.replicated,
}
