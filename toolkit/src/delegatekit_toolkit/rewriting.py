"""A program that passes may change before it is partitioned: add operators, replace values, report changes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from delegatekit_api import Call, LoweringError, MutableState, Operand, ProgramView
from delegatekit_api.nodes import describe_node, operator_name

from .copying import CopiedConstants, CopiedGraph
from .passes import Change, Pass, Property


@dataclass(frozen=True)
class Traced:
    """A traced function as a graph: of the operators that it calls, or of the dialect of edge programs."""

    graph: Graph
    #: The placeholders of its tensor arguments, in order.
    inputs: tuple[Node, ...]
    #: Its results: nodes, or literals.
    outputs: tuple[Any, ...]
    #: Placeholders of tensors that were computed from numbers alone.
    constants: Mapping[Node, torch.Tensor]


#: `trace(function, values, dialect)`: traces the function with numbers, and with fake tensors in place of tensors.
Trace: TypeAlias = Callable[[Callable[..., Any], Sequence[Any], bool], Traced]


class EditableProgram:
    """A method in the edge dialect, in a copy that a pass may change: `graph` is an ordinary torch.fx.Graph.

    New nodes need no metadata and no canonical form: after a pass the graph is translated to the dialect again, with
    constants folded and dead nodes dropped. A pass must not add or drop inputs, and may replace the method's results
    only by values of the same shapes and dtypes.
    """

    def __init__(self, view: ProgramView, outputs: Sequence[Any], trace: Trace) -> None:
        """The program of a view with a mutable graph, and the graph's results: new values of its buffers, then the
        method's outputs."""
        self.graph: Final = CopiedGraph.of(view.graph)
        self.name: Final = view.method
        self.inputs: Final = tuple(map(self.graph.copies.__getitem__, view.inputs))
        #: Placeholder -> value known at lowering time, which may be computed whenever it is read; `constant` adds one.
        self.constants: Final = CopiedConstants(view.constants, self.graph)
        self._buffers: Final = {self.graph.copies[node]: state for node, state in view.buffers.items()}
        self._output: Final = self.graph.finish(outputs)
        self._trace: Final = trace
        found = detect_fake_mode([node.meta.get("val") for node in self.graph.nodes if node.op != "output"])
        self._mode: Final = found or FakeTensorMode(allow_non_fake_inputs=True)

    @property
    def view(self) -> ProgramView:
        """A read-only view of the program in its current state."""
        updated = dict(zip(self._buffers, self.results, strict=False))
        buffers = {
            node: MutableState(state.name, state.initial, updated[node]) for node, state in self._buffers.items()
        }
        outputs = tuple(item if isinstance(item, Node) else None for item in self.results[len(buffers) :])
        return ProgramView(self.graph, self.constants, self.inputs, outputs, self.name, buffers)

    @property
    def results(self) -> tuple[Any, ...]:
        """The graph's results: new values of its buffers, then the method's outputs."""
        return tuple(self._output.args[0])  # type: ignore[arg-type]

    def calls(self, *operators: str) -> list[Call]:
        """The calls in order: all, or those of operators by name: `program.calls("aten.relu.default")`.

        Dead calls, which were replaced, are left out.
        """
        read: set[Node] = set(self._output.all_input_nodes)
        for node in reversed(self.graph.nodes):
            if node in read:
                read.update(node.all_input_nodes)
        found = (call for call in self.view.calls() if call.node in read)
        return [call for call in found if not operators or call.operator in operators]

    def call(self, at: Call | Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add an operator call (`torch.ops.aten.relu.default`) before a node, with its position in the model."""
        created = self._added(at, target, args, kwargs)
        created.meta["val"] = self._computed(created)
        return created

    def reshape(self, at: Call | Node, x: Node | Operand, sizes: Sequence[Any]) -> Node:
        """Add a view with these sizes before a node. They may change: `call` would ask PyTorch whether they fit."""
        created = self._added(at, torch.ops.aten.view_copy.default, (x, list(sizes)), {})
        with self._mode:
            created.meta["val"] = torch.empty(tuple(sizes), dtype=_bare(x).meta["val"].dtype)
        return created

    def _added(self, at: Call | Node, target: Any, args: Any, kwargs: Any) -> Node:
        with self.graph.inserting_before(at.node if isinstance(at, Call) else at):
            created = self.graph.create_node("call_function", target)
        # Assigned, because torch.fx warns of sizes that change: the dialect computes them.
        created.args, created.kwargs = _bare(args), _bare(kwargs)
        return created

    def _computed(self, node: Node) -> Any:
        """The fake value of a new call."""
        args: Any = torch.fx.map_arg(node.args, _value)
        kwargs: Any = torch.fx.map_arg(node.kwargs, _value)
        target: Any = node.target
        try:
            with self._mode:
                return target(*args, **kwargs)
        except LoweringError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            raise LoweringError(
                f"{operator_name(node)} cannot be called so: {type(error).__name__}: {lines[0]}",
                where=describe_node(node),
            ) from error

    def constant(self, tensor: torch.Tensor, name: str = "_constant") -> Node:
        """Add a constant."""
        with self.graph.inserting_before(next(iter(self.graph.nodes), None)):
            node = self.graph.placeholder(name)
        self.constants.added[node] = tensor.detach()
        with self._mode:
            node.meta["val"] = torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
        return node

    def inline(self, at: Call | Node, function: Callable[..., Any], *values: Any) -> tuple[Any, ...]:
        """Add the operators that a function calls before a node, and return the function's results.

        The values are nodes, operands and numbers: the function is traced with tensors of their shapes and dtypes.
        """
        known: dict[Node, Any] = {}
        given = [item for item in map(_bare, values) if isinstance(item, Node)]
        traced = self.trace(function, [_value(item) for item in map(_bare, values)], dialect=False)
        known.update(zip(traced.inputs, given, strict=True))
        known.update({node: self.constant(tensor) for node, tensor in traced.constants.items()})
        for node in traced.graph.nodes:
            if node.op != "call_function":
                continue
            args: Any = torch.fx.map_arg(node.args, known.__getitem__)
            kwargs: Any = torch.fx.map_arg(node.kwargs, known.__getitem__)
            known[node] = self.call(at, node.target, *args, **kwargs)
        return tuple(known[item] if isinstance(item, Node) else item for item in traced.outputs)

    def trace(self, function: Callable[..., Any], values: Sequence[Any], *, dialect: bool) -> Traced:
        """A function as a graph, called with numbers and with fake tensors: of the operators that it calls, or, with
        `dialect`, of their translation in this program. Raises LoweringError for a function that cannot be traced.
        """
        return self._trace(function, values, dialect)

    def replace(self, old: Call | Node, new: Any, reason: str) -> Change:
        """Redirect all readers of a value to another one, and report the change."""
        node, value = (item.node if isinstance(item, Call) else item for item in (old, _bare(new)))
        node.replace_all_uses_with(value)
        return Change(describe_node(node), reason)

    def complete(self, node: Node) -> None:
        """Add the missing metadata to a node that was added to the graph without `call`."""
        if node.op != "call_function" or node in self.graph.originals:
            return
        node.meta.setdefault("debug_handle", 0)
        if "val" not in node.meta:
            node.meta["val"] = self._computed(node)

    def verify(self) -> None:
        """Check the invariants that every pass must keep. Raises LoweringError that names the node."""
        nodes = list(self.graph.nodes)
        for node in nodes:
            self._verify_node(node)
        missing = next((node for node in (*self.inputs, *self._buffers) if node not in set(nodes)), None)
        if missing is not None:
            raise LoweringError(f"the input {missing.name} was removed", hint="an input may be unused, but must stay")
        seen: set[Node] = set()
        for node in nodes:
            late = next((item for item in node.all_input_nodes if item not in seen), None)
            if late is not None:
                what = "before it is computed" if late in set(nodes) else "that was removed"
                raise LoweringError(f"reads {late.name} {what}", where=describe_node(node))
            seen.add(node)

    def _verify_node(self, node: Node) -> None:
        if node.op == "placeholder":
            if node not in self.constants and node not in self._buffers and node not in self.inputs:
                raise LoweringError(
                    f"{node.name} is a new placeholder without a value", hint="program.constant(tensor) adds a constant"
                )
        elif node.op == "output":
            if node is not self._output:
                raise LoweringError("there is a second output node")
        elif node.op != "call_function":
            raise LoweringError(f"{node.name} is a {node.op}, not an operator call")
        elif node not in self.graph.originals and node.target is not operator.getitem and not _is_size(node):
            if not isinstance(node.target, torch._ops.OpOverload):
                raise LoweringError(
                    f"{node.name} calls {operator_name(node)}, which is not an operator",
                    hint="call an overload: torch.ops.aten.add.Tensor; or let program.inline trace a function",
                )
            if node.target._schema.is_mutable:
                raise LoweringError(f"{node.name} calls {node.target}, which writes in place")


#: A pass over a program before it is partitioned.
ProgramPass: TypeAlias = Pass[EditableProgram]


def without(*operators: str) -> Property[EditableProgram]:
    """The property of a program that these operators do not occur in it.

    >>> without("aten.gelu.default").says
    'has no aten.gelu.default'
    """

    def fault(program: EditableProgram) -> str | None:
        return next((f"there is {call}" for call in program.calls(*operators)), None)

    return Property(f"has no {' and no '.join(operators)}", fault)


def fixed_sizes() -> Property[EditableProgram]:
    """The property of a program that no size changes from call to call.

    >>> fixed_sizes().says
    'has fixed sizes'
    """

    def fault(program: EditableProgram) -> str | None:
        return next((f"a size of {call} changes" for call in program.calls() if call.is_dynamic), None)

    return Property("has fixed sizes", fault)


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _bare(argument: Any) -> Any:
    """An argument with nodes in place of operands and calls."""
    if isinstance(argument, list | tuple):
        return type(argument)(map(_bare, argument))
    if isinstance(argument, dict):
        return {key: _bare(value) for key, value in argument.items()}
    found = getattr(argument, "node", argument)
    return found if isinstance(found, Node) else argument


def _value(argument: Any) -> Any:
    if not isinstance(argument, Node):
        return argument
    value = argument.meta.get("val")
    if value is None:
        raise LoweringError(
            f"{argument.name} has no value yet, so its shape is not known",
            hint="a function can be inlined for values that were in the program before the pass, or that inline made",
        )
    return value
