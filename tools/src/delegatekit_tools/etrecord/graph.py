"""The edge program of a method in the JSON by which ExecuTorch 1.5 stores exported programs.

Graphs of control flow are inlined after their call: the Inspector looks for debug handles in the outermost graph
only. The call itself is a function that the Inspector does not know, with the call's result shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod, is_size, lower_bound, upper_bound

from .arguments import SCHEMA_VERSION, Argument, size_of, tensor_meta, truth_of

#: Functions on sizes that ExecuTorch's reader knows.
_SIZE_FUNCTIONS: Final = {
    **{getattr(operator, name): f"_operator.{name}" for name in (
        "add", "sub", "mul", "floordiv", "mod", "eq", "ne", "le", "ge", "lt", "gt"
    )},
    **{getattr(torch, name): f"torch.{name}" for name in ("sym_max", "sym_min", "sym_not")},
}  # fmt: skip
#: The separators of modules in `nn_module_stack`, and of their parts.
_SEPARATORS: Final = frozenset(";,()[]")


@dataclass(frozen=True)
class StoredProgram:
    """A program as ExecuTorch stores it: the JSON, and tensors by name, those of the module and constants."""

    program: dict[str, Any]
    state: Mapping[str, torch.Tensor]
    constants: Mapping[str, torch.Tensor]


def stored_program(edge: EdgeMethod) -> StoredProgram:
    """The edge program of a method."""
    return _Storing(edge).finish()


class _Storing:
    def __init__(self, edge: EdgeMethod) -> None:
        self._edge = edge
        self._names: dict[Node, str] = {}
        self._taken: set[str] = set()
        self._argument = Argument(self._names)
        self._values: dict[str, dict[str, Any]] = {"tensor": {}, "sym_int": {}, "sym_bool": {}}
        self._inputs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._nodes: list[dict[str, Any]] = []
        self._state: dict[str, torch.Tensor] = {}
        self._constants: dict[str, torch.Tensor] = {}
        self._ranges: dict[str, dict[str, int]] = {}

    def finish(self) -> StoredProgram:
        """The finished program."""
        edge = self._edge
        for node in (*edge.constants, *edge.buffers, *_region_constants(edge)):
            self._data(node)
        for node in edge.inputs:
            self._input(node)
        self._calls(edge)
        outputs, output_specs = self._outputs()
        graph = {
            "inputs": [argument for argument, _ in self._inputs],
            "outputs": outputs,
            "nodes": self._nodes,
            "tensor_values": self._values["tensor"],
            "sym_int_values": self._values["sym_int"],
            "sym_bool_values": self._values["sym_bool"],
            "is_single_tensor_return": False,
            "custom_obj_values": {},
        }
        signature = {"input_specs": [spec for _, spec in self._inputs], "output_specs": output_specs}
        program = {
            "graph_module": {"graph": graph, "signature": signature, "module_call_graph": self._call_graph()},
            "opset_version": {"aten": 10},
            "range_constraints": self._ranges,
            "schema_version": dict(zip(("major", "minor"), SCHEMA_VERSION, strict=True)),
            "verifiers": ["EDGE"],
            "dialect": "EDGE",
        }
        return StoredProgram(program, self._state, self._constants)

    # -- inputs and outputs --------------------------------------------------------------------------------------

    def _data(self, node: Node) -> None:
        """A weight, buffer or constant becomes an input of the graph."""
        buffer = next((edge.buffers[node] for edge in _all(self._edge) if node in edge.buffers), None)
        tensor = next((edge.constants[node] for edge in _all(self._edge) if node in edge.constants), None)
        name, fqn = self._named(node), buffer.name if buffer is not None else node.meta.get("fqn")
        argument = {"name": name}
        if fqn is None:
            assert tensor is not None
            self._constants[name] = tensor
            spec: dict[str, Any] = {"tensor_constant": {"arg": argument, "tensor_constant_name": name}}
        elif isinstance(tensor, torch.nn.Parameter):
            self._state[str(fqn)] = tensor
            spec = {"parameter": {"arg": argument, "parameter_name": str(fqn)}}
        else:
            initial = buffer.initial if buffer is not None else tensor
            assert initial is not None
            self._state[str(fqn)] = initial
            spec = {"buffer": {"arg": argument, "buffer_name": str(fqn), "persistent": True}}
        self._inputs.append(({"as_tensor": argument}, spec))

    def _input(self, node: Node) -> None:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            argument = {"as_tensor": {"name": self._named(node)}}
            self._inputs.append((argument, {"user_input": {"arg": argument}}))
            return
        name, argument = self._unique(node.name), self._argument.of(value)
        self._inputs.append((argument, {"constant_input": {"name": name, "value": argument}}))

    def _outputs(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        arguments, specs = [], []
        for buffer in self._edge.buffers.values():
            argument = {"name": self._names[buffer.updated]}
            arguments.append({"as_tensor": argument})
            specs.append({"buffer_mutation": {"arg": argument, "buffer_name": buffer.name}})
        for item in self._edge.outputs:
            found = self._argument.of(item)
            if not {"as_tensor", "as_sym_int", "as_sym_bool"} & found.keys():
                found = {"as_none": []}  # the Inspector has no literal results
            arguments.append(found)
            specs.append({"user_output": {"arg": found}})
        return arguments, specs

    def _call_graph(self) -> list[dict[str, Any]]:
        if not self._edge.input_structure or not self._edge.output_structure:
            return [{"fqn": "", "signature": None}]
        # ExecuTorch's reader compares named inputs and outputs with a graph that it has not filled in yet.
        signature = {
            "inputs": [],
            "outputs": [],
            "in_spec": self._edge.input_structure,
            "out_spec": self._edge.output_structure,
        }
        return [{"fqn": "", "signature": signature}]

    # -- calls ---------------------------------------------------------------------------------------------------

    def _calls(self, edge: EdgeMethod) -> None:
        for node in edge.graph.nodes:
            if node.op != "call_function":
                continue
            if node.target is operator.getitem:
                self._item(node)
            else:
                self._call(node)
            for region in edge.regions.get(node, ()):
                operands = [item for part in _region_arguments(node) for item in part]
                self._names.update(
                    (inner, self._names[outer])
                    for inner, outer in zip(region.inputs, operands, strict=False)
                    if outer in self._names
                )
                self._calls(region)

    def _item(self, node: Node) -> None:
        """One of several results: its name was assigned by the call."""
        source, index = node.args
        self._names[node] = f"{self._names[source]}_{index}"  # type: ignore[index]

    def _call(self, node: Node) -> None:
        value = node.meta["val"]
        if isinstance(value, int | float | torch.SymFloat) and not isinstance(value, torch.SymInt):
            return  # the schema has no such number values; its example is inlined at its uses
        name = self._names[node] = self._unique(node.name)
        target, inputs = self._called(node)
        self._nodes.append({
            "name": name,
            "target": target,
            "inputs": inputs,
            "outputs": self._results(node, name, value),
            "metadata": _metadata(node),
        })  # fmt: skip

    def _called(self, node: Node) -> tuple[str, list[dict[str, Any]]]:
        kind: Any = node.target
        if isinstance(kind, torch._ops.OpOverload):
            names = [item.name for item in kind._schema.arguments]
            given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
            inputs = [{"name": key, "arg": self._argument.of(item)} for key, item in given.items()]
            return f"executorch.exir.dialects.edge.ops.{kind}", inputs
        operands = [self._argument.of(item) for item in node.args]
        inputs = [{"name": "", "arg": operand} for operand in operands if "as_string" not in operand]
        known = _SIZE_FUNCTIONS.get(kind)
        return known or f"delegatekit.{getattr(kind, '__name__', kind)}", inputs

    def _results(self, node: Node, name: str, value: Any) -> list[dict[str, Any]]:
        if isinstance(value, torch.Tensor):
            self._declare(name, value)
            return [{"as_tensor": {"name": name}}]
        if is_size(value):
            self._declare(name, value)
            return [{"as_sym_bool" if isinstance(value, torch.SymBool) else "as_sym_int": {"as_name": name}}]
        results = []
        for index, part in enumerate(value):
            self._taken.add(f"{name}_{index}")
            self._declare(f"{name}_{index}", part if isinstance(part, torch.Tensor) else torch.empty(0))
            results.append({"name": f"{name}_{index}"})
        kind: Any = node.target
        is_list = isinstance(kind, torch._ops.OpOverload) and len(kind._schema.returns) == 1
        if is_list or len(results) == 1:
            return [{"as_tensors": results}]
        return [{"as_tensor": item} for item in results]

    # -- names and values ----------------------------------------------------------------------------------------

    def _named(self, node: Node) -> str:
        """A name for a node that is a tensor."""
        name = self._names[node] = self._unique(node.name)
        self._declare(name, node.meta["val"])
        return name

    def _unique(self, wanted: str) -> str:
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}__{number}"
        self._taken.add(name)
        return name

    def _declare(self, name: str, value: Any) -> None:
        if isinstance(value, torch.SymBool):
            self._values["sym_bool"][name] = truth_of(value)
        elif is_size(value):
            self._values["sym_int"][name] = size_of(value)
            self._bound(value)
        else:
            self._values["tensor"][name] = tensor_meta(value)
            for size in value.shape:
                self._bound(size)

    def _bound(self, size: Any) -> None:
        """Remember the range of a size that is a symbol."""
        if not isinstance(size, int) and size.node.expr.is_Symbol:
            most = upper_bound(size)
            if most is not None:
                self._ranges[str(size.node.expr)] = {"min_val": lower_bound(size), "max_val": most}


def _all(edge: EdgeMethod) -> Iterator[EdgeMethod]:
    """A method, and the graphs of its control flow."""
    yield edge
    for regions in edge.regions.values():
        for region in regions:
            yield from _all(region)


def _region_constants(edge: EdgeMethod) -> list[Node]:
    return [node for inner in _all(edge) if inner is not edge for node in inner.constants]


def _region_arguments(node: Node) -> Iterator[Sequence[Any]]:
    """The operands of a control flow operator: all its arguments that are lists."""
    return (item for item in node.args if isinstance(item, list | tuple))


def _metadata(node: Node) -> dict[str, str]:
    found = {"debug_handle": str(node.meta["debug_handle"])}
    if node.meta.get("stack_trace"):
        found["stack_trace"] = str(node.meta["stack_trace"])
    modules = []
    for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
        parts = (str(key), str(path), kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
        if not any(_SEPARATORS & set(part) for part in parts):
            modules.append(",".join(parts))
    if modules:
        found["nn_module_stack"] = ";".join(modules)
    return found
