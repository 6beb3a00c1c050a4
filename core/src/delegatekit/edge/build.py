"""Builds the edge program: one sweep over the exported graph, each node by rule, by decomposition or as it is."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node

from delegatekit_api import UnsupportedError, describe_node

from . import attention, normalization  # noqa: F401  (they register their rules)
from .builder import Builder
from .decompose import Decomposer
from .functional import functional_form, in_place_aliases
from .program import EdgeMethod, MutableBuffer
from .rules import RULES


def build_edge(program: ExportedProgram, *, keep: Collection[str] = (), method: str = "forward") -> EdgeMethod:
    """Translate an exported program to the edge dialect.

    `keep` names operators ("aten.gelu.default") that stay whole. The program is not changed and no weight is copied.
    Raises UnsupportedError for what the edge dialect cannot express, with the user's source line.
    """
    aliases = in_place_aliases(program.graph)
    if aliases is None:
        program, aliases = program.run_decompositions({}), {}
    _refuse_unsupported(program)
    sweep = _Sweep(program, aliases, _resolve(keep))
    for position, node in enumerate(program.graph.nodes, 1):
        sweep.translate(node, position)
    return sweep.finish(method)


def decompose_nodes(method: EdgeMethod, nodes: Collection[Node], *, keep: Collection[str]) -> tuple[EdgeMethod, bool]:
    """The method with some operators decomposed after all, because nobody runs them whole; and whether any was.

    Other nodes stay as they are, and operators inside the decompositions that `keep` names stay whole.
    """
    first = next(iter(method.graph.nodes))
    decomposer = Decomposer()
    builder = Builder(detect_fake_mode([first.meta.get("val")]), RULES, decomposer, _resolve(keep))
    values: dict[Node, Any] = {}
    decomposed = False
    for node in method.graph.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            created = builder.placeholder(node.name, node.meta["val"])
            if node in method.constants:
                builder.constants[created] = method.constants[node]
            values[node] = created
            continue
        builder.start(node, node.meta["debug_handle"])
        args: Any = torch.fx.map_arg(node.args, values.__getitem__)
        kwargs: Any = torch.fx.map_arg(node.kwargs, values.__getitem__)
        value = node.meta["val"]
        if node in nodes:
            values[node] = builder.decompose(node.target, args, kwargs, value)
            if _is_still(values[node], node.target):
                further = decomposer.last_resort(builder, node.target, args, kwargs)
                values[node] = values[node] if further is NotImplemented else further
            decomposed |= not _is_still(values[node], node.target)
        elif node.target is operator.getitem and isinstance(args[0], tuple):
            values[node] = args[0][args[1]]
        else:
            values[node] = builder.emit(node.target, args, kwargs, value)

    def renew(item: Any) -> Any:
        return values[item] if isinstance(item, Node) else item

    buffers = {
        values[node]: MutableBuffer(buffer.name, buffer.initial, values[buffer.updated])
        for node, buffer in method.buffers.items()
    }
    inputs = tuple(values[node] for node in method.inputs)
    outputs = tuple(renew(item) for item in method.outputs)
    builder.graph.output((*(buffer.updated for buffer in buffers.values()), *outputs))
    constants = _drop_dead(builder, keep={*inputs, *buffers})
    structures = (method.input_structure, method.output_structure)
    return EdgeMethod(method.name, builder.graph, constants, buffers, inputs, outputs, *structures), decomposed


def _is_still(value: Any, target: Any) -> bool:
    return isinstance(value, Node) and value.target is target


class _Sweep:
    """The state of the one pass: where each exported node's value lives in the edge graph."""

    def __init__(self, program: ExportedProgram, aliases: dict[Node, Node], keep: frozenset[OpOverload]) -> None:
        self.program = program
        self.aliases = aliases
        values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
        self.builder = Builder(detect_fake_mode(values), RULES, Decomposer(), keep)
        self.specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self.mutated = set(program.graph_signature.buffers_to_mutate.values())
        self.values: dict[Node, Any] = {}
        self.inputs: list[Node] = []
        self.buffers: dict[Node, tuple[str, torch.Tensor]] = {}
        self.results: tuple[Any, ...] = ()

    def translate(self, node: Node, position: int) -> None:
        self.builder.start(node, position)
        if node.op == "placeholder":
            self.values[node] = self._placeholder(node)
        elif node.op == "call_function":
            # An in-place result replaces the value it overwrote: later uses of either see it.
            self.values[self.aliases.get(node, node)] = self._call(node)
        elif node.op == "output":
            self.results = tuple(self._get(item) for item in node.args[0])  # type: ignore[union-attr]
        elif node.op == "get_attr":
            self.values[node] = None  # a branch of control flow, which its user refuses by name
        else:
            raise UnsupportedError(f"{node.op} nodes are not supported", where=describe_node(node))

    def finish(self, method: str) -> EdgeMethod:
        mutations, outputs = self._split_results()
        self.builder.graph.output((*(updated for updated in mutations.values()), *outputs))
        buffers = {
            node: MutableBuffer(name, initial, mutations[name])
            for node, (name, initial) in self.buffers.items()
            if name in mutations
        }
        constants = _drop_dead(self.builder, keep={*self.inputs, *buffers})
        structures = [_structure(spec) for spec in _call_specs(self.program)]
        return EdgeMethod(method, self.builder.graph, constants, buffers, tuple(self.inputs), outputs, *structures)

    def _get(self, item: Any) -> Any:
        return self.values[self.aliases.get(item, item)] if isinstance(item, Node) else item

    def _placeholder(self, node: Node) -> Any:
        spec = self.specs[node.name]
        value = node.meta["val"]
        if spec.kind == InputKind.USER_INPUT:
            if isinstance(value, torch.Tensor):
                value = self.builder.fake_like(value)
            created = self.builder.placeholder(node.name, value)
            self.inputs.append(created)
            # A number that torch.export specialised is known: the graph uses the literal.
            return spec.arg.value if isinstance(spec.arg, ConstantArgument) else created
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR) or spec.target is None:
            raise UnsupportedError(f"inputs of kind {spec.kind.name} are not supported", where=describe_node(node))
        state = self.program.state_dict
        tensor = (state[spec.target] if spec.target in state else self.program.constants[spec.target]).detach()
        if tensor.device.type != "cpu":
            raise UnsupportedError(
                f"{spec.target} is on device {tensor.device}", where=describe_node(node), hint="export on the CPU"
            )
        created = self.builder.placeholder(node.name, self.builder.fake_like(tensor))
        if spec.target in self.mutated:
            self.buffers[created] = (spec.target, tensor)
        else:
            self.builder.constants[created] = tensor
        return created

    def _call(self, node: Node) -> Any:
        arguments: Any = torch.fx.map_arg(node.args, self._get)
        keywords: Any = torch.fx.map_arg(node.kwargs, self._get)
        target: Any = node.target
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            target = functional_form(node)
        elif not isinstance(target, OpOverload) and target is not operator.getitem:
            raise UnsupportedError(
                "is not an ATen operator: control flow and custom higher-order operators are not supported",
                where=describe_node(node),
            )
        return self.builder.translate(target, arguments, keywords, node.meta.get("val"))

    def _split_results(self) -> tuple[dict[str, Node], tuple[Any, ...]]:
        mutations: dict[str, Node] = {}
        outputs: list[Any] = []
        for spec, result in zip(self.program.graph_signature.output_specs, self.results, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(result)
            elif spec.kind == OutputKind.BUFFER_MUTATION and spec.target is not None:
                mutations[spec.target] = result
            else:
                raise UnsupportedError(
                    f"output {spec.arg} is of kind {spec.kind.name}: the method writes one of its inputs",
                    where=self.program.graph_signature.__class__.__name__,
                    hint="return the new value instead of writing it into the input",
                )
        return mutations, tuple(outputs)


def _refuse_unsupported(program: ExportedProgram) -> None:
    """Refuse what later releases will lower: sizes that change from call to call."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        symbolic = isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
        if symbolic or (
            isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape)
        ):
            raise UnsupportedError(
                f"has a size that changes from call to call: {value if symbolic else tuple(value.shape)}",
                where=describe_node(node),
                hint="export with static shapes (without dynamic_shapes)",
            )


def _resolve(names: Collection[str]) -> frozenset[OpOverload]:
    """The operators of these names. One that this PyTorch does not have cannot occur in a program either."""
    found: set[OpOverload] = set()
    for name in names:
        namespace, _, rest = name.partition(".")
        packet, _, overload = rest.rpartition(".")
        target = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if isinstance(target, OpOverload):
            found.add(target)
    return frozenset(found)


def _drop_dead(builder: Builder, keep: set[Node]) -> dict[Node, torch.Tensor]:
    """Remove nodes without users (inputs and buffers stay); returns the constants that are left."""
    for node in reversed(list(builder.graph.nodes)):
        if node.op != "output" and not node.users and node not in keep:
            builder.graph.erase_node(node)
            builder.constants.pop(node, None)
    return dict(builder.constants)


def _call_specs(program: ExportedProgram) -> tuple[Any, Any]:
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    return (signature.in_spec, signature.out_spec) if signature is not None else (None, None)


def _structure(spec: Any) -> str:
    """The pytree as JSON, or "" if it holds a type that has no serialised form."""
    from torch.utils._pytree import treespec_dumps

    if spec is None:
        return ""
    try:
        return treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError):
        return ""
