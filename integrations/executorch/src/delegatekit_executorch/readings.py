"""Stock graphs as ATen programs that the core reads.

In comes a graph of ExecuTorch's edge dialect (or of ATen), or some nodes of it; out goes an ExportedProgram of ATen
operators over the same values. What is no operator there, a delegate or control flow, is a call of `OUTSIDE`, which no
backend takes: what depends on it still does. A linear layer that another partitioner had ExecuTorch decompose is one
again.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_structure

from delegatekit.edge import expression

aten = torch.ops.aten

# The tag keeps equal calls apart, and keeps the core from computing calls of constants.
_OUTSIDE: Final = "delegatekit_executorch::outside"
torch.library.define(_OUTSIDE, "(Tensor[] inputs) -> Tensor[]", tags=(torch.Tag.nondeterministic_seeded,))
#: What no backend is to take: a delegate, control flow, an operator that the core cannot read.
OUTSIDE: Final = torch.ops.delegatekit_executorch.outside.default

#: Operators on memory formats -> the ATen operators whose values they compute, and the arguments that these take, too.
_MEMORY_FORMATS: Final = {
    "dim_order_ops._to_dim_order_copy.default": (aten._to_copy.default, ("dtype",)),
    "dim_order_ops._clone_dim_order.default": (aten.clone.default, ()),
    "dim_order_ops._empty_dim_order.default": (aten.empty.memory_format, ("dtype",)),
}
#: Products of matrices that linear layers are decomposed into, and what turns the weight then.
_PRODUCTS: Final = (aten.addmm.default, aten.mm.default)
_TURNING: Final = (aten.permute_copy.default, aten.permute.default)
_CONSTANTS: Final = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class Buffer:
    """A buffer that the program updates."""

    name: str
    initial: torch.Tensor
    updated: Node


@dataclass(frozen=True)
class Source:
    """A stock graph: that of a method, or of a part of its control flow, whose placeholders are all inputs."""

    module: GraphModule
    ranges: Mapping[Any, Any]
    #: Placeholder -> name and value.
    constants: Mapping[Node, tuple[str, torch.Tensor]] = field(default_factory=dict)
    buffers: Mapping[Node, Buffer] = field(default_factory=dict)

    @classmethod
    def of(cls, program: ExportedProgram) -> Source:
        """The graph of a method. Constants have their values, also where the program has fakes of them."""
        named = {node.name: node for node in program.graph.nodes}
        signature = program.graph_signature
        real = _real_tensors(program.state_dict.values())
        updated = {target: named[name] for name, target in signature.buffers_to_mutate.items()}
        constants: dict[Node, tuple[str, torch.Tensor]] = {}
        buffers: dict[Node, Buffer] = {}
        for spec in signature.input_specs:
            if spec.kind not in _CONSTANTS or spec.target is None:
                continue
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            tensor = real.get(id(stored[spec.target]), stored[spec.target]).detach()
            node = named[spec.arg.name]
            if spec.target in updated:
                buffers[node] = Buffer(spec.target, tensor, updated[spec.target])
            else:
                constants[node] = (spec.target, tensor)
        return cls(program.graph_module, program.range_constraints, constants, buffers)

    @cached_property
    def calls(self) -> list[Node]:
        """The calls of operators, in order."""
        return [node for node in self.module.graph.nodes if node.op == "call_function"]

    @cached_property
    def outputs(self) -> list[Any]:
        """The results, without the new values of buffers."""
        results: Any = next(reversed(self.module.graph.nodes)).args[0]
        return list(results[len(self.buffers) :])


@dataclass(frozen=True)
class Reading:
    """A program that the core reads, and the stock nodes that its nodes stand for."""

    program: ExportedProgram
    #: The stock node of each node of the program's graph, in order: the core counts them from 1.
    origins: tuple[Node, ...]
    #: Stock nodes of the program's inputs, and of its outputs without the updates of buffers.
    inputs: tuple[Node, ...]
    outputs: tuple[Any, ...]


def read_all(source: Source, closed: Collection[Node] = ()) -> Reading:
    """The whole graph; what is `closed` is outside."""
    nodes = source.module.graph.nodes
    placeholders = [node for node in nodes if node.op == "placeholder" or (node.op == "get_attr" and _is_tensor(node))]
    returned = [item for item in source.outputs if _is_tensor(item)]
    return _read(source, placeholders, source.calls, returned, source.buffers, closed)


def read_part(source: Source, members: Sequence[Node], owned: Collection[Node] = ()) -> Reading:
    """Some calls of a graph as a program of their own; `owned` are the buffers that it keeps."""
    inside = set(members)
    leaves = dict.fromkeys(item for node in members for item in node.all_input_nodes if item not in inside)
    kept = {node: source.buffers[node] for node in owned}
    updates = {known.updated for known in kept.values()}
    outputs = [
        node
        for node in members
        if node.target is operator.getitem or not isinstance(node.meta["val"], tuple | list)
        if any(user not in inside and (user.op != "output" or node not in updates) for user in node.users)
    ]
    return _read(source, list(leaves), list(members), outputs, kept, ())


def is_contiguous(value: torch.Tensor) -> bool:
    """True if a tensor's elements lie in memory in the order of its axes, and the file says so, in every call."""
    step: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if expression(size) != 1 and expression(stride) != expression(step):
            return False
        step = step * size
    # Strides along axes of size 1 mean nothing, but the file's order of axes follows them.
    numbers = [stride if isinstance(stride, int) else None for stride in value.stride()]
    return all(first is None or second is None or first >= second for first, second in pairwise(numbers))


