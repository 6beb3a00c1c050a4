"""Products with constant matrices are rewritten to linear layers, and quantized by the rules for these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from delegatekit_api.nodes import argument
from delegatekit_api.schemes import QuantizationScheme

from .graph import constants, is_float, names, short_name

aten = torch.ops.aten

_PRODUCTS = ("addmm", "mm", "matmul")


def products_to_linear(module: GraphModule, scheme: QuantizationScheme, kept: Callable[[Node], str | None]) -> None:
    """Write `addmm`, `mm` and `matmul` with a constant matrix, and a sum with a constant vector after it, as `linear`.

    Only where the scheme has a rule for linear layers and none for the product itself. Nodes that `kept` has a reason
    for stay as they are.
    """
    ruled = {name for rule in scheme.rules for name in rule.operators}
    if not ruled.intersection(("linear", "aten.linear", "aten.linear.default")):
        return
    fixed = constants(module)
    for node in list(module.graph.nodes):
        if node.op != "call_function" or short_name(node) not in _PRODUCTS or node in fixed:
            continue
        if ruled.isdisjoint(names(node)) and kept(node) is None:
            _rewrite(module, node, fixed, kept)
    module.graph.eliminate_dead_code()
    module.recompile()


def _rewrite(module: GraphModule, node: Node, fixed: set[Node], kept: Callable[[Node], str | None]) -> None:
    x, matrix, bias = _operands(node)
    if x in fixed or matrix not in fixed or not (is_float(x) and is_float(matrix)) or matrix.meta["val"].dim() != 2:
        return
    last = node
    if short_name(node) == "addmm":
        scaled = not argument(node, "alpha") == argument(node, "beta") == 1
        if scaled or bias not in fixed or not _is_bias(bias, matrix):
            return
    else:
        last, bias = _with_bias(node, matrix, fixed, kept)
    graph = module.graph
    with graph.inserting_before(last):
        weight = _flipped(module, matrix)
        layer = graph.call_function(aten.linear.default, (x, weight) if bias is None else (x, weight, bias))
    layer.meta = dict(last.meta)
    last.replace_all_uses_with(layer)


def _operands(node: Node) -> tuple[Any, Any, Any]:
    """Rows, matrix and the addend of their product."""
    if short_name(node) == "addmm":
        return argument(node, "mat1"), argument(node, "mat2"), argument(node, "self")
    return node.args[0], node.args[1], None


def _is_bias(value: Node, matrix: Node) -> bool:
    """True if a value has one number for each column of the matrix."""
    return is_float(value) and tuple(value.meta["val"].shape) == tuple(matrix.meta["val"].shape[1:])


def _with_bias(
    node: Node, matrix: Node, fixed: set[Node], kept: Callable[[Node], str | None]
) -> tuple[Node, Node | None]:
    """The sum of a product with a constant vector, if nothing else uses the product, and the vector; or the product."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if user is None or str(user.target) != "aten.add.Tensor" or argument(user, "alpha") != 1 or kept(user) is not None:
        return node, None
    others = [operand for operand in user.args[:2] if operand is not node]
    if len(others) == 1 and others[0] in fixed and _is_bias(others[0], matrix):  # type: ignore[arg-type]
        return user, others[0]  # type: ignore[return-value]
    return node, None


def _flipped(module: GraphModule, matrix: Node) -> Node:
    """The constant with rows and columns exchanged; the original, if it is a transpose."""
    source: Node | None = _flipped_by(matrix)
    if source is not None:
        return source
    flipped: Node = module.graph.call_function(aten.t.default, (matrix,))
    flipped.meta["val"] = matrix.meta["val"].t()
    return flipped


def _flipped_by(matrix: Node) -> Any:
    """The original of a transposed matrix; None if unknown."""
    match short_name(matrix):
        case "t":
            return matrix.args[0]
        case "transpose" if (argument(matrix, "dim0") - argument(matrix, "dim1")) % 2:
            return matrix.args[0]
        case "permute" if argument(matrix, "dims")[0] % 2:
            return matrix.args[0]
    return None
