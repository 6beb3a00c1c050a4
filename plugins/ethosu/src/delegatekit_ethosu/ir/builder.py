"""What a lowering function is given: the TOSA graph under construction and the integers behind the program's nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from delegatekit_api import LoweringError, ProgramView, describe_node, operator_name
from delegatekit_api.quantization import DEQUANTIZE, Quantization, quantization_of
from delegatekit_toolkit.tosa import (
    Add,
    AvgPool2d,
    Clamp,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    DType,
    Gather,
    Graph,
    Matmul,
    Maximum,
    MaxPool2d,
    Minimum,
    Operation,
    Operator,
    Pad,
    ReduceMax,
    ReduceSum,
    Rescale,
    Reshape,
    Resize,
    Slice,
    Table,
    Tensor,
    Transpose,
    TransposeConv2d,
)
from delegatekit_toolkit.tosa.numerics import multipliers_and_shifts, rescale
from delegatekit_toolkit.tosa.types import INTEGER_RANGES, Array

from ..limits import COMMON_RANK, MAX_AXIS, MAX_DILATION, count
from .values import Value, blocks, composed, merged, moves_elements

if TYPE_CHECKING:
    from torch.fx import Node

#: Torch's integers and truth values, as TOSA has them.
INTEGERS: Final = {
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.bool: DType.BOOL,
}


#: How many integers there are.
_SPANS: Final = {DType.INT8: 1 << 8, DType.INT16: 1 << 16}
#: TOSA says what RESCALE does if the result is not larger, before it is saturated.
_RESCALED: Final = 1 << 29
#: In so many parts a tensor is moved at most.
_MOST_PARTS: Final = 64


@dataclass(frozen=True)
class Scale:
    """What integers of a tensor stand for: real = scale * (integer - zero_point)."""

    scale: float
    zero_point: int
    dtype: DType = DType.INT8

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.scale:g}, {self.zero_point}"


#: The cycles that a graph would take on the accelerator, None if it cannot be run there.
Estimate = Callable[[Graph], "int | None"]
#: One of several ways to make something of a tensor.
Way = Callable[["Builder", Tensor], Tensor]


@dataclass(frozen=True)
class Result:
    """How the result of an operation is stored, and the bounds that a clamp behind it leaves: the type's at most."""

    scale: Scale
    low: int = -(1 << 15)
    high: int = (1 << 15) - 1


