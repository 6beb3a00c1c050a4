"""The calls of a graph, read and checked one by one while the tape is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from delegatekit_api import FormatError

from ..ir.graph import PREPACK, Argument, Graph, Node, SymInt, Tensor
from ..ir.stock import facts_of
from .memory import Block, Value
from .state import kept_by
from .tape import Tape


class Reader:
    """The arguments of one call, checked as they are read: every error that a file may contain is a FormatError."""

    def __init__(self, tape: Tape, node: Node) -> None:
        self._tape = tape
        self.operator: Final = node.operator
        self._arguments: Final = node.arguments
        self.results: Final = node.results
        #: The location for messages.
        self.where: Final = tape.where

    @property
    def result(self) -> Tensor | SymInt:
        """The only result."""
        if len(self.results) != 1:
            raise self.error(f"has {len(self.results)} results")
        return self.results[0]

    def error(self, what: str) -> FormatError:
        """A FormatError about this call."""
        return FormatError(what, where=self.where)

    def raw(self, position: int) -> Argument:
        """An argument unchanged; None if the call has fewer."""
        return self._arguments[position] if position < len(self._arguments) else None

    def is_none(self, position: int) -> bool:
        """True if an argument is left out."""
        return self.raw(position) is None

    def tensor(self, position: int, *ranks: int) -> Value:
        """A tensor, of one of these ranks."""
        return self._ranked(self._tape.value(self.declared(position)), position, ranks)

    def optional(self, position: int, *ranks: int) -> Value | None:
        """A tensor or nothing."""
        return None if self.is_none(position) else self.tensor(position, *ranks)

    def declared(self, position: int) -> Tensor:
        """A tensor as the blob declares it: kernels pack constants in their own ways."""
        found = self.raw(position)
        if not isinstance(found, Tensor):
            raise self.error(f"argument {position} is not a tensor")
        return found

    def is_constant(self, position: int) -> bool:
        """True if an argument is a constant of the file."""
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

    def integer(self, position: int, default: int | None = None) -> int:
        """A whole number, also one computed from sizes."""
        found = self.raw(position)
        if found is None and default is not None:
            return default
        return self._number(found, position)

    def number(self, position: int, default: float | None = None) -> float:
        """A number."""
        found = self.raw(position)
        if found is None and default is not None:
            return default
        if isinstance(found, SymInt):
            found = self._number(found, position)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.error(f"argument {position} is not a number")
        return float(found)

    def truth(self, position: int) -> bool:
        """A boolean."""
        found = self.raw(position)
        if not isinstance(found, bool | int) or found not in (0, 1):
            raise self.error(f"argument {position} is not a boolean")
        return bool(found)

    def integers(self, position: int, length: int | None = None) -> tuple[int, ...]:
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

    def axis(self, position: int, rank: int) -> int:
        """An axis, counted from the front."""
        return self.checked_axis(self.integer(position), rank)

    def axes(self, position: int, rank: int) -> tuple[int, ...]:
        """Several axes, counted from the front, ascending; nothing or an empty list stands for all."""
        found = self.raw(position)
        if found is None or found == ():
            return tuple(range(rank))
        axes = tuple(self.checked_axis(axis, rank) for axis in self.integers(position))
        if len(set(axes)) != len(axes):
            raise self.error(f"argument {position} names an axis twice")
        return tuple(sorted(axes))

    def checked_axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front, checked to exist."""
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


#: Writes the dispatches of a call, or none if its result is a view of its input's memory.
Kernel = Callable[[Tape, Reader], None]


def write_tape(
    graph: Graph,
    kernels: dict[str, Kernel],
    sizes: Sequence[Sequence[int]],
    constants: dict[Hashable, Block],
    *,
    largest: bool,
    states: Mapping[Tensor, Block],
    numbers: Mapping[SymInt, int] | None = None,
) -> Tape:
    """The dispatches of a graph for inputs of these sizes. Raises FormatError for unknown or invalid calls.

    `states` is the memory kept between calls, `numbers` are those in the inputs (as far as they are known).
    """
    tape = Tape(
        constants=constants,
        largest=largest,
        numbers=dict(numbers or {}),
        inputs=frozenset(graph.inputs),
        kept=kept_by(graph, states),
    )
    for tensor, block in states.items():
        tape.values[tensor] = Value(tensor.sizes, tensor.datatype, block)
    for tensor, shape in zip(graph.inputs, sizes, strict=True):
        tape.values[tensor] = Value(tuple(shape), tensor.datatype, Block(math.prod(shape)))
    for index, node in enumerate(graph.nodes):
        tape.call, tape.where = index, f"Vulkan blob, call {index} ({node.operator:.60})"
        kernel = kernels.get(node.operator)
        if kernel is None:
            raise FormatError("the runtime does not know the operator", where=tape.where)
        if node.operator == PREPACK and node.result in states:
            continue  # done when the delegate was loaded
        tape.writes_in_place = facts_of(node).pointwise or not _reads_state(tape, node)
        kernel(tape, Reader(tape, node))
        tape.replace()
        _check_results(tape, node)
    for tensor in graph.outputs:
        value = tape.value(tensor)
        if value.block.lasting:
            tape.values[tensor] = tape.scratch(value.shape, value.datatype)
            tape.move(value, tape.values[tensor])
    return tape


def _reads_state(tape: Tape, node: Node) -> bool:
    values = (tape.values.get(item) for item in node.reads if isinstance(item, Tensor))
    return any(value is not None and value.block.lasting for value in values)


def _check_results(tape: Tape, node: Node) -> None:
    for result in node.results:
        if isinstance(result, Tensor) and not tape.is_made(result):
            # An operator's further results need not be computed if unread.
            if len(node.results) == 1:
                raise FormatError("computes nothing", where=tape.where)
        elif isinstance(result, SymInt) and result not in tape.numbers:
            raise FormatError("computes no number", where=tape.where)