def is_number(node: Node) -> bool:
    """True if a call computes a number: a size, or an element that is read out of a tensor."""
    return isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def operator_of(node: Node) -> Any:
    """The ATen operator of a call in either dialect, or whatever else it calls."""
    target: Any = node.target
    return target._op if isinstance(target, EdgeOpOverload) else target


def _read(
    source: Source,
    leaves: Sequence[Node],
    calls: Sequence[Node],
    outputs: Sequence[Node],
    buffers: Mapping[Node, Buffer],
    closed: Collection[Node],
) -> Reading:
    graph = Graph()
    copies: dict[Node, Any] = {}
    origins: list[Node] = []
    inputs: list[Node] = []
    specs: list[InputSpec] = []
    constants: dict[str, torch.Tensor] = {}
    kept = {known.name: known.initial for known in buffers.values()}

    def is_constant(node: Node) -> bool:
        return node in source.constants or node in buffers

    # The verifier wants constants first.
    for leaf in sorted(leaves, key=lambda node: not is_constant(node)):
        value = leaf.meta.get("val")
        if not isinstance(value, torch.Tensor):
            copies[leaf] = value  # a size, which the core computes from the inputs' sizes
            continue
        copy = copies[leaf] = graph.placeholder(leaf.name)
        copy.meta = {"val": value}
        origins.append(leaf)
        given = TensorArgument(copy.name)
        if leaf in buffers:
            specs.append(InputSpec(InputKind.BUFFER, given, buffers[leaf].name, persistent=True))
        elif leaf in source.constants:
            name, tensor = source.constants[leaf]
            constants[name] = tensor
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, given, name))
        else:
            inputs.append(leaf)
            specs.append(InputSpec(InputKind.USER_INPUT, given, None))
    for node in calls:
        target, args, kwargs = (OUTSIDE, (_tensors(node),), {}) if node in closed else _call(node, source.constants)
        args, kwargs = torch.fx.map_arg((args, kwargs), copies.__getitem__)
        copy = copies[node] = graph.create_node("call_function", target, args, kwargs, node.name)
        copy.meta = {key: node.meta[key] for key in ("val", "stack_trace", "nn_module_stack") if key in node.meta}
        origins.append(node)
    updates = [copies[known.updated] for known in buffers.values()]
    results = [copies[item] for item in outputs]
    graph.output((*updates, *results))
    signature = ExportGraphSignature(
        specs,
        [
            *(
                OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(item.name), known.name)
                for item, known in zip(updates, buffers.values(), strict=True)
            ),
            *(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(item.name), None) for item in results),
        ],
    )
    call = ModuleCallSignature([], [], tree_structure((tuple(inputs), {})), tree_structure(tuple(results)))
    tensors: Any = constants
    program = ExportedProgram(
        torch.nn.Module(),
        graph,
        signature,
        state_dict=kept,
        range_constraints=dict(source.ranges),
        module_call_graph=[ModuleCallEntry("", call)],
        constants=tensors,
    )
    return Reading(program, tuple(origins), tuple(inputs), tuple(outputs))


def _call(node: Node, constants: Collection[Node]) -> tuple[Any, Any, Any]:
    """The call in ATen: operator and arguments."""
    target = operator_of(node)
    if target in _PRODUCTS and not node.kwargs:
        *bias, x, turned = node.args
        weight = _turned(turned)
        if weight is not None and _is_weight(weight, constants):
            return aten.linear.default, (x, weight, *bias), {}
    if isinstance(target, OpOverload):
        known = _MEMORY_FORMATS.get(str(target))
        if known is None:
            return target, node.args, node.kwargs
        target, arguments = known
        return target, node.args, {key: node.kwargs[key] for key in arguments if key in node.kwargs}
    if isinstance(target, torch._ops.HigherOrderOperator):
        return OUTSIDE, (_tensors(node),), {}
    return target, node.args, node.kwargs


def _turned(node: Any) -> Node | None:
    """The matrix that a call turns; None for any other call."""
    if operator_of(node) not in _TURNING or len(node.meta["val"].shape) != 2 or list(node.args[1:]) != [[1, 0]]:
        return None
    return node.args[0]  # type: ignore[no-any-return]


def _is_weight(node: Node, constants: Collection[Node]) -> bool:
    """True for a constant, in integers or not."""
    if "dequantize" in str(operator_of(node)):
        return node.args[0] in constants
    return node in constants


def _tensors(node: Node) -> list[Node]:
    return [item for item in node.all_input_nodes if _is_tensor(item)]


def _is_tensor(item: Any) -> bool:
    return isinstance(item, Node) and isinstance(item.meta.get("val"), torch.Tensor)


def _real_tensors(tensors: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
    """The id of each fake among the tensors -> the tensor that it was made of, or zeros where that is gone.

    ExecuTorch gives partitioners fakes of a program's weights. A fake's mode remembers, weakly, which tensor each of
    them was made of.
    """
    fakes = {id(tensor): tensor for tensor in tensors if isinstance(tensor, FakeTensor)}
    modes = {id(fake.fake_mode): fake.fake_mode for fake in fakes.values()}
    found = {key: torch.zeros((), dtype=fake.dtype).expand(fake.shape) for key, fake in fakes.items()}
    for mode in modes.values():
        converter: Any = mode.fake_tensor_converter.meta_converter
        originals = {number: tensor for tensor, number in converter.describer.lookup_tensor.items()}
        for number, fake in converter.tensor_memo.items():
            if id(fake) in fakes and number in originals:
                found[id(fake)] = originals[number]
    return found
