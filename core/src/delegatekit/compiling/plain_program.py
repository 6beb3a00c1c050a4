"""A partition's program as plain data beside its constants, and back.

The plain data are JSON values, the same for the same program everywhere: they are sent to a compiler's process, and
their digest is a key of the cache.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node

from delegatekit_api import MutableState, PartitionProgram
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.json_text import to_json
from delegatekit_toolkit.tables import operator_module

from ..edge.constants import Constants
from .program import assemble
from .symbols import SymbolReader, SymbolWriter

#: Metadata of nodes that backends may read, besides the value. `_TRACE` only appears in messages.
_METADATA: Final = ("nn_module_stack", "debug_handle", "source_operator", "fqn")
_TRACE: Final = "stack_trace"
#: Types of torch that are arguments of operators, and the name of each.
_NAMED: Final = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


class NotPlainError(Exception):
    """A program contains something that plain data cannot represent."""


@dataclass(frozen=True)
class PlainProgram:
    """A partition as JSON data, and its constants in the order of their placeholders, buffers' values last."""

    content: Mapping[str, Any]
    constants: Constants[int]

    @classmethod
    def of(cls, partition: PartitionProgram) -> PlainProgram:
        """The plain form of a partition. Raises NotPlainError for arguments and targets of unknown kinds."""
        view = partition.view
        writer = _Writer()
        nodes = [writer.node(node) for node in view.graph.nodes if node.op != "output"]
        content = {
            "method": view.method,
            "index": partition.index,
            "nodes": nodes,
            "constants": [node.name for node in view.constants],
            "buffers": [[node.name, state.name, state.updated.name] for node, state in view.buffers.items()],
            "inputs": [node.name for node in view.inputs],
            "outputs": [None if node is None else node.name for node in view.outputs],
            "symbols": writer.sizes.symbols,
        }
        constants = Constants(view.constants).passing().renamed(dict(enumerate(view.constants)))
        constants.update({len(constants) + place: state.initial for place, state in enumerate(view.buffers.values())})
        return cls(content, constants)

    def text(self) -> bytes:
        """Canonical JSON of all that a backend's result may depend on, except the constants' elements."""
        nodes = [{key: value for key, value in node.items() if key != _TRACE} for node in self.content["nodes"]]
        return to_json({**self.content, "nodes": nodes}, sort_keys=True, compact=True).encode()

    def program(self) -> PartitionProgram:
        """The partition that this represents."""
        content = self.content
        reader = _Reader(content["symbols"])
        for node in content["nodes"]:
            reader.add(node)
        made = reader.made
        count = len(content["constants"])
        constants = self.constants.renamed({made[name]: place for place, name in enumerate(content["constants"])})
        state = {
            made[name]: MutableState(buffer, self.constants[place], made[updated])
            for place, (name, buffer, updated) in enumerate(content["buffers"], count)
        }
        inputs = tuple(made[name] for name in content["inputs"])
        outputs = tuple(made[name] for name in content["outputs"])
        return assemble(reader.graph, constants, state, inputs, outputs, content["method"], content["index"])


class _Writer:
    def __init__(self) -> None:
        self.sizes = SymbolWriter()

    def node(self, node: Node) -> dict[str, Any]:
        """A placeholder or call."""
        plain: dict[str, Any] = {"name": node.name, "val": self._value(node.meta["val"])}
        if node.op == "call_function":
            plain["target"] = _target_name(node.target)
            plain["args"] = [self._argument(item) for item in node.args]
            plain["kwargs"] = [[key, self._argument(item)] for key, item in node.kwargs.items()]
        elif node.op != "placeholder":
            raise NotPlainError(f"{node.name} is a {node.op}")
        for key in (*_METADATA, _TRACE):
            if node.meta.get(key) is not None:
                plain[key] = _metadata(key, node.meta[key])
        return plain

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"dtype": dtype_name(value.dtype), "shape": [self.sizes.size(size) for size in value.shape]}
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self.sizes.value(value)
        if isinstance(value, tuple | list):
            return [self._value(item) for item in value]
        return _number(value)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Node):
            return {"node": value.name}
        if isinstance(value, tuple | list):
            return [self._argument(item) for item in value]
        if type(value) in _NAMED:
            return {_NAMED[type(value)]: _name(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        return _number(value)


class _Reader:
    def __init__(self, symbols: Mapping[str, Any]) -> None:
        self.graph = Graph()
        self.made: dict[str, Node] = {}
        self._sizes = SymbolReader(symbols)
        self._fake = FakeTensorMode(shape_env=self._sizes.shape_env)

    def add(self, plain: Mapping[str, Any]) -> None:
        """Add the node that plain data represent."""
        if "target" in plain:
            args = tuple(self._argument(item) for item in plain["args"])
            kwargs = {key: self._argument(item) for key, item in plain["kwargs"]}
            node = self.graph.create_node("call_function", _target(plain["target"]), args, kwargs, plain["name"])
        else:
            node = self.graph.placeholder(plain["name"])
        node.meta["val"] = self._value(plain["val"])
        for key in (*_METADATA, _TRACE):
            if key in plain:
                node.meta[key] = plain[key]
        self.made[plain["name"]] = node

    def _value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(map(self._value, plain))
        if isinstance(plain, dict) and "dtype" in plain:
            shape = [self._sizes.size(size) for size in plain["shape"]]
            with self._fake:
                return torch.empty(shape, dtype=getattr(torch, plain["dtype"]))
        if isinstance(plain, dict) and "kind" in plain:
            return self._sizes.value(plain)
        return _read_number(plain)

    def _argument(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return [self._argument(item) for item in plain]
        if isinstance(plain, dict) and "node" in plain:
            return self.made[plain["node"]]
        if isinstance(plain, dict) and "device" in plain:
            return torch.device(plain["device"])
        if isinstance(plain, dict) and "float" not in plain:
            return getattr(torch, next(iter(plain.values())))
        return _read_number(plain)


def _number(value: Any) -> Any:
    """A number or string: floats without a JSON form are strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise NotPlainError(f"an argument is {type(value).__name__}")


def _read_number(plain: Any) -> Any:
    return float(plain["float"]) if isinstance(plain, dict) else plain


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _metadata(key: str, value: Any) -> Any:
    if key == "nn_module_stack":
        return {name: [path, kind if isinstance(kind, str) else _place(kind)] for name, (path, kind) in value.items()}
    return value if isinstance(value, str | int) else str(value)


def _target_name(target: Any) -> list[str]:
    """An operator by namespace, name and overload; a function by module and name."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, _, name = target._schema.name.partition("::")
        return [namespace, name, target._overloadname]
    found = [target.__module__, target.__qualname__] if hasattr(target, "__qualname__") else []
    if not found or _target(found) is not target:
        raise NotPlainError(f"{target} cannot be found by its name")
    return found


def _target(names: Sequence[str]) -> Any:
    if len(names) == 3:
        namespace, name, overload = names
        for module in _libraries(namespace):
            importlib.import_module(module)
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)
    found: Any = importlib.import_module(names[0])
    for part in names[1].split("."):
        found = getattr(found, part)
    return found


def _libraries(namespace: str) -> Iterator[str]:
    """The modules that register the operators of a namespace."""
    if namespace == "quantized_decomposed":
        yield "torch.ao.quantization.fx._decomposed"
    elif namespace in ("torchao", "quant"):
        yield "torchao.quantization" if namespace == "torchao" else operator_module()


def _place(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
