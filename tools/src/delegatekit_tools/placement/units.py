"""The units of placement: an operator with its results, its quantization, and elementwise operators on its result.

Backends are not fast at operators alone: they fuse a convolution and the activation after it,
and compute a quantized one only together with its conversions.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from delegatekit.edge import is_precompiled, is_size_node, producer
from delegatekit.fallback import refusal
from delegatekit.partition import lost_in_set
from delegatekit_api import ProgramView, Verdict
from delegatekit_api.nodes import operator_name


@dataclass(frozen=True)
class Unit:
    """Operators that are placed together."""

    nodes: tuple[Node, ...]
    #: The backends that take all of them, in priority order.
    takers: tuple[str, ...]
    #: True if the runtime has kernels for all of them.
    kernel: bool

    @property
    def signature(self) -> str:
        """Operators, dtypes, shapes and options, as text: equal for layers that are alike."""
        return "; ".join(map(signature, (node for node in self.nodes if node.target is not operator.getitem)))

    @property
    def key(self) -> str:
        """A short digest of the signature."""
        return hashlib.sha256(self.signature.encode()).hexdigest()[:16]

    @property
    def runners(self) -> tuple[str, ...]:
        """The runners that can compute it: backends, and "" for the runtime's kernels."""
        return (*self.takers, "") if self.kernel or not self.takers else self.takers


def units_of(program: ProgramView, backends: Sequence[str], ask: Callable[[str, Node], Verdict]) -> list[Unit]:
    """The units of a graph, in the order of their first operators; sizes and control flow are in none."""
    nodes = [node for node in program.graph.nodes if _is_placed(node)]
    answers = {node: {backend: ask(backend, node) for backend in backends} for node in nodes}
    takers = {node: tuple(name for name in backends if answers[node][name].supported) for node in nodes}
    parent = {node: node for node in nodes}

    def find(node: Node) -> Node:
        above = parent[node]
        while above is not node:
            node, above = above, parent[above]
        return above

    for node in nodes:
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            parent[find(node)] = find(node.args[0])
        for answer in answers[node].values():
            for other in answer.group:
                if other in parent:
                    parent[find(other)] = find(node)
        user = _only_user(node)
        if user is not None and user in parent and _belong_together(node, user, takers, program.constants):
            parent[find(node)] = find(user)
    members: dict[Node, list[Node]] = {}
    for node in nodes:
        members.setdefault(find(node), []).append(node)
    found = [_unit(group, takers, program) for group in members.values()]
    position = {node: index for index, node in enumerate(nodes)}
    return sorted(found, key=lambda unit: position[unit.nodes[0]])


def _is_placed(node: Node) -> bool:
    """True if it is an operator that backends are asked about, or the result of one."""
    node = producer(node)
    return isinstance(node.target, torch._ops.OpOverload) and not is_size_node(node) and not is_precompiled(node)


def _unit(nodes: Sequence[Node], takers: Mapping[Node, tuple[str, ...]], program: ProgramView) -> Unit:
    first, *others = (takers[node] for node in nodes)
    if lost_in_set(program, nodes):
        first = ()  # alone, its delegate would lack the sizes
    common = tuple(name for name in first if all(name in other for other in others))
    return Unit(tuple(nodes), common, all(refusal(node) is None for node in nodes))


def _only_user(node: Node) -> Node | None:
    """The one operator that reads a value; None if several do, or the caller."""
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _belong_together(
    node: Node, user: Node, takers: Mapping[Node, tuple[str, ...]], constants: Mapping[Node, Any]
) -> bool:
    """True if an operator and the only one that reads its result are computed together.

    Joining a value with a single reader to it keeps units convex: every path out of it goes through the reader.
    """
    if _is_conversion(node, "dequantize") or _is_conversion(user, "quantize"):
        return bool(set(takers[node]) & set(takers[user]))
    tags = getattr(user.target, "tags", ())
    others = [item for item in user.all_input_nodes if item is not node and item not in constants]
    return torch.Tag.pointwise in tags and not others and takers[node] == takers[user] != ()


def _is_conversion(node: Node, kind: str) -> bool:
    return operator_name(node).partition(".")[2].startswith(kind)


def signature(node: Node) -> str:
    """An operator with the dtypes, shapes and options of its arguments, as text."""
    arguments = [*map(_text, node.args), *(f"{name}={_text(value)}" for name, value in node.kwargs.items())]
    return f"{operator_name(node)}({', '.join(arguments)})"


def _text(value: Any) -> str:
    if isinstance(value, Node):
        return _value(value.meta.get("val"))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
    return f"({', '.join(map(_value, value))})" if isinstance(value, list | tuple) else type(value).__name__
