"""Writes the kernel call of a node outside delegates: arguments of the schema's types, and results."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import describe_node, is_dynamic

from ..edge.arguments import has_argument, read_argument
from ..edge.sizes import is_size
from ..fallback import require_kernel
from ..pte import schema
from ..pte.dtypes import scalar_type
from .sizes import ZEROS
from .storage import Storage
from .values import Values
from .writer import Writer

aten = torch.ops.aten

#: Views of a contiguous value with the same bytes under other sizes.
SAME_BYTES = frozenset({aten.view_copy.default, aten.squeeze_copy.dims, aten.unsqueeze_copy.default})


def write_operator(writer: Writer, node: Node, buffer: Node | None) -> None:
    """Write a kernel call; `buffer` is the mutable buffer that the kernel updates in place, if it does.

    Raises UnsupportedError, with the user's source line, if the runtime cannot run the node.
    """
    values = writer.values
    variant = require_kernel(node)
    arguments = [
        _argument(values, node, argument, _given(node, argument))
        for argument in variant.target._schema.arguments
        if not argument.is_out
    ]
    if buffer is not None:
        values.same(node, buffer)
        index = values.index(buffer)
        assert index is not None
        writer.code.kernel(f"{variant.name}_", "", [*arguments, index])
        return
    results = _results(values, node)
    writer.code.kernel(variant.name, variant.overload, [*arguments, *results])
    home = values.storage(node)
    if home is not None:
        operands: list[tuple[Node, Storage | None]] = [(item, values.storage(item)) for item in _tensor_operands(node)]
        writer.reuse.offer(variant.full_name, values.step, node, home, operands)


def write_view(writer: Writer, node: Node) -> None:
    """Write a view, in the memory of its operand: no instruction, unless sizes must be set in each call."""
    values = writer.values
    base: Any = node.args[0]
    source = values.used(base)
    value = node.meta["val"]
    result = values.planned(node, value, shares=values.storage(base))
    if is_dynamic(value):
        sizes: Any = node.args[1]
        if changing(node) == 1:  # the kernel infers it
            sizes = [size if isinstance(size, int) else -1 for size in value.shape]
        items = [values.used(size) if isinstance(size, Node) else values.literal(size) for size in sizes]
        writer.code.primitive("et_view.default", source, values.list(schema.IntList, items), result)


def is_view(node: Node) -> bool:
    """True if a node has the bytes of its operand under other sizes, which the runtime can be told."""
    return node.target is aten.view_copy.default or (node.target in SAME_BYTES and changing(node) <= 1)


def changing(node: Node) -> int:
    """The number of sizes of a node's value that change from call to call."""
    return sum(not isinstance(size, int) for size in node.meta["val"].shape)


def _results(values: Values, node: Node) -> list[int]:
    """Values for the operator's results, and their repetition as trailing arguments of the kernel call."""
    value = node.meta["val"]
    if is_size(value):
        return [values.number(ZEROS[type(value)], key=node)]
    if isinstance(value, torch.Tensor):
        index = values.planned(node, value)
        return [index, index]
    results = [values.planned((node, number), result) for number, result in enumerate(value)]
    return [*results, values.list(schema.TensorList, results)]


def _tensor_operands(node: Node) -> list[Node]:
    """The tensors that a call takes, in order, repeated ones repeatedly."""
    found: list[Node] = []

    def visit(operand: Node) -> Node:
        found.append(operand)
        return operand

    torch.fx.map_arg((node.args, node.kwargs), visit)
    return [operand for operand in found if isinstance(operand.meta["val"], torch.Tensor)]


# -- arguments -------------------------------------------------------------------------------------------------------


def _given(node: Node, argument: Any) -> Any:
    """The value of a kernel's argument in a call; its default if the operator has no such argument."""
    return read_argument(node, argument.name) if has_argument(node, argument.name) else argument.default_value


def _argument(values: Values, node: Node, argument: Any, value: Any) -> int:
    """One argument of a kernel call in the schema's type."""
    if value is None:
        return values.literal(None)
    if isinstance(value, Node):
        return values.used(value)
    if isinstance(value, torch.dtype):
        return values.literal(int(scalar_type(value)))
    if isinstance(value, torch.layout):
        return values.literal(0)
    if isinstance(value, torch.memory_format):
        return values.literal(0 if value == torch.contiguous_format else 1)
    if isinstance(value, torch.device):
        return values.literal(None)
    if isinstance(value, str | bool):
        return values.literal(value)
    if isinstance(value, int | float):
        text = str(argument.type)
        if "List" in text:
            return _sequence(values, node, argument, [value])
        return values.literal(float(value) if "float" in text else value)
    if isinstance(value, list | tuple):
        return _sequence(values, node, argument, list(value))
    raise UnsupportedError(f"argument {argument.name} = {value!r} has no form in the file", where=describe_node(node))


def _sequence(values: Values, node: Node, argument: Any, items: list[Any]) -> int:
    text = str(argument.type)
    if "Tensor" not in text and any(isinstance(item, Node) for item in items):
        if "List[int]" not in text:
            raise UnsupportedError(
                f"argument {argument.name} has numbers that change from call to call", where=describe_node(node)
            )
        items = [values.used(item) if isinstance(item, Node) else values.literal(int(item)) for item in items]
        return values.list(schema.IntList, items)
    if "Tensor" in text:
        if "Optional[Tensor]" in text:
            indices = [-1 if item is None else values.used(item) for item in items]
            return values.list(schema.OptionalTensorList, indices)
        return values.list(schema.TensorList, [values.used(item) for item in items])
    if "bool" in text:
        return values.list(schema.BoolList, [bool(item) for item in items])
    if "float" in text:
        return values.list(schema.DoubleList, [float(item) for item in items])
    return values.list(schema.IntList, [values.literal(int(item)) for item in items])
