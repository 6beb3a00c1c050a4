"""A program as a list of kernel calls, built by `preparation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import torch

from delegatekit_api import ExecutionError
from delegatekit_api.profiling import OperatorTime

from ..ir.program import TensorType
from ..ir.types import DataType
from .kernel import Kernel, size_argument

#: Exceptions of PyTorch for a damaged program.
FAULTS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Call:
    """One call of a kernel."""

    kernel: Kernel
    #: Parameters known to the program.
    known: Mapping[str, Any]
    #: Computed parameters: the slots of their values, several for a list.
    reads: Mapping[str, int | tuple[int, ...]]
    #: Parameters computed from sizes: the slots of their values.
    sizes: Mapping[str, int]
    results: tuple[int, ...]
    types: tuple[TensorType, ...]
    #: Values that nothing reads after this call.
    last: tuple[int, ...]
    where: str
    #: Its name in ExecuTorch's profiler, see `ir.program.symbol`.
    symbol: str = ""

    def compute(self, values: Sequence[Any]) -> Sequence[Any]:
        """The results from values in their slots, as returned by the kernel."""
        arguments = {
            name: values[places] if isinstance(places, int) else tuple(values[place] for place in places)
            for name, places in self.reads.items()
        }
        for name, place in self.sizes.items():
            arguments[name] = size_argument(values[place], self.kernel.parameters[name].kind)
        made = self.kernel.function(**arguments, **self.known)
        return made if isinstance(made, tuple | list) else (made,)

    def run(self, values: list[Any]) -> None:
        """Compute the results from values in their slots."""
        results = self.compute(values)
        for place, kind, value in zip(self.results, self.types, results, strict=False):
            values[place] = value if self.kernel.moves else declared(value, kind)
        for place in self.last:
            values[place] = None


def declared(value: torch.Tensor, kind: TensorType) -> torch.Tensor:
    """A result in the program's declared precision: rounded to float16, and converted to float32 again."""
    return value.to(torch.float16).to(torch.float32) if kind.datatype is DataType.FLOAT16 else value


@dataclass
class Tape:
    """A prepared program."""

    #: Constants in their slots; None elsewhere.
    constants: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    #: Values that stay from call to call, in their slots; they begin with zeros, as on the device.
    states: dict[int, torch.Tensor] = field(default_factory=dict)

    def run(
        self, inputs: Mapping[str, torch.Tensor], times: list[OperatorTime] | None = None
    ) -> dict[str, torch.Tensor]:
        """The outputs by name, in the types of the computation. Raises ExecutionError.

        The time of each call is appended to `times`.
        """
        values = list(self.constants)
        for place, state in self.states.items():
            values[place] = state
        for name, value in inputs.items():
            values[self.inputs[name]] = value
        for call in self.calls:
            start = 0.0 if times is None else perf_counter()
            try:
                call.run(values)
            except FAULTS as error:
                raise ExecutionError(f"failed: {error}", where=call.where) from error
            if times is not None:
                kind = call.symbol.rpartition(":")[2]
                times.append(OperatorTime(kind or call.where, perf_counter() - start, call.symbol or None))
        for place in self.states:
            self.states[place] = values[place]
        return {name: values[place] for name, place in self.outputs.items()}
