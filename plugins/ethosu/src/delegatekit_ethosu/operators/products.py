"""Products of matrices that are both computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_toolkit.tosa import DType, Matmul

from ..ir.builder import Emitter, Lowering, Result
from ..ir.values import Value
from ..limits import count

if TYPE_CHECKING:
    from torch.fx import Node


def _matmul(b: Lowering, node: Node, result: Result) -> Value:
    """(..., M, K) @ (..., K, N), with equal stacks."""
    nodes: list[Node] = list(node.args[:2])  # type: ignore[arg-type]
    scales = [b.scale(item) for item in nodes]
    shapes = [tuple(item.meta["val"].shape) for item in nodes]
    stack = shapes[0][:-2]
    left, right = (
        b.reshaped(b.contiguous(b.integers(item)), (count(stack), *shape[-2:]))
        for item, shape in zip(nodes, shapes, strict=True)
    )
    zeros = [b.number(scale.zero_point, scale.dtype) for scale in scales]
    shape = (left.shape[0], left.shape[1], right.shape[2])
    kind = DType.INT32 if scales[0].dtype == DType.INT8 else DType.INT48
    sums = b.emit(Matmul(), (left, right, *zeros), shape, kind, "sums")
    made = b.stored_as(sums, [scales[0].scale * scales[1].scale], result)
    return Value.dense(b.reshaped(made, (*stack, *shape[1:])))


EMITTERS: dict[str, Emitter] = {
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
}
