"""A DelegateKit backend as a partitioner of ExecuTorch's pipeline."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
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

from .decomposing import NO_KERNEL, decompose, has_kernel, lacking, not_runnable
from .details import Marker, provide
from .inferred_sizes import infer_sizes
from .memory_formats import make_contiguous
from .orders import CLOSED, TOGETHER, UNNEEDED, Backend, Order, Ordered, Study, ordered, taken_whole
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
    #: Why ExecuTorch's runtime would not run it rightly, either; empty if it can.
    runtime: str = ""

    def __str__(self) -> str:
        """One line."""
        reason = f"{self.reason}; and {self.runtime}" if self.runtime else self.reason
        return f"{self.operator} ({self.node}){f' at {self.source}' if self.source else ''}: {reason}"


class DelegateKitPartitioner(Partitioner):  # type: ignore[misc]
    """Delegates to one backend what that takes, as `delegatekit.lower` would.

    `refused` lists what it left of the programs that it has partitioned, with the reasons.
    """

    def __init__(
        self, backend: str, options: Mapping[str, Any] | None = None, *, external: Any = False, decompose: bool = True
    ) -> None:
        """`external` puts the backend's named data into data files, as that of `delegatekit.lower` does.

        Without `decompose` the operators that neither the backend nor the runtime has stay whole, for a partitioner
        after this one that takes them.

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
        self.decompose = decompose
        self.refused: tuple[Refused, ...] = ()
        #: Program -> the calls that the backend takes whole.
        self._taken: WeakKeyDictionary[ExportedProgram, set[Node]] = WeakKeyDictionary()
        #: The text of the program that was studied last, and the names of such calls in each of its graphs.
        self._studied: tuple[Hashable, frozenset[tuple[int, str]]] | None = None
        #: Source lines that a warning named, or operators where there is none.
        self._warned: set[str] = set()
        #: Addresses of buffers -> the programs that update them.
        self._updating: dict[int, set[int]] = {}
        provide(self.delegate_id)

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Have ExecuTorch see a program that its runtime can run: all that is left of it, and all sizes.

        Operators that neither the backend nor the runtime has are decomposed, values inside become contiguous, and
        sizes that views can infer are written as -1: a delegate gets no sizes from outside.
        """
        program = infer_sizes(exported_program)
        functional: ExportedProgram = program.run_decompositions({})
        contiguous = make_contiguous(functional)
        reformed = contiguous is not functional
        studies = self._studies(contiguous)
        if reformed and not any(study.homes.known for study in studies):
            # Nothing becomes a delegate: spare the copies.
            contiguous, reformed = program.run_decompositions({}), False
            studies = self._studies(contiguous)
        decomposed = [node for study in studies for node in self._decomposed(contiguous, study)]
        taken = _kept_whole(studies)
        names = frozenset(
            (index, node.name)
            for index, graph in enumerate(_graphs(contiguous))
            for node in graph.nodes
            if node in taken
        )
        self._studied = None if decomposed else (_text(contiguous), names)
        return contiguous if reformed or decomposed else program

    def _decomposed(self, program: ExportedProgram, study: Study) -> list[Node]:
        """The calls that were decomposed because the runtime cannot run them; a warning names those that remain."""
        if not self.decompose:
            return []
        lacks = not_runnable(study)
        written = []
        # Graphs of control flow have no place for constants that decompositions bring.
        if lacks and study.source.module is program.graph_module:
            written = decompose(program, study, lacks, self.backend)
        left = study.homes.left
        self._warn(
            _refused(node, left.get(node, TOGETHER), reason) for node, reason in lacks.items() if node not in written
        )
        return written

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """The operators that the backend takes as they were exported: they reach it whole."""
        if ep.dialect == "EDGE":
            return [], None
        if ep not in self._taken:
            self._note_buffers(ep)
            text, named = self._studied or (None, frozenset())
            if text == _text(ep):
                graphs = enumerate(_graphs(ep))
                self._taken[ep] = {
                    node for index, graph in graphs for node in graph.nodes if (index, node.name) in named
                }
            else:
                self._taken[ep] = _kept_whole(self._studies(ep))
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
            left += _refusals(found)
        tag_constant_data(exported_program)
        _load_quantized_operators(outside)
        self.refused += tuple(left)
        self._tell(operators, len(specs), left)
        return PartitionResult(exported_program, specs)

    def _studies(self, program: ExportedProgram) -> list[Study]:
        studies = []
        for source in self._sources(program):
            try:
                studies.append(Study.of(source, self.backend))
            except UnsupportedError as error:
                _LOG.info("%s: %s", self.backend.name, error)
        return studies

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

    def _warn(self, left: Iterable[Refused]) -> None:
        """Name operators that the runtime cannot run: no error, as a partitioner after this one may take them."""
        told = set(self._warned)
        for item in left:
            # ExecuTorch may have decomposed since what was named already.
            place = item.source or item.operator
            if item.runtime and place not in told:
                self._warned.add(place)
                _LOG.warning("ExecuTorch's runtime cannot run what %s leaves: %s", self.backend.name, item)

    def _tell(self, operators: int, delegates: int, left: list[Refused]) -> None:
        self._warn(left)
        counted = (
            f"{count} {noun}{'s' * (count != 1)}" for count, noun in ((operators, "operator"), (delegates, "delegate"))
        )
        taken = f"{self.backend.name} takes {' in '.join(counted)}"
        if not left:
            _LOG.info("%s, and leaves none", taken)
            return
        reasons = Counter(f"{item.operator}: {item.reason}" for item in left)
        most = "; ".join(f"{count} x {text}" for text, count in reasons.most_common(3))
        _LOG.warning("%s, and leaves %d: %s%s", taken, len(left), most, "; ..." if len(reasons) > 3 else "")
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


def _refusals(found: Ordered) -> Iterator[Refused]:
    """What is left of a graph, with the reasons."""
    root = found.study.units.root
    lacks = {root[node]: reason for node, reason in lacking(found.study).items()}
    for node, reason in found.left.items():
        if reason not in (CLOSED, UNNEEDED):
            yield _refused(node, reason, lacks.get(node, "") if has_kernel(node) else NO_KERNEL)


def _refused(node: Node, reason: str, runtime: str) -> Refused:
    target = operator_of(node)
    name = str(target) if isinstance(target, OpOverload) else operator_name(node)
    return Refused(node.name, name, reason, source_line(node) or "", runtime)


def _kept_whole(studies: Iterable[Study]) -> set[Node]:
    """The calls that a backend takes whole and that ExecuTorch would decompose."""
    table = torch.export.default_decompositions()
    taken = (node for study in studies for node in taken_whole(study))
    return {node for node in taken if node.target in table and _is_keepable(node.target)}


def _text(program: ExportedProgram) -> Hashable:
    """All that distinguishes a program from others, as text and addresses of its tensors."""
    lines = [
        (node.name, str(node.target), repr(node.args), repr(node.kwargs), repr(node.meta.get("val")))
        for graph in _graphs(program)
        for node in graph.nodes
    ]
    tensors = [*program.state_dict.values(), *program.constants.values()]
    return tuple(lines), tuple(item.data_ptr() for item in tensors if isinstance(item, torch.Tensor))


def partitioner(backend: str, /, **options: Any) -> DelegateKitPartitioner:
    """A partitioner of ExecuTorch's pipeline for an installed DelegateKit backend, with options of that backend.

    to_edge_transform_and_lower(program, partitioner=[partitioner("acme"), StockPartitioner()])

    Raises PluginError for an unknown backend, OptionError for a wrong option, LoweringError if its compiler is missing.
    """
    return DelegateKitPartitioner(backend, options)


__all__ = ["DelegateKitPartitioner", "Order", "Refused", "partitioner"]
