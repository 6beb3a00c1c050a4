"""Asks the backends which operators they want whole, and which nodes they take."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch.fx import Node

from delegatekit_api import BackendDescription, Call, Partitioner, PluginError, Verdict
from delegatekit_api.nodes import describe_node, dynamic_operand

from ..edge import EdgeMethod
from ..edge.precompiled import is_precompiled
from ..edge.sizes import is_size_node
from ..plugins import blaming, check_answer, shown
from .foreign_sizes import valued_size


def keep_operators(partitioners: Mapping[str, Partitioner]) -> frozenset[str]:
    """Names of the operators that the backends want whole. Raises PluginError when a partitioner raises."""
    names: set[str] = set()
    for backend, partitioner in partitioners.items():
        with blaming_partitioner(backend, "naming the operators to keep"):
            kept = partitioner.keep_operators()
        check_answer(kept, Collection[str], "what keep_operators returned", f"backend {backend}")
        names.update(kept)
    return frozenset(names)


def blaming_partitioner(backend: str, doing: str, node: Node | None = None) -> AbstractContextManager[None]:
    """Turn any exception of a partitioner, even DelegateKit's own, into an error naming the backend and the node."""
    return blaming(
        lambda fault: PluginError(
            f"backend {backend} failed while {doing}: {fault}",
            where=describe_node(node) if node is not None else None,
            hint=f"report this to the publisher of {backend}",
        ),
        passing=(),
    )


def ask_backends(
    node: Node,
    method: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    descriptions: Mapping[str, BackendDescription],
    *,
    ask_all: bool = True,
) -> dict[str, Verdict]:
    """The backends' answers about a node, up to the first that takes it or with `ask_all` of each.

    Empty for nodes that backends are not asked about. Raises PluginError as `partition` does.
    """
    answers: dict[str, Verdict] = {}
    # A getitem belongs to the operator whose result it picks; sizes and control flow are the runtime's; a lowered
    # module has its backend already.
    if node.target is operator.getitem or is_size_node(node) or node in method.regions or is_precompiled(node):
        return answers
    changing = dynamic_operand(node)
    for backend, partitioner in partitioners.items():
        able = backend in descriptions and descriptions[backend].supports_dynamic_shapes
        refusal = None if changing is None else _dynamic_refusal(node, changing, able)
        with blaming_partitioner(backend, "checking a node", node):
            answer = partitioner.check(Call(node, method.view)) if refusal is None else Verdict.no(refusal)
        if not _is_verdict(answer):
            raise PluginError(
                f"backend {backend} answered {shown(answer)}, not a Verdict with a reason", where=describe_node(node)
            )
        answers[backend] = answer
        if answer.supported and not ask_all:
            break
    return answers


def _is_verdict(answer: Any) -> bool:
    """True if an answer is a valid Verdict, in all its parts. Called for every node: kept short."""
    return (
        type(answer) is Verdict
        and type(answer.supported) is bool
        and type(answer.passenger) is bool
        and isinstance(answer.reason, str)
        and (answer.supported or bool(answer.reason))
        and type(answer.group) is tuple
        and all(isinstance(node, Node) for node in answer.group)
    )


def _dynamic_refusal(node: Node, changing: str, supported: bool) -> str | None:
    """The reason why a node with changing sizes cannot go to a backend; None if it can."""
    if not supported:
        return f"{changing} has sizes that change from call to call: the backend takes static shapes only"
    size = valued_size(node)
    return None if size is None else f"the size {size} is not a size of its inputs"
