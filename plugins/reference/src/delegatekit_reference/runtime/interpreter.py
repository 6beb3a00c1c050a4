"""Runs a graph with PyTorch, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from delegatekit_api import ExecutionError, FormatError
from delegatekit_api.profiling import OperatorTime

from ..ir.functions import FUNCTIONS
from ..ir.graph import Argument, Graph, Named, Ref, Step, arguments_of, references
from ..ir.names import OPERATORS


class Interpreter:
    """A graph that is ready to run. Subclasses may replace `step`, which computes one step of one call.

    Raises FormatError for an operator that this PyTorch lacks.
    """

    def __init__(self, graph: Graph, constants: Sequence[torch.Tensor]) -> None:
        self.graph = graph
        self.constants = tuple(constants)
        self.functions = tuple(_resolve(step.operator, index) for index, step in enumerate(graph.steps))
        self._last_uses = _last_uses(graph)

    def run(self, inputs: Sequence[torch.Tensor], times: list[OperatorTime] | None = None) -> list[Any]:
        """The outputs for these inputs. Raises ExecutionError, naming the step, for what PyTorch refuses.

        The time of each step is appended to `times`.
        """
        values: list[Any] = [*inputs, *self.constants]
        with torch.no_grad():
            for index, step in enumerate(self.graph.steps):
                args = tuple(_resolved(item, values) for item in step.args)
                kwargs = {name: _resolved(item, values) for name, item in step.kwargs.items()}
                start = 0.0 if times is None else perf_counter()
                try:
                    values.append(_dense(self.step(index, step, args, kwargs)))
                except ExecutionError:
                    raise
                except Exception as error:
                    raise ExecutionError(
                        f"step {index}, {step.operator}: {type(error).__name__}: {error}", where="ReferenceBackend"
                    ) from error
                if times is not None:
                    times.append(OperatorTime(step.operator, perf_counter() - start, index))
                for number in self._last_uses[index]:
                    values[number] = None
        return [values[number] for number in self.graph.outputs]

    def step(self, index: int, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of one step: a tensor, a tuple of these, or a number. `args` and `kwargs` are values."""
        return self.functions[index](*args, **kwargs)


def _resolve(operator: str, index: int) -> Callable[..., Any]:
    known = FUNCTIONS.get(operator)
    if known is not None:
        return known
    if operator in OPERATORS:
        _, packet, overload = operator.split(".")
        target: Any = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if target is not None:
            return target  # type: ignore[no-any-return]
    raise FormatError(f"PyTorch {torch.__version__} has no operator {operator}", where=f"reference blob, step {index}")


def _resolved(argument: Argument, values: Sequence[Any]) -> Any:
    if isinstance(argument, Ref):
        return values[argument.value]
    if isinstance(argument, tuple):
        return [_resolved(item, values) for item in argument]
    if isinstance(argument, Named):
        return torch.device(argument.name) if argument.kind == "device" else getattr(torch, argument.name)
    return argument


def _dense(value: Any) -> Any:
    """Values of the edge dialect are dense and contiguous, whatever strides a kernel chose."""
    if isinstance(value, torch.Tensor):
        return value.contiguous()
    return tuple(map(_dense, value)) if isinstance(value, tuple | list) else value


def _last_uses(graph: Graph) -> list[list[int]]:
    """For each step, the values that are not read after it."""
    last: dict[int, int] = {}
    for index, step in enumerate(graph.steps):
        last[graph.first_step + index] = index
        for argument in arguments_of(step):
            last.update(dict.fromkeys(references(argument), index))
    found: list[list[int]] = [[] for _ in graph.steps]
    for number, index in last.items():
        if number not in graph.outputs:
            found[index].append(number)
    return found
