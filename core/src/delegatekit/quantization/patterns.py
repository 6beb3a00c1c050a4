"""Finds the operators of a scheme's rules in the exported graph, with their weights and fused activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from torch.fx import GraphModule, Node

from delegatekit_api import Call, PluginError
from delegatekit_api.schemes import (
    PER_TENSOR,
    Granularity,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)

from .graph import constants, exported_view, is_float, is_written, names, results, short_name


@dataclass(frozen=True)
class Roles:
    """The positions of an operator's input, weight and bias, and the weight's dimension with the output channels."""

    input: int | None
    weight: int
    bias: int | None
    channels: int


@dataclass(frozen=True)
class Layer:
    """Nodes that are quantized as one: the operator that the rule names, and its fused activations.

    `inputs` are the computed operands with their quantization; `weight` and `bias` are constants. `outputs` are the
    values that are quantized after the layer.
    """

    rule: QuantizationRule
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    weight: Node | None = None
    weight_quantization: TensorQuantization | None = None
    bias: Node | None = None

    @property
    def anchor(self) -> Node:
        """The operator that the rule names."""
        return self.nodes[0]

    @property
    def last(self) -> Node:
        """The last of the fused activations, or the operator itself."""
        return self.nodes[-1]


#: Operators with a weight. Products of matrices have one only if their second operand is constant.
ROLES: Mapping[str, Roles] = {
    "linear": Roles(0, 1, 2, 0),
    "addmm": Roles(1, 2, 0, 1),
    "mm": Roles(0, 1, None, -1),
    "bmm": Roles(0, 1, None, -1),
    "matmul": Roles(0, 1, None, -1),
    "conv1d": Roles(0, 1, 2, 0),
    "conv2d": Roles(0, 1, 2, 0),
    "conv3d": Roles(0, 1, 2, 0),
    "conv_transpose1d": Roles(0, 1, 2, 1),
    "conv_transpose2d": Roles(0, 1, 2, 1),
    "conv_transpose3d": Roles(0, 1, 2, 1),
    "embedding": Roles(None, 0, None, 0),
}

PRODUCTS = ("mm", "bmm", "matmul")

#: The fill value that hides a number in a softmax, or an upper bound of it.
HIDDEN = 80.0
#: Operators whose constant operands stay float: each number of a weight or bias belongs to a channel.
NORMS = ("layer_norm", "rms_norm", "group_norm", "instance_norm")


def channel_dimension(node: Node) -> int:
    """The dimension of the channels in a layer's input and result, from the end: the same with and without a batch."""
    name = short_name(node)
    return -1 - int(name[-2]) if name.startswith("conv") else -1


_ARITHMETIC = ("add", "sub", "mul", "div")


#: The reason why the backend refuses an operator that is quantized by a rule.
Refusals: TypeAlias = dict[tuple[Node, QuantizationRule], str]


def find_layers(
    module: GraphModule,
    scheme: QuantizationScheme,
    kept: Callable[[Node], str | None],
    refused: Mapping[tuple[Node, QuantizationRule], str] = MappingProxyType({}),
) -> tuple[list[Layer], dict[Node, str]]:
    """The layers of a graph in order, and for each other operator on float tensors the reason why it is not one.

    `kept` returns the reason why the user wants a node in float, or None; `refused` the rules refused for a node.
    """
    finder = _Finder(module, scheme, kept, refused)
    return finder.layers, finder.reasons


