"""Decomposes an operator that is not core ATen: traced once for its shapes, replayed at each further occurrence."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch.fx import Graph, Interpreter, Node

from .arguments import nodes_in, substitute
from .builder import EdgeBuilder, Value
from .sizes import computes_size

aten = torch.ops.aten

#: Not core ATen, but the runtime has a kernel that beats the decomposition.
WHOLE: frozenset[OpOverload] = frozenset(
    {
        aten.linear.default,
        aten.upsample_bilinear2d.vec,
        aten.upsample_nearest2d.vec,
        aten._upsample_bilinear2d_aa.default,
        aten.pixel_shuffle.default,
        aten.pixel_unshuffle.default,
        aten.embedding.default,
        aten.glu.default,
    }
)


@dataclass(frozen=True)
class _Recipe:
    """A traced decomposition: a graph whose placeholders stand for the tensor arguments in order."""

    graph: Graph


class Decomposer:
    """Expands operators by PyTorch's core ATen decompositions, each distinct signature traced once."""

    def __init__(self) -> None:
        self._recipes: dict[Any, _Recipe | None] = {}

    def __call__(
        self, builder: EdgeBuilder, target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Value:
        """The decomposed result, or NotImplemented if the operator is not decomposed."""
        if target in WHOLE or not is_decomposable(target):
            return NotImplemented
        return self._expand(builder, target, args, kwargs)

    def last_resort(self, builder: EdgeBuilder, target: OpOverload, args: Any, kwargs: Any) -> Value:
        """The result by any decomposition that PyTorch knows, for an operator that no backend takes and the runtime
        cannot run."""
        if target not in decomposition_table and not is_decomposable(target):
            return NotImplemented
        return self._expand(builder, target, args, kwargs)

    def _expand(self, builder: EdgeBuilder, target: OpOverload, args: Any, kwargs: Any) -> Value:
        # The identity of arguments matters, too: x * x is traced with one input.
        tensors = nodes_in((args, kwargs))
        pattern = substitute((args, kwargs), {node: index for index, node in enumerate(tensors)})
        key = (builder.signature(target, args, kwargs), repr(pattern))
        if key not in self._recipes:
            self._recipes[key] = self._recipe(builder, target, args, kwargs)
        recipe = self._recipes[key]
        return NotImplemented if recipe is None else replay(builder, recipe.graph, nodes_in((args, kwargs)))

    def _recipe(self, builder: EdgeBuilder, target: OpOverload, args: Any, kwargs: Any) -> _Recipe | None:
        """The first of PyTorch's decompositions that can be traced for these arguments."""
        written = decomposition_table.get(target)
        core = _decompositions().get(target) or (None if is_decomposable(target) else written)
        try:
            return self._trace(builder, target, args, kwargs, core)
        except RuntimeError:
            pass  # it needs concrete sizes; some composites have a second form in Python
        try:
            with enable_python_dispatcher():
                return self._trace(builder, target, args, kwargs, core or written)
        except RuntimeError:
            return None

    def _trace(self, builder: EdgeBuilder, target: OpOverload, args: Any, kwargs: Any, rule: Any) -> _Recipe | None:
        from torch.fx.experimental.proxy_tensor import make_fx

        table = {op: form for op, form in _decompositions().items() if op not in builder.keep and op not in WHOLE}
        if rule is not None:
            table[target] = rule
        tensors = nodes_in((args, kwargs))

        def call(*values: torch.Tensor) -> Any:
            real_args, real_kwargs = substitute((args, kwargs), dict(zip(tensors, values, strict=True)))
            return target(*real_args, **real_kwargs)

        # make_fx distinguishes inputs by identity: nodes that share a fake value need one each.
        with builder.fake_mode:
            fakes = [torch.empty_like(node.meta["val"]) for node in tensors]
        with warnings.catch_warnings(), builder.fake_mode, torch.no_grad():
            warnings.simplefilter("ignore")  # about settings of the disabled library
            # PyTorch's recurrent layers have a shortcut to a library (mkldnn), which is not a decomposition.
            with torch.backends.mkldnn.flags(enabled=False):
                traced = make_fx(call, decomposition_table=table)(*fakes)
            if any(_is_mutable(node.target) for node in traced.graph.nodes):
                # Only now, on plain operators, does functionalization see the in-place writes of a decomposition.
                functional = torch.func.functionalize(Interpreter(traced).run, remove="mutations_and_views")
                traced = make_fx(functional)(*fakes)
        graph = traced.graph
        calls = [node for node in graph.nodes if node.op == "call_function"]
        if any(node.op == "get_attr" for node in graph.nodes):
            return None
        if any(_is_primitive(node.target) and not builder.has_rule(node.target) for node in calls):
            return None  # a reference in PyTorch's primitives, which neither backends nor the runtime support
        # An operator that decomposes into itself has no decomposition for these arguments.
        return None if any(node.target is target for node in calls) else _Recipe(graph)


def _is_mutable(target: Any) -> bool:
    return isinstance(target, OpOverload) and target._schema.is_mutable


def _is_primitive(target: Any) -> bool:
    return isinstance(target, OpOverload) and target.namespace == "prims"


def replay(builder: EdgeBuilder, graph: Graph, inputs: Iterable[Node]) -> Value:
    """Translate a traced graph of operators into the builder's, with these nodes in place of its placeholders."""
    values: dict[Node, Any] = {}
    given = iter(inputs)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "call_function":
            if computes_size(node.target, node.meta.get("val")):
                values[node] = node.meta["val"]  # with the same symbols: they are part of the recipe's key
                continue
            real_args, real_kwargs = substitute((node.args, node.kwargs), values)
            if node.target is operator.getitem or isinstance(node.target, OpOverload):
                values[node] = builder.translate(node.target, real_args, real_kwargs, node.meta.get("val"))
            else:
                builder.refuse(f"its decomposition calls {node.target}, which is not an ATen operator")
        elif node.op == "output":
            return substitute(node.args[0], values)
    raise AssertionError("a traced graph has an output")


@cache
def _decompositions() -> dict[Any, Any]:
    table: Any = torch.export.default_decompositions()
    return dict(table.items())


@cache
def is_decomposable(target: OpOverload) -> bool:
    """True if PyTorch decomposes an operator on the way to core ATen; views count, whose copies are core ATen."""
    if torch.Tag.core in target.tags and not any(result.alias_info for result in target._schema.returns):
        return False
    return target in _decompositions() or target._can_decompose()
