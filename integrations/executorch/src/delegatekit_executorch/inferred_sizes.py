"""Writes sizes that change as -1 where a view can infer them.

A delegate gets tensors only. A size that stock computes outside of it, as it does for every view of a tensor whose
first size changes, would keep the view out of the delegate; a size of -1 is computed nowhere.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegatekit.edge import expression

aten = torch.ops.aten

_VIEWS: Final = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
#: Views without all sizes among their arguments.
_RESHAPING: Final = (aten.flatten.using_ints, aten.unflatten.int)


def infer_sizes(program: ExportedProgram) -> ExportedProgram:
    """A program with -1 in its views, which shares graphs and weights with this one only as far as nobody writes them.

    ExecuTorch takes the constants that a delegate consumes out of the program that it was given.
    """
    module = program.graph_module
    if program.range_constraints:
        module = copy.deepcopy(module)  # the weights are not in it
        for inner in module.modules():
            if isinstance(inner, GraphModule):
                for node in inner.graph.nodes:
                    _infer(node)
                inner.graph.eliminate_dead_code()
                inner.recompile()
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=dict(program.state_dict),
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=dict(program.constants),
        verifiers=program.verifiers,
    )


def _infer(node: Node) -> None:
    """Write the sizes of one call anew."""
    if node.op != "call_function":
        return
    if node.target in _VIEWS:
        _view(node, node.args[1])
    elif node.target in _RESHAPING:
        _view(node, node.meta["val"].shape)
    elif node.target is aten.expand.default:
        _expand(node)


def _view(node: Node, sizes: Any) -> None:
    inferred = _with_one_inferred(sizes)
    if inferred is None:
        return
    tensor: Any = node.args[0]
    if node.target is not aten.view.default:
        # The decomposition of a reshape copies where it must, too, but computes the size.
        with node.graph.inserting_before(node):
            dense = node.graph.call_function(aten.contiguous.default, (tensor,))
        dense.meta = {**node.meta, "val": tensor.meta["val"].contiguous()}
        tensor = dense
    node.target, node.args = aten.view.default, (tensor, inferred)


def _with_one_inferred(sizes: Any) -> list[Any] | None:
    """The sizes with -1 in place of the only one that changes; None if there is none, or several."""
    changing = [index for index, size in enumerate(sizes) if not isinstance(size, int)]
    if len(changing) != 1 or -1 in [size for size in sizes if isinstance(size, int)]:
        return None
    return [-1 if index == changing[0] else size for index, size in enumerate(sizes)]


def _expand(node: Node) -> None:
    """-1 for sizes that the tensor has already."""
    tensor: Any = node.args[0]
    sizes: Any = node.args[1]
    shape = tensor.meta["val"].shape
    missing = len(sizes) - len(shape)
    node.args = (
        tensor,
        [
            -1 if isinstance(size, Node) and axis >= 0 and _equal(size.meta["val"], shape[axis]) else size
            for axis, size in enumerate(sizes, -missing)
        ],
        *node.args[2:],
    )


def _equal(first: Any, second: Any) -> bool:
    return bool(expression(first) == expression(second))
