"""Answers of a partitioner, and that it changes nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from delegatekit.edge import EdgeMethod
from delegatekit.edge.sizes import is_size_node
from delegatekit_api import Call, Partitioner, ProgramView, Verdict
from delegatekit_api.nodes import dynamic_operand, operator_name
from delegatekit_api.schemes import DEQUANTIZE, DYNAMIC, QUANTIZE

from ...context import Context
from ...trial import words
from ..base import Broken, NotApplicable
from ..specimens import backend_of, compiles, questions
from .prints import difference, of_view
from .rules import Rules

RULES = Rules()


def _partitioner(context: Context) -> Partitioner:
    backend = compiles(context)
    return backend.create_partitioner(backend.make_options(context.options))


def _asked(edge: EdgeMethod, context: Context) -> list[Node]:
    """The nodes that core would ask the backend about."""
    able = backend_of(context).description.supports_dynamic_shapes
    return [
        node
        for node in edge.graph.nodes
        if node.op == "call_function"
        and node.target is not operator.getitem
        and not is_size_node(node)
        and (able or dynamic_operand(node) is None)
    ]


def _answer(partitioner: Partitioner, node: Node, view: ProgramView, name: str) -> Verdict:
    try:
        answer: Any = partitioner.check(Call(node, view))
    except Exception as error:
        raise Broken(f"{name}: check of {operator_name(node)} raises {type(error).__name__}: {error}") from error
    if not isinstance(answer, Verdict):
        raise Broken(f"{name}: check of {operator_name(node)} returns {answer!r}, not a Verdict")
    return answer


def _shown(answer: Verdict) -> tuple[Any, ...]:
    return answer.supported, answer.reason, answer.passenger, tuple(node.name for node in answer.group)


@RULES.add
def check_changes_nothing(context: Context) -> str:
    """Asking a partitioner about nodes changes neither the graph nor its metadata, its values or the view."""
    asked = 0
    for name, edge in questions(context).items():
        partitioner = _partitioner(context)
        before = of_view(edge.view)
        partitioner.keep_operators()
        for node in _asked(edge, context):
            _answer(partitioner, node, edge.view, name)
            asked += 1
            changed = difference(before, of_view(edge.view))
            if changed:
                raise Broken(f"{name}: check of {operator_name(node)} changes {changed}")
        partitioner.propose(edge.view)
        changed = difference(before, of_view(edge.view))
        if changed:
            raise Broken(f"{name}: propose changes {changed}")
    return f"{asked} nodes"


@RULES.add
def check_repeatable(context: Context) -> str:
    """The answer about a node does not depend on what was asked before, in which order, or by which partitioner."""
    asked = 0
    for name, edge in questions(context).items():
        nodes = _asked(edge, context)
        first: dict[Node, tuple[Any, ...]] = {}
        partitioner, other = _partitioner(context), _partitioner(context)
        kept = set(partitioner.keep_operators())
        for asked_one, order in (
            (partitioner, nodes),
            (partitioner, nodes),
            (partitioner, nodes[::-1]),
            (other, nodes),
        ):
            for node in order:
                answer = _shown(_answer(asked_one, node, edge.view, name))
                if first.setdefault(node, answer) != answer:
                    raise Broken(f"{name}: {operator_name(node)} is answered {first[node]}, and later {answer}")
        if set(partitioner.keep_operators()) != kept:
            raise Broken(f"{name}: keep_operators gives something else after questions about nodes")
        asked += len(nodes)
    return f"{asked} nodes"


@RULES.add
def refusal_reasons(context: Context) -> str:
    """Every refusal has a reason in words that a user can act on: not empty, not just a name, no Python object."""
    refused: dict[str, None] = {}
    for name, edge in questions(context).items():
        partitioner = _partitioner(context)
        for node in _asked(edge, context):
            answer = _answer(partitioner, node, edge.view, name)
            fault = "" if answer.supported else reason_fault(answer.reason, operator_name(node))
            if fault:
                raise Broken(f"{name}: {operator_name(node)} is refused {fault}: {answer.reason!r}")
            if not answer.supported:
                refused[answer.reason] = None
    return f"{len(refused)} different reasons"


def reason_fault(reason: Any, name: str) -> str:
    """The fault of a reason, in words; empty if there is none."""
    if not isinstance(reason, str) or not reason.strip():
        return "without a reason"
    text = reason.strip()
    # A path or a number is less informative than a word.
    said = text.replace(name, " ").replace(name.rpartition(".")[0], " ")
    if len([word for word in said.split() if any(letter.isalpha() for letter in word)]) < 2:
        return "with a reason that is not a sentence"
    if "Traceback" in text or " object at 0x" in text or "Error(" in text:
        return "with a reason that only programmers of the backend understand"
    if len(text) > 500 or len(text.splitlines()) > 3:
        return "with a reason that is far too long"
    return ""


@RULES.add
def special_values_told(context: Context) -> str:
    """A partitioner's remark on special values is a text, for every call that it takes; empty if there are none."""
    told: dict[str, None] = {}
    for name, edge in questions(context).items():
        partitioner = _partitioner(context)
        tell = getattr(partitioner, "special_values", None)
        if tell is None:
            raise NotApplicable("the partitioner has no special_values")
        for node in _asked(edge, context):
            if not _answer(partitioner, node, edge.view, name).supported:
                continue
            try:
                found = tell(Call(node, edge.view))
            except Exception as error:
                raise Broken(f"{name}: special_values of {operator_name(node)}: {words(error)}") from error
            if not isinstance(found, str):
                raise Broken(f"{name}: special_values of {operator_name(node)} gives {found!r}, no text")
            told[found] = None
    return f"{len(told)} different texts"


