"""Normalizes the exported graph for the annotator: in-place operators renamed, dropout removed, numbers as tensors."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from delegatekit_api import ProgramView
from delegatekit_api.nodes import operator_name

from ..edge.functional import functional_form, in_place_aliases

aten = torch.ops.aten

#: Quantize operators with known parameters.
_QUANTIZE = {
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_channel.default",
}
_DROPOUTS = {aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default}
_IN_PLACE_DROPOUTS = {aten.dropout_.default, aten.feature_dropout_.default, aten.alpha_dropout_.default}


def short_name(node: Node) -> str:
    """ "linear" of aten.linear.default."""
    name = operator_name(node)
    return name.split(".")[1] if name.count(".") > 1 else name


def names(node: Node) -> tuple[str, ...]:
    """The names of the node's operator in rules: "linear", "aten.linear", "aten.linear.default"."""
    name = operator_name(node)
    return short_name(node), name.rpartition(".")[0], name


def normalize(module: GraphModule) -> None:
    """Rename in-place operators; remove dropout in eval mode and dead code.

    A graph that writes through views keeps its in-place operators.
    """
    graph = module.graph
    remove_dropout(module)
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.op == "get_attr" and "val" not in node.meta:  # made by the folding of batch norms
            value = attribute(module, str(node.target))
            if isinstance(value, torch.Tensor):
                node.meta["val"] = torch.empty_like(value, device="meta")
    aliases = in_place_aliases(graph)
    for node, written in (aliases or {}).items():
        if is_written(node) and written.op != "get_attr":  # a buffer must keep changing
            node.target = functional_form(node)
    graph.lint()
    module.recompile()


def is_dropout(node: Node) -> bool:
    """True if the operator is a dropout, in training or not."""
    return node.target in _DROPOUTS or node.target in _IN_PLACE_DROPOUTS


def remove_dropout(module: GraphModule) -> None:
    """Remove dropout in eval mode, and the repeated quantize of its result."""
    graph = module.graph
    for node in list(graph.nodes):
        if not is_dropout(node) or node.args[2]:
            continue
        operand, users = node.args[0], list(node.users)
        node.replace_all_uses_with(operand)
        graph.erase_node(node)
        for user in users:
            twice = "dequantize" in str(operand.target) and "quantize_per_tensor" in str(user.target)
            if twice and operand.args[1:] == user.args[1:]:
                user.replace_all_uses_with(operand.args[0])
                graph.erase_node(user)
    module.recompile()


def copied(module: GraphModule) -> GraphModule:
    """The same graph in a module of its own; parameters are shared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, about its own tree specs
        return GraphModule(module, copy.deepcopy(module.graph))


def is_written(node: Node) -> bool:
    """True if the operator writes into its operand."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def is_float(node: Node) -> bool:
    """True if the value is one float32 tensor."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def results(node: Node) -> tuple[Node, ...]:
    """The tensors that an operator returns: itself, or its getitems."""
    if isinstance(node.meta.get("val"), tuple | list):
        return tuple(user for user in node.users if user.target is operator.getitem)
    return (node,)


def constants(module: GraphModule, *, every: bool = False, made: bool = False) -> set[Node]:
    """Parameters, buffers that are not written, and expressions of these alone.

    With `every`, also those without an example value in the graph; with `made`, also tensors made from numbers.
    """
    written: set[Any] = set()
    for node in module.graph.nodes:
        if node.op == "call_function" and is_written(node):
            written.update(_buffers_under(node.all_input_nodes[:1]))
    found: set[Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            if node.target not in written and (every or isinstance(node.meta.get("val"), torch.Tensor)):
                found.add(node)
        elif node.op == "call_function" and (made or node.all_input_nodes) and found.issuperset(node.all_input_nodes):
            tags = getattr(node.target, "tags", ())
            if torch.Tag.nondeterministic_seeded not in tags and not is_written(node):
                found.add(node)
    return found


class _Constants(Mapping[Node, torch.Tensor]):
    """The values of a module's constants, computed on demand."""

    def __init__(self, module: GraphModule, nodes: Collection[Node]) -> None:
        self._module = module
        self._nodes = nodes

    def __getitem__(self, node: Node) -> torch.Tensor:
        if node not in self._nodes:
            raise KeyError(node)
        return evaluate(self._module, node).detach()

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def exported_view(module: GraphModule, fixed: Collection[Node]) -> ProgramView:
    """The plugins' view of an exported module's graph; `fixed` are its constants."""
    inputs = tuple(node for node in module.graph.nodes if node.op == "placeholder")
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return ProgramView(module.graph, _Constants(module, fixed), inputs, tuple(output.all_input_nodes))


