"""Finds the out-variant kernel that computes a functional operator, among the names that the runtime registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from torch._ops import OpOverload
from torch.fx import Node

from delegatekit_api import UnsupportedError, describe_node

from ..pte import runtime_operators

#: Settings that the output tensor carries itself, so that out-variants leave them out.
_OF_THE_OUTPUT = frozenset({"dtype", "layout", "device", "pin_memory"})


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


def require_out_variant(node: Node) -> OutVariant:
    """The node's out-variant; raises UnsupportedError, with the user's source line, if the runtime has none."""
    variant = out_variant(node.target) if isinstance(node.target, OpOverload) else None
    if variant is None:
        raise UnsupportedError(
            f"no chosen backend takes {node.target}, and the runtime has no kernel for it",
            where=describe_node(node),
            hint="`delegatekit explain` shows why each backend leaves it; add a backend that takes it, or rewrite it",
        )
    return variant
