"""Decomposes operators that a backend leaves and that ExecuTorch's runtime cannot run, as `delegatekit.lower` does.

ExecuTorch leaves such operators whole: the file would not load, or compute something else. Each becomes the operators
that the core writes for a program of this call alone, before ExecuTorch converts the program to its edge dialect.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

from delegatekit.fallback import out_variant, refusal
from delegatekit.partition import PartitionedMethod
from delegatekit_api import DelegateKitError

from .orders import Backend, Study
from .readings import Source, is_number, operator_of, read_part

#: The names of constants that decompositions bring into a program, before their numbers.
_CONSTANT: Final = "delegatekit_constant_"
#: Why the runtime cannot run a call that is not `has_kernel`.
NO_KERNEL: Final = "the runtime has no kernel for it"


def lacking(study: Study) -> dict[Node, str]:
    """Calls of a graph that ExecuTorch's runtime would not run rightly, and the reasons.

    A call that a delegate takes is among them only where the plan decomposed it to that end. Conversions of quantized
    tensors are not: ExecuTorch has a library of kernels for them, which the core does not count on.
    """
    found = {study.origin(item.node): item.refusal for item in study.method.decompositions}
    for node in study.method.plan.fallback:
        reason = refusal(node)
        if reason is not None:
            found.setdefault(study.origin(node), reason)
    return {node: reason for node, reason in found.items() if _namespace(node) != "quantized_decomposed"}


def _namespace(node: Node) -> str:
    return str(getattr(operator_of(node), "namespace", ""))


def has_kernel(node: Node) -> bool:
    """False for a call of an ATen operator that the runtime has no kernel for, as ExecuTorch would have it."""
    target = operator_of(node)
    if not isinstance(target, OpOverload) or target.namespace != "aten" or is_number(node):
        return True
    return _is_view(target) or out_variant(target) is not None


def not_runnable(study: Study) -> dict[Node, str]:
    """The units of an ATen graph that the runtime would not run rightly once ExecuTorch converted them; the reasons."""
    root = study.units.root
    return {
        **dict.fromkeys(_left_whole(study), NO_KERNEL),
        **{root[node]: text for node, text in lacking(study).items()},
    }


def decompose(program: ExportedProgram, study: Study, units: Iterable[Node], backend: Backend) -> list[Node]:
    """Write the core's decompositions of some units of a functional ATen program into it; those that became others.

    What the core cannot decompose into what can be run, stays.
    """
    members = study.units.members
    written = [unit for unit in units if _write(program, study.source, members[unit], backend)]
    # What is written is contiguous where the call's result was not: a view of it may need a copy.
    for node in program.graph.nodes if written else ():
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.view_copy.default
    program.graph.eliminate_dead_code()
    program.graph.lint()
    program.graph_module.recompile()
    results: Any = next(reversed(program.graph.nodes)).args[0]
    for spec, result in zip(program.graph_signature.output_specs, results, strict=True):
        if isinstance(result, Node) and isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(result.name)
    return written


def _left_whole(study: Study) -> Iterator[Node]:
    """Units outside of delegates that ExecuTorch does not decompose into operators of the runtime."""
    table = torch.export.default_decompositions()
    inside = {unit for members in study.homes.groups() for unit in members}
    known: dict[Hashable, bool] = {}
    for unit, members in study.units.members.items():
        target = unit.target
        if unit in inside or not isinstance(target, OpOverload) or (target not in table and has_kernel(unit)):
            continue
        key = target, repr(torch.fx.map_arg((unit.args, unit.kwargs), _described))
        if key not in known:
            known[key] = _stays_whole(study.source, members, table)
        if known[key]:
            yield unit


def _described(node: Node) -> Any:
    value = node.meta.get("val")
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else str(value)


def _stays_whole(source: Source, members: Sequence[Node], table: Any) -> bool:
    """True if ExecuTorch's decompositions of a call have an operator that the runtime has no kernel for."""
    try:
        parts = read_part(source, members).program.run_decompositions(table)
    except Exception:  # whatever PyTorch raises for what it cannot trace: ExecuTorch traces it again, and tells
        return False
    return not all(has_kernel(node) for node in parts.graph.nodes if node.op == "call_function")


def _is_view(target: OpOverload) -> bool:
    """True for operators of which ExecuTorch uses the variant that copies."""
    return any(result.alias_info is not None for result in target._schema.returns)


def _write(program: ExportedProgram, source: Source, members: Sequence[Node], backend: Backend) -> bool:
    """Write the core's decomposition of a call; True if there is one that can be run."""
    try:
        reading = read_part(source, members)
        method = backend.plan(reading)
    except DelegateKitError:
        return False
    edge = method.edge
    whole = [item.target for item in edge.graph.nodes if item.op == "call_function"] == [members[0].target]
    if whole or not _is_runnable(method) or not all(isinstance(item, Node) for item in edge.outputs):
        return False
    copies: dict[Node, Node] = dict(zip(edge.inputs, reading.inputs, strict=True))
    for place, tensor in edge.constants.items():
        if place.users or place in edge.outputs:
            copies[place] = _own_constant(source, members[0], tensor) or _new_constant(program, tensor)
    told = {key: value for key, value in members[0].meta.items() if key not in ("val", "unbacked_bindings")}
    with program.graph.inserting_before(members[0]):
        for node in edge.graph.nodes:
            if node.op == "call_function":
                copies[node] = program.graph.node_copy(node, copies.__getitem__)
                copies[node].meta = {**told, "val": node.meta["val"]}
    for old, new in zip(reading.outputs, edge.outputs, strict=True):
        old.replace_all_uses_with(copies[new])
    return True


def _is_runnable(method: PartitionedMethod) -> bool:
    return not method.edge.regions and all(refusal(node) is None for node in method.plan.fallback)


def _own_constant(source: Source, call: Node, tensor: torch.Tensor) -> Node | None:
    """The constant that a call reads, if it is this tensor."""
    for node in call.all_input_nodes:
        known = source.constants[node][1] if node in source.constants else None
        if known is not None and (known.data_ptr(), known.shape, known.stride(), known.dtype) == (
            tensor.data_ptr(),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
        ):
            return node
    return None


def _new_constant(program: ExportedProgram, tensor: torch.Tensor) -> Node:
    """A placeholder for a constant that the program has not got."""
    graph, specs = program.graph, program.graph_signature.input_specs
    places = [node for node in graph.nodes if node.op == "placeholder"]
    index = next((at for at, spec in enumerate(specs) if spec.kind == InputKind.USER_INPUT), len(specs))
    with graph.inserting_before(places[index] if index < len(places) else _first_call(graph)):
        node: Node = graph.placeholder(_free_name(program))
    mode = next(item.meta["val"].fake_mode for item in graph.nodes if hasattr(item.meta.get("val"), "fake_mode"))
    node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
    specs.insert(index, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), str(node.target)))
    program.constants[str(node.target)] = tensor
    return node


def _free_name(program: ExportedProgram) -> str:
    number = 0
    while f"{_CONSTANT}{number}" in program.constants:
        number += 1
    return f"{_CONSTANT}{number}"


def _first_call(graph: Graph) -> Node:
    found: Node = next(node for node in graph.nodes if node.op != "placeholder")
    return found
