"""A DelegateKit backend as a partitioner of ExecuTorch's pipeline."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.graph_module import get_control_flow_submodules
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegatekit_api import LoweringError, UnsupportedError
from delegatekit_api.nodes import operator_name, source_line

from .details import Marker, provide
from .inferred_sizes import infer_sizes
from .orders import CLOSED, Backend, Order, ordered, taken_whole
from .readings import Source, operator_of

_LOG: Final = logging.getLogger("delegatekit_executorch")
_NUMBERS: Final = itertools.count()
_TAG: Final = "delegation_tag"


@dataclass(frozen=True)
class Refused:
    """An operator that a partitioner left, and the reason."""

    #: The node in ExecuTorch's edge program.
    node: str
    #: "aten.add.Tensor".
    operator: str
    reason: str
    #: "model.py:12: `y = x + 1`", as far as the export recorded it.
    source: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.operator} ({self.node}){f' at {self.source}' if self.source else ''}: {self.reason}"


class DelegateKitPartitioner(Partitioner):  # type: ignore[misc]
    """Delegates to one backend what that takes, as `delegatekit.lower` would.

    `refused` lists what it left of the programs that it has partitioned, with the reasons.
    """

    def __init__(self, backend: str, options: Mapping[str, Any] | None = None, *, external: Any = False) -> None:
        """`external` puts the backend's named data into data files, as that of `delegatekit.lower` does.

        Raises PluginError for an unknown backend, OptionError for a wrong option, LoweringError for one whose compiler
        is missing here.
        """
        super().__init__()
        self.backend = Backend(backend, dict(options or {}))
        chosen = self.backend.chosen()
        compiler = chosen.backend.compiler_availability(chosen.options)
        if not compiler.available:
            raise LoweringError(f"cannot compile here: {compiler.reason}", where=f"backend {backend}")
        self.delegate_id = chosen.backend.description.delegate_id
        self.external = external
        self.refused: tuple[Refused, ...] = ()
        #: Program -> the calls that the backend takes whole.
        self._taken: WeakKeyDictionary[ExportedProgram, set[Node]] = WeakKeyDictionary()
        #: Addresses of buffers -> the programs that update them.
        self._updating: dict[int, set[int]] = {}
        provide(self.delegate_id)

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Write sizes that views can infer as -1: a delegate gets no sizes from outside."""
        return infer_sizes(exported_program)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """The operators that the backend takes as they were exported: they reach it whole."""
        if ep.dialect == "EDGE":
            return [], None
        if ep not in self._taken:
            self._note_buffers(ep)
            self._taken[ep] = self._whole(ep)
        taken = self._taken[ep]
        wanted = {node.target for node in taken}
        mixed = any(node.target in wanted and node not in taken for graph in _graphs(ep) for node in graph.nodes)
        kept: list[Any] = sorted(wanted, key=str)
        return kept, (taken.__contains__ if mixed else None)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag what each delegate of the backend computes.

        Raises UnsupportedError where the backend refuses the program as a whole.
        """
        provide(self.delegate_id)
        specs: dict[str, DelegationSpec] = {}
        operators = 0
        left: list[Refused] = []
        outside: list[Node] = []
        for source in self._sources(exported_program):
            found = ordered(source, self.backend, self._shared(source))
            operators += sum(len(order.nodes) for order in found.orders)
            for order in found.orders:
                tag = f"delegatekit_{next(_NUMBERS)}"
                specs[tag] = DelegationSpec(self.delegate_id, [Marker.of(self.backend, order, self.external)])
                for node in (*order.nodes, *order.owned):
                    node.meta[_TAG] = tag
            outside += found.left
            left += [_refused(node, reason) for node, reason in found.left.items() if reason != CLOSED]
        tag_constant_data(exported_program)
        _load_quantized_operators(outside)
        self.refused += tuple(left)
        self._tell(operators, len(specs), left)
        return PartitionResult(exported_program, specs)

    def _whole(self, program: ExportedProgram) -> set[Node]:
        table = torch.export.default_decompositions()
        taken: set[Node] = set()
        for source in self._sources(program):
            try:
                found = taken_whole(source, self.backend)
            except UnsupportedError as error:
                _LOG.info("%s: %s", self.backend.name, error)
                continue
            taken |= {node for node in found if node.target in table and _is_keepable(node.target)}
        return taken

    def _sources(self, program: ExportedProgram) -> Iterator[Source]:
        yield Source.of(program)
        for module in _inner(program.graph_module):
            yield Source(module, program.range_constraints)

    def _note_buffers(self, program: ExportedProgram) -> None:
        for name in program.graph_signature.buffers_to_mutate.values():
            tensor = program.state_dict.get(name, program.constants.get(name))
            if isinstance(tensor, torch.Tensor):
                self._updating.setdefault(tensor.data_ptr(), set()).add(id(program))

    def _shared(self, source: Source) -> list[str]:
        """Buffers that several methods update."""
        return [
            known.name for known in source.buffers.values() if len(self._updating.get(known.initial.data_ptr(), ())) > 1
        ]

    def _tell(self, operators: int, delegates: int, left: list[Refused]) -> None:
        taken = f"{self.backend.name} takes {operators} operators in {delegates} delegates"
        if not left:
            _LOG.info("%s, and leaves none", taken)
            return
        counts = Counter(f"{item.operator}: {item.reason}" for item in left)
        most = "; ".join(f"{count} x {text}" for text, count in counts.most_common(3))
        _LOG.warning("%s, and leaves %d: %s%s", taken, len(left), most, "; ..." if len(counts) > 3 else "")
        for item in left:
            _LOG.info("%s leaves %s", self.backend.name, item)


def _graphs(program: ExportedProgram) -> Iterator[torch.fx.Graph]:
    yield program.graph
    for module in _inner(program.graph_module):
        yield module.graph


def _inner(module: GraphModule) -> Iterator[GraphModule]:
    """The graphs of control flow that ExecuTorch partitions, with those inside them."""
    for _, inner, _ in get_control_flow_submodules(module):
        yield inner
        yield from _inner(inner)


def _is_keepable(target: Any) -> bool:
    """True if ExecuTorch can keep an operator whole: its result shares no memory, and it writes nothing."""
    return (
        isinstance(target, OpOverload)
        and not target._schema.is_mutable
        and all(result.alias_info is None for result in target._schema.returns)
    )


def _load_quantized_operators(left: Iterable[Node]) -> None:
    """Have ExecuTorch know the runtime's operators for conversions that stay outside of the delegates."""
    if any("quantized_decomposed" in str(operator_of(node)) for node in left):
        try:
            import_module("executorch.kernels.quantized")
        except (ImportError, OSError) as error:
            _LOG.warning("the runtime's operators for conversions of quantized tensors cannot be loaded: %s", error)


def _refused(node: Node, reason: str) -> Refused:
    target = operator_of(node)
    name = str(target) if isinstance(target, OpOverload) else operator_name(node)
    return Refused(node.name, name, reason, source_line(node) or "")


def partitioner(backend: str, /, **options: Any) -> DelegateKitPartitioner:
    """A partitioner of ExecuTorch's pipeline for an installed DelegateKit backend, with options of that backend.

    to_edge_transform_and_lower(program, partitioner=[partitioner("acme"), StockPartitioner()])

    Raises PluginError for an unknown backend, OptionError for a wrong option, LoweringError if its compiler is missing.
    """
    return DelegateKitPartitioner(backend, options)


__all__ = ["DelegateKitPartitioner", "Order", "Refused", "partitioner"]
