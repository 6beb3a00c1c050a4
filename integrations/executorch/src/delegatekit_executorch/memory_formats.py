"""Makes the inside of a program contiguous: what a delegate takes and gives.

A program that was exported with images in channels-last order has that order in nearly all of its values. Here its
inputs and weights become contiguous by a copy each, and results that were in channels-last order become so again.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.fx import Node

from delegatekit.edge.sizes import is_channels_last

from .readings import is_contiguous

_CLONE: Final = torch.ops.aten.clone.default
_FORMAT: Final = "memory_format"
_CONTIGUOUS: Final = {_FORMAT: torch.contiguous_format}
_CHANNELS_LAST: Final = {_FORMAT: torch.channels_last}


def make_contiguous(program: ExportedProgram) -> ExportedProgram:
    """The functional ATen program with contiguous values inside; the same object if they are contiguous already."""
    graph = program.graph
    given = [node for node in graph.nodes if node.op == "placeholder" and _is_read_bent(node)]
    changing = [node for node in graph.nodes if _changes_format(node) and not _is_only_returned(node)]
    if not given and not changing:
        return program
    end = next(reversed(graph.nodes))
    returned: Any = end.args[0]
    wanted = {node for node in returned if isinstance(node, Node) and _is_returned_bent(node)}
    for node in changing:
        node.kwargs = {**node.kwargs, **_CONTIGUOUS}
    last = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    for node in given:
        users = [user for user in node.users if user is not end]
        with graph.inserting_after(last[0]):
            copy = graph.call_function(_CLONE, (node,), _CONTIGUOUS)
        copy.meta = {**node.meta, "val": node.meta["val"].contiguous()}
        for user in users:
            user.replace_input_with(node, copy)
    with graph.inserting_before(end):
        copies = {node: graph.call_function(_CLONE, (node,), _CHANNELS_LAST) for node in wanted}
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    results = [copies.get(item, item) for item in returned]
    end.args = (tuple(results),)
    for spec, item in zip(program.graph_signature.output_specs, results, strict=True):
        if item in copies.values():
            spec.arg = TensorArgument(item.name)
    program.graph_module.recompile()
    # All values anew, as they follow from these.
    contiguous: ExportedProgram = program.run_decompositions({})
    return contiguous


def _is_read_bent(node: Node) -> bool:
    """True for an input or a constant that is not contiguous where it is read."""
    value = node.meta.get("val")
    readers = [user for user in node.users if user.op != "output" and not _makes_contiguous(user)]
    return isinstance(value, torch.Tensor) and bool(readers) and not is_contiguous(value)


def _makes_contiguous(node: Node) -> bool:
    return node.target is _CLONE and node.kwargs.get(_FORMAT) is torch.contiguous_format


def _changes_format(node: Node) -> bool:
    return node.kwargs.get(_FORMAT) in (torch.channels_last, torch.channels_last_3d)


def _is_only_returned(node: Node) -> bool:
    return all(user.op == "output" for user in node.users)


def _is_returned_bent(node: Node) -> bool:
    """True for a computed result in channels-last order; not for those of views, which ExecuTorch makes contiguous."""
    value, target = node.meta.get("val"), node.target
    if not isinstance(value, torch.Tensor) or not is_channels_last(value) or node.op != "call_function":
        return False
    is_view = isinstance(target, OpOverload) and any(item.alias_info is not None for item in target._schema.returns)
    return not is_view and not (_changes_format(node) and _is_only_returned(node))
