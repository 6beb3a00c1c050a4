"""Attainable accuracy, estimated from an exported graph: no model or pattern has a tolerance of its own.

The oracle allows 8 u sqrt(n) for a sum of n products. Roundings of different operators are as independent as those of
one sum, so their variances add up: a chain of operators with sums of n1, n2, ... is treated like one sum of n1 + n2 +
... products. The effect of bad conditioning is measured by the trial (`Accuracy.ill_conditioned`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from .bounds import Accuracy

#: Operators that only move, select, compare or create numbers, without rounding. By the name before the dot.
_EXACT_NAMES = """
    view reshape _unsafe_view permute transpose t unsqueeze squeeze flatten unflatten expand expand_as slice
    select narrow split split_with_sizes chunk unbind cat concat stack clone contiguous alias detach detach_
    lift_fresh_copy relu relu_ relu6 hardtanh hardtanh_ clamp clamp_ clip maximum minimum max min amax amin neg
    abs where masked_fill masked_fill_ dropout dropout_ gather index_select index embedding flip roll repeat
    repeat_interleave tile pad constant_pad_nd max_pool1d max_pool2d max_pool3d upsample_nearest1d
    upsample_nearest2d topk sort argmax argmin eq ne lt le gt ge logical_and logical_or logical_not bitwise_and
    bitwise_or bitwise_not any all isnan arange full full_like zeros zeros_like ones ones_like new_zeros
    new_ones new_full empty scalar_tensor copy copy_ index_put index_put_ index_copy index_copy_ slice_scatter
    select_scatter scatter tril triu movedim swapaxes numpy_T mT pixel_shuffle pixel_unshuffle channel_shuffle
    sym_size _assert_tensor_metadata fill fill_ one_hot cumsum_int _assert_scalar sym_constrain_range_for_size
    diagonal squeeze_ unsqueeze_ resolve_conj resolve_neg type_as
"""
_EXACT = frozenset(_EXACT_NAMES.split())
#: Consecutive roundings inside composite operators that have more than one.
_INSIDE: Mapping[str, int] = {
    "softmax": 3,
    "_softmax": 3,
    "log_softmax": 3,
    "layer_norm": 5,
    "native_layer_norm": 5,
    "group_norm": 5,
    "rms_norm": 4,
    "batch_norm": 4,
    "instance_norm": 5,
    "_native_batch_norm_legit_no_training": 4,
    "gelu": 3,
    "silu": 2,
    "silu_": 2,
    "hardswish": 2,
    "hardswish_": 2,
    "mish": 3,
    "softplus": 2,
    "scaled_dot_product_attention": 6,
    "norm": 2,
    "linalg_vector_norm": 2,
    "var": 3,
    "std": 4,
    "upsample_bilinear2d": 3,
}
_SUMS = frozenset(
    {"sum", "mean", "var", "var_mean", "std", "prod", "cumsum", "norm", "linalg_vector_norm", "logsumexp"}
)


def estimate(program: ExportedProgram, *, loops: int = 1, calls: int = 1, ill_conditioned: bool = False) -> Accuracy:
    """The accuracy of an exported program. Sizes that change count with their upper bounds.

    `loops` is the largest number of rounds of a `while_loop`, `calls` the number of calls that build on one another's
    state. With `ill_conditioned`, the effect of rounding the inputs is allowed, too: for deep models.
    """
    found = _Walker(loops).walk(program.graph_module) * calls
    return Accuracy(max(1, found), ill_conditioned=ill_conditioned)


def longest_way(nodes: Iterable[Node], count: Callable[[Node], int] | None = None) -> int:
    """The largest number of roundings (or of what `count` counts) on any path through these ordered nodes."""
    most: dict[Node, int] = {}
    for node in nodes:
        before = max((most.get(item, 0) for item in node.all_input_nodes), default=0)
        most[node] = before + (count or roundings)(node)
    return max(most.values(), default=0)


def roundings(node: Node) -> int:
    """The number of roundings of an operator of an exported or edge graph: 0 if it only moves or selects elements."""
    name = _rounding_name(node)
    if not name:
        return 0
    terms = _length(name, node)
    if name in ("lstm", "gru", "rnn_tanh"):
        # Each step of each layer: products with the weights, two functions and two products.
        steps = max(_shape(node.args[0]), default=1)
        layers = sum(len(_shape(weight)) == 2 for weight in _flat(node.args[2])) // 2
        return (terms + 6) * steps * max(1, layers)
    return _INSIDE.get(name, 1) + terms - 1


def inner_roundings(node: Node) -> int:
    """Consecutive roundings inside an operator, a sum counting as one: 0 if it only moves or selects elements.

    An integer kernel of the operator may round this many times: sums are kept in wider integers.
    """
    name = _rounding_name(node)
    return _INSIDE.get(name, 1) if name else 0


def _rounding_name(node: Node) -> str:
    """The name of an operator that rounds, before the dot; empty for all others."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return ""
    name = str(node.target.overloadpacket).rpartition(".")[2]
    exact = name.removesuffix("_copy") in _EXACT or name in _EXACT
    return "" if exact or not _is_float(node.meta.get("val")) else name


