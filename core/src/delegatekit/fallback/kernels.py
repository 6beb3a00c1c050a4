"""Finds the out-variant kernel that computes a functional operator, among the names that the runtime registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import describe_node

from ..edge.arguments import has_argument, read_argument
from ..edge.precompiled import is_precompiled
from ..edge.sizes import is_size_node
from ..pte.kernels import runtime_operators

#: Arguments that the output tensor determines, so that out-variants omit them.
_OF_THE_OUTPUT = frozenset({"dtype", "layout", "device", "pin_memory"})


#: Operators that read a number from a tensor: the call's last argument receives it.
_NUMBERS = frozenset({torch.ops.aten._local_scalar_dense.default})


@dataclass(frozen=True)
class OutVariant:
    """An out-variant and its name in the file, "aten::add" and "out"."""

    target: OpOverload
    name: str
    overload: str

    @property
    def full_name(self) -> str:
        """The name in the runtime's registry, "aten::add.out"."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@cache
def out_variant(target: OpOverload) -> OutVariant | None:
    """The registered out-variant with the arguments of `target`; None if the runtime has none."""
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
    return None if variant is None or _limit(node) is not None else variant


def refusal(node: Node) -> str | None:
    """The reason why the runtime cannot run a node outside delegates; None if it can.

    It computes sizes, runs control flow and picks results without kernels, and a lowered module is already a delegate.
    """
    if not isinstance(node.target, OpOverload) or is_size_node(node) or is_precompiled(node):
        return None
    return None if kernel_of(node) is not None else _lack(node)


def _lack(node: Node) -> str:
    return _limit(node) or "the runtime has no kernel for it"


def _limit(node: Node) -> str | None:
    """The reason why the runtime's kernel refuses this case of its operator, although registered; None if it runs."""
    limit = _LIMITS.get(str(node.target))
    return limit(node) if limit is not None else None


def require_kernel(node: Node) -> OutVariant:
    """The node's kernel; raises UnsupportedError, with the user's source line, if the runtime cannot run it."""
    variant = kernel_of(node)
    if variant is None:
        raise UnsupportedError(
            f"no chosen backend takes {node.target}, and {_lack(node)}",
            where=describe_node(node),
            hint="`delegatekit explain` shows why each backend leaves it; add a backend that takes it, or rewrite it",
        )
    return variant


# -- limits of the runtime's kernels ----------------------------------------------------------------------------------
#
# Each function gives the reason why the kernel of ExecuTorch 1.5 fails for a case at run time, aborts the process, or
# differs from PyTorch. `substitutes.py` has replacements for most of them.

_NARROW = frozenset({torch.float16, torch.bfloat16})
_COMPUTED_NARROW = "the runtime's kernel sums up in the narrow type"
_COMPUTED_SINGLE = "the runtime's kernel computes float64 in float32"
_COMPUTED_DOUBLE = "the runtime's kernel computes int64 in float64, which has 53 bits"


def _operand(node: Node, name: str = "self") -> torch.Tensor | None:
    """The tensor operand of this name; None if it is a number."""
    item = read_argument(node, name)
    value = item.meta["val"] if isinstance(item, Node) else None
    return value if isinstance(value, torch.Tensor) else None  # a number may be a node, too: a size


def _dtype(node: Node) -> torch.dtype:
    """The dtype of the node's result, the first of several."""
    value: Any = node.meta["val"]
    first: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
    return first.dtype


def _convolution_limit(node: Node) -> str | None:
    spatial = node.meta["val"].dim() - 2
    return f"the runtime's convolution has no {spatial}-d form" if spatial > 2 else _narrow_limit(node)


def _narrow_limit(node: Node) -> str | None:
    return _COMPUTED_NARROW if _dtype(node) in _NARROW else None


def _double_limit(node: Node) -> str | None:
    return _COMPUTED_SINGLE if _dtype(node) == torch.float64 else None


def _layer_norm_limit(node: Node) -> str | None:
    return _narrow_limit(node) or _double_limit(node)


def _log_softmax_limit(node: Node) -> str | None:
    return "the runtime's log_softmax does not take float64" if _dtype(node) == torch.float64 else None


def _sum_limit(node: Node) -> str | None:
    x = _operand(node)
    if x is None:
        return None
    if x.dim() == 0:
        return "the runtime's sum of a tensor of no dimensions stops the process"
    dims = read_argument(node, "dim")
    along = len(dims) if dims else x.dim()
    single = along == 1 and x.dtype == _dtype(node) and x.dtype in (torch.float64, torch.int64)
    return f"the runtime's sum along one dimension computes {x.dtype} in float32" if single else None


def _cumsum_limit(node: Node) -> str | None:
    no_dims = node.meta["val"].dim() == 0
    return "the runtime's cumsum takes no tensor without dimensions" if no_dims else _narrow_limit(node)


def _product_limit(node: Node) -> str | None:
    return _empty_sum(node, _operand(node))


def _empty_sum(node: Node, left: torch.Tensor | None) -> str | None:
    # With nothing to sum, the kernel returns without writing its output.
    empty = left is not None and left.shape[-1] == 0 and node.meta["val"].numel() > 0
    return "the runtime's matrix product cannot sum over no elements" if empty else None


