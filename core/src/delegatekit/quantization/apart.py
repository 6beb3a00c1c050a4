"""Operators that a scheme takes apart: their parts stand in the exported graph, and become layers of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from delegatekit_api import PluginError, QuantizationScheme

from ..edge.attention import Attention, in_pieces
from ..edge.sizes import Shape, is_static
from .graph import constants, evaluate, is_float, names

aten = torch.ops.aten


def take_apart(module: GraphModule, scheme: QuantizationScheme, kept: Callable[[Node], str | None]) -> dict[Node, str]:
    """Put the parts of what the scheme takes apart into the graph; returns what stays whole, and why.

    Nodes that `kept` has a reason for stay as they are. Raises PluginError for an operator that the core has no parts
    for.
    """
    parts = {name: write for known, write in _PARTS.items() for name in _spellings(known)}
    unknown = [name for name in scheme.takes_apart if name not in parts]
    if unknown:
        known = ", ".join(sorted(_PARTS))
        raise PluginError(f"cannot take {unknown[0]} apart", where=f"scheme {scheme.name}", hint=f"it can be {known}")
    whole: dict[Node, str] = {}
    fixed = constants(module, made=True) if scheme.takes_apart else set()
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        wanted = [name for name in names(node) if name in scheme.takes_apart]
        if not wanted or kept(node) is not None:
            continue
        with module.graph.inserting_before(node):
            result = parts[wanted[0]](_Parts(module, node, fixed), node)
        if isinstance(result, str):
            whole[node] = result
            continue
        node.replace_all_uses_with(result)
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return whole


class _Parts:
    """Writes operators in front of a node that they replace; they come from its module and source line."""

    def __init__(self, module: GraphModule, whole: Node, fixed: set[Node]) -> None:
        self.constants: dict[Node, torch.Tensor] = {}
        self._module = module
        self._fixed = fixed
        self._meta = dict(whole.meta)
        self._mode = detect_fake_mode([node.meta["val"] for node in whole.all_input_nodes])

    def shape(self, value: Any) -> Shape:
        """Sizes of a node's value."""
        return tuple(value.meta["val"].shape)

    def dtype(self, value: Any) -> torch.dtype:
        """Dtype of a node's value."""
        return value.meta["val"].dtype  # type: ignore[no-any-return]

    def constant(self, tensor: torch.Tensor) -> Node:
        """Parts of what is quantized have no constants of their own."""
        raise NotImplementedError

    def hides_nothing(self, mask: Node) -> bool:
        """Whether a mask is constant, and leaves everything as it is: all True, or all 0."""
        if mask not in self._fixed:
            return False
        value = evaluate(self._module, mask)
        return bool(value.all()) if value.dtype == torch.bool else not bool(value.any())

    def call(self, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Node:
        """Append a call. `value` is the fake result, where it is known."""
        node = self._module.graph.call_function(target, args, kwargs)
        if value is None:
            fakes: Any = map_arg((args, kwargs), lambda operand: operand.meta["val"])
            with self._mode or torch.no_grad():
                value = target(*fakes[0], **fakes[1])
        node.meta = {**self._meta, "val": value}
        return node


def _attention(b: _Parts, node: Node) -> Node | str:
    """Products and a softmax; the reason why not, if attention stays whole."""
    given = Attention.of(node.args, node.kwargs)
    if given.mask is not None and b.hides_nothing(given.mask):
        given = replace(given, mask=None)
    if given.causal or given.mask is not None:
        return "attention with a mask stays whole: hidden scores have no place in the range of the others"
    operands = (given.query, given.key, given.values)
    if not all(map(is_float, operands)):
        return "its operands are not float32"
    if not isinstance(b.shape(given.query)[-1], int) or (
        given.grouped and not all(is_static(b.shape(operand)) for operand in operands)
    ):
        return "its parts depend on a size that changes from call to call"
    return in_pieces(b, given, None)  # type: ignore[no-any-return]


#: Operators that can be taken apart: what writes the parts gives their result, or the reason why it stays whole.
_PARTS: Mapping[str, Callable[[_Parts, Node], Node | str]] = {"scaled_dot_product_attention": _attention}


def _spellings(name: str) -> tuple[str, str, str]:
    return name, f"aten.{name}", f"aten.{name}.default"
