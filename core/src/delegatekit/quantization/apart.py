"""Operators that a scheme takes apart: their parts are written into the exported graph, and become layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from delegatekit_api import PluginError
from delegatekit_api.schemes import QuantizationScheme

from ..edge.rules.attention import MASKED, Attention, in_pieces
from ..edge.sizes import Shape, is_static
from .graph import constants, evaluate, free_name, is_float, names

aten = torch.ops.aten

#: Names of `masked_fill` in rules.
_FILLS: Final = frozenset({"masked_fill", "aten.masked_fill", "aten.masked_fill.Scalar"})
#: The bias of scores, and the positions where they are hidden; None for nowhere.
_Mask: TypeAlias = "tuple[torch.Tensor | None, torch.Tensor | None]"
#: Scores to which a mask adds this or less are hidden: their exponential is negligible.
_HIDES: Final = -80.0


class Apart:
    """The operators that a scheme takes apart, with their parts in the graph."""

    def __init__(self, module: GraphModule, scheme: QuantizationScheme, kept: Callable[[Node], str | None]) -> None:
        """Put the parts into the graph. Nodes that `kept` has a reason for stay as they are.

        Raises PluginError for an operator that the core has no parts for.
        """
        #: Operators that stay whole, and the reasons.
        self.whole: dict[Node, str] = {}
        self._module = module
        self._parts = _Parts(module, scheme)
        self._taken: list[_Taken] = []
        #: Replacements of nodes that a later operator may have as operand.
        self._renewed: dict[Node, Node] = {}
        if scheme.takes_apart or self._parts.hides:
            self._take(scheme, kept)

    def put_back(self, reasons: Mapping[Node, str]) -> None:
        """Restore operators with a part in `reasons`, since the backend does not take it.

        The other parts would be isolated integer islands.
        """
        for taken in reversed(self._taken):
            reason = next((reasons[part] for part in taken.parts if part in reasons), None)
            if reason is None:
                continue
            self._taken.remove(taken)
            with self._module.graph.inserting_before(taken.result):
                args, kwargs = map_arg((taken.args, taken.kwargs), partial(self._present, taken))
                node = self._module.graph.call_function(taken.target, args, dict(kwargs))
            node.meta = taken.meta
            taken.result.replace_all_uses_with(node)
            self._renewed[taken.result] = node
            self.whole[node] = reason
        self._tidy()

    def _present(self, taken: _Taken, node: Node) -> Node:
        if node in taken.known:
            return self._parts.buffer(taken.known[node])
        while node in self._renewed:
            node = self._renewed[node]
        return node

    def _take(self, scheme: QuantizationScheme, kept: Callable[[Node], str | None]) -> None:
        known = {name: write for operator, write in _PARTS.items() for name in _spellings(operator)}
        unknown = [name for name in scheme.takes_apart if name not in known]
        if unknown:
            hint = f"it can be {', '.join(sorted(_PARTS))}"
            raise PluginError(f"cannot take {unknown[0]} apart", where=f"scheme {scheme.name}", hint=hint)
        module, parts = self._module, self._parts
        for node in list(module.graph.nodes):
            wanted = [name for name in names(node) if name in scheme.takes_apart] if node.op == "call_function" else []
            write: _Write | None = known[wanted[0]] if wanted else None
            if not wanted and parts.hides and _masks_a_softmax(node):
                write = _added_mask
            if write is None or kept(node) is not None:
                continue
            parts.start(node)
            with module.graph.inserting_before(node):
                result = write(parts, node)
            if result is None:
                continue
            if isinstance(result, str):
                self.whole[node] = result
                continue
            values = {operand: parts.known(operand) for operand in node.all_input_nodes}
            fixed = {operand: value for operand, value in values.items() if value is not None}
            whole = (node.target, node.args, node.kwargs, node.meta)
            self._taken.append(_Taken(*whole, result, tuple(parts.calls), fixed))
            node.replace_all_uses_with(result)
            module.graph.erase_node(node)
        self._tidy()

    def _tidy(self) -> None:
        self._module.graph.eliminate_dead_code()
        self._module.graph.lint()
        self._module.recompile()


@dataclass(frozen=True)
class _Taken:
    """An operator that was taken apart: its call, the part with its result, all parts, and constant operands.

    The parts may be all that remains of constants: a mask is converted to other constants.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    result: Node
    parts: tuple[Node, ...]
    known: dict[Node, torch.Tensor]


