"""In-place operators at the border: simple ones are renamed, a graph with harder ones is functionalised by PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from delegatekit_api import UnsupportedError, describe_node

aten = torch.ops.aten

#: Composite operators whose result is always new memory. Other composites may hand back their input without saying
#: so in the schema (dropout in eval mode).
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


_DROPOUTS = frozenset(
    {
        aten.dropout_.default,
        aten.feature_dropout_.default,
        aten.alpha_dropout_.default,
        aten.feature_alpha_dropout_.default,
    }
)


def in_place_aliases(graph: Graph) -> dict[Node, Node] | None:
    """For a graph whose in-place operators can simply be renamed: in-place result -> the value it overwrote.

    Simple means that the operator overwrites the whole of a value that some operator computed and that shares its
    storage with nothing else (`relu_` after a convolution). None if an operator touches a view, an input or a buffer:
    then only PyTorch's functionalisation will do.
    """
    same: dict[Node, Node] = {}
    shared: set[Node] = set()  # values that some view looks at, and the views
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            mutated = node.args[0] if node.args else None
            if not isinstance(mutated, Node) or _functional(target) is None:
                return None
            mutated = same.get(mutated, mutated)
            if target in _DROPOUTS and not node.args[2]:
                same[node] = mutated  # in eval mode it writes nothing
                continue
            if mutated.op == "placeholder" or mutated in shared:
                return None
            same[node] = mutated
        elif not isinstance(target, OpOverload) or _may_alias(target):
            shared.add(node)
            shared.update(same.get(argument, argument) for argument in node.all_input_nodes)
    return same


def functional_form(node: Node) -> OpOverload:
    """The operator that computes what the in-place operator of `node` writes."""
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
