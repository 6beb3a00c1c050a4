"""A pass that writes operators on more axes than a device has on fewer: axes that an operator treats alike become one.

Windows of images are moved on six axes, boxes and samples of attention are computed on six or more. Nearly always some
of these stay neighbors all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node

from delegatekit_api import Call, Operand
from delegatekit_api.nodes import argument, operator_name

from .layout import neighbors, permuted, product, steps
from .passes import Change, PassResult
from .rewriting import EditableProgram, ProgramPass

aten = torch.ops.aten

#: Runs of neighboring axes that become one axis each; those of size 1 are in none.
Runs: TypeAlias = "list[list[int]]"

_RESHAPES: Final = ("aten.view_copy.default", "aten.squeeze_copy.dims", "aten.unsqueeze_copy.default")
#: Operators that compute each element by itself, and that PyTorch does not say so of.
_POINTWISE: Final = frozenset(
    (
        "aten._to_copy.default",
        "quantized_decomposed.quantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_tensor.default",
    )
)
#: Operators along one axis or several -> the argument that says along which.
_ALONG: Final[Mapping[str, str]] = {
    **{
        f"aten.{name}": "dim"
        for name in (
            *("slice_copy.Tensor", "select_copy.int", "cat.default", "cumsum.default"),
            *("_softmax.default", "_log_softmax.default"),
            *("sum.dim_IntList", "mean.dim", "amax.default", "amin.default"),
        )
    },
    "aten.flip.default": "dims",
    "aten.roll.default": "dims",
}
#: Operators that PyTorch computes sizes of that change where it does not of their copying forms.
_OF_VIEWS: Final[Mapping[str, Any]] = {
    "aten.slice_copy.Tensor": aten.slice.Tensor,
    "aten.select_copy.int": aten.select.int,
}


@dataclass(frozen=True)
class FewerAxes(ProgramPass):
    """Operators on more than `most` axes (4 or more) on fewer, between views, wherever that computes the same.

    Axes of size 1 go, and neighbors that the operator treats alike become one. A permutation of too many axes that stay
    apart becomes several. What has `most` axes at most stays as it is, and so does what needs more.

    >>> FewerAxes(5)
    FewerAxes(most=5)
    """

    most: int
    #: The calls that are rewritten of those with more axes: by default all.
    where: Callable[[Call], bool] | None = field(default=None, repr=False)

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        """Rewrite call after call."""
        changes: list[Change] = []
        written: set[Node] = set()
        for call in program.calls():
            if call.operator in _RESHAPES:
                # What a view is taken of is such a view, as which it vanishes.
                made = call["self"].node if call["self"].node in written else None
            else:
                made = _Writer(program, call, self.most).written() if self._is_wide(call) else None
            if made is not None:
                result = program.reshape(call, _source(made), call.result.shape)
                written.add(result)
                changes.append(program.replace(call, result, f"is written on at most {self.most} axes"))
        return PassResult(program, tuple(changes))

    def _is_wide(self, call: Call) -> bool:
        wide = len(call.results) == 1 and any(item.rank > self.most for item in call.tensors)
        return wide and (self.where is None or self.where(call))


@dataclass(frozen=True)
class _Writer:
    """One call, and how it is written on fewer axes."""

    program: EditableProgram
    call: Call
    most: int

    def written(self) -> Node | None:
        """The result with other axes; None if the call stays."""
        name = self.call.operator
        if name == "aten.permute_copy.default":
            return self._permuted()
        if name == "aten.expand_copy.default":
            return self._expanded()
        if name in _ALONG:
            return self._along(_ALONG[name])
        target: Any = self.call.node.target
        return self._pointwise() if name in _POINTWISE or torch.Tag.pointwise in target.tags else None

    def _permuted(self) -> Node:
        x = self.call["self"]
        order = [axis % x.rank for axis in self.call["dims"]]
        runs = neighbors(order, _units(x.shape))
        stored = sorted(runs)
        value: Node = x.node
        sizes = [product(x.shape, run) for run in stored]
        for step in steps(tuple(map(stored.index, runs)), self.most):
            moved = neighbors(step)
            places = sorted(moved)
            value = self._view(value, [product(sizes, run) for run in places])
            value = self._call(aten.permute.default, value, list(map(places.index, moved)))
            sizes = list(permuted(sizes, step))
        return value

    def _expanded(self) -> Node | None:
        x, shape = self.call["self"], self.call.result.shape
        runs = self._alike((x,), shape)
        if runs is None:
            return None
        value = self._view(x.node, _merged(_padded(x.shape, len(shape)), runs))
        return self._call(aten.expand.default, value, _merged(shape, runs))

    def _pointwise(self) -> Node | None:
        operands, shape = [item for item in self.call.operands if item.rank], self.call.result.shape
        runs = self._alike(operands, shape)
        if runs is None:
            return None
        views = {
            item.node: self._view(item.node, _shortened(_merged(_padded(item.shape, len(shape)), runs)))
            for item in operands
        }
        node = self.call.node
        args: Any = torch.fx.map_arg(node.args, lambda item: views.get(item, item))
        kwargs: Any = torch.fx.map_arg(node.kwargs, lambda item: views.get(item, item))
        return self._call(node.target, *args, **kwargs)

    def _alike(self, operands: Sequence[Operand], shape: Sequence[Any]) -> Runs | None:
        """Axes of a result along which the same operands have one element for all."""
        units = [_units(_padded(item.shape, len(shape))) for item in operands]
        ones = _units(shape)
        return self._few([None if axis in ones else tuple(axis in of for of in units) for axis in range(len(shape))])

    def _along(self, name: str) -> Node | None:
        call = self.call
        operands = call.operands
        dims = call[name] if isinstance(call[name], tuple) else (call[name],)
        if not operands or None in dims or not dims:
            return None
        shape = operands[0].shape
        axes, ones = [axis % len(shape) for axis in dims], _units(shape)
        runs = self._few([axis if axis in axes else None if axis in ones else "" for axis in range(len(shape))])
        is_known = all(isinstance(shape[axis], int) for axis in axes)
        if runs is None or not is_known or any(item.rank != len(shape) for item in operands):
            return None
        views = {item.node: self._view(item.node, _merged(item.shape, runs)) for item in operands}
        places = [runs.index([axis]) for axis in axes]
        changed = {name: places if isinstance(call[name], tuple) else places[0]}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in call.node.target._schema.arguments:  # type: ignore[union-attr]
            value = changed.get(parameter.name, argument(call.node, parameter.name))
            value = torch.fx.map_arg(value, lambda item: views.get(item, item))
            if parameter.kwarg_only:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return self._call(_OF_VIEWS.get(call.operator, call.node.target), *args, **kwargs)

    def _few(self, kinds: Sequence[Hashable]) -> Runs | None:
        """Neighboring axes of one kind as runs, without those of kind None; None if they are too many."""
        places = (axis for axis, kind in enumerate(kinds) if kind is not None)
        runs = [list(run) for _, run in groupby(places, kinds.__getitem__)]
        return runs if len(runs) <= self.most else None

    def _view(self, node: Node, shape: Sequence[Any]) -> Node:
        return self.program.reshape(self.call, _source(node), shape)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return self.program.call(self.call, target, *args, **kwargs)


def _source(node: Node) -> Node:
    """What reshapes, of which a view is one itself, are taken of."""
    while operator_name(node) in _RESHAPES:
        node = argument(node, "self")
    return node


def _units(shape: Sequence[Any]) -> set[int]:
    """The axes of size 1 in every call."""
    return {axis for axis, size in enumerate(shape) if isinstance(size, int) and size == 1}


def _padded(shape: Sequence[Any], rank: int) -> tuple[Any, ...]:
    return (*(1,) * (rank - len(shape)), *shape)


def _merged(shape: Sequence[Any], runs: Runs) -> list[Any]:
    return [product(shape, run) for run in runs]


def _shortened(shape: list[Any]) -> list[Any]:
    """A shape without the axes of size 1 before all others, of which one stays if there are no others."""
    first = next((axis for axis in range(len(shape)) if axis not in _units(shape)), len(shape) - 1)
    return shape[max(first, 0) :]