class _Finder:
    def __init__(
        self,
        module: GraphModule,
        scheme: QuantizationScheme,
        kept: Callable[[Node], str | None],
        refused: Mapping[tuple[Node, QuantizationRule], str],
    ) -> None:
        self.layers: list[Layer] = []
        self.reasons: dict[Node, str] = {}
        self._kept = kept
        self._refused = refused
        self._constants = constants(module)
        self._view = exported_view(module, self._constants)
        self._rules: dict[str, list[QuantizationRule]] = {}
        for rule in scheme.rules:
            for name in rule.operators:
                self._rules.setdefault(name, []).append(rule)
        self._scheme = scheme
        taken: set[Node] = set()
        for node in module.graph.nodes:
            if node.op != "call_function" or node in taken or node in self._constants:
                continue
            if not self._computes(node) or node.target.__name__ == "getitem":
                continue
            found = self._layer(node)
            if isinstance(found, str):
                self.reasons[node] = found
            else:
                self.layers.append(found)
                taken.update(found.nodes)

    def _computes(self, node: Node) -> bool:
        """True if a node returns float numbers, or booleans about numbers with a rule for it."""
        if any(is_float(result) for result in results(node)):
            return True
        about = any(map(is_float, node.all_input_nodes)) and any(name in self._rules for name in names(node))
        return about and _is_mask(node)

    def _layer(self, node: Node) -> Layer | str:
        """The layer that begins with the node, or the reason why there is none."""
        reason = self._kept(node)
        if reason is not None:
            return reason
        rules = [rule for name in names(node) for rule in self._rules.get(name, ())]
        if not rules:
            return f"scheme {self._scheme.name} has no rule for {short_name(node)}"
        if is_written(node):
            return "it writes into its operand"
        if any(isinstance(value, Node) for value in node.kwargs.values()):
            return "it has tensors as keyword arguments"
        # Rules in the order of the scheme. The reported reason is the backend's first refusal; or that of the rule with
        # the most conditions that hold, the last among equals.
        nearest, told, refusal = 0.0, "", ""
        for rule in sorted(rules, key=self._scheme.rules.index):
            if (node, rule) in self._refused:
                refusal = refusal or self._refused[node, rule]
                continue
            reason, held = self._declined(node, rule)
            if reason is None:
                found = self._match(node, rule)
                if not isinstance(found, str):
                    return found
                reason = found
            if held >= nearest:
                nearest, told = held, reason
        return refusal or told

    def _declined(self, node: Node, rule: QuantizationRule) -> tuple[str | None, float]:
        """The reason why the rule declines the node, and the number of conditions that hold before; inf if all do."""
        call = Call(node, self._view)
        for index, decline in enumerate(rule.declines):
            try:
                reason = decline(call)
            except Exception as error:
                raise PluginError(
                    f"condition {getattr(decline, '__name__', decline)} failed: {type(error).__name__}: {error}",
                    where=f"scheme {self._scheme.name}, {node.format_node()}",
                ) from error
            if reason is not None:
                return reason, index
        return None, math.inf

    def _match(self, node: Node, rule: QuantizationRule) -> Layer | str:
        if rule.shares:
            return self._moving(node, rule)
        roles = ROLES.get(short_name(node))
        if roles is not None and rule.weight is not None:
            weight = _argument(node, roles.weight)
            if weight in self._constants:
                return self._weighted(node, rule, roles)
            if short_name(node) not in PRODUCTS or rule.input is None:
                return "its weight is computed"
        return self._plain(node, rule)

    def _moving(self, node: Node, rule: QuantizationRule) -> Layer | str:
        if short_name(node) in ("pad", "constant_pad_nd") and not _pads_with_zero(node):
            return "it pads with another value than 0"
        inputs = [operand for operand in node.all_input_nodes if is_float(operand)]
        outputs = results(node)
        if not inputs or not outputs:
            return "it has no float32 operand"
        return Layer(rule, (node,), tuple(inputs), outputs)

    def _plain(self, node: Node, rule: QuantizationRule) -> Layer | str:
        if not is_float(node) and not (_is_mask(node) and rule.output is None):
            return "it has several results" if isinstance(node.meta.get("val"), list | tuple) else "it gives no numbers"
        tensors = [operand for operand in node.all_input_nodes if isinstance(operand.meta.get("val"), _tensor())]
        tensors = [operand for operand in tensors if not _is_mask(operand)]
        if not tensors:
            return "it has no tensor operand"
        if short_name(node) in NORMS:
            tensors = [tensors[0], *(operand for operand in tensors[1:] if operand not in self._constants)]
        if not all(is_float(operand) for operand in tensors):
            return "an operand is not float32"
        if all(operand in self._constants for operand in tensors):
            return "its operands are constants"
        if short_name(node) in _ARITHMETIC and not rule.numbers and not all(isinstance(a, Node) for a in node.args[:2]):
            return "an operand is a number"
        nodes = self._with_activations(node, rule)
        fixed = [operand for operand in tensors if operand in self._constants]
        if not all(bool(self._view.constants[operand].isfinite().all()) for operand in fixed):
            return "an operand is a constant with infinities or NaNs, which no integers stand for"
        if any(map(_hides, (nodes[-1], *tensors))):
            return "numbers that a mask hides do not fit the range of the others"
        return Layer(rule, nodes, tuple(tensors), nodes[-1:] if rule.output is not None else ())

    def _weighted(self, node: Node, rule: QuantizationRule, roles: Roles) -> Layer | str:
        weight = _argument(node, roles.weight)
        bias = None if roles.bias is None else _argument(node, roles.bias)
        inputs = () if roles.input is None else (_argument(node, roles.input),)
        if not isinstance(weight, Node) or not is_float(weight):
            return "its weight is not float32"
        if not all(isinstance(value, Node) and is_float(value) for value in inputs):
            return "its input is not float32"
        if any(value in self._constants for value in inputs):
            return "its input is a constant"
        if bias is not None and bias not in self._constants:
            return "its bias is computed"
        nodes = self._with_activations(node, rule)
        return Layer(
            rule,
            nodes,
            tuple(value for value in inputs if isinstance(value, Node)) if rule.input is not None else (),
            nodes[-1:] if rule.output is not None else (),
            weight,
            _weight_quantization(node, weight, rule.weight, roles),
            bias if isinstance(bias, Node) else None,
        )

    def _with_activations(self, node: Node, rule: QuantizationRule) -> tuple[Node, ...]:
        """The node, a remaining batch norm (training with quantization), and a fused activation."""
        nodes = [node]
        follower = _only_user(node)
        if follower is not None and short_name(follower) == "batch_norm" and short_name(node) in ROLES:
            nodes.append(follower)
            follower = _only_user(follower)
        if (
            follower is not None
            and any(name in rule.fused for name in names(follower))
            and follower.args[0] is nodes[-1]
            and not is_written(follower)
            and all(not isinstance(argument, Node) for argument in follower.args[1:])
            and self._kept(follower) is None
            and is_float(follower)
        ):
            nodes.append(follower)
        return tuple(nodes)