@RULES.add
def keep_operators(context: Context) -> str:
    """The operators that must not be decomposed exist, and are the same each time."""
    first = _partitioner(context).keep_operators()
    names = set(_partitioner(context).keep_operators())
    if isinstance(first, str) or not isinstance(first, Collection) or set(first) != names:
        raise Broken(f"keep_operators gives {first!r}, and then {sorted(names)}")
    for name in sorted(names):
        if not _exists(name):
            raise Broken(f"keeps {name!r}, which is not an operator (the form is aten.gelu.default)")
    return f"{len(names)} operators"


def _exists(name: Any) -> bool:
    if not isinstance(name, str) or name.count(".") != 2:
        return False
    if name in QUANTIZE | DEQUANTIZE | DYNAMIC:
        return True  # PyTorch knows them once a quantized program is read
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except (AttributeError, RuntimeError):
        return False
    return isinstance(found, torch._ops.OpOverload)


@RULES.add
def groups(context: Context) -> str:
    """All nodes of a group are in the graph, and the backend takes all of them."""
    found = 0
    for name, edge in questions(context).items():
        partitioner = _partitioner(context)
        nodes = set(edge.graph.nodes)
        for node in _asked(edge, context):
            for member in _answer(partitioner, node, edge.view, name).group:
                found += 1
                if member not in nodes or member.op != "call_function":
                    raise Broken(f"{name}: {operator_name(node)} is grouped with {member!r}, no node of its graph")
    return f"{found} nodes in groups"


@RULES.add
def proposals(context: Context) -> str:
    """Partitions that the backend proposes are convex, apart from one another, and made of nodes that it takes."""
    proposed = 0
    for name, edge in questions(context).items():
        partitioner = _partitioner(context)
        answers = {node: _answer(partitioner, node, edge.view, name) for node in _asked(edge, context)}
        proposal = partitioner.propose(edge.view)
        claimed: set[Node] = set()
        for members in proposal or ():
            proposed += 1
            group = set(members)
            for node in group:
                if node in answers and not answers[node].supported:
                    raise Broken(f"{name}: proposes {operator_name(node)}, which it refuses")
                if node in claimed or node not in set(edge.graph.nodes):
                    raise Broken(f"{name}: proposes {node} twice, or it is not in the graph")
            claimed |= group
            between = next(_between(group), None)
            if between is not None:
                raise Broken(f"{name}: a proposed partition is not convex: {operator_name(between)} lies in between")
    return f"{proposed} proposals"


def _between(group: Collection[Node]) -> Iterator[Node]:
    """Nodes outside a group on a path from it back into it."""
    after = _reach([user for node in group for user in node.users if user not in group], lambda node: node.users)
    before = _reach(
        [source for node in group for source in node.all_input_nodes if source not in group],
        lambda node: node.all_input_nodes,
    )
    yield from after & before


def _reach(start: Sequence[Node], step: Callable[[Node], Collection[Node]]) -> set[Node]:
    seen: set[Node] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(step(node))
    return seen


@RULES.add
def unknown_operators(context: Context) -> str:
    """An operator that no backend can know is refused with a reason, and asking about it does no harm."""
    library: Any = torch.library.Library("delegatekit_conformance", "FRAGMENT")  # type: ignore[no-untyped-call]
    try:
        library.define("mystery(Tensor x, float[]? y=None, *, str z='a') -> (Tensor, Tensor[])")
        graph = Graph()
        with FakeTensorMode():
            value = torch.empty(2, 3)
        x = graph.placeholder("x")
        x.meta["val"] = value
        mystery = graph.call_function(torch.ops.delegatekit_conformance.mystery.default, (x,), {"z": "b"})
        mystery.meta["val"] = (value, [value])
        graph.output((mystery,))
        answer = _answer(_partitioner(context), mystery, ProgramView(graph, {}, (x,), (mystery,)), "a custom operator")
    finally:
        library._destroy()
        if hasattr(torch.ops.delegatekit_conformance, "mystery"):
            del torch.ops.delegatekit_conformance.mystery
    if answer.supported:
        raise Broken("takes delegatekit_conformance.mystery.default, an operator that was invented for this question")
    fault = reason_fault(answer.reason, "delegatekit_conformance.mystery.default")
    if fault:
        raise Broken(f"refuses an unknown operator {fault}: {answer.reason!r}")
    return answer.reason
