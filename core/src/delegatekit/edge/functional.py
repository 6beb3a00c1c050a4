"""In-place operators: simple ones are renamed, a graph with harder ones is functionalized by PyTorch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import describe_node

aten = torch.ops.aten

#: Composite operators whose result is always new memory. Other composites may return their input without declaring
#: it in the schema (dropout in eval mode).
_FRESH: frozenset[str] = frozenset(
    f"aten::{name}"
    for name in [
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_max_pool2d",
        "batch_norm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "gelu",
        "group_norm",
        "hardswish",
        "instance_norm",
        "layer_norm",
        "linear",
        "log_softmax",
        "matmul",
        "max_pool1d",
        "max_pool2d",
        "prelu",
        "relu6",
        "rms_norm",
        "scaled_dot_product_attention",
        "silu",
        "softmax",
        "square",
        "upsample_bilinear2d",
        "upsample_nearest2d",
    ]
)

#: The module of the functions that torch.vmap leaves in an exported graph, around operators on single examples.
_TRANSFORMS = "torch._functorch.predispatch"

#: Conversions, which return their operand if there is nothing to convert.
_CONVERSIONS = frozenset({aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other})

_DROPOUTS = frozenset(
    {
        aten.dropout_.default,
        aten.feature_dropout_.default,
        aten.alpha_dropout_.default,
        aten.feature_alpha_dropout_.default,
    }
)


def in_place_aliases(graph: Graph, buffers: Collection[Node] = ()) -> dict[Node, Node] | None:
    """For a graph whose in-place operators can simply be renamed: in-place result -> the value it overwrote.

    Simple means that the operator overwrites the whole of a value that some operator computed (`relu_` after a
    convolution) or that is one of the placeholders `buffers`, and that the old value is not read through a view
    any more. None if an operator writes into a view, an input or a constant, or if part of the graph is inside
    torch.vmap: then PyTorch's functionalization is needed.
    """
    same: dict[Node, Node] = {}
    roots: dict[Node, tuple[Node, ...]] = {}  # value that may be a view -> the values whose storage it may share
    views: dict[Node, list[Node]] = {}  # the inverse
    position = {node: index for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        if getattr(target, "__module__", None) == _TRANSFORMS:
            return None
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            mutated = node.args[0] if node.args else None
            if not isinstance(mutated, Node) or _functional(target) is None:
                return None
            mutated = same.get(mutated, mutated)
            if target in _DROPOUTS and not node.args[2]:
                same[node] = mutated  # in eval mode it writes nothing
                continue
            if (mutated.op == "placeholder" and mutated not in buffers) or mutated in roots:
                return None
            if any(position[user] > position[node] for view in views.get(mutated, ()) for user in view.users):
                return None
            same[node] = mutated
        elif target in _CONVERSIONS and _is_unchanged(node):
            same[node] = same.get(node.args[0], node.args[0])
        elif not isinstance(target, OpOverload) or _may_alias(target):
            viewed = [same.get(argument, argument) for argument in node.all_input_nodes]
            roots[node] = tuple(dict.fromkeys(root for value in viewed for root in roots.get(value, (value,))))
            for root in roots[node]:
                views.setdefault(root, []).append(node)
    return same


def written_placeholders(aliases: dict[Node, Node]) -> set[Node]:
    """The placeholders that in-place operators overwrite."""
    return {
        value
        for node, value in aliases.items()
        if value.op == "placeholder" and node.target not in _DROPOUTS and node.target not in _CONVERSIONS
    }


def _is_unchanged(node: Node) -> bool:
    """True if a conversion returns its operand."""
    given, copy = node.args[0], node.kwargs.get("copy", False)
    if not isinstance(given, Node) or copy or any(isinstance(item, bool) and item for item in node.args[2:]):
        return False
    before, after = given.meta["val"], node.meta["val"]
    return (before.dtype, before.device, before.layout) == (after.dtype, after.device, after.layout)


def functional_form(node: Node) -> OpOverload:
    """The functional counterpart of the in-place operator of `node`."""
    form = _functional(node.target)
    if form is None:
        raise UnsupportedError("writes into its input and has no functional form", where=describe_node(node))
    return form


def _functional(target: Any) -> OpOverload | None:
    namespace, _, name = target._schema.name.partition("::")
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    form = getattr(packet, target._overloadname, None)
    if not isinstance(form, OpOverload) or _settings(form) != _settings(target):
        return None
    return form


def _settings(target: OpOverload) -> list[str]:
    return [argument.name for argument in target._schema.arguments[1:]]  # the tensor itself is "self" or "input"


def _may_alias(target: OpOverload) -> bool:
    if any(result.alias_info is not None for result in target._schema.returns):
        return True
    return target._schema.name not in _FRESH and target._can_decompose()
