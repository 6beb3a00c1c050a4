"""Builds a tape from a program: reads parameters and unpacks constants, once and at load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from delegatekit_api import FormatError

from ..blob.weights import known_shape
from ..ir.program import Function, Literal, Name, Operation, TensorType, symbol
from .inference import check_result, guarded
from .kernel import Kernel, held_as, known
from .kernels import KERNELS
from .tape import Call, Tape, declared

#: The limit of unpacked constants in bytes: for each byte of the blob, and in any case.
_UNPACKED: Final = 64
_ALWAYS: Final = 64 << 20


def prepare(function: Function, blob_bytes: int) -> Tape:
    """The tape of a function.

    Raises FormatError for unsupported operations and parameters. `inference` checks types and shapes.
    """
    return _Preparation(function, blob_bytes).tape


class _Preparation:
    """Processes the operations once, in order."""

    def __init__(self, function: Function, blob_bytes: int) -> None:
        self.tape = Tape()
        self._places: dict[str, int] = {}
        #: Constants in the program's form, by name.
        self._literals: dict[str, Literal] = {}
        self._left = max(_UNPACKED * blob_bytes, _ALWAYS)
        self._last = _last_readers(function)
        for name, kind in function.states.items():
            if None in kind.shape:
                raise FormatError(f"the state {name!r:.60} has no known size", where="Core ML program")
            sizes = tuple(size for size in kind.shape if size is not None)
            self.tape.states[self._define(name, kind)] = torch.zeros(sizes, dtype=held_as(kind.datatype))
        for name, kind in function.inputs.items():
            self.tape.inputs[name] = self._define(name, kind)
        for index, operation in enumerate(function.operations):
            self._operation(operation, index)
        for name in function.outputs:
            self.tape.outputs[name] = self._place(name, "Core ML program")

    # -- values --------------------------------------------------------------------------------------------------------

    def _define(self, name: str, kind: TensorType, value: torch.Tensor | None = None) -> int:
        """A slot for a value under its name: a constant, or a later result."""
        self.tape.types[name] = kind
        self._places[name] = self._add(value)
        return self._places[name]

    def _add(self, value: torch.Tensor | None) -> int:
        self.tape.constants.append(value)
        return len(self.tape.constants) - 1

    def _place(self, name: str, where: str) -> int:
        if name not in self._places:
            raise FormatError(f"{name!r:.60} is no tensor", where=where)
        return self._places[name]

    # -- operations ----------------------------------------------------------------------------------------------------

    def _operation(self, operation: Operation, index: int) -> None:
        if operation.kind == "const":
            self._literal_operation(operation)
            return
        if operation.kind == "write_state":
            self._write_state(operation)
            return
        kernel = KERNELS.get(operation.kind)
        if kernel is None:
            raise FormatError("is an operation that is not supported", where=operation.where)
        known_values, reads, sizes = self._arguments(operation, kernel)
        types = tuple(kind for _, kind in operation.results if kind is not None)
        if len(types) != len(operation.results):
            raise FormatError("has results that are no tensors", where=operation.where)
        if kernel.once:
            self._unpack(operation, kernel, known_values, reads, types)
            return
        names = [name for name, _ in operation.results]
        places = tuple(map(self._define, names, types))
        last = tuple(self._places[name] for name in self._last.get(index, ()) if name in self._places)
        told = symbol(names[0], operation.kind) if names else ""
        call = Call(kernel, known_values, reads, sizes, places, types, self._computed(last), operation.where, told)
        self.tape.calls.append(call)

    def _computed(self, places: Sequence[int]) -> tuple[int, ...]:
        return tuple(place for place in places if self.tape.constants[place] is None and place not in self.tape.states)

    def _write_state(self, operation: Operation) -> None:
        """The new value of a state: a call whose result is stored in the state's slot."""
        match operation.arguments:
            case {"input": (Name() as state,), "data": (data,), **others} if not others:
                place, source = self._place(state.name, operation.where), self._read(data, operation.where)
            case _:
                raise FormatError("names no state, or nothing to write", where=operation.where)
        if place not in self.tape.states:
            raise FormatError(f"writes {state.name!r:.60}, which is no state", where=operation.where)
        kind = self.tape.types[state.name]
        call = Call(KERNELS["read_state"], {}, {"input": source}, {}, (place,), (kind,), (), operation.where)
        self.tape.calls.append(call)

    def _literal_operation(self, operation: Operation) -> None:
        """A constant under a name."""
        match operation.arguments.get("val"), operation.results:
            case (torch.Tensor() | str() | tuple() as literal,), ((name, kind),):
                self._literals[name] = literal
            case _:
                raise FormatError("is no constant", where=operation.where)
        if isinstance(literal, torch.Tensor):
            if kind is None or tuple(literal.shape) != kind.shape or literal.dtype != kind.datatype.torch:
                raise FormatError(f"has another type than {kind}", where=operation.where)
            self._define(name, kind, self._held(literal, operation.where))

    def _arguments(
        self, operation: Operation, kernel: Kernel
    ) -> tuple[dict[str, Any], dict[str, int | tuple[int, ...]], dict[str, int]]:
        """The known arguments, and the slots of computed ones, and of computed sizes."""
        known_values: dict[str, Any] = {}
        reads: dict[str, int | tuple[int, ...]] = {}
        sizes: dict[str, int] = {}
        for name, argument in operation.arguments.items():
            parameter = kernel.parameters.get(name)
            if parameter is None:
                raise FormatError(f"has the parameter {name!r:.40}, which is not supported", where=operation.where)
            if parameter.kind == "Tensors":
                reads[name] = tuple(self._read(item, operation.where) for item in argument)
                continue
            if len(argument) != 1:
                raise FormatError(f"{name} has {len(argument)} values", where=operation.where)
            (item,) = argument
            if parameter.kind == "Tensor":
                reads[name] = self._read(item, operation.where)
            elif not isinstance(item, Name) or item.name in self._literals:
                literal = self._literals[item.name] if isinstance(item, Name) else item
                known_values[name] = known(literal, parameter.kind, f"{operation.where}, {name}")
            elif parameter.is_size:
                sizes[name] = self._place(item.name, operation.where)
            else:
                raise FormatError(f"{name} is computed, which is not supported", where=operation.where)
        missing = [
            name for name, item in kernel.parameters.items() if not item.optional and name not in operation.arguments
        ]
        if missing:
            raise FormatError(f"has no parameter {missing[0]}", where=operation.where)
        return known_values, reads, sizes

    def _read(self, item: Name | Literal, where: str) -> int:
        if isinstance(item, Name):
            return self._place(item.name, where)
        if not isinstance(item, torch.Tensor):
            raise FormatError("a parameter is no tensor", where=where)
        return self._add(self._held(item, where))

    def _held(self, literal: torch.Tensor, where: str) -> torch.Tensor:
        """A constant in the type of the computation."""
        if literal.dtype is not torch.float16:
            return literal
        self._spend(literal.shape, where)
        return literal.to(torch.float32)

    def _spend(self, shape: Sequence[int], where: str) -> None:
        """Count a constant's memory beside the blob. Raises FormatError if it is too much."""
        self._left -= 4 * math.prod(shape)
        if self._left < 0:
            raise FormatError("unpacks too much", where=where)

    def _unpack(
        self,
        operation: Operation,
        kernel: Kernel,
        known_values: Mapping[str, Any],
        reads: Mapping[str, int | tuple[int, ...]],
        types: tuple[TensorType, ...],
    ) -> None:
        """A constant that is unpacked now."""
        if len(types) != 1:
            raise FormatError("does not have one result", where=operation.where)
        ((name, _),), (kind,) = operation.results, types
        self._spend(known_shape(kind, operation.where), operation.where)
        values = {key: self.tape.constants[place] for key, place in reads.items() if isinstance(place, int)}
        if any(value is None for value in values.values()):
            raise FormatError("unpacks a value that is not a constant", where=operation.where)
        made = guarded(lambda: kernel.function(**values, **known_values), operation.where)
        check_result(made, kind, operation.where)
        self._define(name, kind, declared(made, kind))


def _last_readers(function: Function) -> dict[int, list[str]]:
    """For each operation, the values that nothing reads after it."""
    found: dict[str, int] = {}
    for index, operation in enumerate(function.operations):
        for items in operation.arguments.values():
            found.update({item.name: index for item in items if isinstance(item, Name)})
    by_operation: dict[int, list[str]] = {}
    for name, index in found.items():
        if name not in function.outputs:
            by_operation.setdefault(index, []).append(name)
    return by_operation
