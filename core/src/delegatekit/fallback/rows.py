"""In-place updates of a buffer's rows: the cases that the runtime's kernel supports, and a conversion to them.

`aten::index_put.out` computes every case, but it copies the whole buffer. `aten::index_put_` writes only the rows. It
takes one index of one dimension, counted from the start, and values of exactly the replaced sizes; in
other cases the kernel of ExecuTorch 1.5 fails at run time, or aborts the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.fx import Node

from ..edge.arguments import read_argument
from ..edge.builder import EdgeBuilder, Value
from ..edge.draft import Draft
from ..edge.program import EdgeMethod
from ..edge.rules.writing import view
from ..edge.sizes import Shape, Size, same, same_shape

aten = torch.ops.aten

_PUT = aten.index_put.default
#: Operators that become `aten.index_put`, and whose index must not be negative in PyTorch either.
_FROM_START = frozenset({"aten.index_copy.default", "aten.index_copy_.default"})
_INTEGERS = frozenset({torch.int64, torch.int32})
#: Operators whose result only has elements of their operand.
_CHOOSING = frozenset(
    {
        aten.view_copy.default,
        aten.squeeze_copy.dims,
        aten.unsqueeze_copy.default,
        aten.expand_copy.default,
        aten.permute_copy.default,
        aten.slice_copy.Tensor,
        aten.select_copy.int,
        aten.index.Tensor,
    }
)


@dataclass(frozen=True)
class _Rows:
    """The rows along `dim` whose numbers are in `index` become `values`."""

    dim: int
    index: Node
    values: Node

    def sizes(self, target: Shape, index: Shape) -> Shape:
        """The sizes of the replaced part of a tensor with sizes `target`, for an index of these sizes."""
        return (*target[: self.dim], *index, *target[self.dim + 1 :])


def row_updates(method: EdgeMethod) -> dict[Node, Node]:
    """New value of a buffer -> the buffer, if it is the old one with some elements replaced."""
    updates = {buffer.updated: node for node, buffer in method.buffers.items()}
    return {new: node for new, node in updates.items() if new.target is _PUT and read_argument(new, "self") is node}


def in_place_refusal(node: Node, constants: Mapping[Node, torch.Tensor]) -> str | None:
    """The reason why the runtime's kernel cannot write this `aten.index_put` in place; None if it can."""
    rows = _rows_of(node)
    if rows is None:
        return "the runtime writes in place only rows along one dimension that integers select, without accumulation"
    index, values = rows.index.meta["val"], rows.values.meta["val"]
    if index.dim() != 1:
        return "the runtime writes rows in place by an index of one dimension only"
    if not same_shape(values.shape, rows.sizes(node.meta["val"].shape, index.shape)):
        return "the runtime writes rows in place from values of the same sizes only"
    if not _counts_from_start(rows.index, constants) and node.meta.get("source_operator") not in _FROM_START:
        return "the runtime writes rows in place only by numbers that count from the start"
    return None


def has_row_form(node: Node) -> bool:
    """True if `as_rows` writes this `aten.index_put` in a form that the kernel takes in place."""
    return _rows_of(node) is not None


def as_rows(b: EdgeBuilder, call: Draft) -> Value:
    """`aten.index_put` of whole rows: the index is of one dimension and counts from the start, with as many values.

    NotImplemented for a mask, for several indices, and for values that are added up.
    """
    rows = _rows_of(call)
    if rows is None:
        return NotImplemented
    target, index = b.shape(call["self"]), rows.index
    values = _broadcast(b, rows.values, rows.sizes(target, b.shape(index)))
    count: Size = 1
    for size in b.shape(index):
        count = count * size
    if len(b.shape(index)) != 1:
        index = view(b, index, (count,))
        values = view(b, values, rows.sizes(target, (count,)))
    if not _counts_from_start(index, b.constants):
        index = _counted_from_start(b, index, target[rows.dim])
    return b.emit(_PUT, (call["self"], [*[None] * rows.dim, index], values), {}, call.value)


def _rows_of(call: Node | Draft) -> _Rows | None:
    """The rows that a call of `aten.index_put` replaces, if they are rows, at known positions."""
    given = [(dim, index) for dim, index in enumerate(read_argument(call, "indices")) if index is not None]
    if read_argument(call, "accumulate") or len(given) != 1:
        return None
    dim, index = given[0]
    rows = _Rows(dim, index, read_argument(call, "values"))
    index_value, value = index.meta["val"], rows.values.meta["val"]
    wanted = rows.sizes(read_argument(call, "self").meta["val"].shape, index_value.shape)
    pairs = zip(reversed(value.shape), reversed(wanted), strict=False)  # broadcasting begins at the last
    known = all(same(size, 1) or same(size, other) for size, other in pairs)
    return rows if index_value.dtype in _INTEGERS and known else None


def _broadcast(b: EdgeBuilder, values: Node, shape: Shape) -> Node:
    """The values broadcast to these sizes."""
    given = b.shape(values)
    given = (*[1] * (len(shape) - len(given)), *given[max(len(given) - len(shape), 0) :])
    values = view(b, values, given)
    return values if same_shape(given, shape) else b.call(aten.expand.default, values, list(shape))


def _counted_from_start(b: EdgeBuilder, index: Node, size: int) -> Node:
    """The index with -1 as size - 1; an index out of bounds is an error."""
    numbers = b.call(aten.arange.default, size, dtype=torch.int32)
    return b.call(aten.index.Tensor, numbers, [index])  # type: ignore[no-any-return]


def _counts_from_start(index: Node, constants: Mapping[Node, torch.Tensor]) -> bool:
    """True if the graph shows that no number in the index is negative."""
    if index in constants:
        return not bool((constants[index] < 0).any())
    return index.target in _CHOOSING and _counts_from_start(index.args[0], constants)  # type: ignore[arg-type]
