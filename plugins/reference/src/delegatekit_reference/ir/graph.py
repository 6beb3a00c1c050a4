"""The content of a blob, as plain data: a list of operator calls that can be read, changed and written again.

Values are numbered: the inputs in calling order, then the constants, then the results of the steps, one for each. A
step whose operator has several results yields a tuple; "getitem" steps pick from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from delegatekit_toolkit.signature import Signature, TensorType

#: torch's names of the dtypes that values may have.
DTYPES: Final = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class Ref:
    """An argument that is a value, by its number."""

    value: int


@dataclass(frozen=True)
class Named:
    """An argument that is one of torch's names: "float32" of kind "dtype"; "layout", "memory_format", "device"."""

    kind: str
    name: str


#: An argument of a step.
Argument: TypeAlias = Ref | Named | bool | int | float | str | tuple["Argument", ...] | None


@dataclass(frozen=True)
class Constant:
    """A tensor known at lowering time: named data under `key`, the SHA-256 of its elements in row-major order.

    One without elements has no data and the key "".
    """

    dtype: str
    shape: tuple[int, ...]
    key: str


@dataclass(frozen=True)
class Step:
    """A call: an operator ("aten.add.Tensor") or a function on numbers ("operator.mul"), and its arguments."""

    operator: str
    args: tuple[Argument, ...] = ()
    kwargs: Mapping[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """The computation of one delegate."""

    inputs: tuple[TensorType, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    #: The values returned, in order, and their required types.
    outputs: tuple[int, ...]
    results: tuple[TensorType, ...]

    @property
    def first_step(self) -> int:
        """The number of the value that the first step yields."""
        return len(self.inputs) + len(self.constants)

    @property
    def signature(self) -> Signature:
        """The signature of the delegate."""
        return Signature(self.inputs, self.results)


def references(argument: Argument) -> list[int]:
    """The numbers of the values among an argument, in order."""
    if isinstance(argument, Ref):
        return [argument.value]
    return [number for item in argument for number in references(item)] if isinstance(argument, tuple) else []


def arguments_of(step: Step) -> tuple[Argument, ...]:
    """All arguments of a step, those by name last."""
    return (*step.args, *step.kwargs.values())
