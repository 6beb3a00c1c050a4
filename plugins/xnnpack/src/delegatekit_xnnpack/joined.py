"""Axes joined without a reshape: for programs that join sizes that change, and take them apart again later.

PyTorch's attention makes (length, batch * heads, width) of (length, batch, features) only to permute it and make
(batch, heads, length, width) of that. XNNPACK's reshape infers one size and could not go back; but nobody looks at what
lies between. Such a tensor is kept as its parts: each of its axes is a group of axes of another tensor. Views and
permutations change the groups, products with a matrix pass them on, and other operators get a reshape.

This module has the algebra of the groups, and what follows from it for a program's nodes: `Axes` are an axis's sizes,
slowest first, for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from torch.fx import Node

from delegatekit_api import operator_name
from delegatekit_toolkit.sizes import Size, dynamic_count

from .arguments import argument, axis_of, rank_of, shape_of
from .builder import regrouping_obstacle
from .graph import Shape
from .layout import Tensor

Axes = tuple[Shape, ...]


@dataclass(frozen=True)
class Joined:
    """A tensor whose axis i is the next `counts[i]` logical axes of `parts`."""

    parts: Tensor
    counts: tuple[int, ...]

    @property
    def axes(self) -> Axes:
        """The sizes of the parts of each axis."""
        sizes = iter(self.parts.shape)
        return tuple(tuple(next(sizes) for _ in range(count)) for count in self.counts)

    @property
    def shape(self) -> Shape:
        """The logical shape."""
        return joined_shape(self.axes)

    def simplified(self) -> Tensor | Joined:
        """The parts, if each axis is one."""
        return self.parts if set(self.counts) <= {1} else self

    def permuted(self, dims: Sequence[int]) -> Joined:
        """Axis i of the result is axis dims[i] of this tensor."""
        starts = [sum(self.counts[:axis]) for axis in range(len(self.counts))]
        order = [part for dim in dims for part in range(starts[dim], starts[dim] + self.counts[dim])]
        return Joined(self.parts.permuted(order), tuple(self.counts[dim] for dim in dims))


# -- groups ------------------------------------------------------------------------------------------------------------


def plain(shape: Shape) -> Axes:
    """Axes that are nothing but themselves."""
    return tuple((size,) for size in shape)


def parts_of(axes: Axes) -> Shape:
    """The shape of the parts."""
    return tuple(chain.from_iterable(axes))


def joined_shape(axes: Axes) -> Shape:
    """The shape that the groups stand for."""
    return tuple(map(math.prod, axes))


def viewed(axes: Axes, target: Shape) -> Axes | None:
    """The axes under another shape, with parts that can be made of the present ones; None if there are none.

    Only where several sizes change: otherwise a reshape does whatever is wanted.
    """
    parts = parts_of(axes)
    if dynamic_count(parts) < 2:
        return None
    found = _refined(parts, target)
    if found is None:
        return None
    wanted = parts_of(found)
    return found if wanted == parts or regrouping_obstacle(parts, wanted) is None else None


def _refined(parts: Shape, target: Shape) -> Axes | None:
    """`target` in factors that follow each other as `parts` do, some of these cut."""
    left = [size for size in parts if size != 1]
    result: list[Shape] = []
    for size in target:
        rest: Size = size
        group: list[Size] = []
        while rest != 1:
            if not left:
                return None
            part = left.pop(0)
            if rest % part == 0:
                group.append(part)
                rest = rest // part
            elif part % rest == 0:
                group.append(rest)
                left.insert(0, part // rest)
                rest = 1
            else:
                return None
        result.append(tuple(group) or (1,))
    return None if left else tuple(result)


def is_reshaped(axes: Axes) -> bool:
    """Whether a reshape can make the tensor of its parts."""
    parts, shape = parts_of(axes), joined_shape(axes)
    return parts == shape or dynamic_count(shape) < 2 or regrouping_obstacle(parts, shape) is None


def with_last_joined(axes: Axes) -> Axes | None:
    """The axes whose last is one part; None if it cannot be made one."""
    result = (*axes[:-1], (math.prod(axes[-1]),))
    before, after = parts_of(axes), parts_of(result)
    return result if before == after or regrouping_obstacle(before, after) is None else None


# -- what becomes of a program's nodes ---------------------------------------------------------------------------------

_VIEWS = ("aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dims")
_PERMUTE = "aten.permute_copy.default"
#: Operators that work row by row: their rows, and what these are multiplied by and added to.
_ROW_WISE = {
    "aten.linear.default": ("input", ("weight", "bias")),
    "aten.addmm.default": ("mat1", ("mat2", "self")),
    "aten.mm.default": ("self", ("mat2",)),
    "aten.matmul.default": ("self", ("other",)),
}


def source_of(node: Node) -> Node | None:
    """What a node views, permutes or multiplies row by row; None for nodes that know nothing of groups."""
    name = operator_name(node)
    if name not in _ROW_WISE:
        return node.args[0] if name in (*_VIEWS, _PERMUTE) else None  # type: ignore[return-value]
    rows, others = _ROW_WISE[name]
    operands = [argument(node, other) for other in others]
    # Inputs and constants: nothing that could come of the rows.
    known = all(operand is None or operand.op == "placeholder" for operand in operands)
    return argument(node, rows) if known and _is_row_wise(node, operands) else None


def _is_row_wise(node: Node, operands: Sequence[Node]) -> bool:
    """Whether a product multiplies each row by the same matrix, and adds the same to each."""
    if operator_name(node) == "aten.matmul.default":
        return rank_of(operands[0]) == 2 and rank_of(argument(node, "self")) > 1
    return operator_name(node) != "aten.addmm.default" or shape_of(operands[1]) == shape_of(node)[1:]


def axes_of_node(node: Node) -> Axes:
    """The groups that a node's tensor consists of when all that it is made by is lowered together."""
    source, name = source_of(node), operator_name(node)
    if source is None or dynamic_count(shape_of(node)) < 1:
        return plain(shape_of(node))
    axes = axes_of_node(source)
    found: Axes | None = None
    if name == _PERMUTE:
        found = tuple(axes[axis_of(dim, len(axes))] for dim in argument(node, "dims"))
    elif name in _ROW_WISE:
        rows = with_last_joined(axes) if len(axes) > 1 and dynamic_count(parts_of(axes)) > 1 else None
        found = None if rows is None else (*rows[:-1], shape_of(node)[-1:])
    else:
        found = viewed(axes, shape_of(node))
    return plain(shape_of(node)) if found is None else found


