"""Builds the edge program: one sweep over the exported graph, each node by rule, by decomposition or as it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import torch
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map_only

from delegatekit_api import MutableState, UnsupportedError
from delegatekit_api.nodes import describe_node

from .builder import EdgeBuilder, drop_dead, resolve, translating
from .decompose import Decomposer
from .functional import in_place_aliases, written_placeholders
from .given import check_tensors
from .pairs import is_pair
from .program import EdgeMethod
from .rules import RULES
from .rules.writing import known
from .sizes import CHANNELS_LAST, is_channels_last, is_size
from .sweep import AS_BUFFER, Sweep

#: Written values of a method that are not buffers of its own.
_WRITTEN: Final = {OutputKind.USER_INPUT_MUTATION: "input", OutputKind.PARAMETER_MUTATION: "parameter"}


def build_edge(program: ExportedProgram, *, keep: Collection[str] = (), method: str = "forward") -> EdgeMethod:
    """Translate an exported program to the edge dialect.

    `keep` names operators ("aten.gelu.default") that stay whole. The program is not changed and no weight is copied.
    Raises UnsupportedError for what the edge dialect cannot express, with the user's source line.
    """
    check_tensors(program)
    program, aliases = functionalized(program)
    sweep = _MethodSweep(program, aliases, keep)
    with translating(sweep.builder):
        for node in program.graph.nodes:
            sweep.translate(node)
    return sweep.finish(method)


def functionalized(program: ExportedProgram) -> tuple[ExportedProgram, dict[Node, Node]]:
    """The program with in-place operators that can be renamed, if any: their results, and the values overwritten."""
    buffers = program.graph_signature.inputs_to_buffers
    writable = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in buffers]
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    found = [in_place_aliases(program.graph, writable), *map(in_place_aliases, graphs[1:])]
    if None in found:
        return _functionalized(program), {}
    return program, {inner: outer for same in found if same is not None for inner, outer in same.items()}


def rewritten_call(target: OpOverload, arguments: Sequence[Any]) -> list[Any]:
    """The targets of the calls that one call of an operator becomes where no backend keeps it, in their order.

    `arguments` are the positional ones: fake tensors of one mode, numbers, and lists of these. Raises whatever the
    operator raises for arguments that it does not take, and UnsupportedError for a call that cannot be translated.
    """
    builder = EdgeBuilder(detect_fake_mode(arguments), RULES, Decomposer(), frozenset())
    with builder.fake_mode:
        result = target(*arguments)
    inputs = tree_map_only(torch.Tensor, lambda value: builder.input("input", value), tuple(arguments))
    with translating(builder):
        builder.translate(target, inputs, {}, result)
    return [node.target for node in builder.graph.nodes if node.op == "call_function"]


def _functionalized(program: ExportedProgram) -> ExportedProgram:
    """The program without mutation, as functionalized by PyTorch. Raises UnsupportedError where it cannot."""
    constants = set(program.graph_signature.inputs_to_lifted_tensor_constants)
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        written = node.args[0] if node.op == "call_function" and schema is not None and schema.is_mutable else None
        if isinstance(written, Node) and written.name in constants:
            raise UnsupportedError(
                f"writes into {program.graph_signature.inputs_to_lifted_tensor_constants[written.name]}, "
                "a tensor that is not a buffer of the module",
                where=describe_node(node),
                hint="register it with register_buffer, and let forward use self.NAME",
            )
    try:
        with torch.no_grad():
            functional: ExportedProgram = program.run_decompositions({})
            return functional
    except Exception as error:
        made_inside = _made_inside_control_flow(program)
        if made_inside is not None and "FunctionalTensor" in str(error):
            raise UnsupportedError(
                "PyTorch cannot make a program functional that makes a tensor inside control flow and writes in place",
                where=describe_node(made_inside),
                hint=AS_BUFFER,
            ) from error
        raise UnsupportedError(
            f"PyTorch cannot make the program functional: {type(error).__name__}: {error}",
            where="exported program",
            hint="exported_program.run_decompositions({}) shows the full traceback",
        ) from error


def _made_inside_control_flow(program: ExportedProgram) -> Node | None:
    """The first reader of a tensor that is made from numbers inside control flow."""
    _, *regions = (module for module in program.graph_module.modules() if isinstance(module, GraphModule))
    nodes: list[Node] = [node for region in regions for node in region.graph.nodes if node.op == "get_attr"]
    tensors = (node for node in nodes if isinstance(node.meta.get("val"), torch.Tensor))
    made = next(tensors, None)
    return None if made is None else next(iter(made.users), made)


class _MethodSweep(Sweep):
    """The sweep over a whole method, with the meaning of its placeholders and outputs."""

    def __init__(self, program: ExportedProgram, aliases: dict[Node, Node], keep: Collection[str]) -> None:
        values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
        builder = EdgeBuilder(detect_fake_mode(values), RULES, Decomposer(), resolve(keep))
        super().__init__(program.graph_module, builder, aliases)
        self.program = program
        self.specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self.mutated = set(program.graph_signature.buffers_to_mutate.values())
        #: Placeholders of buffers that operators of the graph write in place.
        self.written = written_placeholders(aliases)
        self.named = {node.name: node for node in program.graph.nodes}
        self.inputs: list[Node] = []
        self.buffers: dict[Node, tuple[str, torch.Tensor]] = {}

    def finish(self, method: str) -> EdgeMethod:
        mutations, outputs = self._split_results()
        self.builder.graph.output((*(updated for updated in mutations.values()), *outputs))
        buffers = {
            node: MutableState(name, initial, mutations[name])
            for node, (name, initial) in self.buffers.items()
            if name in mutations
        }
        constants = drop_dead(self.builder, keep={*self.inputs, *buffers})
        given, returned = (_structure(spec) for spec in _call_specs(self.program))
        return EdgeMethod(
            method,
            self.builder.graph,
            constants,
            buffers,
            tuple(self.inputs),
            outputs,
            given,
            returned,
            regions=self.builder.regions,
            parameters=_parameters(self.program),
        )

    def placeholder(self, node: Node) -> Any:
        spec = self.specs[node.name]
        value = node.meta["val"]
        if spec.kind == InputKind.USER_INPUT:
            if is_size(value):
                raise UnsupportedError(
                    f"is a number that changes from call to call ({value})",
                    where=describe_node(node),
                    hint="pass a tensor; the runtime takes only the number that a method was lowered for",
                )
            given = value
            if isinstance(value, torch.Tensor):
                value = self.builder.fake_like(value)
            created = self.builder.input(node.name, value)
            if isinstance(given, torch.Tensor) and is_channels_last(given):
                created.meta["dim_order"] = CHANNELS_LAST
            self.inputs.append(created)
            # A number that torch.export specialized is constant: the graph uses the literal.
            return spec.arg.value if isinstance(spec.arg, ConstantArgument) else created
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR) or spec.target is None:
            raise UnsupportedError(f"inputs of kind {spec.kind.name} are not supported", where=describe_node(node))
        state = self.program.state_dict
        tensor = (state[spec.target] if spec.target in state else self.program.constants[spec.target]).detach()
        if tensor.is_complex() and spec.target not in self.mutated and node not in self.written:
            return known(self.builder, tensor)
        created = self.builder.placeholder(node.name, self.builder.fake_like(tensor))
        created.meta["fqn"] = spec.target
        if spec.target in self.mutated or node in self.written:
            self.buffers[created] = (spec.target, tensor)
        else:
            self.builder.constants[created] = tensor
        return created

    def _split_results(self) -> tuple[dict[str, Node], tuple[Any, ...]]:
        mutations: dict[str, Node] = {}
        outputs: list[Any] = []
        for spec, result in zip(self.program.graph_signature.output_specs, self.results, strict=True):
            if is_pair(result):
                raise UnsupportedError(
                    "is complex, and a .pte file has no complex results",
                    where=describe_node(self.named[spec.arg.name]),
                    hint="return torch.view_as_real(...)",
                )
            if spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(result)
            elif spec.kind == OutputKind.BUFFER_MUTATION and spec.target is not None:
                mutations[spec.target] = result
            else:
                written = _WRITTEN.get(spec.kind)
                raise UnsupportedError(
                    f"writes into the {written} {spec.target}" if written else f"is a result of kind {spec.kind.name}",
                    where=describe_node(self.named[spec.arg.name]),
                    hint="return the new value; what lasts from call to call is a buffer (register_buffer)",
                )
        for node in self.written:
            name = self.program.graph_signature.inputs_to_buffers[node.name]
            mutations[name] = self.values[node]
        return mutations, tuple(outputs)


def _call_specs(program: ExportedProgram) -> tuple[Any, Any]:
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    return (signature.in_spec, signature.out_spec) if signature is not None else (None, None)


def _parameters(program: ExportedProgram) -> tuple[str, ...]:
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    return tuple(getattr(signature, "forward_arg_names", None) or ())


def _structure(spec: Any) -> str:
    """The pytree as JSON, or "" if it holds a type that has no serialized form."""
    from torch.utils._pytree import treespec_dumps

    if spec is None:
        return ""
    try:
        return treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError):
        return ""
