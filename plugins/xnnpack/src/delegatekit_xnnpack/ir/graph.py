"""The XNNPACK graph in memory: values and nodes, between the lowering of ATen operators and the serialized blob."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delegatekit_api import LoweringError
from delegatekit_toolkit.sizes import Size, smallest

from .operators import Operator
from .types import (
    ELEMENT_BITS,
    HALF_TYPES,
    MAX_RANK,
    Bounds,
    DataType,
    Format,
    Quantization,
    Shape,
    constant_bytes,
    static,
)

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Value:
    """A tensor of the graph: dense, in the axis order of `shape`. With `data` it is a constant."""

    shape: Shape
    datatype: DataType = DataType.FLOAT32
    #: Constant contents: a tensor whose elements, in row-major order, are the value's (any shape, any strides).
    data: torch.Tensor | None = field(default=None, repr=False)
    quantization: Quantization | None = None
    producer: Node | None = field(default=None, repr=False)

    @property
    def format(self) -> Format:
        """The storage format of the elements."""
        return Format(self.datatype, self.quantization)

    @property
    def size(self) -> Size:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(eq=False)
class Node:
    """One operator applied to values. Passes may replace inputs, output and clamp."""

    operator: Operator
    inputs: tuple[Value, ...]
    output: Value
    #: A clamp of the result before it is stored; only for operators with `fuses_clamp`, and Clamp itself.
    clamp: Bounds | None = None
    #: Debug handles of the operators of the program that the node was made for.
    debug_handles: tuple[int, ...] = ()


@dataclass
class Graph:
    """A delegate's computation: nodes in execution order."""

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def users(self) -> dict[Value, list[Node | None]]:
        """Value -> the nodes that read it, in order, and None for the caller that it is returned to."""
        users: dict[Value, list[Node | None]] = {}
        for node in self.nodes:
            for value in node.inputs:
                users.setdefault(value, []).append(node)
        for value in self.outputs:
            users.setdefault(value, []).append(None)
        return users

    def values(self) -> Collection[Value]:
        """Inputs, outputs, then every other value in the order of its first use."""
        values = dict.fromkeys((*self.inputs, *self.outputs))
        for node in self.nodes:
            values.update(dict.fromkeys((*node.inputs, node.output)))
        return values

    def verify(self, *, packed: bool = True) -> None:
        """Check everything that the XNNPACK runtime assumes; raises LoweringError naming the node.

        The runtime does not compare byte counts, clamp bounds or (before the first run) shapes. Between passes,
        constants of 4 bits may still have an element in each byte: not with `packed`.
        """
        if len({*self.inputs, *self.outputs}) < len(self.inputs) + len(self.outputs):
            raise LoweringError("an output is an input or occurs twice", where="XNNPACK graph")
        defined = set(self.inputs)
        for index, node in enumerate(self.nodes):
            where = f"XNNPACK node {index} ({node.operator})"
            for value in node.inputs:
                if value.data is None and value not in defined:
                    raise LoweringError("reads a value before it is computed", where=where)
                _verify_value(value, where, packed=packed)
            _verify_types(node, where)
            expected = node.operator.output_shape(*(value.shape for value in node.inputs))
            if node.output.shape != expected:
                raise LoweringError(f"has output shape {node.output.shape}, computes {expected}", where=where)
            _verify_value(node.output, where, packed=packed)
            _verify_clamp(node, where)
            if node.output in defined or node.output.data is not None:
                raise LoweringError("writes a value that is defined already", where=where)
            defined.add(node.output)
        if not defined.issuperset(self.outputs):
            raise LoweringError("an output is never computed", where="XNNPACK graph")


def _verify_value(value: Value, where: str, *, packed: bool) -> None:
    if len(value.shape) > MAX_RANK:
        raise LoweringError(f"has a value of rank {len(value.shape)}; XNNPACK allows {MAX_RANK}", where=where)
    if any(smallest(size) < 1 for size in value.shape):
        raise LoweringError(f"has a value without elements, {value.shape}", where=where)
    if value.data is not None:
        have = value.data.numel() * value.data.element_size()
        want = constant_bytes(value.datatype, static(value.shape))
        is_unpacked = not packed and ELEMENT_BITS[value.datatype] < 8 and have == value.size
        if have != want and not is_unpacked:
            raise LoweringError(f"has a constant of {have} bytes where {value.shape} needs {want}", where=where)


def _verify_types(node: Node, where: str) -> None:
    """Check that a node's numbers have one type, except constant weights, which may be narrower than their operand."""
    first, *others = node.inputs
    kinds = (DataType.FLOAT32, *HALF_TYPES)
    for value in others:
        if first.datatype not in kinds or value.datatype not in kinds or value.datatype is first.datatype:
            continue
        if node.operator.weighted and value is others[0] and value.data is not None:
            continue
        names = f"{first.datatype.name} and {value.datatype.name}"
        raise LoweringError(f"reads {names}: XNNPACK needs one type", where=where)


def _verify_clamp(node: Node, where: str) -> None:
    if node.clamp is None:
        if node.operator.needs_clamp:
            raise LoweringError("has no clamp bounds", where=where)
        return
    if not (node.operator.needs_clamp or node.operator.fuses_clamp):
        raise LoweringError("cannot clamp its result", where=where)
    if not node.clamp.low <= node.clamp.high:
        raise LoweringError(f"clamps to an empty interval {tuple(node.clamp)}", where=where)
