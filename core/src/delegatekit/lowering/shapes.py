"""The constraints of a delegate on its inputs' shapes, and the shapes of its outputs: for fake and for real tensors.

The sizes of a delegate's inputs are ints, or expressions over symbols that stand for sizes which change from call to
call. Given inputs, the symbols are solved for, and everything else must agree with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Node

from delegatekit_api import ExecutionError, PartitionProgram, UnsupportedError

from ..edge.sizes import SYMBOLIC, Size, affine, expression, known_true


class DelegateShapes:
    """The shapes of one delegate. `program` computes the same function.

    Raises UnsupportedError if sizes of its inputs depend on each other in a way that cannot be checked.
    """

    def __init__(self, program: PartitionProgram) -> None:
        self._view = program.view
        self._inputs: list[torch.Tensor] = [node.meta["val"] for node in self._view.inputs]
        self._outputs: list[torch.Tensor] = [node.meta["val"] for node in self._view.outputs if node is not None]
        #: The sizes that change: input, axis, expression.
        self._changing = [
            (position, axis, expression(size))
            for position, value in enumerate(self._inputs)
            for axis, size in enumerate(value.shape)
            if isinstance(size, SYMBOLIC)
        ]
        self._solvers = dict(self._solve())
        self._terms = {expr: _terms(expr, self._solvers) for _, _, expr in self._changing}
        self._ranges = {
            symbol: _range(self._changing_size(position, axis).node.shape_env.var_to_range[symbol])
            for symbol, (position, axis, _, _) in self._solvers.items()
        }

    def __str__(self) -> str:
        """A text that is equal for delegates of equal shapes."""
        tensors = [(str(value.dtype), [str(size) for size in value.shape]) for value in (*self._inputs, *self._outputs)]
        return f"{len(self._inputs)} {tensors} {self._ranges}"

    def check(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raise ExecutionError for inputs that do not fit the compiled delegate."""
        for position, (want, given) in enumerate(zip(self._inputs, inputs, strict=True)):
            if given.dtype != want.dtype:
                _refuse(position, f"has dtype {given.dtype}, not {want.dtype}")
            if given.dim() != want.dim():
                _refuse(position, f"has shape {tuple(given.shape)}, not {tuple(want.shape)}")
            for size, wanted in zip(given.shape, want.shape, strict=True):
                if isinstance(wanted, int):
                    _require(size == wanted, position, f"has shape {tuple(given.shape)}, not {tuple(want.shape)}")
        symbols = {
            symbol: (inputs[position].shape[axis] - offset) // factor
            for symbol, (position, axis, factor, offset) in self._solvers.items()
        }
        for position, axis, expr in self._changing:
            size = inputs[position].shape[axis]
            shapes = f"has shape {tuple(inputs[position].shape)}, not {tuple(self._inputs[position].shape)}"
            _require(size == _value(self._terms[expr], symbols), position, shapes)
        for symbol, (position, _, _, _) in self._solvers.items():
            (lower, upper), value = self._ranges[symbol], symbols[symbol]
            shape = tuple(inputs[position].shape)
            if upper is not None:
                _require(value <= upper, position, f"has shape {shape}, larger than the {upper} that it may have")
            _require(value >= lower, position, f"has shape {shape}, smaller than the {lower} that it must have")

    def infer(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs for fake inputs, dense, their sizes computed from those of the inputs."""
        self.check(inputs)
        if all(isinstance(size, int) for value in self._outputs for size in value.shape):
            return [torch.empty(value.shape, dtype=value.dtype) for value in self._outputs]
        known: dict[Node, Any] = dict(zip(self._view.inputs, inputs, strict=True))
        for node in self._view.graph.nodes:
            if node in self._view.constants:
                value = node.meta["val"]
                known[node] = torch.empty(value.shape, dtype=value.dtype)
            elif node.op == "call_function":
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*args, **kwargs)
        found = [known[node] for node in self._view.outputs if node is not None]
        return [torch.empty(value.shape, dtype=value.dtype) for value in found]

    def _changing_size(self, position: int, axis: int) -> Any:
        return self._inputs[position].shape[axis]

    def _solve(self) -> Iterator[tuple[sympy.Symbol, tuple[int, int, int, int]]]:
        """Each symbol, and its source: input, axis, factor and offset of the size factor * symbol + offset."""
        wanted = {symbol for _, _, expr in self._changing for symbol in expr.free_symbols}
        found: set[sympy.Symbol] = set()
        # Sizes that are a symbol themselves first: they need no division.
        for position, axis, expr in sorted(self._changing, key=lambda item: not item[2].is_Symbol):
            terms = affine(expr)
            if terms is not None and terms[0] not in found:
                found.add(terms[0])
                yield terms[0], (position, axis, *terms[1:])
        if wanted - found:
            names = ", ".join(sorted(map(str, wanted - found)))
            raise UnsupportedError(
                f"the changing size {names} is not a size of an input",
                where="lowered module",
                hint="export it with sizes that are dimensions of the inputs, or multiples of them",
            )


def _terms(expr: sympy.Expr, symbols: Mapping[sympy.Symbol, Any]) -> tuple[tuple[int, tuple[Any, ...]], ...]:
    """A polynomial as pairs of a factor and its symbols."""
    if not expr.is_polynomial(*symbols):
        raise UnsupportedError(f"an input has the size {expr}, which cannot be checked", where="lowered module")
    poly = sympy.Poly(expr, *symbols)
    return tuple(
        (int(factor), tuple(s for s, power in zip(symbols, powers, strict=True) for _ in range(power)))
        for powers, factor in poly.terms()
    )


def _value(terms: Sequence[tuple[int, Sequence[Any]]], symbols: Mapping[Any, Size]) -> Size:
    return sum(math.prod((symbols[symbol] for symbol in product), start=factor) for factor, product in terms)


def _range(known: Any) -> tuple[int, int | None]:
    """The smallest and the largest value of a size, as far as there are bounds."""
    # PyTorch traces changing sizes as if they were at least 2, whatever the user's range: that is not a bound.
    lower = int(known.lower) if known.lower.is_Integer and known.lower > 2 else 0
    return lower, int(known.upper) if known.upper.is_Integer else None


def _require(condition: Any, position: int, message: str) -> None:
    """Raise ExecutionError unless the condition holds; for a changing size, let PyTorch record it."""
    if isinstance(condition, bool):
        if not condition:
            _refuse(position, message)
        return
    if known_true(condition):
        return
    try:
        torch._check(condition, lambda: message)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        _refuse(position, message, error)


def _refuse(position: int, what: str, cause: Exception | None = None) -> None:
    raise ExecutionError(what, where=f"lowered module, input {position} of its delegate") from cause