class _Walker:
    def __init__(self, loops: int) -> None:
        self.loops = loops

    def walk(self, module: GraphModule) -> int:
        """Roundings on the path through the graph that has the most."""
        return longest_way(module.graph.nodes, lambda node: roundings(node) or self._inside(node, module))

    def _inside(self, node: Node, module: GraphModule) -> int:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            graphs = [
                getattr(module, str(item.target))
                for item in node.all_input_nodes
                if item.op == "get_attr" and isinstance(getattr(module, str(item.target), None), GraphModule)
            ]
            deepest = max((self.walk(graph) for graph in graphs), default=0)
            return deepest * (self.loops if "while_loop" in str(node.target) else 1)
        return 0


def _is_float(value: Any) -> bool:
    values = value if isinstance(value, tuple | list) else [value]
    return any(isinstance(item, torch.Tensor) and item.is_floating_point() for item in values)


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _length(name: str, node: Node) -> int:
    """The number of terms that the operator sums for one element of its result."""
    shapes = [_shape(item) for item in node.args if isinstance(item, Node)]
    if not shapes:
        return 1
    first = shapes[0]
    if "conv" in name and len(shapes) > 1:
        transposed = "transpose" in name
        weight = shapes[1]
        return math.prod(weight[1:]) if not transposed else weight[0] * math.prod(weight[2:])
    if name in ("linear", "matmul", "mm", "bmm", "mv", "dot", "einsum") and first:
        return first[-1]
    if name in ("addmm", "baddbmm") and len(shapes) > 1:
        return shapes[1][-1]
    if name == "scaled_dot_product_attention":
        return max(first[-1], shapes[1][-2])
    if name in ("lstm", "gru", "rnn_tanh"):
        return max((sum(_shape(weight)) for weight in _flat(node.args[2])), default=1)
    if name in ("softmax", "_softmax", "log_softmax", "layer_norm", "native_layer_norm", "rms_norm"):
        return max(first, default=1)
    if name == "group_norm":
        return math.prod(first[1:])
    if name in _SUMS or "avg_pool" in name:
        result = node.meta["val"]
        result = result[0] if isinstance(result, tuple | list) else result
        if name == "cumsum":
            return max(first, default=1)
        return max(1, math.prod(first) // max(1, math.prod(_sizes(result.shape))))
    return 1


def _shape(node: Any) -> list[int]:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return _sizes(value.shape) if isinstance(value, torch.Tensor) else []


def _sizes(shape: Any) -> list[int]:
    return [_largest(size) for size in shape]


def _largest(size: Any) -> int:
    """A size, or the upper bound of one that changes."""
    if isinstance(size, int):
        return size
    bound = size.node.shape_env.bound_sympy(size.node.expr).upper
    try:
        upper = int(bound)
    except (AttributeError, TypeError, ValueError, OverflowError):  # infinities of SymPy and PyTorch
        upper = int(size.node.hint)
    return upper if upper < 1 << 31 else int(size.node.hint)
