"""Writes a program of ours as an ExportedProgram in ExecuTorch's edge dialect, node by node.

The two dialects differ little: operators are wrapped, copies say the order of axes, numbers beside tensors of
arithmetic are tensors, linear layers are products unless a partitioner asks for them, and every value that the graph
does not compute is an input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from executorch.exir import EdgeCompileConfig
from executorch.exir.dialects._ops import ops as edge_operators
from executorch.exir.passes.replace_aten_with_edge_pass import aten_to_edge, should_lower_to_edge
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves, tree_structure

from delegatekit_api import ProgramView

from .numbers import OF_TENSORS, fits

aten = torch.ops.aten

#: Whole in our dialect; products of matrices in ExecuTorch's, unless a partitioner asks for it.
_LINEAR: Final = "aten.linear.default"
#: Arguments of copies that mean nothing to values that are dense and contiguous.
_MEANINGLESS: Final = frozenset({"memory_format", "layout", "device", "pin_memory", "non_blocking"})


@dataclass(frozen=True)
class EdgeProgram:
    """A program in ExecuTorch's dialect, and the nodes that compute each of ours, the result last."""

    program: ExportedProgram
    nodes: Mapping[Node, tuple[Node, ...]]


def edge_program(view: ProgramView, kept: Collection[str]) -> EdgeProgram:
    """The program of a view. Constants are references, except for numbers, which are new tensors.

    Nodes keep their names and metadata. What is not an operator (control flow, other backends' delegates) is a function
    that nothing supports. `kept` are the operators that the partitioner asks not to decompose.
    """
    return _Writer(view, _LINEAR not in kept).written()


class _Writer:
    def __init__(self, view: ProgramView, products: bool) -> None:
        self._view: Final = view
        self._products: Final = products
        self._graph: Final = Graph()
        self._nodes: Final[dict[Node, Node]] = {}
        #: Node of ours -> what is computed on the way to its result.
        self._before: Final[dict[Node, list[Node]]] = {}
        self._state: Final[dict[str, torch.Tensor]] = {}
        self._lifted: Final[dict[str, torch.Tensor]] = {}
        self._specs: Final[list[InputSpec]] = []
        self._mode: Final = detect_fake_mode([node.meta.get("val") for node in view.graph.nodes])

    def written(self) -> EdgeProgram:
        """The whole program."""
        view = self._view
        placeholders = [node for node in view.graph.nodes if node.op == "placeholder"]
        for node in [node for node in placeholders if node in view.constants]:
            self._constant(node)
        # (In the order of calling, which the graph's need not be.)
        rest = [node for node in placeholders if node not in view.constants and node not in view.inputs]
        inputs = (*rest, *view.inputs)
        for node in inputs:
            self._specs.append(InputSpec(InputKind.USER_INPUT, _argument(self._placeholder(node)), None))
        for node in view.graph.nodes:
            if node.op == "call_function" and self._products and str(node.target) == _LINEAR and is_fixed(node):
                self._product(node, *node.args)
            elif node.op == "call_function":
                self._call(node)
        wanted = dict.fromkeys(
            (*(state.updated for state in view.buffers.values()), *(node for node in view.outputs if node is not None))
        )
        results = [self._nodes[node] for node in wanted]
        output = self._graph.output(tuple(results))
        output.meta["val"] = tuple(node.meta["val"] for node in results)
        signature = ExportGraphSignature(
            self._specs, [OutputSpec(OutputKind.USER_OUTPUT, _argument(node), None) for node in results]
        )
        program = ExportedProgram(
            torch.nn.Module(),
            self._graph,
            signature,
            state_dict=self._state,
            range_constraints=_ranges(inputs),
            module_call_graph=[_call_entry(len(inputs), len(results))],
            constants=dict[str, Any](self._lifted),
            verifiers=[_verifier()],
        )
        by_name = {node.name: node for node in program.graph.nodes}
        nodes = {
            ours: tuple(by_name[item.name] for item in (*self._before.get(ours, ()), theirs))
            for ours, theirs in self._nodes.items()
        }
        return EdgeProgram(program, nodes)

    def _placeholder(self, node: Node) -> Node:
        copy = self._graph.placeholder(node.name)
        self._nodes[node] = self._with_meta(copy, node)
        return copy

    def _constant(self, node: Node) -> None:
        tensor, name = self._view.constants[node], f"p_{node.name}"
        copy = self._placeholder(node)
        # As in programs of torch.export: what could be trained is a parameter.
        kind = InputKind.PARAMETER if tensor.is_floating_point() else InputKind.BUFFER
        stored = tensor.detach()
        self._state[name] = torch.nn.Parameter(stored, False) if kind is InputKind.PARAMETER else stored
        persistent = True if kind is InputKind.BUFFER else None
        self._specs.append(InputSpec(kind, TensorArgument(copy.name), name, persistent=persistent))

    def _call(self, node: Node) -> None:
        target, args, kwargs = node.target, node.args, dict(node.kwargs)
        if target in OF_TENSORS and fits(args[1], args[0].meta["val"].dtype):  # type: ignore[union-attr]
            target = OF_TENSORS[target]
            args = (args[0], self._number(node, args[1]), *args[2:])
        elif target is torch.ops.aten._to_copy.default:
            target = edge_operators.edge.dim_order_ops._to_dim_order_copy.default
            kwargs = {**_meaningful(kwargs), "dim_order": list(range(node.meta["val"].dim()))}
        elif target is torch.ops.aten.clone.default:
            target = edge_operators.edge.dim_order_ops._clone_dim_order.default
            kwargs = {**_meaningful(kwargs), "dim_order": list(range(node.meta["val"].dim()))}
        if should_lower_to_edge(target):
            target = aten_to_edge(target)
        elif isinstance(target, torch._ops.HigherOrderOperator):
            target, args, kwargs = elsewhere, tuple(node.all_input_nodes), {}
        args, kwargs = torch.fx.map_arg((args, kwargs), lambda item: self._nodes.get(item, item))
        copy = self._graph.create_node("call_function", target, args, kwargs, node.name)
        self._nodes[node] = self._with_meta(copy, node)

    def _product(self, node: Node, x: Any, weight: Any, bias: Any = None) -> None:
        """A linear layer as ExecuTorch decomposes it: a product of matrices with the turned weight."""
        columns, rows = weight.meta["val"].shape
        shape = list(node.meta["val"].shape)
        inner = self._before[node] = []

        def step(target: Any, *args: Any, name: str | None = None) -> Node:
            made = self._graph.create_node("call_function", aten_to_edge(target), args, name=name)
            fakes = torch.fx.map_arg(args, lambda item: item.meta["val"])
            self._with_meta(made, node, target(*fakes))
            inner.append(made)
            return made

        turned = step(aten.permute_copy.default, self._nodes[weight], [1, 0])
        left = self._nodes[x]
        is_matrix = len(shape) == 2
        if not is_matrix:
            left = step(aten.view_copy.default, left, [-1, rows])
        name = node.name if is_matrix else None
        if bias is None:
            found = step(aten.mm.default, left, turned, name=name)
        else:
            found = step(aten.addmm.default, self._nodes[bias], left, turned, name=name)
        if not is_matrix:
            found = step(aten.view_copy.default, found, [*shape[:-1], columns], name=node.name)
        self._nodes[node] = inner.pop()

    def _number(self, node: Node, number: Any) -> Node:
        name = f"_lifted_tensor_constant{len(self._lifted)}"
        dtype = node.args[0].meta["val"].dtype  # type: ignore[union-attr]
        value = torch.tensor(number, dtype=dtype)
        with self._graph.inserting_before(next(iter(self._nodes.values()))):
            copy = self._graph.placeholder(name)
        copy.meta["val"] = self._fake(value)
        self._lifted[copy.name] = value
        place = len(self._lifted) - 1
        self._specs.insert(place, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(copy.name), copy.name))
        return copy

    def _with_meta(self, copy: Node, node: Node, value: Any = None) -> Node:
        copy.meta = {**node.meta, "val": self._contiguous(node.meta.get("val") if value is None else value)}
        return copy

    def _contiguous(self, value: Any) -> Any:
        """The value with the strides that all values of our dialect have."""
        if isinstance(value, tuple | list):
            return type(value)(map(self._contiguous, value))
        if not isinstance(value, torch.Tensor):
            return value
        # (Sizes that depend on data cannot be asked whether they are contiguous.)
        if all(isinstance(size, int) for size in value.shape) and value.is_contiguous():
            return value
        with self._mode or nullcontext():
            return torch.empty(value.shape, dtype=value.dtype, device=value.device)

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        return value if self._mode is None else self._mode.from_tensor(value, static_shapes=True)


