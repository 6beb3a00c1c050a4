"""ExecuTorch's partitioners as partitioners of ours: each tags a whole program once, then answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import torch
from torch.fx import Graph, Node

from delegatekit_api import BackendOptions, Call, ProgramView, Verdict

from .compiler.partitioners import stock_compiler
from .targets import System

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The key of the tag in a node's metadata.
_TAG: Final = "delegation_tag"
#: The operators of quantized programs, which no export of ExecuTorch's decomposes.
_QUANTIZED: Final = frozenset(
    {
        *(
            f"quantized_decomposed.{verb}_{what}.{overload}"
            for verb in ("quantize", "dequantize")
            for what, overloads in (("per_tensor", ("default", "tensor")), ("per_channel", ("default",)))
            for overload in overloads
        ),
        "quantized_decomposed.choose_qparams.tensor",
        *(f"torchao.{name}.default" for name in ("choose_qparams_affine", "quantize_affine", "dequantize_affine")),
    }
)


@dataclass(frozen=True)
class Tagged:
    """The answers of a partitioner to the nodes of a program."""

    #: Node of our graph -> the name of its partition.
    tags: Mapping[Node, str]
    #: Node of our graph -> the reason why it has none.
    reasons: Mapping[Node, str]
    #: The constants that partitions read and that have no tag: inputs of delegates.
    outside: frozenset[Node]
    #: True if a node that has a tag was left, without which partitions may depend on themselves.
    cut: bool

    def partitions(self) -> list[list[Node]]:
        """The nodes of each partition, in graph order."""
        found: dict[str, list[Node]] = {}
        for node, tag in self.tags.items():
            found.setdefault(tag, []).append(node)
        return list(found.values())


class StockPartitioner:
    """A `Partitioner` whose answers are the tags of one of ExecuTorch's. Raises LoweringError where it cannot work."""

    def __init__(self, system: System, options: BackendOptions) -> None:
        self._system: Final = system
        self._options: Final = options
        self._merge: Final = bool(getattr(options, "merge", False))
        self._known: Final[WeakKeyDictionary[Graph, Tagged]] = WeakKeyDictionary()

    def keep_operators(self) -> Collection[str]:
        """The operators that the partitioner asks not to decompose."""
        return kept_operators(self._system, self._options)

    def check(self, call: Call) -> Verdict:
        """The partitioner's answer to the call's node, once it has seen the whole program."""
        tagged = self._tagged(call.program)
        if call.node in tagged.tags:
            return Verdict.yes()
        return Verdict.no(tagged.reasons[call.node])

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        """The partitioner's own partitions, unless the user lets the core form them, or they are not whole."""
        tagged = self._tagged(program)
        return None if self._merge or tagged.cut else tagged.partitions()

    def constant_is_input(self, program: ProgramView, constant: Node) -> bool:
        """True for a constant that the partitioner left without a tag."""
        return constant in self._tagged(program).outside

    def _tagged(self, program: ProgramView) -> Tagged:
        found = self._known.get(program.graph)
        if found is None:
            found = self._known[program.graph] = self._tag(program)
        return found

    def _tag(self, program: ProgramView) -> Tagged:
        partitioner = stock_compiler(self._system, self._options).partitioner
        # (Imports of ExecuTorch, which is there now.)
        from .compiler.listening import listening
        from .compiler.loading import quietly
        from .ir.edge import edge_program
        from .ir.sizes import sizes_kept

        edge = edge_program(program, self.keep_operators())
        with quietly(), listening() as reasons, sizes_kept(edge.program, self._system):
            tagged = partitioner.partition(edge.program).tagged_exported_program
        by_name = {node.name: node for node in tagged.graph.nodes}

        def tag_of(node: Node) -> Any:
            """The tag that all have that compute a node; None if one has none or another."""
            found = {by_name[item.name].meta.get(_TAG) if item.name in by_name else None for item in edge.nodes[node]}
            return found.pop() if len(found) == 1 else None

        tags, left, cut = {}, {}, False
        for call in program.calls():
            tag = tag_of(call.node)
            if tag is None:
                said = next(filter(None, map(reasons.of, reversed(edge.nodes[call.node]))), None)
                left[call.node] = said or f"{type(partitioner).__name__} leaves it and gives no reason"
            elif (reason := self._unfit(call.node, program)) is not None:
                left[call.node], cut = reason, True
            else:
                tags[call.node] = str(tag)
        outside = frozenset(node for node in program.constants if tag_of(node) is None)
        return Tagged(tags, left, outside, cut)

    def _unfit(self, node: Node, program: ProgramView) -> str | None:
        """The reason why a call that the partitioner takes does not compile or run right; None if it does."""
        from .ir.edge import is_fixed

        if self._system.needs_dimensions and _lacks_dimensions(node, program):
            return "its delegate does not run with tensors without dimensions"
        if str(node.target) in self._system.fixed and not is_fixed(node):
            return "its compiler would fix the sizes that change"
        return None


def _lacks_dimensions(node: Node, program: ProgramView) -> bool:
    """True for a call that reads or gives a tensor without dimensions that is no constant."""
    given = (item for item in node.all_input_nodes if item not in program.constants)
    values = [item.meta.get("val") for item in (node, *given)]
    return any(isinstance(value, torch.Tensor) and not value.dim() for value in values)


@cache
def kept_operators(system: System, options: BackendOptions) -> frozenset[str]:
    """The operators that a backend's partitioner asks not to decompose, and those of quantized programs."""
    stock = stock_compiler(system, options)
    if stock.handled is not None:
        return stock.handled | _QUANTIZED
    operators, _ = stock.partitioner.ops_to_not_decompose(_every_operator())
    return frozenset(map(str, operators)) | _QUANTIZED


@cache
def _every_operator() -> Any:
    """A program with one call of each ATen operator, for partitioners that choose among those of a program."""
    graph = Graph()
    for operator in _functional_operators():
        graph.create_node("call_function", operator)
    return SimpleNamespace(graph=graph, graph_module=torch.fx.GraphModule(torch.nn.Module(), graph))


def _functional_operators() -> Iterator[Any]:
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        if name.startswith("__") or not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():  # type: ignore[no-untyped-call]
            operator = getattr(packet, overload)
            if not operator._schema.is_mutable:
                yield operator
