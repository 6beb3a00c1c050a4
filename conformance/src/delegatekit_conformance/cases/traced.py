"""Operators of a program that the operators inside a delegate come from, as debug handles report, checked.

The lowering of an operator is known from a program that has it alone. Where something inside a delegate is traced to
operators that do not become such by themselves, while another operator of the delegate does and is traced to nothing
of the kind, the handles are those of other operators. Where an operator that becomes something by itself is traced to
by nothing, what it is fused into has lost its handles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.fx import Node, map_arg

import delegatekit
from delegatekit import LoweredProgram
from delegatekit.lowering import Delegate
from delegatekit.plugins import LoadedBackend
from delegatekit_api.nodes import operator_name
from delegatekit_api.profiling import ProfilingRuntime

from ..context import Context
from .specimens import backend_of, blank, by_blob, observed

#: Operators that only define how their neighbors compute.
_QUANTIZING = re.compile(r"\w+\.(de)?quantize_|\w+\.choose_qparams")
#: Inputs of a program's calls: (method, inputs).
Calls = Sequence[tuple[str, Sequence[Any]]]


@dataclass(frozen=True)
class Row:
    """Something inside a delegate: its name in one word, and the operators that it is traced to."""

    name: str
    operators: frozenset[str]


@dataclass
class _Known:
    """Lowering of operators by themselves, by their names; None where the backend does not take them alone."""

    alone: dict[str, frozenset[str] | None] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[LoadedBackend, dict[str, _Known]] = WeakKeyDictionary()


def untrue(program: LoweredProgram, calls: Calls, context: Context) -> str:
    """A fault in the debug handles of a program's delegates; empty if there is none, or if the runtime reports none.

    Raises exceptions of loading, running and profiling.
    """
    backend = backend_of(context)
    if not backend.runtime_availability().available or not isinstance(backend.create_runtime(), ProfilingRuntime):
        return ""
    known = _KNOWN.setdefault(backend, {}).setdefault(repr(context.option_items), _Known())
    for delegate, rows in traced(program, calls, context):
        nodes = {operator_name(node): node for node in delegate.partition.nodes}
        for name, node in nodes.items():
            if name not in known.alone:
                known.alone[name] = _alone(node, delegate, context)
        alone = {name: known.alone[name] for name in nodes}
        wrong = confused(rows, alone) or forgotten(rows, alone)
        if wrong:
            return wrong
    return ""


def confused(rows: Sequence[Row], alone: Mapping[str, frozenset[str] | None]) -> str:
    """An operator traced to another one than it comes from; `alone` has the lowering of each operator by itself."""

    def becomes(operator: str) -> frozenset[str]:
        return alone.get(operator) or frozenset()

    def is_found(operator: str) -> bool:
        return any(operator in row.operators and row.name in becomes(operator) for row in rows)

    names = {row.name for row in rows}
    for row in rows:
        if not row.operators or any(not becomes(name) or row.name in becomes(name) for name in row.operators):
            continue
        lost = [name for name in alone if row.name in becomes(name) and not is_found(name)]
        if lost and all(becomes(name) & names and not is_found(name) for name in row.operators):
            told = ", ".join(sorted(row.operators))
            return f"the debug handles of {row.name!r} are those of {told}, which does not become it: {lost[0]} does"
    return ""


def forgotten(rows: Sequence[Row], alone: Mapping[str, frozenset[str] | None]) -> str:
    """An operator that became part of another one without its debug handles; `alone` as for `confused`.

    Only where everything reported is traced.
    """
    if not all(row.operators for row in rows):
        return ""
    told = frozenset[str]().union(*(row.operators for row in rows))
    lost = [name for name in alone if alone[name] and name not in told and not _QUANTIZING.match(name)]
    return f"no reported operator has the debug handles of {lost[0]}" if lost else ""


def traced(program: LoweredProgram, calls: Calls, context: Context) -> list[tuple[Delegate, list[Row]]]:
    """The runtime's report on each delegate that the calls reach, in the order of execution."""
    backend = backend_of(context)
    lowered = by_blob(program, context.backend)
    runtime: Any = backend.create_runtime()
    found = []
    for payload, (given, results) in observed(program.buffer, calls, context, list(program.data_files.values())):
        delegate = lowered.get(bytes(payload.blob))
        if delegate is None:
            continue
        specs = zip(payload.outputs, results, strict=True)
        outputs = blank([result.new_empty(spec.shape) if spec.dynamic else result for spec, result in specs])
        handle = runtime.init(payload)
        try:
            times = runtime.profile(handle, given, outputs)
        finally:
            runtime.destroy(handle)
        of_handle: dict[Any, set[str]] = {}
        for node in delegate.partition.nodes:
            of_handle.setdefault(node.meta.get("debug_handle"), set()).add(operator_name(node))
        rows = []
        for one in times:
            handles = delegate.debug_handle_map.get(one.key, ()) if one.key is not None else ()
            names = frozenset(name for item in handles for name in of_handle.get(item, ()))
            rows.append(Row(one.name.split()[0], names))
        found.append((delegate, rows))
    return found


class _Alone(nn.Module):
    """One operator. Constants of the program are constants here, too; all other tensors that it reads are inputs."""

    def __init__(self, node: Node, constants: Mapping[Node, torch.Tensor]) -> None:
        super().__init__()
        self.node = node
        self.inputs = [item for item in node.all_input_nodes if item not in constants]
        self.names = {item: f"constant_{number}" for number, item in enumerate(constants)}
        for item, tensor in constants.items():
            self.register_buffer(self.names[item], tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Its result."""
        values = dict(zip(self.inputs, inputs, strict=True))
        values.update({item: getattr(self, name) for item, name in self.names.items()})
        target: Any = self.node.target
        arguments, keywords = map_arg((self.node.args, dict(self.node.kwargs)), values.__getitem__)
        return target(*arguments, **keywords)


def _alone(node: Node, delegate: Delegate, context: Context) -> frozenset[str] | None:
    """The names of an operator's lowering in a program of its own; None if it has none."""
    try:
        made = {item: _tensor(item.meta["val"]) for item in node.all_input_nodes}
        module = _Alone(node, {item: made[item] for item in made if item in delegate.partition.constants})
        inputs = tuple(made[item] for item in module.inputs)
        with torch.no_grad():
            exported = torch.export.export(module.eval(), inputs, strict=False)
        options = context.by_backend
        program = delegatekit.lower(exported, backends=[context.backend], options=options)
        found = traced(program, [("forward", inputs)], context)
    except Exception:  # not every operator can be asked alone, and the room operators asks
        return None
    return frozenset(row.name for _, rows in found for row in rows) or None


def _tensor(value: Any) -> torch.Tensor:
    """A tensor of the same shape and dtype. Raises torch's exceptions for unknown sizes."""
    return torch.ones([int(size) for size in value.shape], dtype=value.dtype)