def elsewhere(*operands: Any) -> Any:
    """Stands for what is not an operator: nothing supports it, and it is never called."""
    raise NotImplementedError


def is_fixed(node: Node) -> bool:
    """True if no size of a call's result or of its tensors changes."""
    values = tree_leaves([item.meta.get("val") for item in (node, *node.all_input_nodes)])
    return all(isinstance(size, int) for value in values for size in getattr(value, "shape", ()))


def _meaningful(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in _MEANINGLESS}


def _argument(node: Node) -> Any:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorArgument(node.name)
    return SymIntArgument(node.name) if isinstance(value, torch.SymInt) else ConstantArgument(node.name, value)


def _verifier() -> Any:
    """A verifier that lets everything pass: ExecuTorch's would refuse operators that partitioners ask to keep."""
    return EXIREdgeDialectVerifier(EdgeCompileConfig(_check_ir_validity=False), class_only=True)


def _ranges(inputs: Iterable[Node]) -> dict[Any, Any]:
    """The ranges of the symbols in the inputs' sizes."""
    found: dict[Any, Any] = {}
    for node in inputs:
        for size in getattr(node.meta.get("val"), "shape", ()):
            if isinstance(size, torch.SymInt):
                known = size.node.shape_env.var_to_range
                found.update({symbol: known[symbol] for symbol in size.node.expr.free_symbols})
    return found


def _call_entry(inputs: int, outputs: int) -> ModuleCallEntry:
    given = tree_structure(((0,) * inputs, {}))
    returned = tree_structure((0,) * outputs)
    return ModuleCallEntry("", ModuleCallSignature([], [], given, returned))
