"""Fingerprints of graphs and tensors: equal before and after, unless something was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node

from delegatekit_api import ProgramView

from ...insides import bits
from ..specimens import digest

#: Object in words -> its state.
Prints = Mapping[str, Any]


def difference(before: Prints, after: Prints) -> str:
    """The first thing that differs, in words; empty if nothing does."""
    for key, value in before.items():
        if key not in after:
            return f"{key}, which is gone"
        if after[key] != value:
            return key
    return next((f"{key}, which is new" for key in after if key not in before), "")


def of_view(view: ProgramView) -> Prints:
    """A view with its graph and the values of its constants and buffers."""
    prints: dict[str, Any] = dict(_of_graph(view.graph))
    prints["the view's inputs"] = [id(node) for node in view.inputs]
    prints["the view's outputs"] = [id(node) for node in view.outputs]
    prints["the view's method"] = view.method
    prints["the set of constants"] = [id(node) for node in view.constants]
    prints["the set of buffers"] = [id(node) for node in view.buffers]
    for node, tensor in view.constants.items():
        prints[f"the value of constant {node.name}"] = _of(tensor)
    for node, state in view.buffers.items():
        prints[f"the buffer {node.name}"] = (state.name, _of(state.initial), id(state.updated))
    return prints


def of_program(program: ExportedProgram) -> Prints:
    """An exported program with its signature and state."""
    prints: dict[str, Any] = dict(_of_graph(program.graph))
    prints["the signature"] = repr(program.graph_signature)
    prints["the range constraints"] = repr(program.range_constraints)
    for name, table in (("state", program.state_dict), ("constant", program.constants)):
        prints[f"the names of each {name}"] = list(table)
        for key, value in table.items():
            prints[f"the {name} {key}"] = _of(value)
    return prints


def _of_graph(graph: torch.fx.Graph) -> dict[str, Any]:
    prints: dict[str, Any] = {"the nodes of the graph": [id(node) for node in graph.nodes]}
    for node in graph.nodes:
        prints[f"the name, operator or users of {node.name}"] = (
            node.name,
            node.op,
            str(node.target),
            [id(user) for user in node.users],
        )
        prints[f"the arguments of {node.name}"] = (_of(node.args), _of(node.kwargs))
        prints[f"the set of metadata of {node.name}"] = sorted(map(str, node.meta))
        for key, value in node.meta.items():
            prints[f"the metadata {key!r} of {node.name}"] = _of(value)
    return prints


def _of(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return ("fake", str(value.dtype), str(tuple(value.shape)), str(value.stride()), str(value.device), id(value))
    if isinstance(value, torch.Tensor):
        layout = (str(value.dtype), tuple(value.shape), value.stride(), value.data_ptr(), value._version)
        return ("tensor", *layout, value.requires_grad, digest(bits(value)))
    if isinstance(value, Node):
        return ("node", id(value))
    if isinstance(value, tuple | list):
        return (type(value).__name__, *map(_of, value))
    if isinstance(value, Mapping):
        return ("mapping", *((_of(key), _of(item)) for key, item in value.items()))
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        return repr(value)
    return (type(value).__name__, id(value))