def _tensor() -> type:
    import torch

    return torch.Tensor


def _is_mask(node: Node) -> bool:
    import torch

    return getattr(node.meta.get("val"), "dtype", None) == torch.bool


def _hides(node: Node) -> bool:
    """True if the result contains masked numbers."""
    return str(node.target) == "aten.masked_fill.Scalar" and abs(float(node.args[2])) >= HIDDEN  # type: ignore[arg-type]


def _argument(node: Node, index: int) -> Any:
    return node.args[index] if index < len(node.args) else None


def _only_user(node: Node) -> Node | None:
    user = next(iter(node.users)) if len(node.users) == 1 else None
    return user if user is not None and user.op == "call_function" else None


def _pads_with_zero(node: Node) -> bool:
    """True if a pad writes zeros (or, with another mode, values of its input)."""
    target: Any = node.target
    arguments: dict[str, Any] = dict(zip((item.name for item in target._schema.arguments), node.args, strict=False))
    arguments.update(node.kwargs)
    return arguments.get("mode", "constant") != "constant" or not arguments.get("value")


def _weight_quantization(
    node: Node, weight: Node, given: TensorQuantization | None, roles: Roles
) -> TensorQuantization | None:
    """The declaration with the channels' dimension of this weight.

    Per tensor if the output channels are not one dimension: vectors, grouped transposed convolutions, batched products.
    """
    if given is None or given.granularity.kind != "channel" or given.granularity.axis is not None:
        return given
    rank = weight.meta["val"].dim()
    grouped = short_name(node).startswith("conv_transpose") and _argument(node, 6) not in (None, 1)
    if grouped or rank < 2 or (short_name(node) in PRODUCTS and rank != 2):
        return replace(given, granularity=PER_TENSOR)
    return replace(given, granularity=Granularity("channel", axis=roles.channels % rank))
