"""Stock's classes of compilers: one for each delegate id, which compiles what our partitioners ordered.

ExecuTorch finds them by name among the direct subclasses of `BackendDetails`: in some places the first of a name, in
others the last. Where stock has a class for the same delegate id, both therefore look at the compile specs: a
`Marker` goes to DelegateKit, all else to stock's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram
from torch.fx import Node

from delegatekit.edge.sizes import is_static, upper_shape
from delegatekit.emit import owner_of
from delegatekit.lowering import Delegate, compile_partitions
from delegatekit.partition import PartitionedMethod
from delegatekit.plugins import LoadedBackend
from delegatekit.pte.manifest import DELEGATE_KEY, Manifest
from delegatekit_api import LoweringError, NamedData, TensorSpec
from delegatekit_api.nodes import describe_node
from delegatekit_toolkit.delegate_arguments import Arguments, digest
from delegatekit_toolkit.dtypes import dtype_name

from .orders import Backend, Order, order_of_program
from .readings import Source

#: The key of the compile spec that says: compiled by DelegateKit. It does not reach the file.
KEY: Final = "delegatekit"
#: The delegate id's classes that look for it, by delegate id: ours, and stock's that we found.
_LOOKING: Final[set[type]] = set()
#: The data file that stock's `external_constants` writes.
EXTERNAL: Final = "_default_external_constant"


@dataclass
class Marker(CompileSpec):  # type: ignore[misc]
    """The compile spec of a delegate that DelegateKit compiles."""

    #: What the partitioner found out. Without it, as of a spec that was written by hand, it is found out again.
    order: Order | None = None
    external: Any = False

    @classmethod
    def of(cls, backend: Backend, order: Order | None = None, external: Any = False) -> Marker:
        """The marker for a backend with its options."""
        told = json.dumps({"backend": backend.name, "options": dict(backend.options)}, default=str)
        return cls(KEY, told.encode(), order, external)


def provide(delegate_id: str) -> None:
    """Make the delegate id known to ExecuTorch, beside stock's class for it if that is imported."""
    known = [found for found in BackendDetails.__subclasses__() if found.__name__ == delegate_id]
    if not any(found in _LOOKING for found in known):
        known.append(type(delegate_id, (BackendDetails,), {"preprocess": staticmethod(_unknown), "__doc__": __doc__}))
    for found in known:
        if found not in _LOOKING:
            _LOOKING.add(found)
            _look(found, delegate_id)


