"""The referee: an edge graph evaluated by PyTorch eager, in double precision.

Each operator gets the values that the lowered program would hold if everything before were right: the referee's own
results, rounded to the dtypes of the graph (and to the precision of a backend, if coarser). Given the values that
the lowered program really computed, one wrong operator would feed wrong inputs to all operators downstream, and hide
later errors behind a NaN. The first operator that diverges is the same in both cases, since
everything before it is right; with the referee's own values all others can be judged, too, one need not look
into a delegate to know the inputs of an operator in it, and the same values go into the snippet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node
from torch.utils._pytree import tree_map

from delegatekit.edge import EdgeMethod
from delegatekit_api import ExecutionError
from delegatekit_api.nodes import describe_node
from delegatekit_toolkit.accuracy import widened

#: Values of nodes: tensors, numbers, or lists of these.
Values: TypeAlias = Mapping[Node, Any]
#: A transformation of a result before others read it.
Round: TypeAlias = Callable[[Node, Any], Any]

#: Limit of a loop's iterations: the referee must terminate where the program does not.
_LONGEST_LOOP: Final = 1_000_000


def values_of(edge: EdgeMethod, inputs: Sequence[Any], precision: str = "float32") -> dict[Node, Any]:
    """The value of every node for these inputs, computed in double precision from rounded operands, and then rounded.

    `precision` is the coarsest that any part of the program computes float32 in.
    """
    known = given_to(edge, [_coarse(value, precision) for value in inputs])
    return known | evaluate(edge, calls_of(edge), known, lambda node, value: _narrow(node, value, precision))


def outputs_of(edge: EdgeMethod, inputs: Sequence[Any]) -> list[Any]:
    """The graph's results, computed in double precision throughout; then the new values of its buffers."""
    known: dict[Node, Any] = given_to(edge, inputs)
    known |= evaluate(edge, calls_of(edge), known)
    return [known[item] if isinstance(item, Node) else item for item in results_of(edge)]


def results_of(edge: EdgeMethod) -> tuple[Any, ...]:
    """The nodes, or literals, that a graph returns; then the new values of its buffers."""
    return (*edge.outputs, *(buffer.updated for buffer in edge.buffers.values()))


def given_to(edge: EdgeMethod, inputs: Sequence[Any], state: Mapping[str, Any] | None = None) -> dict[Node, Any]:
    """The values of the placeholders; `state` has the buffers' values by name, if they are not the initial ones."""
    initial = {node: (state or {}).get(buffer.name, buffer.initial) for node, buffer in edge.buffers.items()}
    return {**edge.constants, **initial, **dict(zip(edge.inputs, inputs, strict=True))}


def calls_of(edge: EdgeMethod) -> list[Node]:
    """The calls of a graph, in order."""
    return [node for node in edge.graph.nodes if node.op == "call_function"]


def evaluate(
    edge: EdgeMethod, nodes: Iterable[Node], known: Values, finish: Round = lambda node, value: value
) -> dict[Node, Any]:
    """The values of some nodes, computed in double precision from those that are known, in the order of the graph."""
    found: dict[Node, Any] = {}
    with torch.no_grad():
        for node in nodes:
            found[node] = finish(node, computed(edge, node, found, known))
    return found


def computed(edge: EdgeMethod, node: Node, found: Values, known: Values) -> Any:
    """The value of a node, in double precision, from values that were found and others. Raises ExecutionError."""
    try:
        return _computed(edge, node, lambda item: found[item] if item in found else known[item])
    except (ExecutionError, KeyboardInterrupt):
        raise
    except Exception as error:
        what = f"PyTorch cannot compute it: {type(error).__name__}: {error}"
        raise ExecutionError(what, where=describe_node(node)) from error


def first_round(node: Node, region: int, value_of: Callable[[Any], Any]) -> list[Any] | None:
    """The inputs of a control flow graph at its first iteration; None if the call never enters it."""
    name = kind_of(node)
    if name == "cond":
        predicate, _, operands = node.args
        taken = 0 if bool(value_of(predicate)) else 1
        return [value_of(item) for item in _listed(operands)] if taken == region else None
    first, operands = node.args
    values = [value_of(item) for item in _listed(first)]
    if name != "while_loop":
        if not values[0].shape[0]:
            return None
        values = [value[0] for value in values]
    return [*values, *(value_of(item) for item in _listed(operands))]