def _buffers_under(nodes: Sequence[Node]) -> set[Any]:
    """The names of the buffers that values may view."""
    found: set[Any] = set()
    seen: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.op == "get_attr":
            found.add(node.target)
        if node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return found


def is_number(value: Any) -> bool:
    """True if an operand is a Python number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers_to_tensors(module: GraphModule, nodes: Collection[Node]) -> None:
    """Make the Python numbers among the two operands of binary operators constants of shape (1,)."""
    found = [node for node in nodes if any(map(is_number, node.args[:2]))]
    for count, node in enumerate(found):
        arguments: list[Any] = list(node.args)
        for index, argument in enumerate(arguments[:2]):
            if not is_number(argument):
                continue
            name = f"_number_{count}_{index}"
            tensor = torch.tensor([float(argument)])
            module.register_buffer(name, tensor)
            with module.graph.inserting_before(node):
                constant = module.graph.get_attr(name)
            constant.meta["val"] = torch.empty_like(tensor, device="meta")
            arguments[index] = constant
        node.args = tuple(arguments)
    module.recompile()


def evaluate(module: GraphModule, node: Node) -> torch.Tensor:
    """The value of a node that depends on constants only."""
    if node.op == "get_attr":
        value: torch.Tensor = attribute(module, str(node.target))
        return value
    arguments: Any = map_arg((node.args, node.kwargs), lambda operand: evaluate(module, operand))
    with torch.no_grad():
        result: torch.Tensor = node.target(*arguments[0], **arguments[1])  # type: ignore[operator]
    return result


def constant_name(node: Node) -> str:
    """The name of a constant: of the parameter or buffer that it is, or views."""
    source = node
    while source.op != "get_attr" and len(source.all_input_nodes) == 1:
        (source,) = source.all_input_nodes
    return str(source.target) if source.op == "get_attr" else node.name


def keep_large_biases(module: GraphModule) -> None:
    """Leave a bias in float that the range of its integers would clip, because the scale of its sums is tiny."""
    fixed = constants(module, every=True)
    for node in list(module.graph.nodes):
        if str(node.target) not in _QUANTIZE or node not in fixed or node.args[-1] is not torch.int32:
            continue
        low, high = node.args[-3:-1]
        integers = evaluate(module, node)
        if bool(((integers <= low) | (integers >= high)).any()):
            for dequantize in list(node.users):
                dequantize.replace_all_uses_with(node.args[0])
    module.graph.eliminate_dead_code()
    module.recompile()


def fold_weights(module: GraphModule) -> None:
    """Replace each quantize of a constant by its integers, under the name of the weight if that is free."""
    graph = module.graph
    fixed = constants(module, every=True)
    for node in list(graph.nodes):
        if str(node.target) not in _QUANTIZE or node not in fixed or not node.users:
            continue
        weight, integers = node.args[0], evaluate(module, node)
        own = weight.op == "get_attr" and len(weight.users) == 1
        name = constant_name(weight)
        name = name if own else free_name(module, name.replace(".", "_") + "_quantized")
        set_attribute(module, name, integers)
        with graph.inserting_before(node):
            replacement = graph.get_attr(name)
        replacement.meta = dict(node.meta)
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
        if own:
            graph.erase_node(weight)
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()


def attribute_to_modules(module: GraphModule) -> None:
    """Assign the module and source line that it serves to each inserted operator.

    A quantize belongs to the operator of its operand, or else, like all others, to the user of its result.
    """
    for node in reversed(module.graph.nodes):
        if node.op != "call_function" or node.meta.get("nn_module_stack"):
            continue
        near = list(node.users)
        if ".quantize_per_" in str(node.target):
            near = [*node.all_input_nodes, *near]
        owner = next((other for other in near if other.meta.get("nn_module_stack")), None)
        for key in ("nn_module_stack", "stack_trace"):
            if owner is not None and key in owner.meta:
                node.meta.setdefault(key, owner.meta[key])


def free_name(module: GraphModule, stem: str) -> str:
    """The name, or the first of name_1, name_2, ... that is free in the module."""
    name, count = stem, 1
    while hasattr(module, name):
        name, count = f"{stem}_{count}", count + 1
    return name


def set_attribute(module: GraphModule, path: str, value: torch.Tensor) -> None:
    """Make a dotted name a buffer; the modules on its path exist."""
    prefix, _, leaf = path.rpartition(".")
    owner = module.get_submodule(prefix)
    if hasattr(owner, leaf):
        delattr(owner, leaf)
    owner.register_buffer(leaf, value)


def attribute(module: GraphModule, path: str) -> Any:
    """The module's attribute under a dotted name."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