class Builder:
    """Emits TOSA operators; tensors are called after the program's node that is lowered.

    `family` is the accelerator's: "u55", "u65" or "u85". `estimate` gives the cycles that a graph would take, None if
    the accelerator cannot run it; without it the first of several ways is taken.
    """

    def __init__(self, name: str, family: str, estimate: Estimate | None = None) -> None:
        self.graph = Graph(name)
        self.family = family
        self.estimate = estimate
        #: The name of the tensors that are made next.
        self.name = "value"
        #: TOSA tensor -> debug handles of the nodes that it was made for.
        self.handles: dict[int | str, tuple[int, ...]] = {}
        self.origin: tuple[int, ...] = ()
        self._moved: dict[tuple[int, tuple[int, ...]], Tensor] = {}
        self._producers: dict[str, Operation] = {}
        self._largest: dict[str, float | Array] = {}
        self._choices: dict[tuple[Hashable, DType, tuple[int, ...]], int] = {}

    def cheapest(self, x: Tensor, ways: Sequence[Way], key: Hashable, otherwise: Sequence[Way] = ()) -> Tensor:
        """What one of several ways makes of a tensor: the one that takes the fewest cycles.

        If none of them can be run, it is the first of `otherwise` that can. `key` tells apart what the ways do for
        tensors of one shape and type. Raises LoweringError if there is no way.
        """
        if self.estimate is None or len(ways) + len(otherwise) == 1:
            return ways[0](self, x)
        known = self._choices.get((key, x.dtype, x.shape))
        if known is None:
            known = self._choices[(key, x.dtype, x.shape)] = self._cheapest(x, ways, otherwise)
        return (*ways, *otherwise)[known](self, x)

    def _cheapest(self, x: Tensor, ways: Sequence[Way], otherwise: Sequence[Way]) -> int:
        costs = {place: cost for place, way in enumerate(ways) if (cost := self._cost(x, way)) is not None}
        if costs:
            return min(costs, key=costs.__getitem__)
        for place, way in enumerate(otherwise, len(ways)):
            if self._cost(x, way) is not None:
                return place
        raise LoweringError(f"the accelerator has no way to do it for a tensor of {x.shape}", where=self.name)

    def _cost(self, x: Tensor, way: Way) -> int | None:
        assert self.estimate is not None
        trial = Builder("trial", self.family, self.estimate)
        trial._choices = self._choices
        try:
            trial.graph.output(way(trial, trial.graph.input("x", x.shape, x.dtype)))
        except LoweringError:
            return None
        return self.estimate(trial.graph)

    # -- operators ---------------------------------------------------------------------------------------------------

    def emit(
        self, operator: Operator, inputs: Sequence[Tensor], shape: Sequence[int], dtype: DType, name: str = ""
    ) -> Tensor:
        """Append an operation; its result is called after the node at hand, with `name` behind it."""
        if _is_misread(operator, inputs[0]):
            inputs = [self._copied(item) if self._is_sliced(item) else item for item in inputs]
        elif isinstance(operator, Pad | Concat):
            inputs = [self._copied(item) if self._is_product(item) else item for item in inputs]
        elif isinstance(operator, Rescale) and (self._is_saturated(inputs[0]) or self._is_repeated(inputs[0])):
            inputs = [self._copied(inputs[0]), *inputs[1:]]
        made = self.graph.add(operator, inputs, shape, dtype, f"{self.name}.{name}" if name else self.name)
        self._producers[made.name] = self.graph.operations[-1]
        if self.origin:
            self.handles[made.name] = self.origin
        return made

    def _is_sliced(self, tensor: Tensor) -> bool:
        made = self._producer_behind(tensor, Reshape)
        return made is not None and isinstance(made.operator, Slice)

    def _is_product(self, tensor: Tensor) -> bool:
        """Of two matrices: into a larger tensor, and in another shape, Vela (5.1) writes it in the wrong places."""
        made = self._producer_behind(tensor, Reshape, Rescale, Clamp)
        return made is not None and isinstance(made.operator, Matmul)

    def _is_saturated(self, tensor: Tensor) -> bool:
        """Whether it was only cut off to fewer bits: Vela (5.1) joins what scales it then to what made it."""
        made = self._producer_behind(tensor, Reshape, Transpose)
        if made is None or not isinstance(made.operator, Rescale) or made.inputs[0].dtype <= made.output.dtype:
            return False
        multiplier, shift = (item.data for item in made.inputs[1:3])
        assert multiplier is not None and shift is not None
        return bool((multiplier == 1 << shift.astype(np.int64)).all())

    def _is_repeated(self, tensor: Tensor) -> bool:
        """Whether it is int16 made larger: what scales it then Vela (5.1) joins to that, and gets other numbers."""
        made = self._producer_behind(tensor, Reshape, Transpose)
        return made is not None and isinstance(made.operator, Resize) and made.output.dtype == DType.INT16

    def _copied(self, part: Tensor) -> Tensor:
        """A tensor of its own, made by an operation that changes nothing.

        Vela (5.1) reads slices, above all, where they lie; in another shape, some of them in the wrong places.
        """
        if part.dtype in (DType.INT8, DType.INT16):
            return self.emit(Clamp(*INTEGER_RANGES[part.dtype]), (part,), part.shape, part.dtype, "part")
        return self.emit(Add(), (part, self.single(0, part.shape)), part.shape, part.dtype, "part")

    def producer(self, tensor: Tensor) -> Operation | None:
        """The operation that made a tensor; None for inputs and constants."""
        return self._producers.get(tensor.name)

    def _producer_behind(self, tensor: Tensor, *passed: type[Operator]) -> Operation | None:
        """The operation that made a tensor, or what operators of these kinds, one behind the other, made it of."""
        made = self.producer(tensor)
        while made is not None and isinstance(made.operator, passed):
            made = self.producer(made.inputs[0])
        return made

    def finish(self) -> Graph:
        """The graph without operations whose results nobody reads."""
        used = set(map(id, self.graph.outputs))
        kept = []
        for operation in reversed(self.graph.operations):
            if id(operation.output) in used:
                used.update(map(id, operation.inputs))
                kept.append(operation)
        self.graph.operations[:] = reversed(kept)
        self.graph.verify()
        return self.graph

    def sizes(self, values: Sequence[int]) -> Tensor:
        """A list of sizes as an operand."""
        return self.graph.constant(list(values), DType.SHAPE)

    def number(self, value: int, dtype: DType = DType.INT8) -> Tensor:
        """One integer as an operand: a zero point, say."""
        return self.graph.constant([value], dtype)

    def single(self, value: int, shape: Sequence[int], *, left: bool = False) -> Tensor:
        """One int32 that is combined, as right or left operand, with every element of a tensor of this shape."""
        # On the left of more than four axes Vela (5.1) would read on behind it.
        sizes = shape if left and len(shape) > COMMON_RANK else [1] * len(shape)
        return self.graph.constant(np.full(sizes, value), DType.INT32)

    def rescaled(
        self,
        tensor: Tensor,
        scales: Sequence[float],
        *,
        zero_point: int = 0,
        output_zero: int = 0,
        dtype: DType = DType.INT32,
        name: str = "",
    ) -> Tensor:
        """(integer - zero_point) * scale + output_zero; one scale, or one for each index of the last axis.

        Multipliers have 31 bits, for int48 only 15. A constant is computed at once.
        """
        if len(set(scales)) == 1:
            scales = scales[:1]
        if tensor.dtype in _SPANS and dtype in _SPANS and scales[0] * _SPANS[tensor.dtype] >= _RESCALED:
            tensor, scales = self._near_zero(tensor, scales[0], zero_point, dtype)
        wide = tensor.dtype == DType.INT48
        multipliers, shifts = multipliers_and_shifts(scales, bits=16 if wide else 32)
        if tensor.data is not None:
            data = rescale(
                tensor.data, multipliers, shifts, input_zero=zero_point, output_zero=output_zero, dtype=dtype
            )
            return self.graph.constant(data, dtype, f"{tensor.name}.rescaled")
        operands = (
            self.graph.constant(multipliers, DType.INT16 if wide else DType.INT32),
            self.graph.constant(shifts, DType.INT8),
            self.number(zero_point, tensor.dtype),
            self.number(output_zero, dtype),
        )
        operator = Rescale(scale32=not wide, per_channel=len(scales) > 1)
        return self.emit(operator, (tensor, *operands), tensor.shape, dtype, name)

    def _near_zero(self, tensor: Tensor, scale: float, zero: int, dtype: DType) -> tuple[Tensor, list[float]]:
        """For a scale that is too large for TOSA: what does not saturate by it, and a scale that is as good."""
        scale = min(scale, float(2 * _SPANS[dtype]))
        reach = math.ceil(2 * _SPANS[dtype] / scale)
        lowest, highest = INTEGER_RANGES[tensor.dtype]
        bounds = Clamp(max(lowest, zero - reach), min(highest, zero + reach))
        return self.emit(bounds, (tensor,), tensor.shape, tensor.dtype, "near"), [scale]

    def bound(self, sums: Tensor, largest: float | Array) -> Tensor:
        """Note how large the numbers of a tensor of int32 can be, in each channel or in all."""
        self._largest[sums.name] = largest
        return sums

    def stored_as(self, sums: Tensor, scales: Sequence[float], result: Result) -> Tensor:
        """int32 or int48 sums, in steps of `scales`, as the integers of a result.

        Where sums of int32 can leave the range that TOSA's RESCALE is defined for, what saturates in any case is
        brought nearer.
        """
        target, largest = result.scale, self._largest.get(sums.name)
        steps = [scale / target.scale for scale in scales]
        if largest is not None and sums.dtype == DType.INT32 and (np.array(steps) * largest >= _RESCALED).any():
            span = 2 * _SPANS[target.dtype]
            steps = [min(step, float(span)) for step in steps]
            limits = np.ceil(span / np.array(steps)).reshape(*[1] * (len(sums.shape) - 1), -1)
            for operator, bounds in ((Maximum(), -limits), (Minimum(), limits)):
                operands = sums, self.graph.constant(np.minimum(np.maximum(bounds, -_RESCALED), _RESCALED), DType.INT32)
                sums = self.emit(operator, operands, sums.shape, DType.INT32, "near")
        made = self.rescaled(sums, steps, output_zero=target.zero_point, dtype=target.dtype)
        return self.clamped(made, result)

    def clamped(self, tensor: Tensor, result: Result) -> Tensor:
        """Within the bounds of a result, where saturation does not do it.

        It is done before what only moves the values: Vela (5.1) joins a clamp to the operation in front of these, in
        the wrong shape.
        """
        lowest, highest = INTEGER_RANGES[result.scale.dtype]
        low, high = max(result.low, lowest), min(result.high, highest)
        if (low, high) == (lowest, highest):
            return tensor
        return self.before_moves(tensor, lambda x: self.emit(Clamp(low, high), (x,), x.shape, x.dtype))

    def requantized(self, tensor: Tensor, before: Scale, result: Result) -> Tensor:
        """The same numbers as the integers of a result; the tensor itself if these are the same.

        Like bounds it is done before what only moves the values.
        """
        if before == result.scale:
            return self.clamped(tensor, result)
        step, after = before.scale / result.scale.scale, result.scale

        def change(x: Tensor) -> Tensor:
            made = self.rescaled(
                x, [step], zero_point=before.zero_point, output_zero=after.zero_point, dtype=after.dtype
            )
            return self.clamped(made, result)

        return self.before_moves(tensor, change)

    def reshaped(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements, in the same order, in another shape."""
        if tuple(shape) == tensor.shape:
            return tensor
        if tensor.data is not None:
            return self.graph.constant(tensor.data.reshape(shape), tensor.dtype, tensor.name)
        made = self.producer(tensor)
        if made is not None and isinstance(made.operator, Slice):
            tensor = self._copied(tensor)
        elif made is not None and isinstance(made.operator, Reshape):
            return self.reshaped(made.inputs[0], shape)
        return self.emit(Reshape(), (tensor, self.sizes(shape)), shape, tensor.dtype, "view")

    def transposed(self, tensor: Tensor, perms: Sequence[int]) -> Tensor:
        """The elements of a tensor moved, once for each order."""
        if not moves_elements(tensor.shape, perms):
            return self.reshaped(tensor, [tensor.shape[axis] for axis in perms])
        key = id(tensor), tuple(perms)
        if key not in self._moved:
            found = self._moved_once(tensor, perms)
            self._moved[key] = self._transposed(tensor, tuple(perms)) if found is None else found
        return self._moved[key]

    def _moved_once(self, tensor: Tensor, perms: Sequence[int]) -> Tensor | None:
        """A permutation of what was permuted already, from what it was before; None where that is no easier."""
        made = self._producer_behind(tensor, Reshape)
        if made is None or not isinstance(made.operator, Transpose):
            return None
        source = made.inputs[0]
        both = composed(source.shape, made.operator.perms, tensor.shape, perms)
        if both is None or len(both[0]) > len(merged(tensor.shape, perms)[0]):
            return None
        moved = self.transposed(self.reshaped(source, both[0]), both[1])
        return self.reshaped(moved, [tensor.shape[axis] for axis in perms])

    def _transposed(self, tensor: Tensor, perms: tuple[int, ...]) -> Tensor:
        shape = tuple(tensor.shape[axis] for axis in perms)
        if tensor.data is not None:
            return self.graph.constant(tensor.data.transpose(perms), tensor.dtype, tensor.name)
        sizes, axes = merged(tensor.shape, perms)
        # Vela (5.1) looks at the shape that a tensor had before, too.
        source = self.reshaped(tensor, sizes) if max(sizes) <= MAX_AXIS else tensor

        def joined(b: Builder, x: Tensor) -> Tensor:
            """Axes that stay neighbours as one: fewer steps for Vela, in most cases."""
            moved = b.emit(
                Transpose(axes), (b.reshaped(x, sizes),), [sizes[axis] for axis in axes], x.dtype, "transpose"
            )
            return b.reshaped(moved, shape)

        def plain(b: Builder, x: Tensor) -> Tensor:
            return b.emit(Transpose(perms), (b.reshaped(x, tensor.shape),), shape, x.dtype, "transpose")

        def in_parts(axis: int) -> Way:
            def way(b: Builder, x: Tensor) -> Tensor:
                """One after the other along an axis: Vela refuses moves over more than 65536 elements."""
                size, outer, inner = tensor.shape[axis], count(tensor.shape[:axis]), count(tensor.shape[axis + 1 :])
                whole, parts = b.reshaped(x, (outer, size, inner)), []
                for place in range(size):
                    part = b.sliced(whole, (0, place, 0), (outer, 1, inner))
                    part = b.reshaped(part, (*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :]))
                    parts.append(b.transposed(part, perms))
                return b.joined(parts, perms.index(axis), "transpose")

            return way

        ways = [plain] if sizes == tensor.shape else [joined, plain]
        cuts = sorted((size, axis) for axis, size in enumerate(tensor.shape) if 1 < size <= _MOST_PARTS)
        spare = [in_parts(axis) for _, axis in cuts] if tensor.size > MAX_AXIS else []
        return self.cheapest(source, ways, ("transpose", tensor.shape, perms), spare)

    def tabled(self, tensor: Tensor, entries: Sequence[int] | Array, name: str = "", table: str = "table") -> Tensor:
        """Each int8 value replaced by one of 256 entries.

        It is done before what only moves the values: Vela (5.1) gives the table of a transpose no place on small U55s.
        """
        operand = self.graph.constant(entries, DType.INT8, f"{self.name}.{table}")

        def look_up(x: Tensor) -> Tensor:
            return self.emit(Table(), (x, operand), x.shape, DType.INT8, name)

        return self.before_moves(tensor, look_up)

    def before_moves(self, tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """A change of each value for itself, done before what only moves the values."""
        moves = []
        made = self.producer(tensor)
        while made is not None and isinstance(made.operator, Reshape | Transpose):
            moves.append(made)
            tensor = made.inputs[0]
            made = self.producer(tensor)
        tensor = change(tensor)
        for move in reversed(moves):
            operands, shape = (tensor, *move.inputs[1:]), move.output.shape
            tensor = self.emit(move.operator, operands, shape, tensor.dtype, "moved")
        return tensor

    def sliced(self, tensor: Tensor, start: Sequence[int], size: Sequence[int]) -> Tensor:
        """A block of a tensor."""
        if tuple(size) == tensor.shape:
            return tensor
        return self.emit(Slice(), (tensor, self.sizes(start), self.sizes(size)), size, tensor.dtype, "slice")

    def joined(self, parts: Sequence[Tensor], axis: int, name: str) -> Tensor:
        """Tensors one behind the other along an axis; a single one is itself."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.emit(Concat(axis), parts, shape, parts[0].dtype, name)

    # -- values ------------------------------------------------------------------------------------------------------

    def stored(self, value: Value, order: Sequence[int]) -> Tensor:
        """The tensor of a value with its axes in that order."""
        return self.transposed(value.tensor, [value.order.index(axis) for axis in order])

    def contiguous(self, value: Value) -> Tensor:
        """The tensor of a value as the program has it."""
        return self.stored(value, range(len(value.order)))

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape. Axes that only stay, are joined or are cut may lie in any order."""
        groups = blocks(value.shape, shape)
        if all(_lies_together(value.order, left) for left, _ in groups):
            # In the order in which the groups lie; those without old axes, of size 1, come last.
            found = sorted(groups, key=lambda group: value.order.index(group[0][0]) if group[0] else len(value.order))
            order = tuple(axis for _, right in found for axis in right)
            return Value(self.reshaped(value.tensor, [shape[axis] for axis in order]), order)
        return Value.dense(self.reshaped(self.contiguous(value), shape))


def _is_misread(operator: Operator, x: Tensor) -> bool:
    """Whether Vela (5.1) reads a slice, which it does not copy, in the wrong places.

    It forgets the padding in front of several samples, and of transposed convolutions, which pad by themselves; it
    reduces and multiplies in another shape; and it takes the wrong pixels where it cuts a convolution into those that
    a larger dilation leaves side by side. A clamp in between that changes nothing keeps it from that.
    """
    if isinstance(operator, TransposeConv2d | Matmul | ReduceMax | ReduceSum | Gather):
        return True
    if isinstance(operator, Conv2d | DepthwiseConv2d) and max(operator.dilation) > MAX_DILATION:
        return True
    padded = isinstance(operator, Conv2d | DepthwiseConv2d | MaxPool2d | AvgPool2d) and any(operator.pad)
    return padded and x.shape[0] > 1


def _lies_together(order: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether neighbouring axes of the program are neighbours, in the same order, where they lie."""
    if len(axes) < 2:
        return True
    first = order.index(axes[0])
    return list(order[first : first + len(axes)]) == list(axes)


class Lowering(Builder):
    """A `Builder` that knows the program it lowers."""

    def __init__(self, view: ProgramView, family: str, estimate: Estimate | None) -> None:
        super().__init__(view.method, family, estimate)
        self.view_of_program = view
        self._values: dict[Node, Value] = {}

    def begin(self, name: str, nodes: Sequence[Node]) -> None:
        """Tell what is lowered next."""
        self.name = name
        handles = (node.meta.get("debug_handle") for node in nodes)
        self.origin = tuple(dict.fromkeys(handle for handle in handles if handle))

    def define(self, node: Node, value: Value) -> None:
        """Record the integers of a node. Raises LoweringError if the shape is not the node's."""
        wanted = tuple(node.meta["val"].shape)
        if value.shape != wanted:
            raise LoweringError(f"was lowered to shape {value.shape}, not {wanted}", where=describe_node(node))
        self._values[node] = value

    def integers(self, node: Node) -> Value:
        """The integers behind a dequantize, or of a node that is integers itself."""
        if operator_name(node) in DEQUANTIZE:
            node = node.args[0]  # type: ignore[assignment]
        found = self._values.get(node)
        if found is None:
            data = self.view_of_program.constant(node)
            if data is None:
                raise LoweringError("is used before it is lowered", where=describe_node(node))
            tensor = self.graph.constant(data.detach().numpy(), INTEGERS[data.dtype], node.name)
            found = self._values[node] = Value.dense(tensor)
        return found

    def scale(self, node: Node) -> Scale:
        """The scale and zero point of a quantize or dequantize with one of each."""
        found = self.quantization(node)
        if isinstance(found.scale, torch.Tensor) or isinstance(found.zero_point, torch.Tensor):
            raise LoweringError("has a scale for each channel", where=describe_node(node))
        return Scale(float(found.scale), int(found.zero_point), INTEGERS[found.dtype])

    def quantization(self, node: Node) -> Quantization:
        """What a quantize or dequantize says."""
        found = quantization_of(node, self.view_of_program)
        if found is None:
            raise LoweringError("is not quantized", where=describe_node(node))
        return found

    def numbers(self, node: Any) -> Array | None:
        """A constant as numbers, double precision: a float one, or what is dequantized from integers; None for None."""
        if node is None:
            return None
        data = self.view_of_program.constant(node)
        if data is not None:
            return data.detach().double().numpy()
        data = self.view_of_program.constant(node.args[0]) if operator_name(node) in DEQUANTIZE else None
        if data is None:
            raise LoweringError("is no constant", where=describe_node(node))
        found = self.quantization(node)
        scale, zero = (
            item.detach().double().numpy() if isinstance(item, torch.Tensor) else np.float64(item)
            for item in (found.scale, found.zero_point)
        )
        if found.axis is not None:
            sizes = [1] * data.dim()
            sizes[found.axis] = -1
            scale, zero = scale.reshape(sizes), zero.reshape(sizes)
        numbers: Array = (data.numpy().astype(np.float64) - zero) * scale
        return numbers


#: Lowers the operator of a unit: `node` is the operator, `result` how what it gives is stored.
Emitter = Callable[[Lowering, "Node", Result], Value]