def rounds_of(edge: EdgeMethod, node: Node, values: Values) -> int:
    """The trip count of a loop with these values; 1 for anything else, or inside another graph."""
    if kind_of(node) != "while_loop" or any(item not in values for item in node.all_input_nodes):
        return 1
    rounds = [0]
    args = torch.fx.map_arg(node.args, values.__getitem__)
    _loop(node, edge.regions[node], args, rounds)
    return rounds[0]


def _computed(edge: EdgeMethod, node: Node, value_of: Callable[[Node], Any]) -> Any:
    if node in edge.regions:
        args = torch.fx.map_arg(node.args, value_of)
        return _control_flow(node, edge.regions[node], args)
    target: Any = node.target
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
    if not isinstance(target, torch._ops.OpOverload):
        return target(*args, **kwargs)
    try:
        wide, named = tree_map(_wide, (args, kwargs))
        result = target(*wide, **named)
    except Exception:  # some operators exist for one dtype only: conversions of quantized numbers, many of integers
        result = target(*_as_declared(node.args, args), **_as_declared(node.kwargs, kwargs))
    return tree_map(widened, result)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    return widened(value)


def _as_declared(written: Any, values: Any) -> Any:
    """Arguments with tensors of the dtypes that the graph declares."""
    if isinstance(written, Node):
        return _declared(written, values)
    if isinstance(written, Mapping):
        return {key: _as_declared(item, values[key]) for key, item in written.items()}
    if isinstance(written, list | tuple):
        return [_as_declared(item, value) for item, value in zip(written, values, strict=True)]
    return values


def _declared(node: Node, value: Any) -> Any:
    declared = node.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(declared, torch.Tensor):
        return value.to(declared.dtype)
    if isinstance(value, list | tuple) and isinstance(declared, list | tuple):
        pairs = zip(value, declared, strict=True)
        return [item.to(want.dtype) if isinstance(item, torch.Tensor) else item for item, want in pairs]
    return value


def _narrow(node: Node, value: Any, precision: str) -> Any:
    return tree_map(lambda item: _coarse(item, precision), _declared(node, value))


def _coarse(value: Any, precision: str) -> Any:
    """A float32 tensor rounded to a coarser precision, except where it exceeds its range."""
    coarse = getattr(torch, precision)
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or coarse.itemsize >= 4:
        return value
    rounded = value.to(coarse).float()
    return torch.where(rounded.isfinite(), rounded, value)


# -- control flow ------------------------------------------------------------------------------------------------------


def _control_flow(node: Node, regions: tuple[EdgeMethod, ...], args: Any) -> Any:
    name = kind_of(node)
    if name == "cond":
        predicate, _, operands = args
        return _returned(regions[0 if bool(predicate) else 1], operands)
    first, operands = args
    if name == "while_loop":
        return _loop(node, regions, args, [0])
    (body,) = regions
    rows = [_returned(body, [*(item[row] for item in first), *operands]) for row in range(first[0].shape[0])]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _loop(node: Node, regions: tuple[EdgeMethod, ...], args: Any, rounds: list[int]) -> list[Any]:
    """The final values of a loop; its iterations are counted."""
    condition, body = regions
    first, operands = args
    state = list(first)
    while bool(_returned(condition, [*state, *operands])[0]):
        rounds[0] += 1
        if rounds[0] > _LONGEST_LOOP:
            raise ExecutionError(f"does not end after {_LONGEST_LOOP} iterations", where=describe_node(node))
        state = _returned(body, [*state, *operands])
    return state


def _returned(region: EdgeMethod, inputs: Sequence[Any]) -> list[Any]:
    return outputs_of(region, [widened(value) for value in inputs])


def kind_of(node: Node) -> str:
    """The name of a control flow operator: "cond", "while_loop", "map_impl"."""
    target: Any = node.target
    return str(target.name())


def _listed(items: Any) -> Sequence[Any]:
    return items if isinstance(items, list | tuple) else [items]
