"""Control flow as jumps within a method's chain: conditions, loops and maps, with their graphs inlined.

Results are in planned values that are written by kernels, never moved: so they stay where memory was planned for
them. Jumps go where a condition is false; a jump that is always taken has a constant for its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from torch.fx import Node

from ..lowering import LoweredMethod
from .writer import Writer

#: Writes a graph's instructions, its inputs being the values of these indices.
Enter: TypeAlias = Callable[[LoweredMethod, Sequence[int]], None]
#: Writes a call of a control flow operator.
_Emitter: TypeAlias = Callable[[Writer, Node, tuple[LoweredMethod, ...], Enter], None]


def write_region_call(writer: Writer, node: Node, regions: tuple[LoweredMethod, ...], enter: Enter) -> None:
    """Write a call of a control flow operator; `enter` writes one of its graphs."""
    kind: Any = node.target
    _EMITTERS[kind.name()](writer, node, regions, enter)


def _arguments(node: Node) -> Any:
    return node.args


def _cond(w: Writer, node: Node, regions: tuple[LoweredMethod, ...], enter: Enter) -> None:
    predicate, _, operands = _arguments(node)
    results = w.planned_results(node)
    to_false = w.code.jump_if_false(w.operand(predicate))
    for number, region in enumerate(regions):
        enter(region, [w.operand(item) for item in operands])
        for result, item in zip(results, region.edge.outputs, strict=True):
            if result is not None:
                w.copy_into(result, item)
        if number == 0:
            to_end = w.jump()
            w.code.land(to_false)
    w.code.land(to_end)


def _while_loop(w: Writer, node: Node, regions: tuple[LoweredMethod, ...], enter: Enter) -> None:
    carried, operands = _arguments(node)
    condition, body = regions
    state = w.planned_results(node)
    for result, item in zip(state, carried, strict=True):
        w.copy_into(result, item)
    with w.loop():
        start = len(w.code)
        inputs = [*state, *(w.operand(item) for item in operands)]
        enter(condition, inputs)
        to_end = w.code.jump_if_false(w.operand(condition.edge.outputs[0]))
        enter(body, inputs)
        # A result may be a value carried at another position: all are read before any is written.
        results = [w.kept(item, among=state) for item in body.edge.outputs]
        for place, result in zip(state, results, strict=True):
            w.copy_into(place, result)
        w.jump(start)
        w.code.land(to_end)


def _map(w: Writer, node: Node, regions: tuple[LoweredMethod, ...], enter: Enter) -> None:
    mapped, operands = _arguments(node)
    (body,) = regions
    values, code = w.values, w.code
    # The kernel that writes a row resizes its target to the rows written so far.
    results = w.planned_results(node, dynamic=True)
    count = w.row_count(mapped[0])
    row, more = values.number(0), values.number(False)
    code.move(values.literal(0), row)
    with w.loop():
        start = len(code)
        code.primitive("lt.Scalar", row, count, more)
        to_end = code.jump_if_false(more)
        rows = [w.select_row(item, row) for item in mapped]
        enter(body, [*rows, *(w.operand(item) for item in operands)])
        for result, item in zip(results, body.edge.outputs, strict=True):
            code.primitive("et_copy_index.tensor", result, w.operand(item), row)
        code.primitive("add.Scalar", row, values.literal(1), row)
        w.jump(start)
        code.land(to_end)


_EMITTERS: Final[dict[str, _Emitter]] = {"cond": _cond, "while_loop": _while_loop, "map_impl": _map}