def _unknown(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
    """The compiler of an id that stock has no class for here, called with specs that are not ours."""
    raise LoweringError(
        "asked to compile for a delegate id that only DelegateKit knows here, without its compile spec",
        hint="import ExecuTorch's own backend, or partition with delegatekit_executorch.partitioner",
    )


def _look(found: Any, delegate_id: str) -> None:
    """Have a class hand over what is marked."""
    copy, one, several = (
        getattr(found, name)
        for name in ("copy_exported_program_for_preprocess", "preprocess", "preprocess_multimethod")
    )
    is_ours = one is _unknown

    def stock(name: str, own: Any) -> Any:
        """Stock's function: of this class, or, where this class is ours, of stock's if that was imported since."""
        others = [other for other in BackendDetails.__subclasses__() if other.__name__ == delegate_id]
        return next((getattr(other, name) for other in others if other is not found), own) if is_ours else own

    def copy_exported_program_for_preprocess(cls: type, program: ExportedProgram, specs: list[CompileSpec]) -> Any:
        # Ours does not change it.
        return program if is_marked(specs) else stock("copy_exported_program_for_preprocess", copy)(program, specs)

    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        if not is_marked(compile_specs):
            result: PreprocessResult = stock("preprocess", one)(edge_program, compile_specs)
            return result
        (result,) = _compiled([("forward", edge_program, compile_specs)])
        return result

    def preprocess_multimethod(
        cls: type, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        pairs = {name: list(zip(edge_programs[name], compile_specs[name], strict=True)) for name in edge_programs}
        marks = {name: list(map(is_marked, compile_specs[name])) for name in edge_programs}
        ours = [(name, *pair) for name, of_method in pairs.items() for pair in of_method if is_marked(pair[1])]
        theirs = {name: [pair for pair in of_method if not is_marked(pair[1])] for name, of_method in pairs.items()}
        theirs = {name: of_method for name, of_method in theirs.items() if of_method}
        results: dict[str, list[PreprocessResult]] = {}
        if theirs:
            results = stock("preprocess_multimethod", several)(
                {name: [program for program, _ in of_method] for name, of_method in theirs.items()},
                {name: [specs for _, specs in of_method] for name, of_method in theirs.items()},
            )
        found, rest = iter(_compiled(ours)), {name: iter(of_method) for name, of_method in results.items()}
        return {
            name: [next(found if marked else rest[name]) for marked in of_method] for name, of_method in marks.items()
        }

    found.copy_exported_program_for_preprocess = classmethod(copy_exported_program_for_preprocess)
    found.preprocess = staticmethod(preprocess)
    found.preprocess_multimethod = classmethod(preprocess_multimethod)


def is_marked(specs: Sequence[CompileSpec]) -> bool:
    """True if DelegateKit compiles for these specs."""
    return any(spec.key == KEY for spec in specs)


def _compiled(asked: Sequence[tuple[str, ExportedProgram, list[CompileSpec]]]) -> list[PreprocessResult]:
    """The results for programs, each with its method's name and its specs; these become those of its delegate."""
    if not asked:
        return []
    markers = [next(spec for spec in specs if spec.key == KEY) for _, _, specs in asked]
    orders = [_order(program, marker) for (_, program, _), marker in zip(asked, markers, strict=True)]
    results: list[PreprocessResult | None] = [None] * len(asked)
    groups: dict[str, list[int]] = {}
    for index, (order, _) in enumerate(orders):
        groups.setdefault(repr((order.backend.name, order.backend.options)), []).append(index)
    # One call for all partitions that share a backend and its options: it may store their weights once.
    for indices in groups.values():
        backend = orders[indices[0]][0].backend
        steps = [(asked[index][0], orders[index][1].edge, orders[index][1].plan.partitions[0]) for index in indices]
        for index, delegate in zip(indices, compile_partitions(steps, {backend.name: backend.chosen()}), strict=True):
            results[index] = _result(*orders[index], delegate, getattr(markers[index], "external", False))
            # Stock writes the list itself into the file.
            asked[index][2][:] = [CompileSpec(spec.key, spec.value) for spec in delegate.compile_specs]
    return [result for result in results if result is not None]


def _order(program: ExportedProgram, marker: CompileSpec) -> tuple[Order, PartitionedMethod]:
    """The order for a program that stock hands over, with inputs and outputs as stock calls it."""
    order = getattr(marker, "order", None)
    inputs = None if order is None else _input_names(program, order)
    if order is None or inputs is None:
        told: Mapping[str, Any] = json.loads(marker.value)
        order = order_of_program(Source.of(program), Backend(told["backend"], told.get("options", {})))
        inputs = [str(name) for name in program.graph_signature.user_inputs]
    outputs = [str(name) for name in program.graph_signature.user_outputs]
    return order, order.called_with(inputs, outputs)


def _input_names(program: ExportedProgram, order: Order) -> list[str] | None:
    """The partitioner's names of the program's inputs, in order; None if the program is not the one that it saw.

    Calls keep their names while stock cuts the graph apart, inputs do not: they may be results of other delegates.
    """
    names: dict[Node, str] = {}
    seen = set()
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        seen.add(node.name)
        arguments = order.arguments.get(node.name, ())
        if len(arguments) != len(node.all_input_nodes):
            return None
        names |= dict(zip(node.all_input_nodes, arguments, strict=True))
    if seen != set(order.arguments):
        return None
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return [names[placeholders[str(name)]] for name in program.graph_signature.user_inputs]


def _result(order: Order, method: PartitionedMethod, delegate: Delegate, external: Any) -> PreprocessResult:
    store = NamedDataStore()
    for item in delegate.named_data:
        store.add_named_data(item.key, _data(item), item.alignment, _file(item, external))
    blob = b"".join(delegate.blob)
    key, manifest = _manifest(blob, method, delegate.chosen.backend)
    store.add_named_data(key, manifest)
    handles: Any = {key: order.debug_handles(found) for key, found in delegate.debug_handle_map.items()}
    return PreprocessResult(
        processed_bytes=blob,
        debug_handle_map=handles or None,
        data_store_output=store.get_named_data_store_output(),
    )


def _manifest(blob: bytes, method: PartitionedMethod, backend: LoadedBackend) -> tuple[str, bytes]:
    """The key and content of a blob's manifest: its maker, and the arguments that it is called with.

    The key has the content's digest, too: delegates with equal blobs may be called with other sizes.
    """
    name, (partition,) = digest([blob]), method.plan.partitions
    inputs, outputs = (tuple(map(_spec, nodes)) for nodes in (partition.inputs, partition.outputs))
    place = ("", 0)
    content = Manifest(
        owners={place: owner_of(backend)},
        outputs={place: len(outputs)},
        arguments={place: Arguments(name, inputs, outputs)},
    ).to_json()
    return f"{DELEGATE_KEY}{name}.{digest([content])[:8]}", content


def _spec(node: Node) -> TensorSpec:
    value = node.meta["val"]
    sizes = upper_shape(value.shape, describe_node(node))
    return TensorSpec(dtype_name(value.dtype), sizes, dynamic=not is_static(value.shape))


def _data(item: NamedData) -> bytes:
    if isinstance(item.data, torch.Tensor):
        return item.data.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return bytes(item.data)


def _file(item: NamedData, external: Any) -> str | None:
    """The data file, without its ending, in which a piece of named data is stored; None for the .pte."""
    answer = external(item.key, item.data) if callable(external) else external
    return (EXTERNAL if answer is True else str(answer)) if answer else None