def view_obstacle(node: Node) -> str | None:
    """Why neither a reshape nor a group can express a view; None if one can, in the company of `company(node)`."""
    axes, target = axes_of_node(node.args[0]), shape_of(node)  # type: ignore[arg-type]
    found = viewed(axes, target)
    if found is None:
        return reshape_obstacle(shape_of(node.args[0]), target)  # type: ignore[arg-type]
    if is_reshaped(found) or all(_takes_groups(user) for user in node.users):
        return None
    return reshape_obstacle(shape_of(node.args[0]), target) or "sizes that change are joined for an operator"  # type: ignore[arg-type]


def reshape_obstacle(shape: Shape, target: Shape) -> str | None:
    """Why a reshape cannot be done; None if it can."""
    obstacle = None if dynamic_count(target) < 2 or shape == target else regrouping_obstacle(shape, target)
    return None if obstacle is None else f"{shape} to {target}: XNNPACK infers one size only ({obstacle})"


def _takes_groups(node: Node) -> bool:
    """Whether a node's result needs no tensor that cannot be made, given its source in groups."""
    if source_of(node) is None:
        return False
    axes = axes_of_node(node)
    return is_reshaped(axes) or (bool(node.users) and all(map(_takes_groups, node.users)))


def needs_company(node: Node) -> bool:
    """Whether a node cannot be expressed without its `company`."""
    if source_of(node) is None:
        return False
    return not is_reshaped(axes_of_node(node)) or (operator_name(node) in _VIEWS and _needs_groups(node))


def company(node: Node) -> frozenset[Node]:
    """The nodes that must be lowered together with a node: views that take groups apart, and what made the groups."""
    members: set[Node] = set()
    for view in _views_behind(node):
        members |= _makers(view)
    return frozenset(members - {node})


def _views_behind(node: Node) -> Iterator[Node]:
    """The views that need the groups of a node, or of its source: itself, or further down."""
    if source_of(node) is None:
        return
    if operator_name(node) in _VIEWS and _needs_groups(node):
        yield node
    if axes_of_node(node) != plain(shape_of(node)):
        for user in node.users:
            yield from _views_behind(user)


def _needs_groups(view: Node) -> bool:
    """Whether a view can only be expressed with the groups of its source."""
    source: Node = view.args[0]  # type: ignore[assignment]
    axes = axes_of_node(source)
    return (
        axes != plain(shape_of(source))
        and viewed(axes, shape_of(view)) is not None
        and reshape_obstacle(shape_of(source), shape_of(view)) is not None
    )


def _makers(view: Node) -> set[Node]:
    """A view and all that its groups come from."""
    members = {view}
    node = source_of(view)
    while node is not None and axes_of_node(node) != plain(shape_of(node)):
        members.add(node)
        node = source_of(node)
    return members
