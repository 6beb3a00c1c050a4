"""From quantized ATen to TOSA: each operator of the support table has a small function here that adds its operations.

`build_graph` turns a partition into a TOSA graph; the functions rely on the support table's checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delegatekit_api import LoweringError, ProgramView, describe_node
from delegatekit_toolkit.tosa import DType, Graph

from ..ir.builder import INTEGERS, Emitter, Estimate, Lowering, Result, Scale
from ..ir.units import FUNCTION, REQUANTIZE, Unit, Units
from ..ir.values import Value
from . import (
    elementwise,
    lookup,
    masks,
    normalization,
    pooling,
    products,
    reduction,
    resize,
    shape,
    softmax,
    weighted,
    wide,
)
from .functions import POINTWISE, clamp_bounds, lower_function
from .wide import EMITTERS as WIDE_FUNCTIONS

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["EMITTERS", "POINTWISE", "WIDE_FUNCTIONS", "Lowered", "build_graph"]

#: Operator name -> the function that lowers it, with quantized operands and a quantized result, or truth values.
EMITTERS: dict[str, Emitter] = {
    **elementwise.EMITTERS,
    **lookup.EMITTERS,
    **masks.EMITTERS,
    **normalization.EMITTERS,
    **pooling.EMITTERS,
    **products.EMITTERS,
    **reduction.EMITTERS,
    **resize.EMITTERS,
    **shape.EMITTERS,
    **softmax.EMITTERS,
    **weighted.EMITTERS,
    **wide.EMITTERS,
}


#: How truth values are stored.
_TRUTH = Result(Scale(1.0, 0, DType.BOOL))


@dataclass(frozen=True)
class Lowered:
    """A TOSA graph, and for each of its tensors the debug handles of the nodes that it was made for."""

    graph: Graph
    handles: Mapping[int | str, tuple[int, ...]]


def build_graph(view: ProgramView, family: str, estimate: Estimate | None = None) -> Lowered:
    """Lower a partition's program, unit by unit, for a family of accelerators: "u55", "u65" or "u85".

    Where there are several ways to do something, `estimate` (the cycles of a graph, None if it cannot be run) decides.
    Inputs and outputs are the partition's integers, stored as the program has them. Raises LoweringError for what the
    support table would not have taken.
    """
    b = Lowering(view, family, estimate)
    for node in view.inputs:
        value = node.meta["val"]
        if value.dtype not in INTEGERS:
            raise LoweringError(
                f"is {value.dtype}: a delegate exchanges integers and truth values", where=describe_node(node)
            )
        b.define(node, Value.dense(b.graph.input(node.name, tuple(value.shape), INTEGERS[value.dtype])))
    units = Units(view, EMITTERS.keys(), POINTWISE)
    ends = {result: unit for unit in units.units for result in unit.results or (unit.anchor,)}
    for node in view.graph.nodes:
        unit = ends.get(node)
        if unit is not None:
            anchor = unit.anchor if unit.inner else node
            b.begin(anchor.name, unit.nodes)
            b.define(node, _lowered(b, unit, node))
    for place, result in enumerate(view.outputs):
        if result is None:
            raise LoweringError("a delegate returns tensors only", where="outputs of the partition")
        b.begin(f"{result.name}.output", (result,))
        _output(b, b.integers(result), place)
    return Lowered(b.finish(), b.handles)


def _lowered(b: Lowering, unit: Unit, result: Node) -> Value:
    if not unit.results:
        return EMITTERS[unit.kind](b, unit.anchor, _TRUTH)
    after = b.scale(result)
    if unit.kind == FUNCTION:
        return lower_function(b, unit, after, result)
    if unit.kind == REQUANTIZE:
        value = b.integers(unit.anchor)
        return Value(b.requantized(value.tensor, b.scale(unit.anchor), Result(after)), value.order)
    bounded = Result(after) if unit.clamp is None else Result(after, *clamp_bounds(unit.clamp, after))
    return EMITTERS[unit.kind](b, unit.anchor, bounded)


def _output(b: Lowering, value: Value, place: int) -> None:
    """Outputs are tensors of their own, made by an operation."""
    from delegatekit_toolkit.tosa import Identity, Reshape

    tensor = b.contiguous(value)
    made = b.producer(tensor)
    # Vela (5.1) forgets an output that is another shape of something, if others read it, too.
    shared = made is not None and isinstance(made.operator, Reshape)
    shared = shared and any(tensor is item for operation in b.graph.operations for item in operation.inputs)
    if shared or tensor in b.graph.inputs or tensor in b.graph.outputs or tensor.data is not None:
        tensor = b.emit(Identity(), (tensor,), tensor.shape, tensor.dtype)
    b.graph.output(tensor)