def _linear_limit(node: Node) -> str | None:
    x, weight = _operand(node, "input"), _operand(node, "weight")
    vector = any(item is not None and item.dim() < 2 for item in (x, weight))
    return "the runtime's linear takes no single vector" if vector else _empty_sum(node, x)


def _division_limit(node: Node) -> str | None:
    mode, dtype = read_argument(node, "rounding_mode"), _dtype(node)
    if mode == "floor" and dtype.is_floating_point:
        rounded = bool(node.users) and all(user.target is torch.ops.aten.round.default for user in node.users)
        return None if rounded else "the runtime's floor division of floats leaves a rounding error"
    return (_COMPUTED_DOUBLE if mode == "trunc" and dtype == torch.int64 else None) or _mixed_limit(node)


def _fmod_limit(node: Node) -> str | None:
    number = read_argument(node, "other")
    if _dtype(node) == torch.uint8 and not isinstance(number, Node) and number < 0:
        return "the runtime's fmod does not take a negative number as an unsigned one"
    return (_COMPUTED_DOUBLE if _dtype(node) == torch.int64 else None) or _mixed_limit(node)


def _remainder_limit(node: Node) -> str | None:
    return _double_limit(node) or _mixed_limit(node)


def _power_limit(node: Node) -> str | None:
    dtype, base, exponent = _dtype(node), read_argument(node, "self"), read_argument(node, "exponent")
    if not dtype.is_floating_point and base in (2, 4, 8, 16):
        return "the runtime computes powers of two in float64, and they do not leave the type as bits do"
    if isinstance(exponent, Node) or not isinstance(base, Node):
        return (_COMPUTED_DOUBLE if dtype == torch.int64 else None) or _mixed_limit(node)
    if dtype.is_floating_point:
        rooted = exponent == 0.5 and dtype != torch.float16  # PyTorch computes powers of float16, too
        return "the runtime's power 0.5 of -inf and -0.0 is not the square root" if rooted else None
    return "the runtime computes powers of integers in float64, and they do not wrap around"


def _sign_limit(node: Node) -> str | None:
    return "the runtime's sign of NaN is NaN, not 0" if _dtype(node).is_floating_point else None


def _bool_sum_limit(node: Node) -> str | None:
    return "the runtime's add takes no bools and number" if _dtype(node) == torch.bool else None


def _mixed_limit(node: Node) -> str | None:
    # Eager gives tensors of no dimensions lower priority in promotion, and converts them first; the kernels do not.
    names = ("self", "exponent" if has_argument(node, "exponent") else "other")
    dtypes = {item.dtype for item in (_operand(node, name) for name in names) if item is not None}
    return f"the runtime promotes {' and '.join(sorted(map(str, dtypes)))} differently" if len(dtypes) > 1 else None


def _where_limit(node: Node) -> str | None:
    dtypes = {item.dtype for item in (_operand(node, name) for name in ("self", "other")) if item is not None}
    return "the runtime's where needs values of one dtype" if len(dtypes) > 1 else None


_PROMOTING = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")

#: Operator -> check for the cases that its kernel in ExecuTorch 1.5 refuses at run time, or computes wrongly.
_LIMITS: dict[str, Callable[[Node], str | None]] = {
    **{f"aten.{name}.Tensor": _mixed_limit for name in _PROMOTING},
    **{f"aten.{name}.default": _mixed_limit for name in ("maximum", "minimum", "atan2", "floor_divide")},
    "aten.add.Scalar": _bool_sum_limit,
    "aten.addmm.default": _narrow_limit,
    "aten.avg_pool2d.default": _narrow_limit,
    "aten._adaptive_avg_pool2d.default": _double_limit,
    "aten.bmm.default": _product_limit,
    "aten.convolution.default": _convolution_limit,
    "aten.cumsum.default": _cumsum_limit,
    "aten.div.Scalar_mode": _division_limit,
    "aten.div.Tensor_mode": _division_limit,
    "aten.fmod.Scalar": _fmod_limit,
    "aten.fmod.Tensor": _fmod_limit,
    "aten.linear.default": _linear_limit,
    "aten._log_softmax.default": _log_softmax_limit,
    "aten.mm.default": _product_limit,
    "aten.native_group_norm.default": _double_limit,
    "aten.native_layer_norm.default": _layer_norm_limit,
    "aten.pow.Scalar": _power_limit,
    "aten.pow.Tensor_Scalar": _power_limit,
    "aten.pow.Tensor_Tensor": _power_limit,
    "aten.remainder.Scalar": _remainder_limit,
    "aten.remainder.Tensor": _remainder_limit,
    "aten.sign.default": _sign_limit,
    "aten.sum.dim_IntList": _sum_limit,
    "aten.upsample_bilinear2d.vec": _double_limit,
    "aten._upsample_bilinear2d_aa.default": _double_limit,
    "aten.var.correction": _narrow_limit,
    "aten.var_mean.correction": _narrow_limit,
    "aten.where.self": _where_limit,
}
