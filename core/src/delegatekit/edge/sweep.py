"""The sweep over one exported graph: every node goes through the builder, control flow with its own graphs."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import describe_node

from .builder import EdgeBuilder, drop_dead
from .constants import Constants
from .functional import functional_form
from .pairs import is_pair
from .program import EdgeMethod
from .rules.writing import known
from .sizes import SYMBOLIC, computes_size, is_size

#: The hint for a tensor made from numbers inside control flow, where PyTorch cannot handle it.
AS_BUFFER: Final = "make it a buffer of the module (register_buffer), and use self.NAME inside control flow"


class Sweep:
    """The state of a sweep: the edge graph's value of each exported node.

    A value is a node, a tuple of these, a number, or a symbolic size.
    """

    def __init__(
        self,
        module: GraphModule,
        builder: EdgeBuilder,
        aliases: dict[Node, Node],
        handles: Iterator[int] | None = None,
    ) -> None:
        self.module = module
        self.builder = builder
        self.aliases = aliases
        self.values: dict[Node, Any] = {}
        self.results: tuple[Any, ...] = ()
        # The nodes of a method are counted from 1, those of its control flow from after its last one.
        self._handles = handles or itertools.count(1)
        self._region_handles = handles or itertools.count(len(module.graph.nodes) + 1)

    def translate(self, node: Node) -> None:
        """Translate the next node."""
        self.builder.start(node, next(self._handles))
        if node.op == "placeholder":
            self.values[node] = self.placeholder(node)
        elif node.op == "call_function":
            # An in-place result replaces the value it overwrote: later uses of either see it.
            self.values[self.aliases.get(node, node)] = self._call(node)
        elif node.op == "output":
            results: Any = node.args[0]
            several = results if isinstance(results, list | tuple) else (results,)
            self.results = tuple(self._result(item) for item in several)
        elif node.op == "get_attr":
            self.values[node] = self._attribute(str(node.target))
        else:
            raise UnsupportedError(f"{node.op} nodes are not supported", where=describe_node(node))

    def placeholder(self, node: Node) -> Any:
        """The value of a placeholder."""
        raise NotImplementedError

    def _attribute(self, name: str) -> Any:
        """A graph of control flow, or a tensor that the user's code makes from numbers inside such a graph.

        Outside of control flow, torch.export makes such tensors inputs of the graph.
        """
        value = getattr(self.module, name)
        if isinstance(value, FakeTensor):
            self.builder.refuse("makes a tensor inside control flow, whose elements torch.export lost", AS_BUFFER)
        return known(self.builder, value, name) if isinstance(value, torch.Tensor) else value

    def _get(self, item: Any) -> Any:
        return self.values[self.aliases.get(item, item)] if isinstance(item, Node) else item

    def _result(self, item: Any) -> Any:
        value = self._get(item)
        return self.builder.sizes.node(value) if isinstance(value, SYMBOLIC) else value

    def _call(self, node: Node) -> Any:
        target: Any = node.target
        value = node.meta.get("val")
        if isinstance(target, HigherOrderOperator):
            return self._control_flow(node, target)
        if computes_size(target, value):
            return value
        arguments: Any = torch.fx.map_arg(node.args, self._get)
        keywords: Any = torch.fx.map_arg(node.kwargs, self._get)
        if str(target) == "export.access_subclass_inner_tensor.default":
            return self._inner_tensor(*arguments)
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            target = functional_form(node)
        elif not isinstance(target, OpOverload) and target is not operator.getitem:
            raise UnsupportedError("is not an ATen operator", where=describe_node(node))
        result = self.builder.translate(target, arguments, keywords, value)
        if is_size(value) and isinstance(result, Node):
            # A number read out of a tensor: later sizes may depend on it.
            self.builder.sizes.offer(result)
            return value
        return result

    def _inner_tensor(self, outer: Node, name: str) -> Node:
        """A part of a weight that is a tensor subclass: integers, scales, zero points."""
        if outer not in self.builder.constants:
            self.builder.refuse(f"takes {name} out of {outer.name}, which is computed")
        return self.builder.constant(getattr(self.builder.constants[outer], name), f"{outer.name}_{name}")

    # -- control flow --------------------------------------------------------------------------------------------

    def _control_flow(self, node: Node, target: HigherOrderOperator) -> Any:
        args: Any = torch.fx.map_arg(node.args, self._get)
        kind = target.name()  # type: ignore[no-untyped-call]
        if kind == "cond":
            predicate, *branches, operands = args
            return self._regions(node, target, (predicate,), branches, list(operands), ())
        if kind == "while_loop":
            *functions, carried, additional = args
            return self._regions(node, target, (), functions, list(additional), list(carried))
        if kind == "map_impl":
            body, mapped, additional = args
            return self._regions(node, target, (), [body], list(additional), list(mapped))
        if kind == "wrap_with_set_grad_enabled":
            _, body, *operands = args
            return self._inline(body, operands)
        raise UnsupportedError(
            f"control flow {target} is not supported",
            where=describe_node(node),
            hint="torch.cond, torch.while_loop and torch map are",
        )

    def _regions(
        self,
        node: Node,
        target: HigherOrderOperator,
        head: tuple[Any, ...],
        modules: Sequence[GraphModule],
        operands: list[Any],
        carried: Sequence[Any],
    ) -> tuple[Any, ...]:
        """The call of a control flow operator, with arguments (*head, carried, operands) and a graph for each module.

        Constants among the operands become constants of the graphs; carried values never do.
        """
        for item in carried:
            if not isinstance(item, Node):
                raise UnsupportedError(
                    f"carries {item!r}, which is not a tensor, from step to step",
                    where=describe_node(node),
                    hint="make it a tensor of no dimensions: torch.tensor(...)",
                )
        if any(map(is_pair, (*carried, *operands))):
            raise UnsupportedError(
                "has complex numbers among its operands",
                where=describe_node(node),
                hint="pass torch.view_as_real(...) into control flow, and view it as complex inside",
            )
        constants = self.builder.constants
        passed = [item for item in operands if isinstance(item, SYMBOLIC) or _is_input(item, constants)]
        regions = []
        for module in modules:
            region = _RegionSweep(self, module, carried, operands)
            for inner in module.graph.nodes:
                region.translate(inner)
            regions.append(region.finish())
        values = tuple(
            self.builder.fake_like(value) if isinstance(value, torch.Tensor) else value for value in node.meta["val"]
        )
        self._check_results(node, regions)
        call = self.builder.append_region_call(target, (*head, list(carried), passed), values)
        self.builder.regions[call] = tuple(regions)
        return tuple(
            self.builder.emit(operator.getitem, (call, index), {}, value) if isinstance(value, torch.Tensor) else value
            for index, value in enumerate(values)
        )

    def _check_results(self, node: Node, regions: Sequence[EdgeMethod]) -> None:
        for region in regions:
            for item in region.outputs:
                value = item.meta["val"] if isinstance(item, Node) else item
                if value is not None and not isinstance(value, torch.Tensor | bool | torch.SymBool):
                    raise UnsupportedError(
                        f"returns {value!r}, which is not a tensor, from a branch or body", where=describe_node(node)
                    )

    def _inline(self, module: GraphModule, operands: Sequence[Any]) -> Any:
        """The results of a graph that always runs, inlined."""
        sweep = _InlineSweep(module, self.builder, self.aliases, self._region_handles, operands)
        for inner in module.graph.nodes:
            sweep.translate(inner)
        return sweep.results


class _InlineSweep(Sweep):
    """A graph inlined at its call."""

    def __init__(self, module: Any, builder: EdgeBuilder, aliases: Any, handles: Any, operands: Sequence[Any]) -> None:
        super().__init__(module, builder, aliases, handles)
        self._operands = iter(operands)

    def placeholder(self, node: Node) -> Any:
        return next(self._operands)

    def _result(self, item: Any) -> Any:
        return self._get(item)


class _RegionSweep(Sweep):
    """A branch or a loop's body: a graph of its own, whose inputs are the call's operands."""

    def __init__(self, parent: Sweep, module: GraphModule, carried: Sequence[Any], operands: Sequence[Any]) -> None:
        super().__init__(module, parent.builder.nested(), parent.aliases, parent._region_handles)
        self._parent = parent.builder
        self._carried = len(carried)
        self._operands = iter((*carried, *operands))
        self._position = 0
        self.inputs: list[Node] = []

    def placeholder(self, node: Node) -> Any:
        operand = next(self._operands)
        self._position += 1
        value = node.meta["val"]
        if isinstance(operand, Node) and operand in self._parent.constants and self._position > self._carried:
            created = self.builder.placeholder(node.name, self.builder.fake_like(operand.meta["val"]))
            created.meta.update({key: operand.meta[key] for key in ("fqn",) if key in operand.meta})
            self.builder.constants.share(created, self._parent.constants, operand)
            return created
        if not isinstance(operand, Node | torch.SymInt | torch.SymFloat | torch.SymBool):
            return operand
        if isinstance(value, torch.Tensor):
            value = self.builder.fake_like(value)
        created = self.builder.input(node.name, value)
        self.inputs.append(created)
        return value if is_size(value) else created

    def finish(self) -> EdgeMethod:
        """The region as a graph of its own."""
        self.builder.graph.output(self.results)
        constants = drop_dead(self.builder, keep=set(self.inputs))
        return EdgeMethod(
            "region",
            self.builder.graph,
            constants,
            {},
            tuple(self.inputs),
            self.results,
            regions=self.builder.regions,
        )


def _is_input(item: Any, constants: Constants[Node]) -> bool:
    return isinstance(item, Node) and item not in constants