class _Parts:
    """Writes operators before a node that they replace; they get its module and source line."""

    def __init__(self, module: GraphModule, scheme: QuantizationScheme) -> None:
        self.constants: dict[Node, torch.Tensor] = {}
        #: True if the scheme has a softmax in which some scores are hidden.
        self.hides = any("softmax" in rule.fused and not _FILLS.isdisjoint(rule.operators) for rule in scheme.rules)
        self._module = module
        self._fixed = constants(module, made=True)
        self._meta: dict[str, Any] = {}
        self._mode: Any = None
        #: The parts of the current operator.
        self.calls: list[Node] = []

    def start(self, whole: Node) -> None:
        """Start the parts of `whole`."""
        self.calls = []
        self._meta = dict(whole.meta)
        self._mode = detect_fake_mode([node.meta["val"] for node in whole.all_input_nodes])

    def shape(self, value: Any) -> Shape:
        """Sizes of a node's value."""
        return tuple(value.meta["val"].shape)

    def dtype(self, value: Any) -> torch.dtype:
        """Dtype of a node's value."""
        return value.meta["val"].dtype  # type: ignore[no-any-return]

    def known(self, node: Node) -> torch.Tensor | None:
        """The value of a constant, or of an expression of constants; None for others."""
        return evaluate(self._module, node) if node in self._fixed else None

    def constant(self, tensor: torch.Tensor) -> Node:
        """A buffer of the module; equal ones are shared."""
        for node, value in self.constants.items():
            if value.dtype == tensor.dtype and torch.equal(value, tensor):
                return node
        node = self.buffer(tensor)
        self.constants[node] = tensor
        return node

    def buffer(self, tensor: torch.Tensor) -> Node:
        """A new buffer of the module."""
        name = free_name(self._module, "_constant")
        self._module.register_buffer(name, tensor)
        node = self._module.graph.get_attr(name)
        node.meta["val"] = (
            self._mode.from_tensor(tensor, static_shapes=True)
            if self._mode
            else torch.empty_like(tensor, device="meta")
        )
        return node

    def call(self, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Node:
        """Append a call. `value` is the fake result, where it is known."""
        node = self._module.graph.call_function(target, args, kwargs)
        if value is None:
            fakes: Any = map_arg((args, kwargs), lambda operand: operand.meta["val"])
            with self._mode or torch.no_grad():
                value = target(*fakes[0], **fakes[1])
        node.meta = {**self._meta, "val": value}
        self.calls.append(node)
        return node


def _attention(b: _Parts, node: Node) -> Node | str:
    """Products and a softmax; the reason if attention stays whole.

    A constant mask becomes a bias within reasonable bounds, added to the scores, and a fill of the hidden ones.
    """
    given = Attention.of(node)
    operands = (given.query, given.key, given.values)
    if not all(map(is_float, operands)):
        return "its operands are not float32"
    sizes = b.shape(given.query)[-1:]
    if given.grouped or given.causal:
        sizes = tuple(size for operand in operands for size in b.shape(operand))
    if not is_static(sizes):
        return "its parts depend on a size that changes from call to call"
    mask = _mask(b, given)
    if isinstance(mask, str):
        return mask
    hidden = mask[1]
    if hidden is not None and not b.hides:
        return "its mask hides scores, which do not fit the range of the others"
    if hidden is not None and bool(hidden.all(-1).any()):
        return "its mask hides whole rows"
    masked = partial(_masked, b, mask)
    return in_pieces(b, replace(given, mask=None, causal=False), None, masked)  # type: ignore[no-any-return]


def _masks_a_softmax(node: Node) -> bool:
    """True for a sum that only a softmax along its last dimension reads."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if node.target is not aten.add.Tensor or node.kwargs or user is None or user.target is not aten.softmax.int:
        return False
    return (*user.args, user.kwargs.get("dim"))[1] in (-1, node.meta["val"].dim() - 1)


def _added_mask(b: _Parts, node: Node) -> Node | None:
    """A bias within reasonable bounds and a fill, for scores to which a constant mask is added; None for other sums."""
    known = {operand: b.known(operand) for operand in node.all_input_nodes}
    values = [value for value in known.values() if value is not None]
    scores = [operand for operand, value in known.items() if value is None and is_float(operand)]
    if len(values) != 1 or len(scores) != 1:
        return None
    bias, hidden = _bias_and_hidden(values[0])
    if hidden is None or not hidden.dim() or bool(hidden.all(-1).any()):
        return None
    return _masked(b, (bias, hidden), scores[0])


def _masked(b: _Parts, mask: _Mask, scores: Node) -> Node:
    bias, hidden = mask
    if bias is not None:
        scores = b.call(aten.add.Tensor, scores, b.constant(bias))
    return scores if hidden is None else b.call(aten.masked_fill.Scalar, scores, b.constant(hidden), MASKED)


def _mask(b: _Parts, given: Attention) -> _Mask | str:
    """What a mask does; a text if that is unknown."""
    if given.causal:
        length, source = b.shape(given.query)[-2], b.shape(given.key)[-2]
        return None, torch.ones(length, source, dtype=torch.bool).triu(1)
    if given.mask is None:
        return None, None
    value = b.known(given.mask)
    if value is None:
        return "its mask is computed: only constant masks are quantized"
    return _bias_and_hidden(value)


def _bias_and_hidden(mask: torch.Tensor) -> _Mask:
    hidden = ~mask if mask.dtype == torch.bool else mask <= _HIDES
    bias = torch.zeros(()) if mask.dtype == torch.bool else mask.detach().float().masked_fill(hidden, 0.0)
    return bias if bool(bias.any()) else None, hidden if bool(hidden.any()) else None


#: A function that writes the parts of an operator and returns their result; the reason if it stays whole, or None.
_Write: TypeAlias = Callable[[_Parts, Node], Node | str | None]

#: Operators that can be taken apart: a function that writes the parts and returns their result, or the reason not to.
_PARTS: Mapping[str, _Write] = {"scaled_dot_product_attention": _attention}


def _spellings(name: str) -> tuple[str, str, str]:
    return name, f"aten.{name}", f"aten.{name}.default"
