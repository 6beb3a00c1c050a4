"""Finds the out-variant kernel that computes a functional operator, among the names that the runtime registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from delegatekit_api import UnsupportedError, describe_node

from ..pte import runtime_operators

#: Settings that the output tensor carries itself, so that out-variants leave them out.
_OF_THE_OUTPUT = frozenset({"dtype", "layout", "device", "pin_memory"})


#: Operators that read a number out of a tensor: the call's last argument takes it.
_NUMBERS = frozenset({torch.ops.aten._local_scalar_dense.default})


@dataclass(frozen=True)
class OutVariant:
    """An out-variant and its name in the file, "aten::add" and "out"."""

    target: OpOverload
    name: str
    overload: str

    @property
    def full_name(self) -> str:
        """The name that the runtime's registry knows, "aten::add.out"."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@cache
def out_variant(target: OpOverload) -> OutVariant | None:
    """The registered out-variant whose arguments are those of `target`; None if the runtime has none."""
    schema = target._schema
    if target in _NUMBERS:
        return OutVariant(target, schema.name, schema.overload_name)
    wanted = [(argument.name, str(argument.type)) for argument in schema.arguments]
    packet = target.overloadpacket
    for overload in packet.overloads():
        candidate: OpOverload = getattr(packet, overload)
        arguments = candidate._schema.arguments
        outs = [argument for argument in arguments if argument.is_out]
        given = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        rest = [argument for argument in wanted if argument not in given]
        if len(outs) != len(schema.returns) or not all(name in _OF_THE_OUTPUT for name, _ in rest):
            continue
        if [argument for argument in wanted if argument in given] != given:
            continue
        variant = OutVariant(candidate, candidate._schema.name, candidate._schema.overload_name)
        if variant.full_name in runtime_operators():
            return variant
    return None


def kernel_of(node: Node) -> OutVariant | None:
    """The kernel that runs a node outside delegates; None if the runtime has none, or none for this case."""
    variant = out_variant(node.target) if isinstance(node.target, OpOverload) else None
    return None if variant is None or kernel_limit(node) is not None else variant


def kernel_limit(node: Node) -> str | None:
    """Why the runtime's kernel refuses this case of its operator, although its name is registered; None if it runs."""
    limit = _LIMITS.get(str(node.target))
    return limit(node) if limit is not None else None


def require_kernel(node: Node) -> OutVariant:
    """The node's kernel; raises UnsupportedError, with the user's source line, if the runtime cannot run it."""
    variant = kernel_of(node)
    if variant is None:
        lack = kernel_limit(node) or "the runtime has no kernel for it"
        raise UnsupportedError(
            f"no chosen backend takes {node.target}, and {lack}",
            where=describe_node(node),
            hint="`delegatekit explain` shows why each backend leaves it; add a backend that takes it, or rewrite it",
        )
    return variant


def _convolution_limit(node: Node) -> str | None:
    spatial = node.meta["val"].dim() - 2
    return None if spatial <= 2 else f"the runtime's convolution has no {spatial}-d form"


def _log_softmax_limit(node: Node) -> str | None:
    return "the runtime's log_softmax does not take float64" if node.meta["val"].dtype == torch.float64 else None


def _product_limit(node: Node) -> str | None:
    # With nothing to sum up, the kernel returns without having written its output.
    left: Any = node.args[0]
    empty = left.meta["val"].shape[-1] == 0 and node.meta["val"].numel() > 0
    return "the runtime's matrix product cannot sum over no elements" if empty else None


def _linear_limit(node: Node) -> str | None:
    operand: Any = node.args[0]
    vector = operand.meta["val"].dim() < 2
    return "the runtime's linear takes no single vector" if vector else _product_limit(node)


#: Operator -> check of the cases that its kernel in ExecuTorch 1.5 refuses when it is run, or computes wrongly.
_LIMITS: dict[str, Callable[[Node], str | None]] = {
    "aten.convolution.default": _convolution_limit,
    "aten._log_softmax.default": _log_softmax_limit,
    "aten.mm.default": _product_limit,
    "aten.bmm.default": _product_limit,
    "aten.linear.default": _linear_limit,
}
