"""Control flow as jumps within a method's chain: conditions, loops and maps, with their graphs written in line.

Results live in planned values that are written by kernels, never moved: so they stay where memory was planned for
them. Jumps go where a condition is false; a jump that is always taken has a constant for its condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from ..lowering import LoweredMethod

if TYPE_CHECKING:
    from .method import MethodEmitter


def emit_region_call(m: MethodEmitter, node: Node, regions: tuple[LoweredMethod, ...]) -> None:
    """Write a call of a control flow operator."""
    kind: Any = node.target
    _EMITTERS[kind.name()](m, node, regions)


def _arguments(node: Node) -> Any:
    return node.args


def _cond(m: MethodEmitter, node: Node, regions: tuple[LoweredMethod, ...]) -> None:
    predicate, _, operands = _arguments(node)
    results = m.planned_results(node)
    to_false = m.jump_if_false(m.operand(predicate))
    for number, region in enumerate(regions):
        m.enter_region(region, [m.operand(item) for item in operands])
        for result, item in zip(results, region.edge.outputs, strict=True):
            if result is not None:
                m.copy_into(result, item)
        if number == 0:
            to_end = m.jump()
            m.land(to_false)
    m.land(to_end)


def _while_loop(m: MethodEmitter, node: Node, regions: tuple[LoweredMethod, ...]) -> None:
    carried, operands = _arguments(node)
    condition, body = regions
    state = m.planned_results(node)
    for result, item in zip(state, carried, strict=True):
        m.copy_into(result, item)
    with m.loop():
        start = m.position
        inputs = [*state, *(m.operand(item) for item in operands)]
        m.enter_region(condition, inputs)
        to_end = m.jump_if_false(m.operand(condition.edge.outputs[0]))
        m.enter_region(body, inputs)
        # A result may be what is carried in another place: all are read before any is written.
        results = [m.kept(item, among=state) for item in body.edge.outputs]
        for place, result in zip(state, results, strict=True):
            m.copy_into(place, result)
        m.jump(start)
        m.land(to_end)


def _map(m: MethodEmitter, node: Node, regions: tuple[LoweredMethod, ...]) -> None:
    mapped, operands = _arguments(node)
    (body,) = regions
    # The kernel that writes a row resizes its target to the rows written so far.
    results = m.planned_results(node, dynamic=True)
    count = m.row_count(mapped[0])
    row, more = m.new_number(0), m.new_number(False)
    m.move(m.literal(0), row)
    with m.loop():
        start = m.position
        m.prim("lt.Scalar", row, count, more)
        to_end = m.jump_if_false(more)
        rows = [m.select_row(item, row) for item in mapped]
        m.enter_region(body, [*rows, *(m.operand(item) for item in operands)])
        for result, item in zip(results, body.edge.outputs, strict=True):
            m.prim("et_copy_index.tensor", result, m.operand(item), row)
        m.prim("add.Scalar", row, m.literal(1), row)
        m.jump(start)
        m.land(to_end)


_EMITTERS: dict[str, Callable[[MethodEmitter, Node, tuple[LoweredMethod, ...]], None]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "map_impl": _map,
}
