"""Runs the chains of a graph, operator by operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from delegatekit_api import DelegateKitError, ExecutionError, FormatError
from delegatekit_toolkit.dataflow import element_count
from delegatekit_toolkit.flatbuffer import Table

from ..blob import schema
from ..blob.program import Program, where_of
from .functions import FUNCTIONS, LACKING, Machine

#: Slices that a scan runs through at most: a tensor of more may take no memory, and the scan days.
_MOST_STEPS: Final = 1 << 16
#: Given each operator of the main chain, its place, and the seconds that it took.
Watch: TypeAlias = "Callable[[int, Table, float], None]"


def check_operators(program: Program) -> None:
    """Raise FormatError for an operator that this interpreter lacks."""
    for chain in program.chains:
        for place, operator in enumerate(chain):
            if type(operator) in LACKING:
                raise FormatError(LACKING[type(operator)], where=where_of(place, operator))


def run_chain(program: Program, chain: int, machine: Machine, watch: Watch | None = None) -> None:
    """Run a chain. Raises ExecutionError; with a `watch` each operator is computed before the next."""
    for place, operator in enumerate(program.chains[chain]):
        started = time.perf_counter()
        where = where_of(place, operator)
        try:
            _run(program, operator, machine, where)
            if watch is not None:
                machine.core.eval([machine.tensors[number] for number in _written(operator)])
        except DelegateKitError as error:
            if error.where:
                raise
            raise type(error)(error.what, where=where) from error
        except (
            ValueError,
            RuntimeError,
            IndexError,
            TypeError,
            OverflowError,
            ZeroDivisionError,
            MemoryError,
        ) as error:
            raise ExecutionError(f"MLX fails: {_line(error)}", where=where) from error
        if watch is not None:
            watch(place, operator, time.perf_counter() - started)


def _run(program: Program, operator: Table, machine: Machine, where: str) -> None:
    if isinstance(operator, schema.IfNode):
        run_chain(
            program, operator.then_chain_idx if machine.integer(operator.cond) else operator.else_chain_idx, machine
        )
        return
    if isinstance(operator, schema.ScanNode):
        _scan(program, operator, machine)
        return
    made = FUNCTIONS[type(operator)](machine, operator)
    if isinstance(operator, schema.SplitNode):
        for number, part in zip(operator.outs, made, strict=True):
            _store(machine, number, part, where)
    elif not isinstance(operator, schema.NoopNode):
        out: Any = operator.out  # type: ignore[attr-defined]
        if isinstance(made, machine.core.array):
            _store(machine, out, made, where)
        else:
            machine.values[out] = made


def _store(machine: Machine, number: int, made: Any, where: str) -> None:
    element_count(made.shape, where, item_bytes=made.dtype.size, least=0)
    machine.tensors[number] = made


def _scan(program: Program, operator: schema.ScanNode, machine: Machine) -> None:
    axis = operator.scan_axis
    gathered: list[list[Any]] = [[] for _ in operator.outputs]
    lengths = {machine.tensors[number].shape[axis] for number in operator.originals}
    if len(lengths) != 1 or len(operator.originals) != len(operator.sliced):
        raise FormatError("scans tensors of different lengths")
    (length,) = lengths
    if length > _MOST_STEPS:
        raise ExecutionError(f"scans {length} slices: {_MOST_STEPS} are the maximum")
    for step in range(length):
        for source, target in zip(operator.originals, operator.sliced, strict=True):
            machine.tensors[target] = machine.core.take(machine.tensors[source], step, axis=axis)
        run_chain(program, operator.body_chain_idx, machine)
        for found, number in zip(gathered, operator.outputs, strict=True):
            found.append(machine.tensors[number])
    for found, number in zip(gathered, operator.outputs, strict=True):
        machine.tensors[number] = machine.core.stack(found, axis=axis)


def _written(operator: Table) -> list[int]:
    if isinstance(operator, schema.SplitNode):
        return list(operator.outs)
    out = getattr(operator, "out", None)
    kinds = (schema.ItemIntNode, schema.SymSizeNode, schema.Integers)
    return [] if out is None or isinstance(operator, kinds) else [out]


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
